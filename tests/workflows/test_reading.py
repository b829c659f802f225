"""Workflow files become documents, or findings that say where, what and how to mend it; documents become files."""

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from accord.workflows import decoder
from accord.workflows.document import CustomStep, Document, Param, Step, Swarm, Trajectories
from accord.workflows.findings import CODES, BadDocument, DocumentFinding, TextPosition
from accord.workflows.notation import format_duration, parse_duration
from accord.workflows.source import (
    load_document,
    load_source,
    read_document,
    read_source,
    read_step,
    read_steps,
    write_document,
)
from accord.workflows.yaml_nodes import MAX_DEPTH, parse_yaml
from tests.cases import each
from tests.workflows.saying import DOCUMENTS, documents, structs_in, texts

HEAD = 'version: "1"\nname: a\nswarm: {pattern: dag}\n'


def step(text: str) -> Step:
    """Read one step, given as the lines of its mapping."""
    indented = "".join(f"        {line}\n" for line in text.strip().splitlines()).replace("        ", "      - ", 1)
    return read_document(f"{HEAD}workflows:\n  - name: main\n    steps:\n{indented}").workflows[0].steps[0]


def findings(text: str) -> tuple[DocumentFinding, ...]:
    """Return what is found in a text that is no document."""
    with pytest.raises(BadDocument) as caught:
        read_document(text, "flow.yaml")
    return caught.value.findings


# --- the files of others ----------------------------------------------------------------------------------------------


@pytest.mark.proves("1-04", "1-32", "1-33", "1-34", "1-35", "1-36", "1-37", "1-38", "1-41")
def test_the_hybrid_example_reads_unchanged() -> None:
    document = load_document(DOCUMENTS / "hybrid.yaml")
    assert (document.version, document.name, document.swarm.pattern) == ("1", "hybrid-data-pipeline", "dag")
    planner, processor, summarizer, developer = document.agents
    assert (planner.cli, planner.runtime, planner.interactive) == ("claude", "cli", None)
    assert (processor.is_a2a, processor.url, processor.streaming) == (True, "http://localhost:9000", None)
    assert (summarizer.streaming, developer.cli, developer.interactive) == (True, "codex", False)
    plan, fetch, summarize, implement, test = document.workflows[0].steps
    assert plan.verification is not None
    assert (plan.type, plan.kind, plan.verification.type, plan.verification.value) == (
        None,
        "agent",
        "output_contains",
        "PLAN_COMPLETE",
    )
    assert (fetch.kind == "a2a", fetch.depends_on, fetch.timeout) == (True, ("plan",), 120.0)
    assert summarize.task == "Summarize the data: {{steps.fetch-data.output}}"
    assert implement.task == "Implement the plan using this data summary:\n{{steps.summarize.output}}\n"
    assert (test.kind == "deterministic", test.command) == (True, "npm test")


@pytest.mark.proves("1-17", "1-18", "1-42")
def test_the_pipeline_of_remote_agents_reads_unchanged() -> None:
    document = load_document(DOCUMENTS / "a2a-pipeline.yaml")
    assert document.swarm.pattern == "pipeline"
    assert [agent.is_a2a for agent in document.agents] == [True, True, True]
    assert [one.type for one in document.workflows[0].steps] == ["a2a", "a2a", "a2a"]


@pytest.mark.parametrize("name", ["hybrid.yaml", "a2a-pipeline.yaml"])
def test_the_examples_are_the_same_files(name: str) -> None:
    examples = Path(__file__).resolve().parents[2] / "examples" / "workflows"
    assert (examples / name).read_bytes() == (DOCUMENTS / name).read_bytes()


def test_names_of_agent_relay_and_ours_are_the_same_document() -> None:
    assert load_document(DOCUMENTS / "relay-camel.yaml") == load_document(DOCUMENTS / "relay-snake.yaml")


def test_every_accepted_field_is_used_in_a_document() -> None:
    """Agent-relay's whole vocabulary is in files that read: a member that gets lost fails here."""
    wanted = {
        (struct, member.name)
        for struct in _structs(Document)
        for member in decoder.members_of(struct).values()
        if (struct, member.name) != (CustomStep, "step")
    }
    used: set[tuple[type[Struct], str]] = set()
    for file in DOCUMENTS.glob("*.yaml"):
        used |= _used(load_document(file))
    assert {f"{struct.__name__}.{name}" for struct, name in wanted - used} == set()


def _structs(struct: type[Struct], seen: frozenset[type[Struct]] = frozenset()) -> frozenset[type[Struct]]:
    for field in decoder.fields_of(struct):
        for kind in structs_in(field.type):
            if kind not in seen:
                seen = _structs(kind, seen | {kind})
    return seen | {struct}


