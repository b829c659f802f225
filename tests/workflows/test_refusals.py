"""One code path: `accord workflow validate`, `accord run`, `accord serve` and `accord config check` refuse the same."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from accord.agents.loader import NotAnAgent, load
from accord.cli import app
from accord.cli.failures import Exit
from accord.workflows.builder import workflow
from accord.workflows.document import Document
from tests.workflows.test_checks import CASES, ENV, HEAD
from tests.workflows.test_reading import HEAD as SHAPE
from tests.workflows.test_reading import MISTAKES

STEPS = HEAD + "workflows:\n  - name: main\n    steps:\n"

PLANNED = {
    "UNKNOWN_WORKFLOW": HEAD,
    "BAD_AGENT": HEAD + "agents: [{name: w, command: cat, env: {T: '${credential:none}'}, task: x}]\n",
    "MISSING_ENV": STEPS + "      - {name: a, type: deterministic, command: 'ls {{env.NO_SUCH}}'}\n",
    "UNKNOWN_REFERENCE": HEAD + "vars: {a: '{{b}}'}\nagents: [{name: w, command: cat, task: x}]\n",
    "CYCLE": HEAD.replace("dag", "pipeline")
    + "workflows:\n  - name: main\n    steps:\n"
    + "      - {name: a, type: deterministic, command: ls, dependsOn: [b]}\n"
    + "      - {name: b, type: deterministic, command: ls}\n",
}
"""Files that the checks of the text alone accept, or not; each is refused where the document becomes an agent."""

FILES = {
    **{f"{case.code}-{at}": case.text for at, case in enumerate(CASES)},
    **{
        f"{code}-shape-{at}": SHAPE.replace("swarm: {pattern: dag}", text) if text.startswith("swarm") else SHAPE + text
        for at, (text, code, *_) in enumerate(MISTAKES)
    },
    **{f"{code}-planned": text for code, text in PLANNED.items()},
}


def verdicts(folder: Path, text: str) -> dict[str, bool]:
    """Return whether each command accepts a file."""
    (folder / "flow.yaml").write_text(text, encoding="utf-8")
    (folder / "accord.toml").write_text('[agents.flow]\ntarget = "flow.yaml"\n', encoding="utf-8")

    def code(*arguments: str) -> int:
        done = CliRunner().invoke(app, arguments, env=ENV)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code

    # what only a run is given is given to it
    run = (
        code("run", "flow.yaml", "--dry-run", "--var", "topic=bees")
        if "topic" in text
        else code("run", "flow.yaml", "--dry-run")
    )
    try:
        load("flow.yaml", ENV)
        is_served = True
    except NotAnAgent:
        is_served = False
    return {
        "validate": code("workflow", "validate", "flow.yaml") == Exit.DONE,
        "run": run == Exit.DONE,
        "serve": is_served,
        "config check": code("config", "check") == Exit.DONE,
    }


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)


@pytest.mark.proves("1-43")
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_refused_by_all_or_by_none(name: str, tmp_path: Path) -> None:
    told = verdicts(tmp_path, FILES[name])
    assert len(set(told.values())) == 1, told
    if name.endswith("-planned") or "-shape-" in name:
        assert not told["validate"]


def test_required_variables_are_warned_of_and_given(tmp_path: Path) -> None:
    text = STEPS + "      - {name: a, type: deterministic, command: 'echo {{topic}}'}\n"
    assert set(verdicts(tmp_path, text).values()) == {True}
    refused = CliRunner().invoke(app, ["run", "flow.yaml", "--dry-run"], env=ENV)
    assert refused.exit_code == Exit.MISUSED
    assert "run it with --var topic" in refused.stderr


def test_an_address_needs_its_variable_before_a_run(tmp_path: Path) -> None:
    text = STEPS + "      - {name: a, type: a2a, url: 'http://{{host}}', task: x}\n"
    assert set(verdicts(tmp_path, text).values()) == {False}
    for command in (["run", "flow.yaml", "--dry-run"], ["workflow", "validate", "flow.yaml"]):
        assert CliRunner().invoke(app, [*command, "--var", "host=h"], env=ENV).exit_code == Exit.DONE


@pytest.mark.parametrize("value", ["{{inputs.host}}", "{{vars.made}}", "{{made}}"])
def test_an_address_needs_its_input_before_a_run(tmp_path: Path, value: str) -> None:
    head = STEPS.replace("workflows:", "inputs: {host: {required: true}}\nvars: {made: '{{inputs.host}}'}\nworkflows:")
    for address in (f"url: 'http://{value}'", f"url: 'http://h', headers: {{x: '{value}'}}"):
        assert set(verdicts(tmp_path, f"{head}      - {{name: a, type: a2a, {address}, task: x}}\n").values()) == {
            False
        }
        for command in (["run", "flow.yaml", "--dry-run"], ["workflow", "validate", "flow.yaml"]):
            refused = CliRunner().invoke(app, command, env=ENV)
            assert "give the value before a run" in refused.output
            assert CliRunner().invoke(app, [*command, "--var", "host=h"], env=ENV).exit_code == Exit.DONE


def test_an_address_reads_no_input_text(tmp_path: Path) -> None:
    text = STEPS + "      - {name: a, type: a2a, url: 'http://{{input}}', task: x}\n"
    assert set(verdicts(tmp_path, text).values()) == {False}


def test_a_template_of_a_variable_that_is_not_valid_is_named(tmp_path: Path) -> None:
    text = STEPS.replace("workflows:", "vars: {b: '{{input | no-such-filter}}'}\nworkflows:")
    assert set(verdicts(tmp_path, text + "      - {name: a, type: deterministic, command: ls}\n").values()) == {False}
    refused = CliRunner().invoke(app, ["workflow", "validate", "flow.yaml"], env=ENV)
    assert "UNKNOWN_REFERENCE: vars.b: " in refused.output


def test_a_built_document_is_checked_as_a_file_is(tmp_path: Path) -> None:
    document = workflow("built").step("a", type="deterministic", command="ls", depends_on=["b"]).to_config()
    assert isinstance(document, Document)
    (tmp_path / "own.py").write_text(
        "from accord.workflows.builder import workflow\n"
        "flow = workflow('built').step('a', type='deterministic', command='ls', depends_on=['b'])\n"
    )
    with pytest.raises(NotAnAgent, match="UNKNOWN_DEPENDENCY"):
        load("own.py:flow", ENV)
    assert CliRunner().invoke(app, ["run", "own.py:flow", "--dry-run"], env=ENV).exit_code == Exit.MISUSED
