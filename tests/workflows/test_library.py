"""Templates: `swarm: NAME` takes a whole document, and the rest of the file changes it."""

from pathlib import Path

import pytest

from accord.workflows.findings import BadDocument
from accord.workflows.planner import make_plan
from accord.workflows.source import load_source, read_document, read_source, template_files, write_document
from accord.workflows.validation import check_source

NAMES = (
    "bug-fix",
    "code-review",
    "competitive",
    "documentation",
    "feature-dev",
    "refactor",
    "review-loop",
    "security-audit",
)


def test_these_come_with_the_package(tmp_path: Path) -> None:
    assert tuple(template_files(tmp_path)) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_template_can_be_run_as_it_is(name: str, tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(f'version: "1"\nname: mine\nswarm: {name}\n', encoding="utf-8")
    opened = load_source(file)
    assert {one.code for one in check_source(opened, {"PATH": ""})} <= {"CLI_NOT_FOUND"}
    assert make_plan(opened.document, input="Do it", base=tmp_path, env={}).name == "mine"
    assert read_document(write_document(opened.document)) == opened.document


def test_the_file_counts_before_its_template() -> None:
    document = read_document(
        'version: "1"\nname: mine\nswarm: bug-fix\nvars: {test: npm test, more: 1}\n'
        "agents:\n  - {name: fixer, cli: gemini}\n  - {name: another, cli: claude}\n"
        "workflows:\n  - name: main\n    steps:\n      - {name: test, timeout: 5m}\n"
    )
    assert document.swarm.pattern == "pipeline"
    assert document.vars == {"test": "npm test", "more": 1}
    assert [(agent.name, agent.cli) for agent in document.agents] == [
        ("investigator", "claude"),
        ("fixer", "gemini"),
        ("reviewer", "claude"),
        ("another", "claude"),
    ]
    fixer = document.agent("fixer")
    assert fixer is not None
    assert fixer.preset == "worker"
    (workflow,) = document.workflows
    assert [step.name for step in workflow.steps] == ["reproduce", "fix", "test", "review"]
    assert (workflow.steps[2].timeout, workflow.steps[2].command) == (300.0, 'sh -c "$VAR_TEST"')


def test_lists_without_names_are_replaced(tmp_path: Path) -> None:
    (tmp_path / ".relay" / "workflows").mkdir(parents=True)
    (tmp_path / ".relay" / "workflows" / "own.yaml").write_text(
        'version: "1"\nname: own\nswarm: {pattern: dag}\nagents: [{name: a, cli: codex, channels: [x, y]}]\n',
        encoding="utf-8",
    )
    text = 'version: "1"\nname: mine\nswarm: own\nagents: [{name: a, channels: [z]}]\n'
    assert read_source(text, str(tmp_path / "flow.yaml")).document.agents[0].channels == ("z",)


def test_user_templates_win_and_errors_name_their_file(tmp_path: Path) -> None:
    (tmp_path / ".accord" / "workflows").mkdir(parents=True)
    own = tmp_path / ".accord" / "workflows" / "bug-fix.yaml"
    own.write_text('version: "1"\nname: own\nswarm: {patern: dag}\n', encoding="utf-8")
    with pytest.raises(BadDocument) as caught:
        read_source('version: "1"\nname: mine\nswarm: bug-fix\n', str(tmp_path / "flow.yaml"))
    assert [(one.code, one.place) for one in caught.value.findings] == [("UNKNOWN_KEY", (str(own), 3, 9))]


def test_the_name_of_a_pattern_is_one_where_there_are_steps() -> None:
    agents = "agents: [{name: a, cli: codex}]\n"
    assert read_document(f'version: "1"\nname: a\nswarm: competitive\n{agents}').agents[0].name == "a"
    assert read_document('version: "1"\nname: a\nswarm: competitive\n').agents[0].name == "one"
    assert read_document('version: "1"\nname: a\nswarm: dag\n').swarm.pattern == "dag"


@pytest.mark.parametrize(("name", "fix"), [("bugfix", "did you mean bug-fix?"), ("../x", "templates are bug-fix, ")])
def test_an_unknown_template_is_an_error(name: str, fix: str) -> None:
    with pytest.raises(BadDocument) as caught:
        read_document(f'version: "1"\nname: a\nswarm: {name}\n', "flow.yaml")
    (finding,) = caught.value.findings
    assert (finding.code, finding.line, finding.column) == ("UNKNOWN_TEMPLATE", 3, 8)
    assert fix in finding.fix