def _used(value: object) -> set[tuple[type[Struct], str]]:
    """Return the members below a value that are not as they would be without a word about them."""
    if isinstance(value, tuple | list):
        return {one for part in value for one in _used(part)}
    if isinstance(value, dict):
        return _used(list(value.values()))
    if not isinstance(value, Struct):
        return set()
    found = set()
    for field in decoder.fields_of(type(value)):
        part = getattr(value, field.name)
        if field.required or part != decoder.default_of(field):
            found |= {(type(value), field.encode_name)} | _used(part)
    return found


# --- the text ---------------------------------------------------------------------------------------------------------


def test_scalars_follow_yaml_1_2() -> None:
    text = "[on, yes, NO, 012, 0o17, 0x1f, 1e3, .5, 1_000, 2001-01-01, ~, '', TRUE, '1', !!str 1, 12:30:00]"
    assert parse_yaml(text).tree == [
        *("on", "yes", "NO", 12, 15, 31, 1000.0, 0.5, "1_000", "2001-01-01", None, "", True, "1", "1", "12:30:00")
    ]
    assert parse_yaml("on: {1: a, null: b, true: c}").tree == {"on": {"1": "a", "null": "b", "true": "c"}}


def test_values_know_where_they_stand() -> None:
    node = parse_yaml("a:\n  - b: 1\n    c: [x, y]\n", "f.yaml")
    assert node.at(("a", 0, "c", 1)) == TextPosition("f.yaml", 3, 12)
    assert node.at(("a", 0, "c"), key=True) == TextPosition("f.yaml", 3, 5)
    assert node.at(("a", 0, "missing", "more")) == TextPosition("f.yaml", 2, 5), "where it should be"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_positions_inside_block_text_are_exact(end: str) -> None:
    node = parse_yaml(end.join(["a: |-", "  one", "    {{two}}", "b: 'x {{y}}'", 'c: "\\x41 {{y}}"']))
    assert node.at(("a",), start=6)[1:] == (3, 5)
    assert node.at(("b",), start=2)[1:] == (4, 7)
    assert node.at(("c",), start=2)[1:] == (5, 4), "not as it is written: where it begins"


def test_anchors_and_merges() -> None:
    node = parse_yaml("a: &d {x: 1, y: 2}\nb: *d\nc: {<<: *d, y: 3}\ne: {<<: [*d, {z: 4}]}\n")
    assert node.tree["b"] == {"x": 1, "y": 2}
    assert node.tree["c"] == {"x": 1, "y": 3}
    assert node.tree["e"] == {"x": 1, "y": 2, "z": 4}
    assert node.at(("c", "x")).line == 1


@each(
    ("text", "code", "place", "words"),
    [
        ("a: 1\nb: [", "BAD_YAML", (3, 1), "This is not valid YAML"),
        ("a: b: c", "BAD_YAML", (1, 5), "put the value into quotes"),
        ("a:\n\t- 1", "BAD_YAML", (2, 1), "indent with blanks"),
        ("", "BAD_YAML", (1, 1), "empty"),
        ("a: 1\n---\nb: 2", "BAD_YAML", (2, 1), "more than one document"),
        ("a: !!python/object:os.system x", "BAD_YAML", (1, 4), "tag"),
        ("a: !thing {}", "BAD_YAML", (1, 4), "tag"),
        ("? [a]\n: 1", "BAD_YAML", (1, 3), "key is not a text"),
        ("a: {{input}}", "BAD_YAML", (1, 5), "into quotes"),
        ("a: *b", "BAD_YAML", (1, 4), "no &b"),
        ("a: &b [*b]", "BAD_YAML", (1, 8), "inside"),
        ("<<: 1", "BAD_YAML", (1, 5), "takes mappings"),
        ("a: .inf", "BAD_YAML", (1, 4), "finite"),
        ("a: 1e999", "BAD_YAML", (1, 4), "finite"),
        ("a: " + "9" * 5000, "BAD_YAML", (1, 4), "not a valid number"),
        ("a: 1\nb: \x07", "BAD_YAML", (2, 4), "U+0007"),
        ("a: 1\nb: 2\na: 3", "DUPLICATE_KEY", (3, 1), "already in line 1"),
        ("[" * (MAX_DEPTH + 1), "TOO_LARGE", (1, MAX_DEPTH + 1), "nested"),
        ("[" * 100_000, "TOO_LARGE", (1, MAX_DEPTH + 1), "nested"),
        ("#" * (4 * 1024 * 1024 + 1), "TOO_LARGE", (1, 1), "characters"),
    ],
)
def test_invalid_yaml_names_the_position(text: str, code: str, place: tuple[int, int], words: str) -> None:
    (finding,) = findings(text)
    assert (finding.code, finding.line, finding.column) == (code, *place)
    assert words in str(finding)


