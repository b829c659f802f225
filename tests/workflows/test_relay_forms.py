"""Forms of agent-relay's files that its schema does not have: each does what it means there."""

import json
from pathlib import Path
from typing import Any

import pytest

from accord.server.settings import Settings
from accord.workflows.planner import make_plan
from accord.workflows.source import read_document, write_document
from tests.workflows.proving import flow, ran
from tests.workflows.saying import DOCUMENTS
from tests.workflows.scenes import environment, repository
from tests.workflows.test_effects import DEV, acting, attempts, shell

pytestmark = pytest.mark.proves("1-04", "1-06")

FORMS = read_document((DOCUMENTS / "relay-forms.yaml").read_text(encoding="utf-8"))


async def test_a_loop_without_until_ends_with_its_verification(tmp_path: Path) -> None:
    head = acting("cat >> told; echo x >> tries; test $(wc -l < tries) -lt 2 && echo almost || echo FLOUR")
    check = "maxIterations: 3\nretryDelay: 10ms\nverification: {type: output_contains, value: FLOUR}"
    run = await ran(flow(f"{DEV}\n{check}", head=head), tmp_path)
    assert run.state == "COMPLETED", run.why
    assert attempts(run, "work") == 2


async def test_retried_agents_get_the_verification_failure(tmp_path: Path) -> None:
    head = acting("cat >> told; echo ==== >> told; echo almost")
    check = "retries: 1\nretryDelay: 10ms\nverification: {type: output_contains, value: FLOUR, description: the sack}"
    run = await ran(flow(f"{DEV}\n{check}", head=head), tmp_path)
    assert run.state == "FAILED"
    first, second, _ = (tmp_path / "told").read_text().split("====")
    why = "The last attempt failed. Verification failed: the sack: the output does not contain 'FLOUR'"
    assert why in second
    assert why not in first


@pytest.mark.parametrize(
    ("of_agent", "of_step", "of_file", "state"),
    [
        (None, None, None, "COMPLETED"),
        ("readonly", None, None, "FAILED"),
        ("careful", None, {"profiles": {"careful": {"access": "readonly"}}}, "FAILED"),
        (None, "readonly", None, "FAILED"),
        ("readonly", {"access": "readwrite"}, None, "COMPLETED"),
        (None, None, {"default": "readonly"}, "FAILED"),
        (None, None, "readonly", "FAILED"),
        ("readwrite", None, "readonly", "COMPLETED"),
    ],
)
async def test_permissions_are_a_word_or_of_a_step_or_a_file(
    tmp_path: Path, of_agent: Any, of_step: Any, of_file: Any, state: str
) -> None:
    work = repository(tmp_path / "work")
    head = acting("echo x > a.key", **({} if of_agent is None else {"permissions": of_agent}))
    head += "" if of_file is None else f"\npermissions: {json.dumps(of_file)}"
    step = DEV if of_step is None else f"{DEV}\npermissions: {json.dumps(of_step)}"
    run = await ran(flow(step, head=head), work, env=environment(tmp_path))
    assert run.state == state, run.why
    if state == "FAILED":
        assert "a.key" in run.why


async def test_store_files_are_not_agent_changes(tmp_path: Path) -> None:
    settings = Settings(store=f"sqlite:///{tmp_path / 'accord.db'}")
    run = await ran(flow(DEV, head=acting("sleep 0.3; cat", permissions="readonly")), tmp_path, settings=settings)
    assert run.state == "COMPLETED", run.why
    assert (tmp_path / "accord.db").is_file()
    agents = [{"name": "dev", "command": "sh -c 'sleep 0.3'", "interactive": True}]
    head = f"agents: {json.dumps(agents)}"
    run = await ran(flow(DEV.replace("\nallowEmpty: true", ""), head=head), tmp_path, settings=settings)
    assert run.state == "FAILED", "no evidence that the agent did anything"


def test_competitors_without_a_judge_keep_the_order_of_the_file() -> None:
    made = make_plan(FORMS, base=Path("/nowhere"), env={})
    assert {step.name: step.depends_on for step in made.steps} == {
        "order": (),
        "rye": ("order",),
        "wheat": ("order",),
        "choose": ("rye", "wheat"),
    }


def test_a_file_with_these_forms_is_written_as_it_was_read() -> None:
    assert FORMS.workflows[0].on_error == "fail"
    assert read_document(write_document(FORMS)) == FORMS


async def test_a_file_may_be_named_by_its_whole_path(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    for name, state in (("loaf", "COMPLETED"), ("crumb", "FAILED")):
        step = shell("a", "touch ../loaf", f"verification: {{type: file_exists, value: '{tmp_path / name}'}}")
        run = await ran(flow(step), work)
        assert run.state == state, run.why


async def test_a_path_from_a_value_stays_below_the_step(tmp_path: Path) -> None:
    (tmp_path / "loaf").touch()
    (tmp_path / "work").mkdir()
    step = shell("a", "true", "verification: {type: file_exists, value: '{{where}}'}")
    run = await ran(flow(step, head=f"vars: {{where: '{tmp_path / 'loaf'}'}}"), tmp_path / "work")
    assert run.state == "FAILED"
    assert "say a path inside" in run.why


async def test_a_workflow_is_repeated_until_a_condition_holds(tmp_path: Path) -> None:
    tail = (
        "  - name: inner\n    steps:\n"
        "      - {name: c, type: deterministic, command: 'echo x >> n; wc -l < n | tr -d \" \"'}\n"
    )
    loop = 'name: a\ntype: workflow\nworkflow: inner\nmaxIterations: {}\nuntil: "steps.a.output == 3"'
    run = await ran(flow(loop.format(5), tail=tail), tmp_path)
    assert run.state == "COMPLETED", run.why
    assert (tmp_path / "n").read_text().count("x") == 3
    (tmp_path / "n").unlink()
    run = await ran(flow(loop.format(2), tail=tail), tmp_path)
    assert run.state == "FAILED"
    assert "not done after 2 rounds" in run.why
