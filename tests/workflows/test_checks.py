"""What `accord workflow validate` knows without running anything: each code has a file that it is found in."""

import re
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings

from accord.workflows import validation
from accord.workflows.agent_definition import AgentDef
from accord.workflows.attempts import StepBehavior, behavior_of
from accord.workflows.decoder import fields_of
from accord.workflows.document import Document, Step, Swarm, Workflow
from accord.workflows.findings import CODES, BadDocument, DocumentFinding, TextPosition
from accord.workflows.source import load_source, read_document, read_source
from accord.workflows.step_types import STEP_TYPES
from accord.workflows.triggers import BadCron, read_cron
from accord.workflows.validation import agents, check, check_source
from tests.cases import each
from tests.workflows.saying import DOCUMENTS, documents

ENV = {"PATH": "/nowhere", "SHOP_DIR": "/", "WRITER_URL": "http://writer", "MAIL_TOKEN": "t"}

ASIDE = {"NO_TIMEOUT", "CLI_NOT_FOUND", "CLAUDE_NO_SPAWN_GUARD", "UNUSED_AGENT", "UNUSED_MEMBER", "CYCLE"}
"""What files that are made for another finding may have as well."""

HEAD = 'version: "1"\nname: a\nswarm: {pattern: dag}\n'
STEPS = f"{HEAD}workflows:\n  - name: main\n    steps:\n"


class Case(NamedTuple):
    """A file with a mistake, its code, where it is, and a word of what is said of it."""

    code: str
    word: str
    text: str
    line: int
    column: int


def mistakes() -> list[Case]:
    """Read the files with mistakes."""
    _, *blocks = (Path(__file__).parent / "mistakes.txt").read_text(encoding="utf-8").split("=== ")
    cases = []
    for block in blocks:
        head, _, body = block.partition("\n")
        code, _, word = head.partition(" | ")
        text = body if body.lstrip("▸").startswith("version") else HEAD + body
        before = text[: text.index("▸")]
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        cases.append(Case(code, word, text.replace("▸", ""), *place))
    return cases


CASES = mistakes()


def found(text: str) -> list[DocumentFinding]:
    """Return what is found in a file."""
    return check_source(read_source(text, "flow.yaml"), ENV)


def codes(text: str) -> set[str]:
    """Return the errors that are found in a file."""
    return {one.code for one in found(text) if one.severity == "error"}


@pytest.mark.proves("1-43")
@each("case", CASES)
def test_mistakes_are_found_with_their_position(case: Case) -> None:
    everything = found(case.text)
    (finding,) = [one for one in everything if one.code == case.code]
    assert (finding.file, finding.line, finding.column) == ("flow.yaml", case.line, case.column)
    assert finding.severity == CODES[case.code].severity
    assert case.word in f"{finding.message} ({finding.fix})"
    assert {one.code for one in everything} <= ASIDE | {case.code}, "nothing else is said of it"


def test_every_code_has_a_file_that_it_is_found_in() -> None:
    from tests.workflows.test_reading import MISTAKES

    package = Path(validation.__file__).parent.parent
    files = [
        *package.glob("validation/*.py"),
        *(package / name for name in ("yaml_nodes.py", "decoder.py", "source.py")),
    ]
    said = {word for file in files for word in re.findall(r'"([A-Z_]{5,})"', file.read_text(encoding="utf-8"))}
    proven = {case.code for case in CASES} | {row[1] for row in MISTAKES}
    assert said & set(CODES) - proven == {"BAD_YAML", "TOO_LARGE", "BAD_DURATION", "BAD_AGENT", "UNKNOWN_TEMPLATE"}, (
        "which others have by name"
    )


@pytest.mark.parametrize("file", sorted(DOCUMENTS.glob("*.yaml")), ids=lambda file: file.name)
def test_the_documents_have_no_errors(file: Path) -> None:
    assert [str(one) for one in check_source(load_source(file), ENV) if one.severity == "error"] == []


