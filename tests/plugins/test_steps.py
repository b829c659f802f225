"""Steps of a type that another package has added, in runs: what they are given, and what becomes of them."""

import sys
from pathlib import Path

import pytest

from accord.entries import registered
from accord.testing import assert_task, running
from accord.workflows.agent import WorkflowAgent
from accord.workflows.source import read_document
from accord.workflows.validation import check
from tests.plugins.conftest import Install

POLISH = """
import asyncio
from accord.api import NoOptions
from accord.workflows import Result, StepExecutorType

tried = []

class Polish(NoOptions, frozen=True, kw_only=True):
    what: str
    times: int = 1
    tools: list[str] = []

async def do(scene):
    given = scene.given(Polish)
    tried.append((scene.step.name, scene.attempt))
    match given.what:
        case "hang":
            await asyncio.Event().wait()
        case "break":
            raise KeyError("a mistake of theirs")
        case "fail":
            return Result(ok=False, error="it is too dirty")
        case "twice" if scene.attempt == 1:
            raise ValueError("not yet")
    return Result(ok=True, output=f"{given.what} x{given.times} {' '.join(given.tools)}".strip())

STEP = StepExecutorType(do=do, options=Polish)
"""

HEAD = """
version: "1"
name: polishing
swarm: dag
vars: { shoe: "the left one" }
workflows:
  - name: polishing
    steps:
"""


def flow(folder: Path, *steps: str) -> WorkflowAgent:
    text = HEAD + "".join(f"      - {{ {step} }}\n" for step in steps)
    return WorkflowAgent(read_document(text), directory=folder, env={})


@pytest.fixture
def polish(install: Install) -> None:
    install("acme-steps", POLISH, "accord.steps", "polish = acme_steps:STEP")


@pytest.mark.usefixtures("polish")
@pytest.mark.parametrize(
    ("step", "state", "text"),
    [
        ("with: { what: shoe }", "completed", "shoe x1"),
        ('with: { what: "{{vars.shoe}}", times: 3, tools: ["a {{vars.shoe}}"] }', "completed", "the left one x3 a the"),
        ("with: { what: hang }, timeout: 50ms", "failed", "The step did not end within 0.05 seconds"),
        ("with: { what: fail }", "failed", "it is too dirty"),
        ("with: { what: fail }, onError: continue", "completed", ""),
        ("with: { what: break }", "failed", "The step failed: KeyError"),
        ("with: { what: twice }, retries: 1, retryDelay: 1ms", "completed", "twice x1"),
        ("with: { what: shoe, times: many }", "failed", "`with`: Expected `int`"),
        ("with: { whta: shoe }", "failed", "`with`: Object contains unknown field `whta`"),
        ('with: { what: shoe }, verification: { type: output_contains, value: "boot" }', "failed", "boot"),
    ],
)
async def test_step_results_are_recorded(step: str, state: str, text: str, tmp_path: Path) -> None:
    async with running(flow(tmp_path, f"name: a, type: polish, {step}")) as a2a:
        task = assert_task(await a2a.send_text("go"), state=state)
        assert text in str(task)


@pytest.mark.usefixtures("polish")
async def test_steps_get_earlier_outputs_in_maps_and_loops(tmp_path: Path) -> None:
    agent = flow(
        tmp_path,
        "name: count, type: deterministic, command: echo 4",
        "name: each, type: map, dependsOn: [count], over: [x, y],"
        ' step: { name: e, type: polish, with: { what: "{{item}}" } }',
        'name: last, type: polish, dependsOn: [each], with: { what: all, times: "{{steps.count.json}}" }',
        "name: loop, type: polish, dependsOn: [last], maxIterations: 2, until: \"steps.loop.output contains 'x4'\","
        ' with: { what: "{{steps.last.output}}" }',
    )
    async with running(agent) as a2a:
        assert_task(await a2a.send_text("go"), state="completed", text="all x4 x1")


def test_a_broken_package_is_named_before_a_run(install: Install, tmp_path: Path) -> None:
    install("acme-steps", "STEP = 5", "accord.steps", "polish = acme_steps:STEP")
    (found,) = [
        one
        for one in check(read_document(HEAD + "      - { name: a, type: polish }"), tmp_path)
        if one.code == "BAD_VALUE"
    ]
    assert "the package acme-steps 1.0 cannot be used" in found.message


async def test_runs_of_missing_packages_fail_with_the_reason(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("acme-steps", POLISH, "accord.steps", "polish = acme_steps:STEP")
    agent = flow(tmp_path, "name: a, type: polish, with: { what: shoe }")
    monkeypatch.setattr("sys.path", [path for path in sys.path if path != str(tmp_path)])
    registered.cache_clear()
    async with running(agent) as a2a:
        failed = assert_task(await a2a.send_text("go"), state="failed")
        assert "There is no step type called 'polish' here: is its package installed?" in str(failed)
