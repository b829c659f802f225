"""Plans: what a document comes to for one run, and everything that is refused before anything runs."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accord.workflows.dry_run import dry_run_report
from accord.workflows.findings import BadDocument
from accord.workflows.plan import Plan
from accord.workflows.planner import make_plan
from accord.workflows.source import read_document
from tests.cases import each

HEAD = 'version: "1"\nname: flow\n'

HYBRID = (
    HEAD
    + """
swarm: {pattern: dag}
agents:
  - {name: planner, cli: claude, role: Plans}
  - name: data
    runtime: a2a
    url: http://localhost:9000
    headers: {X-Team: blue, Authorization: "Bearer ${TOKEN}"}
  - name: summarizer
    runtime: a2a
    url: http://localhost:9001
    streaming: false
    timeoutMs: 5000
    shareContext: true
workflows:
  - name: main
    steps:
      - {name: plan, agent: planner, task: Plan it}
      - {name: fetch, type: a2a, agent: data, task: Pull, dependsOn: [plan], timeoutMs: 120000}
      - name: sum
        type: a2a
        agent: summarizer
        task: "Sum up {{steps.fetch.output}}"
        dependsOn: [fetch]
        streaming: true
        headers: {X-Step: "1"}
      - {name: elsewhere, agent: data, url: "http://localhost:9002", task: hi, headers: {authorization: none}}
      - {name: inline, type: a2a, url: "http://localhost:9003", task: hi}
      - {name: test, type: deterministic, command: npm test, dependsOn: [sum]}