def test_a_document_without_a_text_is_checked_as_well(tmp_path: Path) -> None:
    document = Document(
        version="1", name="made", swarm=Swarm(), workflows=(Workflow(name="m", steps=(Step(name="a b"),)),)
    )
    told = check(document, tmp_path, env=ENV)
    assert {one.code for one in told} >= {"BAD_NAME", "MISSING_MEMBER"}
    assert {one.place for one in told} == {TextPosition("<made>")}
    assert str(told[0]).startswith("<made>: error ")


# --- the tables -------------------------------------------------------------------------------------------------------


def test_every_member_of_a_step_is_used_by_some_type() -> None:
    known = {field.encode_name for field in fields_of(Step)}
    used = {name for row in STEP_TYPES.values() for name in row.members}
    assert known - used == {"use", "with"}
    assert used <= known
    fields = {field.name for field in fields_of(Step)}
    assert {name for row in STEP_TYPES.values() for name in row.shows} <= fields


def test_every_type_has_code_and_an_icon_in_the_console() -> None:
    look = (Path(__file__).parents[2] / "web/src/features/runs/look.tsx").read_text()
    for name, row in STEP_TYPES.items():
        assert isinstance(behavior_of(name), StepBehavior)
        assert re.search(rf'  {name}: {{ word: "[^"]+", icon: {row.icon} }},', look), name
        assert (re.search(rf'  {name}: {{ word: "Waits[^"]*", tone: "amber"', look) is not None) == row.is_waiting


def test_every_member_of_an_agent_is_used_by_some_kind() -> None:
    known = {field.encode_name for field in fields_of(AgentDef)}
    assert {"name", *agents.PROCESS, *agents.MODEL, *agents.A2A} == known


# --- what is right ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lines",
    [
        # a step may speak of all that is before it, however indirectly, and of a barrier's
        "{name: a, type: deterministic, command: ls}\n"
        "{name: b, type: deterministic, command: ls, dependsOn: [a]}\n"
        "{name: c, type: a2a, url: 'http://x', task: '{{steps.a.output}} {{steps.b.json.x}}', dependsOn: [b]}",
        # of the item of a map, by its name
        "{name: m, type: map, over: [1], as: one, "
        "step: {name: s, type: a2a, url: 'http://x', task: '{{one}}{{item}}{{index}}'}}",
        # of a default where there is no value
        "{name: a, type: a2a, url: 'http://x', task: '{{inputs.x | default(5)}}'}",
        # of itself in what it sets, and in a loop
        "{name: a, type: deterministic, command: ls, set: {x: '{{steps.a.output}}'}}",
        "{name: a, type: deterministic, command: ls, until: 'steps.a.exit_code == 0', maxIterations: 3}",
        # an inline address needs no agent, and an agent that is remote no type
        "{name: a, type: a2a, url: 'http://localhost:9000', task: x, cwd: ., "
        "verification: {type: file_exists, value: x}}",
        # what agents say is an argument
        "{name: a, type: deterministic, command: ls}\n"
        "{name: b, type: deterministic, command: 'echo {{steps.a.output}} \"{{steps.a.output}}\"', dependsOn: [a]}",
    ],
)
def test_valid_documents_have_no_findings(lines: str) -> None:
    assert codes(STEPS + "".join(f"      - {line}\n" for line in lines.splitlines())) == set()


@pytest.mark.proves("1-33")
def test_in_a_pipeline_the_steps_before_are_before() -> None:
    lines = (
        "      - {name: a, type: deterministic, command: ls}\n"
        "      - {name: b, type: deterministic, command: ls}\n"
        "      - {name: c, type: a2a, url: 'http://x', task: '{{steps.a.output}}'}\n"
    )
    assert codes(STEPS + lines) == {"NOT_UPSTREAM"}
    assert codes(STEPS.replace("dag", "pipeline") + lines) == set()


@pytest.mark.proves("1-31", "1-43")
def test_an_a2a_step_has_its_address_from_itself_or_its_agent() -> None:
    step = "      - {name: a, type: a2a, agent: w, task: x}\n"
    without, own = "agents: [{name: w, runtime: a2a}]\n", "agents: [{name: w, runtime: a2a, url: 'http://w'}]\n"
    assert codes(STEPS + step + without) == {"MISSING_URL"}
    assert codes(STEPS + step + own) == set()
    assert codes(STEPS + step.replace("agent: w", "url: 'http://w', agent: w") + without) == set()
    assert codes(STEPS + step.replace("agent: w", "url: 'http://w'")) == set()