def test_a_few_lines_of_aliases_do_not_become_a_billion_values() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (finding,) = findings("\n".join(lines))
    assert finding.code == "TOO_LARGE"


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    with pytest.raises(BadDocument, match=r"none\.yaml: error BAD_YAML: There is no such file"):
        load_document(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_bytes(b"a: 1\nb: \xff")
    with pytest.raises(BadDocument, match=r"bad\.yaml:2:4: error BAD_YAML: It is not UTF-8"):
        load_document(tmp_path / "bad.yaml")


@given(st.text(st.sampled_from("ab:-[]{}#&*!|>'\"%@`?, \n\t\\~<1e.0x\u2028")) | st.text())
def test_any_text_is_a_document_or_has_findings(text: str) -> None:
    with pytest.raises(BadDocument) as caught:
        read_document(text)
    assert all(one.code in CODES and one.line > 0 for one in caught.value.findings)


@given(st.data())
def test_damaged_files_load_or_have_findings(data: st.DataObject) -> None:
    text = (DOCUMENTS / "everything.yaml").read_text(encoding="utf-8")
    begin = data.draw(st.integers(0, len(text)))
    end = begin + data.draw(st.integers(0, 20))
    damaged = text[:begin] + data.draw(texts) + text[end:]
    with suppress(BadDocument):
        read_document(damaged)


# --- names and values -------------------------------------------------------------------------------------------------


@each(
    ("written", "seconds"),
    [
        ("timeout: 10m", 600),
        ("timeout: 90", 90),
        ("timeout: 1.5", 1.5),
        ("timeout: 90s", 90),
        ("timeout: 1h30m", 5400),
        ("timeout: 1h 30m", 5400),
        ("timeout: 250ms", 0.25),
        ("timeout: 2d", 172_800),
        ("timeout: 0.5h", 1800),
        ("timeoutMs: 600000", 600),
        ("timeout_ms: 100", 0.1),
    ],
)
def test_times(written: str, seconds: float) -> None:
    assert step(f"name: a\n{written}").timeout == seconds


@pytest.mark.parametrize(
    "written", ["timeout: soon", "timeout: 10 minutes", "timeoutMs: 10m", "timeout: true", "timeout: 5M"]
)
def test_invalid_durations_show_the_format(written: str) -> None:
    with pytest.raises(BadDocument, match=r"error BAD_DURATION: .*write `timeout: 90s`"):
        step(f"name: a\n{written}")


def test_bare_relay_timeouts_are_milliseconds() -> None:
    made = step("name: a\nverification: {type: custom, value: x, diagnosticTimeout: 60000}")
    assert made.verification is not None
    assert made.verification.diagnostic_timeout == 60


def test_texts_that_people_write_as_numbers() -> None:
    made = step("name: a\nenv: {PORT: 8080, DEBUG: true, VERSION: 1.10}\nverification: {type: exit_code, value: 0}")
    assert made.env == {"PORT": "8080", "DEBUG": "true", "VERSION": "1.10"}
    assert made.verification is not None
    assert made.verification.value == "0"
    assert read_document(HEAD.replace('"1"', "1.0")).version == "1.0"


def test_short_forms() -> None:
    assert read_document(HEAD + "trajectories: false").trajectories == Trajectories(enabled=False)
    assert read_document(HEAD + "trajectories: {}").trajectories == Trajectories()
    assert read_document(HEAD.replace("{pattern: dag}", "pipeline")).swarm == Swarm(pattern="pipeline")


def test_a_step_of_ones_own_is_kept_as_it_is_written_until_it_is_used() -> None:
    lint = CustomStep(
        params=(Param(name="path", default="."), Param(name="wait", required=True)),
        step={"type": "deterministic", "command": "lint {{path}}", "timeoutMs": "{{wait}}"},
    )
    below = "steps:\n  lint:\n    params: [{name: path, default: .}, {name: wait, required: true}]\n"
    relay = "    type: deterministic\n    command: lint {{path}}\n    timeoutMs: '{{wait}}'\n"
    ours = "    step: {type: deterministic, command: 'lint {{path}}', timeoutMs: '{{wait}}'}\n"
    assert read_steps(below + relay) == read_steps(below + ours) == {"lint": lint}
    assert read_document(HEAD + below + relay).steps == {"lint": lint}
    assert step("name: a\nuse: lint\nwait: 5\nwith: {path: src}") == step(
        "name: a\nuse: lint\nwith: {wait: 5, path: src}"
    )
    with pytest.raises(BadDocument, match="DUPLICATE_KEY: `target` is in `with` as well"):
        step("name: a\nuse: lint\nwith: {target: src}\ntarget: y")
    assert step("name: a\nuse: lint\nwith: {path: src}\nwait: 5") == Step(
        name="a", use="lint", with_={"path": "src", "wait": 5}
    )
    filled = {**lint.step, "name": "a", "command": "lint src", "timeoutMs": 5000}
    assert read_step(filled) == Step(name="a", type="deterministic", command="lint src", timeout=5.0)


def test_mistakes_in_a_step_of_ones_own_have_their_place() -> None:
    with pytest.raises(BadDocument) as caught:
        read_steps("steps:\n  a:\n    comand: x\n    retries: many\n    timeout: '{{t}}'\nother: 1\n", "steps.yaml")
    told = [(one.code, one.line, one.column) for one in caught.value.findings]
    assert told == [("UNKNOWN_KEY", 3, 5), ("BAD_TYPE", 4, 14), ("UNKNOWN_KEY", 6, 1)]
    with pytest.raises(BadDocument, match=r"here:7:1: error MISSING_KEY"):
        read_step({}, TextPosition("here", 7, 1))


MISTAKES = [
    ("swarm: {pattern: dag, maxConcurency: 3}", "UNKNOWN_KEY", 3, 23, "did you mean `maxConcurrency`?"),
    ("agents: [{name: a, cli: claude, model: x}]", "UNKNOWN_KEY", 4, 33, "write it in `constraints`"),
    ("zzz: 1", "UNKNOWN_KEY", 4, 1, "known are version, name"),
    ("agents: [{cli: claude}]", "MISSING_KEY", 4, 10, "add `name: ...`"),
    ("agents:", "EMPTY_VALUE", 4, 8, "give it one"),
    ("workflows: [{name: x, steps: []}]", "BAD_VALUE", 4, 30, "add one"),
    ("agents: a", "BAD_TYPE", 4, 9, "write [a]"),
    ("agents: [a]", "BAD_TYPE", 4, 10, "write `key: value`"),
    ("vars: [a]", "BAD_TYPE", 4, 7, "write `name: value`"),
    ("description: 5", "BAD_TYPE", 4, 14, 'write "5"'),
    ("agents: [{name: a, interactive: 'no'}]", "BAD_TYPE", 4, 33, "write `true` or `false`"),
    ("agents: [{name: a, constraints: {retries: 1.5}}]", "BAD_TYPE", 4, 43, "write a whole number"),
    ("agents: [{name: a, constraints: {maxTokens: 0}}]", "BAD_VALUE", 4, 45, "at least 1"),
    ("agents: [{name: a, constraints: {maxCost: 0}}]", "BAD_VALUE", 4, 43, "more than 0"),
    ("coordination: {votingThreshold: 1.5}", "BAD_VALUE", 4, 33, "at least 0 and at most 1"),
    ("agents: [{name: a, timeout: 99999d}]", "BAD_VALUE", 4, 29, "at most"),
    ("agents: [{name: a, cli: cladue}]", "BAD_VALUE", 4, 25, "did you mean claude?"),
    ("agents: [{name: a, cli: 5}]", "BAD_VALUE", 4, 25, "write one of agent, aider"),
    ("agents: [{name: a, timeout: 5s, timeoutMs: 5000}]", "DUPLICATE_KEY", 4, 33, "remove one of them"),
    ("errorHandling: {}\nerror_handling: {}", "DUPLICATE_KEY", 5, 1, "remove one of them"),
    ("swarm: {pattern: dag, credentialProxy: {proxyUrl: x}}", "UNSUPPORTED", 3, 23, "credentials: NAME"),
    ("swarm: {pattern: dag, credential_proxy: {}}", "UNSUPPORTED", 3, 23, "credentials: NAME"),
    ("agents: [{name: a, credentials: {proxy: true}}]", "UNSUPPORTED", 4, 33, "the name of a credential"),
    ("agents: [{name: a, permissions: {network: false}}]", "UNSUPPORTED", 4, 34, "sandbox"),
    ("agents: [{name: a, permissions: {exec: [ls]}}]", "UNSUPPORTED", 4, 34, "sandbox"),
    ("agents: [{name: a, permissions: {scopes: [x]}}]", "UNSUPPORTED", 4, 34, "`files`"),
    ("state: {backend: redis}", "UNSUPPORTED", 4, 18, "backend: database"),
    ("agents: [{name: a, runtime: acp}]", "UNSUPPORTED", 4, 29, "write `cli: NAME`"),
    ("budget: 5", "UNKNOWN_KEY", 4, 1, "`tokenBudget`"),
    ("steps: [{name: a, type: agent}]", "UNSUPPORTED", 4, 8, "write `workflows:"),
    ("workflows: [{name: x, steps: [{name: s, type: llm}]}]", "UNSUPPORTED", 4, 47, "`cli: api`"),
    ("workflows: [{name: x, steps: [{name: s, type: human}]}]", "UNSUPPORTED", 4, 47, "`type: approval`"),
    ("workflows: [{name: x, steps: [{name: s, budget: 5}]}]", "UNKNOWN_KEY", 4, 41, "`constraints`"),
    ("workflows: [{name: x, steps: [{name: s, id: a}]}]", "UNKNOWN_KEY", 4, 41, "write `name`"),
    (
        "workflows: [{name: x, preflight: [{command: ls, captureOutput: false}], steps: [{name: s}]}]",
        *("UNSUPPORTED", 4, 49, "always read"),
    ),
    ("workflows: [{name: x, steps: [{name: s, type: integration}]}]", "UNSUPPORTED", 4, 47, "`gh`"),
    ("workflows: [{name: x, steps: [{name: s, needs: [a]}]}]", "UNKNOWN_KEY", 4, 41, "write `dependsOn`"),
]


@each(("text", "code", "line", "column", "fix"), MISTAKES)
def test_a_mistake_has_its_place_its_code_and_its_fix(text: str, code: str, line: int, column: int, fix: str) -> None:
    whole = HEAD.replace("swarm: {pattern: dag}", text) if text.startswith("swarm") else HEAD + text
    (finding,) = findings(whole)
    assert (finding.code, finding.file, finding.line, finding.column) == (code, "flow.yaml", line, column)
    assert fix in f"{finding.message} {finding.fix}"
    assert str(finding) == f"flow.yaml:{line}:{column}: error {code}: {finding.message} ({finding.fix})"
    assert CODES[code].severity == "error"


def test_all_mistakes_are_reported_at_once() -> None:
    found = findings("name: 5\nagents: [{cli: x}, 3]\nzzz: 1\n")
    assert [(one.code, one.line) for one in found] == [
        *(("MISSING_KEY", 1), ("MISSING_KEY", 1), ("BAD_TYPE", 1), ("MISSING_KEY", 2), ("BAD_VALUE", 2)),
        *(("BAD_TYPE", 2), ("UNKNOWN_KEY", 3)),
    ]


def test_places_are_found_by_the_names_of_the_document() -> None:
    read_from = read_source(
        HEAD + "workflows:\n  - name: m\n    steps:\n      - {name: s, depends_on: [x], timeout_ms: 5}\n"
    )
    base = ("workflows", 0, "steps", 0)
    assert read_from.place((*base, "dependsOn", 0))[1:] == (7, 32)
    assert read_from.place((*base, "timeout"), key=True)[1:] == (7, 36)


def test_an_anchor_may_be_used_for_several_steps() -> None:
    text = "workflows:\n  - name: m\n    steps:\n      - &s {name: a, timeout_ms: 5}\n      - {<<: *s, name: b}\n"
    assert [one.timeout for one in read_document(HEAD + text + "  - {name: n, steps: [*s]}\n").workflows[0].steps] == [
        0.005
    ] * 2


# --- writing ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40)  # each is a whole document
@given(documents)
def test_documents_round_trip(document: Document) -> None:
    assert read_document(write_document(document)) == document


@given(st.floats(0, 10 * 366 * 86_400))
def test_a_time_that_is_spelled_reads_the_same(time: float) -> None:
    assert parse_duration(format_duration(time)) == time


def test_a_file_that_is_written_is_for_people_too() -> None:
    document = read_document(
        HEAD + "workflows: [{name: m, steps: [{name: a, task: 'one\n\n  two', timeoutMs: 5400000, dependsOn: [b]}]}]"
    )
    assert write_document(document).splitlines()[0] == "# yaml-language-server: $schema=accord-workflow.schema.json"
    assert "timeout: 1h30m\n" in write_document(document)
    assert "dependsOn: [b]\n" in write_document(document)


@pytest.mark.parametrize("file", sorted(DOCUMENTS.glob("*.yaml")), ids=lambda file: file.name)
def test_the_documents_read_the_same_after_writing(file: Path) -> None:
    opened = load_source(file)
    assert read_document(write_document(opened.document)) == opened.document