"""
)


def planned(text: str, **given: Any) -> Plan:
    given.setdefault("base", Path("/nowhere"))
    return make_plan(read_document(text), **{"env": {"TOKEN": "secret"}, **given})


def refused(text: str, **given: Any) -> list[str]:
    with pytest.raises(BadDocument) as refusal:
        planned(text, **given)
    assert all(finding.fix for finding in refusal.value.findings)
    return [finding.code for finding in refusal.value.findings]


def steps(*written: str, pattern: str = "dag", more: str = "", agents: str = "[{name: a, cli: claude}]") -> str:
    lines = "".join(f"      - {{{one}}}\n" for one in written)
    head = f"{HEAD}swarm: {{pattern: {pattern}}}\nagents: {agents}\n{more}\n"
    return f"{head}workflows:\n  - name: main\n    steps:\n{lines}"


# --- what is filled in ------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-18", "1-19", "1-21", "1-31", "1-38", "C-16")
def test_agents_give_defaults_and_steps_override_them_field_by_field() -> None:
    made = {step.name: step for step in planned(HYBRID).steps}
    assert [(name, step.type) for name, step in made.items()] == [
        ("plan", "agent"),
        ("fetch", "a2a"),
        ("sum", "a2a"),
        ("elsewhere", "a2a"),
        ("inline", "a2a"),
        ("test", "deterministic"),
    ]
    fetch, summed, elsewhere, inline = (made[name] for name in ("fetch", "sum", "elsewhere", "inline"))
    assert (fetch.url, fetch.timeout, fetch.streaming) == ("http://localhost:9000", 120.0, None)
    assert fetch.headers == {"X-Team": "blue", "Authorization": "Bearer ${TOKEN}"}
    assert (summed.url, summed.timeout, summed.streaming) == ("http://localhost:9001", 5.0, True)
    assert (summed.share_context, summed.headers) == (True, {"X-Step": "1"})
    assert elsewhere.url == "http://localhost:9002"
    assert elsewhere.headers == {"X-Team": "blue", "authorization": "none"}
    assert (inline.url, inline.timeout) == ("http://localhost:9003", 60.0)
    assert all(step.depends_on is not None for step in made.values())


def test_a_plan_is_kept_as_json_without_secrets() -> None:
    made = planned(HYBRID)
    kept = msgspec.json.encode(made)
    assert b"secret" not in kept
    assert msgspec.json.decode(kept, type=Plan) == made


RETRYING = "errorHandling: {strategy: retry, maxRetries: 4, retryDelay: 3s, backoff: 2.5}"


@pytest.mark.parametrize(
    ("step", "more", "expected"),
    [
        ("name: x, agent: a, task: x", "", (None, None, None, None)),
        ("name: x, agent: a, task: x, retries: 1", RETRYING, (1, 3.0, 2.5, None)),
        ("name: x, agent: a, task: x", RETRYING, (4, 3.0, 2.5, None)),
        ("name: x, agent: a, task: x", "errorHandling: {strategy: retry}", (2, 1.0, None, None)),
        ("name: x, agent: r, task: x", RETRYING, (7, 3.0, 2.5, None)),
        ("name: x, agent: a, task: x, onError: retry", "errorHandling: {maxRetries: 5}", (5, 1.0, None, "retry")),
        ("name: x, type: approval, task: ok?", RETRYING, (None, None, None, None)),
    ],
)
def test_how_often_a_step_is_tried_again(step: str, more: str, expected: tuple[Any, ...]) -> None:
    agents = "[{name: a, cli: claude}, {name: r, cli: claude, constraints: {retries: 7}}]"
    made = planned(steps(step, more=more, agents=agents)).steps[0]
    assert (made.retries, made.retry_delay, made.backoff, made.on_error) == expected


def test_map_items_are_retried() -> None:
    inner = "step: {name: one, agent: a, task: 'do {{item}} {{index}} {{file}}'}"
    text = steps(f"name: all, type: map, over: [1, 2], as: file, retries: 3, onError: retry, {inner}")
    (made,) = planned(text).steps
    assert made.step is not None
    assert (made.retries, made.step.retries, made.step.on_error) == (None, 3, "retry")
    assert (made.step.name, made.step.type) == ("all", "agent")


def test_where_a_step_works() -> None:
    text = steps(
        "name: x, agent: a, task: x, workdir: repo",
        "name: y, agent: a, task: y, cwd: 'sub/{{vars.v}}'",
        "name: z, agent: b, task: z",
        "name: w, type: deterministic, command: ls",
        more="paths: [{name: repo, path: ../repo}]\nvars: {v: one}",
        agents="[{name: a, cli: claude, cwd: agents}, {name: b, cli: claude, workdir: repo}]",
    )
    places = [step.cwd for step in planned(text).steps]
    assert places == ["/nowhere/../repo", "sub/{{vars.v}}", "/nowhere/../repo", None]


def test_run_limits_of_a_plan() -> None:
    more = """
description: whole
coordination: {barriers: [{name: gate, waitFor: [x], mode: any}, {name: other, waitFor: [not-here]}]}
state: {namespace: n}
errorHandling: {strategy: continue, notifyChannel: ops, repairAgent: a}
trajectories: false
"""
    text = steps("name: x, agent: a, task: x", "name: y, agent: a, task: y, dependsOn: [gate]", more=more).replace(
        "swarm: {pattern: dag}", "swarm: {pattern: dag, maxConcurrency: 3, timeout: 1h, tokenBudget: 9, channel: c}"
    )
    made = planned(text, input="in")
    assert (made.name, made.workflow, made.pattern, made.input) == ("flow", "main", "dag", "in")
    assert (made.max_concurrency, made.timeout, made.token_budget, made.channel) == (3, 3600.0, 9, "c")
    assert (made.strategy, made.notify_channel, made.repair_agent, made.repair_retries) == ("continue", "ops", "a", 2)
    assert [barrier.name for barrier in made.barriers] == ["gate"]
    assert made.trajectories is not None
    assert not made.trajectories.enabled
    assert made.state is not None


def test_agents_with_tasks_need_no_workflow() -> None:
    text = HEAD + "swarm: {pattern: pipeline}\nagents: [{name: a, cli: claude, task: one}, {name: b, cli: codex}]\n"
    assert [(step.name, step.agent, step.task, step.depends_on) for step in planned(text, input="x").steps] == [
        ("a", "a", "one", ()),
        ("b", "b", "{{input}}", ("a",)),
    ]


def test_the_workflow_that_is_named_is_planned() -> None:
    text = steps("name: x, agent: a, task: x") + "  - name: second\n    steps: [{name: y, agent: a, task: y}]\n"
    assert [planned(text, workflow=name).steps[0].name for name in (None, "main", "second")] == ["x", "x", "y"]
    assert refused(text, workflow="secnd") == ["UNKNOWN_WORKFLOW"]


# --- what is given ----------------------------------------------------------------------------------------------------

GIVEN = """
inputs:
  topic: {type: string, required: true}
  count: {type: integer, default: 2}
  level: {type: string, enum: [low, high], default: low}