def test_steps_of_ones_own_may_be_beside_the_file(tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(STEPS + "      - {name: a, use: lint}\n", encoding="utf-8")
    assert {one.code for one in check_source(load_source(file), ENV)} == {"UNKNOWN_CUSTOM_STEP"}
    (tmp_path / ".relay").mkdir()
    (tmp_path / ".relay" / "steps.yaml").write_text(
        "steps: {lint: {type: deterministic, command: ls}}", encoding="utf-8"
    )
    assert check_source(load_source(file), ENV) == []
    (tmp_path / ".relay" / "steps.yaml").write_text("steps: {lint: {typ: x}}", encoding="utf-8")
    with pytest.raises(BadDocument, match=r"steps\.yaml:1:16: error UNKNOWN_KEY"):
        check_source(load_source(file), ENV)


def test_a_chain_of_thousands_is_checked() -> None:
    lines = [f"      - {{name: s0, {(shell := 'type: deterministic, command: ls')}}}\n"]
    lines += [
        f"      - {{name: s{n}, {shell}, dependsOn: [s{n - 1}], if: steps.s{n - 1}.output}}\n" for n in range(1, 2000)
    ]
    assert found(STEPS + "".join(lines)) == []
    circle = lines[0].replace("command: ls", "command: ls, dependsOn: [s1999]")
    assert codes(STEPS + circle + "".join(lines[1:])) == {"CYCLE"}


def test_only_the_first_of_two_with_a_name_is_meant() -> None:
    document = read_document(HEAD + "agents: [{name: a, cli: codex}, {name: a, runtime: a2a, url: 'http://x'}]")
    assert document.agent("a") == document.agents[0]


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(documents)
def test_any_document_can_be_checked(tmp_path: Path, document: Document) -> None:
    assert {one.code for one in check(document, tmp_path, env=ENV)} <= CODES.keys()


# --- schedules --------------------------------------------------------------------------------------------------------


def test_schedules() -> None:
    cron = read_cron("*/20 6-8,22 1 jan-mar/2 mon,7")
    assert [sorted(one) for one in cron[:3]] == [[0, 20, 40], [6, 7, 8, 22], [1]]
    assert [sorted(one) for one in cron[3:5]] == [[1, 3], [0, 1]]
    assert cron.is_either
    assert read_cron("@daily") == read_cron("0 0 * * *")
    assert not read_cron("5/10 * * * 1").is_either
    assert read_cron("5/10 * * * *").minutes == {5, 15, 25, 35, 45, 55}


@each(
    ("text", "why"),
    [
        ("* * * *", "4 fields"),
        ("60 * * * *", "not a valid minute"),
        ("* * 0 * *", "not a valid day"),
        ("*/0 * * * *", "behind / is a number"),
        ("5-1 * * * *", "ends before it begins"),
        ("* * * xyz *", "not a valid month"),
        ("* * * * ²", "not a valid weekday"),
        ("0 0 31 2,4 *", "never comes"),
        ("@often", "1 fields"),
    ],
)
def test_invalid_schedules(text: str, why: str) -> None:
    with pytest.raises(BadCron, match=why):
        read_cron(text)


def test_files_that_have_each_other_among_their_steps_are_found(tmp_path: Path) -> None:
    def written(name: str, other: str) -> Path:
        file = tmp_path / f"{name}.yaml"
        step = f"{{name: a, type: workflow, file: {other}.yaml, timeout: 1m}}"
        workflows = f"workflows: [{{name: main, steps: [{step}]}}]"
        file.write_text(f'version: "1"\nname: {name}\nswarm: {{pattern: dag}}\n{workflows}\n')
        return file

    first = written("one", "two")
    written("two", "one")
    (found,) = check_source(load_source(first), {})
    assert (found.code, found.severity, found.line) == ("CYCLE", "error", 4)
    written("two", "three")
    (tmp_path / "three.yaml").write_text("nothing of ours")
    assert [one.code for one in check_source(load_source(first), {})] == []