vars:
  title: "About {{inputs.topic}}"
  both: "{{vars.title}} x{{inputs.count}}"
  n: "{{inputs.count}}"
  list: ["{{input}}"]
"""


def test_inputs_and_variables_are_settled_before_a_run() -> None:
    text = steps("name: x, agent: a, task: '{{both}} {{inputs.level}} {{extra}}'", more=GIVEN)
    made = planned(text, vars={"topic": "{{input}}", "count": "7", "extra": "{{vars.title}}"}, input="in")
    assert made.inputs == {"topic": "{{input}}", "count": 7, "level": "low"}
    assert made.vars == {
        "title": "About {{input}}",
        "both": "About {{input}} x7",
        "n": 7,
        "list": ["in"],
        "extra": "{{vars.title}}",
    }
    assert planned(text, vars={"extra": ""}, input='{"topic": "json", "count": 3}').vars["both"] == "About json x3"


def test_inputs_that_do_not_fit_are_refused() -> None:
    text = steps("name: x, agent: a, task: x", more=GIVEN)
    assert refused(text) == ["MISSING_INPUT"]
    with pytest.raises(BadDocument, match=r"^error MISSING_INPUT: .*as a key of an input that is JSON"):
        planned(text)
    assert refused(text, vars={"topic": "t", "count": "many", "level": "mid"}) == ["BAD_INPUT", "BAD_INPUT"]


def test_variables_that_need_each_other_or_nothing_are_refused() -> None:
    assert refused(steps("name: x, agent: a, task: x", more='vars: {a: "{{vars.b}}", b: "{{a}}"}')) == ["CYCLE"]
    more = 'vars: {a: "{{nope}}", b: "{{env.TOKEN}}"}'
    assert refused(steps("name: x, agent: a, task: x", more=more)) == ["UNKNOWN_REFERENCE", "UNKNOWN_REFERENCE"]


# --- what is refused --------------------------------------------------------------------------------------------------


@each(
    ("written", "code"),
    [
        (["name: x, agent: a, task: '{{steps.y.output}}'"], "UNKNOWN_REFERENCE"),
        (["name: x, agent: a, task: '{{steps.x.output}}'"], "NOT_UPSTREAM"),
        (["name: x, agent: a, task: x", "name: y, agent: a, task: '{{steps.x.output}}'"], "NOT_UPSTREAM"),
        (["name: x, agent: a, task: x", "name: y, agent: a, if: failed(x), task: y"], "NOT_UPSTREAM"),
        (
            ["name: x, agent: a, task: x", "name: y, agent: a, task: '{{steps.x.outptu}}', dependsOn: [x]"],
            "UNKNOWN_REFERENCE",
        ),
        (["name: x, agent: a, task: '{{nope}}'"], "UNKNOWN_REFERENCE"),
        (["name: x, agent: a, task: '{{vars.nope}}'"], "UNKNOWN_REFERENCE"),
        (["name: x, agent: a, task: '{{inputs.nope}}'"], "UNKNOWN_REFERENCE"),
        (["name: x, agent: a, task: '{{state.nope}}'"], "UNKNOWN_REFERENCE"),
        (["name: x, agent: a, task: '{{item}}'"], "UNKNOWN_REFERENCE"),
        (["name: x, agent: a, task: '{{env.NOPE}}'"], "MISSING_ENV"),
        (["name: x, type: a2a, url: 'http://h/${NOPE}', task: x"], "MISSING_ENV"),
        (["name: x, agent: a, task: '{{input | nope}}'"], "BAD_TEMPLATE"),
        (["name: x, agent: a, task: x, if: '1 =='"], "BAD_TEMPLATE"),
        (["name: x, agent: b, task: x"], "UNKNOWN_AGENT"),
        (["name: x, type: a2a, task: x"], "MISSING_URL"),
        (["name: x, agent: a, task: x, dependsOn: [y]"], "UNKNOWN_DEPENDENCY"),
        (["name: x, agent: a, task: x, dependsOn: [y]", "name: y, agent: a, task: y, dependsOn: [x]"], "CYCLE"),
        (
            [
                "name: x, agent: a, task: x",
                "name: x-round-1, agent: a, task: x",
                "name: l, agent: a, task: x, use: nope",
            ],
            "UNKNOWN_CUSTOM_STEP",
        ),
        (
            [
                "name: x, agent: a, task: x, maxIterations: 2, until: vote(x) == 'Y'",
                "name: x-round-1, agent: a, task: x",
            ],
            "DUPLICATE_NAME",
        ),
        (["name: x, type: deterministic, command: 'sh -c {{input}}'"], "INJECTION_RISK"),
    ],
)
def test_missing_values_are_refused_before_the_run(written: list[str], code: str) -> None:
    assert refused(steps(*written)) == [code]


def test_no_value_chooses_the_command_nor_a_variable_that_does() -> None:
    tool = steps("name: x, type: deterministic, command: '{{tool}} -v'", more="vars: {tool: git}")
    assert refused(tool) == ["INJECTION_RISK"]
    argv = "name: x, type: deterministic, argv: ['{{tool}}', -v]"
    assert refused(steps(argv, more="vars: {tool: git}")) == ["INJECTION_RISK"]
    ours = "name: x, type: deterministic, command: ls, env: {PATH: '{{env.PATH}}:/opt', TITLE: '{{input}}'}"
    planned(steps(ours), env={"PATH": "/bin"})
    theirs = "name: x, type: deterministic, command: ls, env: {LD_PRELOAD: '{{input}}'}"
    assert refused(steps(theirs)) == ["INJECTION_RISK"]


def test_a_verification_takes_values_by_the_same_rules() -> None:
    step = "name: x, type: deterministic, command: ls, verification: {type: custom, %s}"
    assert refused(steps(step % "value: 'sh -c {{input}}'")) == ["INJECTION_RISK"]
    assert refused(steps(step % "argv: [sh, -c, '{{input}}']")) == ["INJECTION_RISK"]
    planned(steps(step % "argv: [./check, '{{input}}']"))
    planned(steps(step % "argv: [sh, -c, 'test \"$1\"', _, '{{input}}'], allowInterpreter: true"))


def test_values_with_defaults_or_later_sources_pass() -> None:
    planned(
        steps(
            "name: x, agent: a, task: \"{{vars.nope | default('')}} {{state.s}} {{env.TOKEN}}\"",
            "name: y, agent: a, dependsOn: [x], task: y, set: {s: '{{steps.y.output}}'}",
            "name: z, agent: a, dependsOn: [y], task: '{{steps.x.output}}'",
        )
    )


def test_url_variables_are_filled_in() -> None:
    text = steps("name: x, type: a2a, url: 'http://{{vars.host}}/${TOKEN}', task: x", more="vars: {host: h}")
    assert planned(text).steps[0].url == "http://h/${TOKEN}"


# --- steps of one's own -----------------------------------------------------------------------------------------------

OWN = """
steps:
  lint:
    params:
      - {name: path, required: true}
      - {name: level, default: 3}
    step: {type: deterministic, argv: [lint, --level, "{{level}}", "{{path}}", "{{path | upper}}"], timeout: 5m}
"""


def test_custom_steps_get_typed_values() -> None:
    text = steps(
        "name: a1, use: lint, with: {path: 'src; rm -rf x'}, retries: 2",
        "name: b1, use: lint, with: {path: 'x/{{input}}.py', level: 4}, dependsOn: [a1]",
        more=OWN,
    )
    first, second = planned(text, input="i").steps
    assert first.argv == ("lint", "--level", "3", "src; rm -rf x", '{{"src; rm -rf x" | upper}}')
    assert (first.type, first.timeout, first.retries, first.use) == ("deterministic", 300.0, 2, None)
    assert second.argv is not None
    assert second.argv[3] == "x/{{input}}.py"
    assert second.depends_on == ("a1",)


@pytest.mark.parametrize(
    ("use", "code"),
    [("lint", "BAD_PARAMS"), ("lint, with: {path: x, paht: y}", "BAD_PARAMS"), ("lnit", "UNKNOWN_CUSTOM_STEP")],
)
def test_custom_steps_need_their_required_fields(use: str, code: str) -> None:
    assert refused(steps(f"name: x, use: {use}", more=OWN)) == [code]


def test_steps_of_ones_own_beside_the_document(tmp_path: Path) -> None:
    for folder, command in ((".relay", "old"), (".accord", "new")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "steps.yaml").write_text(f"steps:\n  own: {{type: deterministic, command: {command}}}\n")
    made = planned(steps("name: x, use: own"), base=tmp_path)
    assert made.steps[0].command == "new"


def test_steps_of_ones_own_that_use_themselves_are_refused() -> None:
    assert refused(steps("name: x, use: o", more="steps: {o: {step: {use: o}}}")) == ["UNKNOWN_CUSTOM_STEP"]


# --- variables --------------------------------------------------------------------------------------------------------


def test_steps_that_are_the_same_variable_are_refused() -> None:
    shell = "type: deterministic, command: 'true'"
    assert refused(steps(f"name: a-b, {shell}", f"name: a_b, {shell}")) == ["DUPLICATE_NAME"]
    assert len(planned(steps(f"name: a-b, {shell}", f"name: ab, {shell}")).steps) == 2


@pytest.mark.parametrize("value", ["${TOKEN}", "${TOKEN}-{{vars.y}}", "x${credential:one}"])
def test_a_variable_that_a_step_would_not_fill_in_is_refused(value: str) -> None:
    step = f"name: a, type: deterministic, command: 'true', env: {{K: '{value}'}}"
    within = f"name: m, type: map, over: [1], step: {{{step}}}"
    agents = "[{name: a, command: cat, env: {K: 'X'}}]".replace("X", value)
    for text in (steps(step, more="vars: {y: 1}"), steps(within, more="vars: {y: 1}")):
        assert refused(text) == ["NOT_FILLED"]
    by_agent = steps("name: a, agent: a, task: x", more="vars: {y: 1}", agents=agents)
    if "{{" in value:
        assert refused(by_agent) == ["NOT_FILLED"]
    else:
        assert planned(by_agent).steps


def test_nested_maps_are_validated() -> None:
    def nested(inner: str) -> str:
        cell = f"{{name: x, type: map, over: '{{{{row}}}}', as: cell, step: {{name: z, {inner}}}}}"
        return steps(f"name: f, type: map, over: [[1]], as: row, step: {cell}")

    assert planned(nested("type: deterministic, command: 'echo {{row}} {{cell}} {{item}}'")).steps
    assert refused(nested("type: deterministic, command: '{{row}} x'")) == ["INJECTION_RISK"]
    assert refused(nested("type: deterministic, command: 'echo {{line}}'")) == ["UNKNOWN_REFERENCE"]
    assert refused(nested("agent: nobody, task: x")) == ["UNKNOWN_AGENT"]
    assert refused(nested("type: a2a, url: 'http://{{row}}', task: x")) == ["NOT_FIXED"]


# --- the dry run ------------------------------------------------------------------------------------------------------


def test_dry_runs_list_actions() -> None:
    found = dry_run_report(planned(HYBRID))
    assert [[line.name for line in wave] for wave in found.waves] == [
        ["plan", "elsewhere", "inline"],
        ["fetch"],
        ["sum"],
        ["test"],
    ]
    assert (found.total, found.peak, found.pattern) == (6, 3, "dag")
    assert found.agents == {"planner": 1, "data": 2, "summarizer": 1}
    assert found.waves[0][0].does == "Plan it"
    assert found.warnings == (), "that nothing ends plan is for the checks to say"


def test_dry_runs_list_waits_approvals_and_maps() -> None:
    cell = "{name: x, type: map, over: [1, 2], as: y, step: {name: z, type: deterministic, command: 'echo {{y}}'}}"
    text = steps(
        "name: a, type: wait, for: 90m",
        "name: b, type: wait, event: mail, description: For the mail",
        "name: c, type: approval, task: 'Ship it?', description: The last look",
        "name: d, type: map, over: '{{vars.rows}}', step: {name: e, agent: a, task: Do it}",
        f"name: f, type: map, over: '{{{{vars.rows}}}}', step: {cell}",
        "name: g, type: approval, task: 'Ship it?'",
        more="vars: {rows: [1]}",
    )
    (wave,) = dry_run_report(planned(text)).waves
    assert {line.name: (line.type, line.does) for line in wave} == {
        "a": ("wait", "waits for 1h30m"),
        "b": ("wait", "For the mail: waits for the event mail"),
        "c": ("approval", "The last look: Ship it?"),
        "d": ("map of agent", "Do it (for each of {{vars.rows}})"),
        "f": ("map of map of deterministic", "echo {{y}} (for each of [1,2]) (for each of {{vars.rows}})"),
        "g": ("approval", "Ship it?"),
    }


def test_dry_runs_have_warnings() -> None:
    written = [f"name: s{number}, type: deterministic, command: 'true'" for number in range(6)]
    names = ", ".join(f"s{number}" for number in range(6))
    text = steps(*written, f"name: all, agent: a, timeout: 1m, dependsOn: [{names}], task: x").replace(
        "{pattern: dag}", "{pattern: dag, maxConcurrency: 2}"
    )
    found = dry_run_report(planned(text))
    assert found.peak == 2
    assert [warning.split(" ")[0] for warning in found.warnings] == ["all", "6"]


def test_a_large_plan_is_made() -> None:
    written = ["name: s0, type: deterministic, command: 'true'"]
    written += [
        f"name: s{number}, type: deterministic, dependsOn: [s{number - 1}], "
        f"command: 'echo {{{{steps.s{number - 1}.output}}}}'"
        for number in range(1, 1000)
    ]
    made = planned(steps(*written))
    assert len(dry_run_report(made).waves) == 1000


# --- templates --------------------------------------------------------------------------------------------------------

TEMPLATES = sorted(
    Path(str(file)) for file in (files("accord.workflows") / "library").iterdir() if file.name.endswith(".yaml")
)


@each("file", TEMPLATES)
def test_every_template_can_be_planned(file: Path) -> None:
    made = planned(file.read_text(encoding="utf-8"), input="what is wanted")
    assert made.steps
    assert dry_run_report(made).total == len(made.steps)


def test_all_templates_are_there() -> None:
    assert {file.stem for file in TEMPLATES} >= {
        "bug-fix",
        "code-review",
        "competitive",
        "documentation",
        "feature-dev",
        "refactor",
        "review-loop",
        "security-audit",
    }
