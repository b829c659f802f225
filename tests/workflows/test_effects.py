"""Keys of a document and what each does, seen in a run: with a key, and without it where that tells more."""

import json
from pathlib import Path
from typing import Any

import pytest

from accord.workflows.agent import WorkflowAgent
from accord.workflows.dry_run import dry_run_report
from accord.workflows.findings import BadDocument
from accord.workflows.planner import make_plan
from accord.workflows.source import load_document, read_document, read_source
from accord.workflows.validation import check_source
from tests.workflows.proving import Ran, flow, ran
from tests.workflows.scenes import environment, repository
from tests.workflows.test_members import cardless, paints

pytestmark = pytest.mark.proves("1-04", "1-06")


def shell(name: str, command: str, *more: str) -> str:
    return "\n".join((f"name: {name}", "type: deterministic", f"command: {json.dumps(command)}", *more))


def acting(script: str, **more: Any) -> str:
    """An agent that is a command without a terminal."""
    said = {"name": "dev", "command": f"sh -c {json.dumps(script)}", "interactive": False, **more}
    return f"agents: {json.dumps([said])}"


DEV = "name: work\nagent: dev\ntask: do it\nallowEmpty: true"


def attempts(run: Ran, step: str) -> int:
    numbers: list[int] = [about["attempt"] for about in run.abouts if about.get("step") == step and "attempt" in about]
    return max(numbers)


# --- agents -----------------------------------------------------------------------------------------------------------


CODEX_USED = (
    """echo '{"type":"thread.started","thread_id":"t"}'; """
    """echo '{"type":"item.completed","item":{"type":"agent_message","text":"ok"}}'; """
    """echo '{"type":"turn.completed","usage":{"input_tokens":500,"output_tokens":500}}'"""
)
CLAUDE_USED = (
    """echo '{"type":"system","subtype":"init","session_id":"s"}'; """
    """echo '{"type":"result","subtype":"success","is_error":false,"result":"ok","session_id":"s","total_cost_usd":9,"""
    """"usage":{"input_tokens":500,"output_tokens":500}}'"""
)


def spending(folder: Path, name: str, script: str) -> dict[str, str]:
    """An environment in which a command line agent has used a lot."""
    (folder / "bin").mkdir()
    (folder / "bin" / name).write_text(f"#!/bin/sh\ncat > /dev/null\n{script}\n")
    (folder / "bin" / name).chmod(0o755)
    env = environment(folder)
    return {**env, "PATH": f"{folder / 'bin'}:{env['PATH']}"}


@pytest.mark.parametrize(
    ("cli", "script", "constraints", "budget", "state"),
    [
        ("codex", CODEX_USED, {}, "", "COMPLETED"),
        ("codex", CODEX_USED, {"maxTokens": 100}, "", "FAILED"),
        ("claude", CLAUDE_USED, {}, "", "COMPLETED"),
        ("claude", CLAUDE_USED, {"maxCost": 2}, "", "FAILED"),
        ("codex", CODEX_USED, {}, "  tokenBudget: 100", "FAILED"),
        ("claude", CLAUDE_USED, {}, "  costBudget: 2", "FAILED"),
    ],
)
async def test_budgets_end_steps_that_exceed_them(
    tmp_path: Path, cli: str, script: str, constraints: dict[str, Any], budget: str, state: str
) -> None:
    agents = [{"name": "dev", "cli": cli, "interactive": False, "constraints": constraints}]
    text = flow(
        DEV, shell("next", "echo done", "dependsOn: [work]"), head=f"agents: {json.dumps(agents)}", swarm=budget
    )
    run = await ran(text, tmp_path, env=spending(tmp_path, cli, script))
    assert run.state == state, run.why


@pytest.mark.parametrize(
    ("of_agent", "of_step"),
    [({"constraints": {"timeout": "1s"}}, ""), ({"timeout": "1s"}, ""), ({}, "timeout: 1s")],
    ids=["constraints", "agent", "step"],
)
async def test_an_agent_has_so_much_time(tmp_path: Path, of_agent: dict[str, Any], of_step: str) -> None:
    run = await ran(flow(f"{DEV}\n{of_step}", head=acting("sleep 600", **of_agent)), tmp_path)
    assert run.state == "FAILED"
    assert "in time" in run.why, run.why


async def test_agents_have_their_retry_count(tmp_path: Path) -> None:
    head = acting("echo x >> tries; test $(wc -l < tries) -ge 3", constraints={"retries": 2})
    run = await ran(flow(f"{DEV}\nretryDelay: 10ms", head=head), tmp_path)
    assert run.state == "COMPLETED", run.why
    assert attempts(run, "work") == 3


@pytest.mark.parametrize(
    ("permissions", "profiles", "state"),
    [
        ({}, {}, "COMPLETED"),
        ({"access": "readonly"}, {}, "FAILED"),
        ({"files": {"deny": ["*.key"]}}, {}, "FAILED"),
        ({"files": {"write": ["docs/**"]}}, {}, "FAILED"),
        ({"files": {"read": ["a.*"]}}, {}, "FAILED"),
        ({"profile": "careful"}, {"careful": {"access": "readonly"}}, "FAILED"),
        ({"inherit": False, "access": "readwrite"}, {}, "COMPLETED"),
    ],
)
async def test_agent_file_permissions_are_checked(
    tmp_path: Path, permissions: dict[str, Any], profiles: dict[str, Any], state: str
) -> None:
    work = repository(tmp_path / "work")
    head = f"{acting('echo x > a.key', permissions=permissions)}\npermission_profiles: {json.dumps(profiles)}"
    run = await ran(flow(DEV, head=head), work, env=environment(tmp_path))
    assert run.state == state, run.why
    if state == "FAILED":
        assert "a.key" in run.why


async def test_ignore_files_restrict_agents_unless_disabled(tmp_path: Path) -> None:
    for inherits, state in ((True, "FAILED"), (False, "COMPLETED")):
        work = repository(tmp_path / str(inherits))
        (work / ".agentreadonly").write_text("*.key\n")
        head = acting("echo x > a.key", permissions={"inherit": inherits})
        run = await ran(flow(DEV, head=head), work, env=environment(tmp_path))
        assert run.state == state, run.why


async def test_command_agents_get_prompt_directory_and_variables(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    head = acting(
        "cat > told; pwd > where; printf %s $OWN $TAKEN > own",
        cwd="one",
        env={"OWN": "mine", "TAKEN": "+${TOKEN}"},
        role="a builder",
        skills="You know make.",
        permissions={"description": "Only what is asked", "why": "It is Friday", "access": "readwrite"},
        additionalPaths=["/more"],
        preset="worker",
    )
    run = await ran(flow(DEV, head=head), tmp_path, env=environment(tmp_path, TOKEN="t-1"))
    assert run.state == "COMPLETED", run.why
    told = (tmp_path / "one" / "told").read_text()
    for words in (
        "a builder",
        "You know make.",
        "Only what is asked",
        "It is Friday",
        "/more",
        "nobody is there",
        "do it",
    ):
        assert words in told, words
    assert (tmp_path / "one" / "where").read_text().strip() == str(tmp_path / "one")
    assert (tmp_path / "one" / "own").read_text() == "mine+t-1"


@pytest.mark.parametrize(("grace", "has_time"), [("30s", True), ("0s", False)])
async def test_terminal_agents_end_at_their_marker_with_grace(tmp_path: Path, grace: str, has_time: bool) -> None:
    script = "test -t 0 && trap 'sleep 1; echo ended > ended; exit' HUP TERM INT; echo ALL_SET; sleep 600 & wait"
    agent = {"name": "dev", "command": f"sh -c {json.dumps(script)}", "interactive": True, "done": "^ALL_SET$"}
    check = "verification: {type: output_contains, value: ALL_SET}"
    text = flow(f"{DEV}\n{check}", head=f"agents: {json.dumps([agent])}", swarm=f"  completionGracePeriod: {grace}")
    run = await ran(text, tmp_path)
    assert run.state == "COMPLETED", run.why
    assert (tmp_path / "ended").exists() is has_time


@pytest.mark.parametrize(
    ("nudge", "state"),
    [
        ("{nudgeAfter: 2s, escalateAfter: 60s, maxNudges: 1}", "COMPLETED"),
        ("{nudgeAfter: 2s, escalateAfter: 1s, maxNudges: 1}", "FAILED"),
        ("{nudgeAfter: 2s, escalateAfter: 60s, maxNudges: 0}", "FAILED"),
    ],
)
async def test_silent_agents_are_nudged_as_configured(tmp_path: Path, nudge: str, state: str) -> None:
    agents = [{"name": "dev", "command": paints("nudged"), "interactive": True}]
    head = f"agents: {json.dumps(agents)}"
    run = await ran(flow(DEV.replace("work", "build"), head=head, swarm=f"  idleNudge: {nudge}"), tmp_path)
    assert run.state == state, run.why


async def test_a_command_gets_its_task_on_standard_input(tmp_path: Path) -> None:
    agents = [{"name": "dev", "command": "wc -w"}]
    run = await ran(flow("name: count\nagent: dev\ntask: two words", head=f"agents: {json.dumps(agents)}"), tmp_path)
    assert (run.state, run.output.strip()) == ("COMPLETED", "2"), run.why


async def test_an_interpreter_gets_the_task_as_an_argument_only_if_allowed(tmp_path: Path) -> None:
    agent = {"name": "dev", "command": "sh -c 'printf %s \"$1\"' sh {prompt}"}
    step = "name: say\nagent: dev\ntask: $(touch pwned) it"
    allowed = flow(step, head=f"agents: {json.dumps([{**agent, 'allowInterpreter': True}])}")
    run = await ran(allowed, tmp_path)
    assert (run.state, run.output) == ("COMPLETED", "$(touch pwned) it"), run.why
    assert not (tmp_path / "pwned").exists()
    with pytest.raises(ValueError, match="`sh` may run"):
        WorkflowAgent(read_document(flow(step, head=f"agents: {json.dumps([agent])}")), directory=tmp_path, env={})


@pytest.mark.parametrize(
    ("more", "state"),
    [("", "FAILED"), ("\nallowEmpty: true", "COMPLETED"), ("\nverification: {type: exit_code}", "COMPLETED")],
)
async def test_an_empty_answer_is_a_failure_unless_allowed(tmp_path: Path, more: str, state: str) -> None:
    agents = [{"name": "dev", "command": "true"}]
    step = f"name: work\nagent: dev\ntask: do it\nretries: 0{more}"
    run = await ran(flow(step, head=f"agents: {json.dumps(agents)}"), tmp_path)
    assert run.state == state
    assert ("allowEmpty: true" in run.why) is (state == "FAILED")


async def test_an_agent_without_a_step_is_one_by_its_task(tmp_path: Path) -> None:
    text = (
        'version: "1"\nname: flow\nswarm: {pattern: pipeline}\nagents:\n'
        '  - {name: one, command: cat, interactive: false, task: "first"}\n'
        '  - {name: two, command: cat, interactive: false, task: "second after {{steps.one.output}}"}\n'
    )
    run = await ran(text, tmp_path)
    assert run.output.strip() == "second after first"


# --- steps ------------------------------------------------------------------------------------------------------------


async def test_a_step_is_tried_again_after_a_while_that_grows(tmp_path: Path) -> None:
    tries = "echo x >> tries; test $(wc -l < tries) -ge 4"
    run = await ran(flow(shell("a", tries, "retries: 3", "retryDelay: 100ms", "backoff: 3")), tmp_path)
    assert run.state == "COMPLETED", run.why
    assert attempts(run, "a") == 4
    pauses = [about for about in run.abouts if about.get("status") == "retrying"]
    assert len(pauses) == 3


@pytest.mark.parametrize(
    ("rule", "state", "ends"),
    [
        ("fail", "FAILED", {"a": "failed", "b": "skipped"}),
        ("skip", "COMPLETED", {"a": "skipped", "b": "skipped"}),
        ("continue", "COMPLETED", {"a": "failed", "b": "completed"}),
        ("retry", "FAILED", {"a": "failed", "b": "skipped"}),
    ],
)
@pytest.mark.parametrize("where", ["step", "workflow"])
async def test_on_error_decides_the_run(
    tmp_path: Path, rule: str, state: str, ends: dict[str, str], where: str
) -> None:
    own = f"onError: {rule}" if where == "step" else ""
    workflow = f"    onError: {rule}" if where == "workflow" else ""
    failing = shell("a", "echo x >> tries; exit 3", own, "retryDelay: 10ms")
    run = await ran(flow(failing, shell("b", "true", "dependsOn: [a]"), workflow=workflow), tmp_path)
    assert (run.state, run.ends()) == (state, ends), run.why
    tries = (tmp_path / "tries").read_text().count("x")
    assert (tries > 1) is (rule == "retry")


@pytest.mark.parametrize(
    ("handling", "expected"),
    [
        ("{strategy: fail-fast}", {"a": "failed", "b": "skipped", "c": "skipped"}),
        ("{strategy: continue}", {"a": "failed", "b": "skipped", "c": "completed"}),
    ],
)
async def test_error_strategies_decide_other_steps(tmp_path: Path, handling: str, expected: dict[str, str]) -> None:
    steps = (
        shell("a", "exit 3"),
        shell("b", "true", "dependsOn: [a]"),
        shell("slow", "sleep 0.5", "dependsOn: []"),
        shell("c", "true", "dependsOn: [slow]"),
    )
    run = await ran(flow(*steps, tail=f"errorHandling: {handling}"), tmp_path)
    assert run.state == "FAILED"
    assert {name: end for name, end in run.ends().items() if name in expected} == expected


async def test_error_handling_tries_every_step_again(tmp_path: Path) -> None:
    tail = "errorHandling: {strategy: retry, maxRetries: 3, retryDelay: 10ms, backoff: 1}"
    run = await ran(flow(shell("a", "echo x >> tries; exit 1"), tail=tail), tmp_path)
    assert run.state == "FAILED"
    assert (tmp_path / "tries").read_text().count("x") == 4


async def test_repair_agents_fix_failed_steps(tmp_path: Path) -> None:
    head = acting("cat >> asked; echo x >> repairs")
    failing = shell("a", "echo why it failed; test -e repairs && test $(wc -l < repairs) -ge 2")
    tail = "errorHandling: {repairAgent: dev, repairRetries: 2}"
    run = await ran(flow(failing, head=head, tail=tail), tmp_path)
    assert run.state == "COMPLETED", run.why
    assert attempts(run, "a") == 3
    assert "why it failed" in (tmp_path / "asked").read_text()
    (tmp_path / "repairs").unlink()
    run = await ran(flow(failing, head=head, tail=tail.replace("2", "1")), tmp_path)
    assert run.state == "FAILED"


async def test_diagnosing_agents_explain_failed_verifications(tmp_path: Path) -> None:
    agents = [
        {"name": "dev", "command": "sh -c 'cat >> told; echo tried'", "interactive": False},
        {"name": "doctor", "command": "sh -c 'cat > asked; echo look at the sky'", "interactive": False},
        {"name": "asleep", "command": "sleep 600", "interactive": False},
    ]
    check = "verification: {{type: output_contains, value: BLUE, description: the colour, diagnosticAgent: {}{}}}"
    step = f"{DEV}\nretries: 1\nretryDelay: 10ms\n"
    head = f"agents: {json.dumps(agents)}"
    run = await ran(flow(step + check.format("doctor", ""), head=head), tmp_path)
    assert run.state == "FAILED"
    assert "the colour" in run.why
    assert "look at the sky" in (tmp_path / "told").read_text()
    assert "BLUE" in (tmp_path / "asked").read_text()
    (tmp_path / "told").unlink()
    run = await ran(flow(step + check.format("asleep", ", diagnosticTimeout: 1s"), head=head), tmp_path)
    assert run.state == "FAILED"
    assert (tmp_path / "told").read_text().count("do it") == 2


async def test_a_check_of_ones_own_may_take_only_so_long(tmp_path: Path) -> None:
    check = "verification: {type: custom, value: sleep 600, timeout: 200ms}"
    run = await ran(flow(shell("a", "true", check)), tmp_path)
    assert run.state == "FAILED"
    assert "0.2 seconds" in run.why


async def test_a_command_may_fail_and_need_not_be_kept(tmp_path: Path) -> None:
    head, output = "", '    output: "{{steps.a.output}}|{{steps.a.exit_code}}|{{steps.b.output}}"'
    steps = (shell("a", "echo out; exit 3", "failOnError: false"), shell("b", "echo secret", "captureOutput: false"))
    run = await ran(flow(*steps, head=head, workflow=output), tmp_path)
    assert run.output == "out|3|Command completed (exit code 0)"


async def test_worktree_steps_create_their_worktree(tmp_path: Path) -> None:
    work = repository(tmp_path / "work")
    tree = "name: tree\ntype: worktree\nbranch: feature\nbaseBranch: main\npath: ../tree"
    place = shell("where", "git branch --show-current", 'cwd: "{{steps.tree.output}}"', "dependsOn: [tree]")
    run = await ran(flow(tree, place), work, env=environment(tmp_path))
    assert run.output == "feature", run.why
    assert (tmp_path / "tree" / "readme").exists()
    none = "name: none\ntype: worktree\nbranch: absent\ncreateBranch: false\npath: ../none"
    run = await ran(flow(none), work, env=environment(tmp_path))
    assert "There is no branch absent" in run.why


@pytest.mark.parametrize(
    ("wait", "state"), [("for: 200ms", "COMPLETED"), ('until: "2020-01-01T00:00:00Z"', "COMPLETED")]
)
async def test_a_step_waits_for_a_time(tmp_path: Path, wait: str, state: str) -> None:
    run = await ran(flow(f"name: w\ntype: wait\n{wait}", shell("a", "echo then", "dependsOn: [w]")), tmp_path)
    assert (run.state, run.output) == (state, "then")


async def test_a_step_waits_for_an_event_only_so_long(tmp_path: Path) -> None:
    run = await ran(flow("name: w\ntype: wait\nevent: payment\ntimeout: 300ms"), tmp_path)
    assert run.state == "FAILED"


async def test_a_workflow_of_the_same_file_or_another_is_a_step(tmp_path: Path) -> None:
    other = flow(shell("b", 'echo "other {{input}} {{vars.x}}"'), head="vars: {x: none}").replace(
        "name: flow", "name: other"
    )
    (tmp_path / "other.yaml").write_text(other)
    tail = (
        "  - name: inner\n    description: Within\n    steps:\n"
        "      - {name: c, type: deterministic, command: 'echo \"inner {{input}} {{vars.x}}\"'}\n"
    )
    output = '    output: "{{steps.one.output}}, {{steps.two.output}}"'
    steps = (
        "name: one\ntype: workflow\nworkflow: inner\ninput: i1\nvars: {x: v1}",
        "name: two\ntype: workflow\nfile: other.yaml\ninput: i2\nvars: {x: v2}",
    )
    run = await ran(flow(*steps, head="vars: {x: none}", workflow=output, tail=tail), tmp_path)
    assert run.output == "inner i1 v1, other i2 v2", run.why


async def test_a_map_goes_over_a_list_a_few_at_a_time(tmp_path: Path) -> None:
    one = '{name: one, type: deterministic, command: "echo {{word}}-{{index}}"}'
    text = flow(f"name: all\ntype: map\nover: [x, y, z]\nas: word\nconcurrency: 1\nstep: {one}")
    run = await ran(text, tmp_path)
    assert json.loads(run.output) == ["x-0", "y-1", "z-2"]
    order = [one for about in run.abouts for one in about.get("started", ()) if "[" in one]
    assert order == ["all[0]", "all[1]", "all[2]"]
    starts = [about["started"] for about in run.abouts if "started" in about]
    assert max(map(len, starts)) == 1


async def test_nested_maps_see_both_items(tmp_path: Path) -> None:
    cell = '{name: cell, type: deterministic, command: "echo {{row.name}}{{cell}}{{item}}{{index}}"}'
    inner = f'{{name: cells, type: map, over: "{{{{row.cells}}}}", as: cell, step: {cell}}}'
    rows = "[{name: a, cells: [1, 2]}, {name: b, cells: [3]}]"
    text = flow(f"name: all\ntype: map\nover: {rows}\nas: row\nstep: {inner}")
    assert [one.code for one in check_source(read_source(text, "f.yaml"), {})] == []
    run = await ran(text, tmp_path)
    assert [json.loads(row) for row in json.loads(run.output)] == [["a110", "a221"], ["b330"]], run.why


async def test_a_loop_is_done_until_it_holds(tmp_path: Path) -> None:
    step = shell("a", "echo x >> n; wc -l < n | tr -d ' '", "maxIterations: 5", 'until: "steps.a.output == 3"')
    run = await ran(flow(step), tmp_path)
    assert run.state == "COMPLETED", run.why
    assert (tmp_path / "n").read_text().count("x") == 3


async def test_conditions_and_dependencies_decide_starts(tmp_path: Path) -> None:
    steps = (
        shell("b", "echo b >> order", "dependsOn: [a]"),
        shell("a", "echo a >> order; echo no"),
        shell("c", "echo c >> order", "dependsOn: [b]", "if: steps.a.output == 'yes'"),
    )
    run = await ran(flow(*steps), tmp_path)
    assert (tmp_path / "order").read_text() == "a\nb\n"
    assert run.ends()["c"] == "skipped"


async def test_steps_of_ones_own_are_used(tmp_path: Path) -> None:
    head = """
steps:
  greet:
    params:
      - {name: who, required: true, description: whom to greet}
      - {name: how, default: hello}
    type: deterministic
    command: 'echo "{{how}} {{who}}"'
"""
    run = await ran(flow("name: a\nuse: greet\nwith: {who: Ada}", head=head), tmp_path)
    assert run.output == "hello Ada", run.why
    with pytest.raises(BadDocument, match="whom to greet"):
        make_plan(read_document(flow("name: a\nuse: greet", head=head)), base=tmp_path, env={})


async def test_values_are_set_for_steps_that_follow(tmp_path: Path) -> None:
    first = shell("a", "echo one; echo two", 'set: {first: "{{steps.a.output | first-line}}"}')
    run = await ran(flow(first, shell("b", 'echo "{{state.first}}"', "dependsOn: [a]")), tmp_path)
    assert run.output == "one"


@pytest.mark.parametrize("name", ["one", "all"])
async def test_map_items_set_their_own_output(tmp_path: Path, name: str) -> None:
    said = f'{{said: "{{{{steps.{name}.output | upper}}}}"}}'
    one = f'{{name: one, type: deterministic, command: "echo {{{{item}}}}", set: {said}}}'
    every = f"name: all\ntype: map\nover: [x, y]\nconcurrency: 1\nstep: {one}"
    text = flow(every, shell("b", 'echo "{{state.said}}"', "dependsOn: [all]"))
    assert [one.code for one in check_source(read_source(text, "f.yaml"), {})] == []
    run = await ran(text, tmp_path)
    assert run.output == "Y", run.why


@pytest.mark.parametrize(
    ("state", "second", "expected"),
    [
        ("{backend: database}", "{backend: database}", "1"),
        ("{backend: database}", "{backend: database, namespace: other}", "none"),
        ("{backend: memory}", "{backend: memory}", "none"),
        ("{backend: database, ttl: 1ms}", "{backend: database}", "none"),
    ],
)
async def test_values_may_be_for_the_runs_that_follow(tmp_path: Path, state: str, second: str, expected: str) -> None:
    first = shell("a", "echo 1", 'set: {count: "{{steps.a.output}}"}')
    await ran(flow(first, tail=f"state: {state}"), tmp_path)
    again = shell("b", "echo \"{{state.count | default('none')}}\"")
    run = await ran(flow(again, tail=f"state: {second}"), tmp_path)
    assert run.output == expected


# --- the whole --------------------------------------------------------------------------------------------------------


async def test_not_more_steps_than_allowed_are_under_way(tmp_path: Path) -> None:
    busy = "mkdir busy || echo too many >> many; sleep 0.1; rmdir busy"
    steps = [shell(name, busy) for name in "abc"]
    run = await ran(flow(*steps, swarm="  maxConcurrency: 1"), tmp_path)
    assert run.state == "COMPLETED", run.why
    assert not (tmp_path / "many").exists()


async def test_a_run_has_so_much_time(tmp_path: Path) -> None:
    run = await ran(flow(shell("a", "sleep 600"), swarm="  timeout: 1s"), tmp_path)
    assert run.state == "FAILED"


@pytest.mark.parametrize(("mode", "state"), [("any", "COMPLETED"), ("majority", "COMPLETED"), ("all", "FAILED")])
async def test_a_barrier_waits_for_enough(tmp_path: Path, mode: str, state: str) -> None:
    steps = (
        shell("a", "true"),
        shell("b", "true"),
        shell("c", "exit 1", "onError: skip"),
        shell("d", "touch passed", "dependsOn: [gate]"),
    )
    barrier = f"coordination: {{barriers: [{{name: gate, waitFor: [a, b, c], mode: {mode}}}]}}"
    await ran(flow(*steps, tail=barrier), tmp_path)
    assert (tmp_path / "passed").exists() is (state == "COMPLETED")


async def test_a_barrier_waits_only_so_long(tmp_path: Path) -> None:
    steps = (shell("a", "sleep 600"), shell("b", "touch passed", "dependsOn: [gate]"))
    barrier = "coordination: {barriers: [{name: gate, waitFor: [a], timeout: 300ms}]}"
    run = await ran(flow(*steps, tail=barrier), tmp_path)
    assert run.state == "FAILED"
    assert not (tmp_path / "passed").exists()


@pytest.mark.parametrize(
    ("check", "state"),
    [
        ("{command: echo fine}", "COMPLETED"),
        ("{command: exit 1, description: the tree is clean}", "FAILED"),
        ("{command: echo dirty, failIf: non-empty, description: the tree is clean}", "FAILED"),
        ("{command: echo v1, successIf: v2, description: the tree is clean}", "FAILED"),
    ],
)
async def test_a_preflight_decides_whether_a_run_begins(tmp_path: Path, check: str, state: str) -> None:
    run = await ran(flow(shell("a", "touch began"), workflow=f"    preflight: [{check}]"), tmp_path)
    assert run.state == state
    assert (tmp_path / "began").exists() is (state == "COMPLETED")
    if state == "FAILED":
        assert "the tree is clean" in run.why


async def test_posts_go_to_the_channels_that_are_named(tmp_path: Path) -> None:
    head = acting("exit 1", channels=["dev-talk"])
    tail = "errorHandling: {notifyChannel: alarms}"
    run = await ran(flow(shell("a", "true"), DEV, head=head, swarm="  channel: general", tail=tail), tmp_path)
    assert "general" in run.about("a")["channels"]
    assert set(run.about("work")["channels"]) == {"general", "dev-talk", "alarms"}


async def test_a_trajectory_is_not_part_of_a_workflows_output(tmp_path: Path) -> None:
    for command, state in (("echo fine", "COMPLETED"), ("exit 3", "FAILED")):
        inner = f"  - name: inner\n    steps:\n      - {{name: c, type: deterministic, command: {command}}}\n"
        text = flow("name: a\ntype: workflow\nworkflow: inner", tail=f"{inner}trajectories: true")
        run = await ran(text, tmp_path)
        assert run.state == state, run.why
        assert "chapters" not in run.output
        assert state == "COMPLETED" or run.why.startswith("Failed at a: Failed at c: ")


@pytest.mark.parametrize(
    ("wanted", "kinds"),
    [
        ("{enabled: true}", {"step"}),
        ("{reflectOnBarriers: true}", {"step", "barrier"}),
        ("{reflectOnConverge: true}", {"step", "converge"}),
        ("{autoDecisions: true}", {"step", "decision"}),
        ("{enabled: false, autoDecisions: true}", set()),
    ],
)
async def test_a_trajectory_has_the_chapters_that_are_wanted(tmp_path: Path, wanted: str, kinds: set[str]) -> None:
    steps = (
        shell("a", "true"),
        shell("b", "true"),
        shell("c", "true", "dependsOn: [a, b]"),
        shell("d", "true", "dependsOn: [gate]", 'if: "false"'),
    )
    tail = f"coordination: {{barriers: [{{name: gate, waitFor: [c]}}]}}\ntrajectories: {wanted}"
    run = await ran(flow(*steps, tail=tail), tmp_path)
    assert run.state == "COMPLETED", run.why
    told: list[Any] = [part.data for one in run.task.artifacts if one.artifact_id == "trajectory" for part in one.parts]
    assert {chapter["kind"] for data in told for chapter in data["chapters"]} == kinds


async def test_places_have_names(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    head = "paths: [{name: shop, path: ./shop, description: the shop}]"
    agent = acting("pwd", workdir="shop")
    run = await ran(flow(shell("a", "pwd", "workdir: shop"), head=head), tmp_path)
    assert run.output == str(tmp_path / "shop")
    run = await ran(flow(DEV, head=f"{head}\n{agent}"), tmp_path)
    assert run.output.strip() == str(tmp_path / "shop")


@pytest.mark.parametrize(("more", "count"), [("", 1), (", required: false", 0)])
def test_missing_directories_name_their_use(tmp_path: Path, more: str, count: int) -> None:
    head = f"paths: [{{name: shop, path: ./gone, description: the shop{more}}}]"
    found = check_source(read_source(flow(shell("a", "pwd", "workdir: shop"), head=head), str(tmp_path / "f.yaml")), {})
    wrong = [one for one in found if one.code == "NO_DIRECTORY" and "(the shop)" in one.message]
    assert len(wrong) == count


async def test_inputs_are_given_checked_and_have_defaults(tmp_path: Path) -> None:
    head = (
        "inputs:\n  who: {type: string, required: true, description: whom}\n"
        "  how: {default: hello, enum: [hello, bye]}\n  n: {type: integer, default: 2}\nvars: {end: '!'}"
    )
    text = flow(shell("a", 'echo "{{inputs.how}} {{inputs.who}} {{inputs.n}}{{vars.end}} {{input}}"'), head=head)
    run = await ran(text, tmp_path, inputs={"who": "Ada"}, input="now")
    assert run.output == "hello Ada 2! now", run.why
    for inputs in ({}, {"who": "Ada", "how": "hey"}, {"who": "Ada", "n": "two"}):
        refused = await ran(text, tmp_path, inputs=inputs)
        assert refused.state == "REJECTED", inputs


async def test_a_required_input_with_an_enum_can_be_served_and_run(tmp_path: Path) -> None:
    head = (
        "inputs:\n  size: {required: true, enum: [small, large]}\n  n: {type: integer, required: true, enum: [3, 4]}\n"
        "  spec: {type: object, required: true}\n"
        "vars: {who: '{{inputs.spec.who}}', first: '{{input | json}}', label: '{{inputs.size}} {{inputs.n}}'}"
    )
    text = flow(shell("a", 'echo "{{vars.label}} {{vars.who}}"'), head=head)
    given = {"size": "large", "n": 4, "spec": {"who": "Ada"}}
    run = await ran(text, tmp_path, inputs=given, input="[1]")
    assert run.output == "large 4 Ada", run.why
    refused = await ran(text, tmp_path, inputs={**given, "size": "huge"}, input="[1]")
    assert (refused.state, "give one of small, large" in refused.why) == ("REJECTED", True)
    agent = WorkflowAgent(read_document(text), directory=tmp_path, env={}, vars={"size": "small"})
    assert agent.profile.skills[0].name == "main"


async def test_commands_get_the_variables_that_the_file_names(tmp_path: Path) -> None:
    env = environment(tmp_path, TOKEN="t-1", OTHER="o-1")
    show = 'printf "%s|" "$GIVEN" "$TOKEN" "$OTHER"'
    text = flow(
        f'name: a\ntype: deterministic\ncommand: {show!r}\nverification: {{type: custom, value: test "$GIVEN" = t-1}}',
        f"name: b\ntype: deterministic\ncommand: {show!r}\nenv: {{OTHER: '{{{{env.OTHER}}}}'}}",
        shell("c", "printf %s {{steps.a.output}} {{steps.b.output}}", "dependsOn: [a, b]"),
        head="env: {GIVEN: '${TOKEN}'}",
        workflow="    preflight: [{command: 'printf %s \"$GIVEN$TOKEN\"', successIf: '^t-1$'}]",
    )
    run = await ran(text, tmp_path, env=env)
    assert run.output == "t-1|||t-1||o-1|", run.why


def test_dry_runs_show_step_descriptions(tmp_path: Path) -> None:
    steps = (shell("a", "make all", "description: Builds everything"), shell("b", "make test"))
    found = dry_run_report(make_plan(read_document(flow(*steps)), base=tmp_path, env={}))
    assert [line.does for wave in found.waves for line in wave] == ["Builds everything", "make test"]


def test_a_file_has_a_version_a_name_and_a_description(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(
        flow(
            shell("a", "true"),
            head="description: Does it all\ninputs: {who: {description: Whom}}",
            workflow="    description: The main one",
        ).replace('"1"', '"2.5"')
    )
    profile = WorkflowAgent(load_document(tmp_path / "f.yaml"), directory=tmp_path, env={}).profile
    assert (profile.name, profile.description, profile.version) == ("flow", "Does it all", "2.5")
    (skill,) = profile.skills
    assert (skill.name, skill.description) == ("main", "The main one")
    assert (skill.input_schema or {})["properties"] == {"who": {"type": "string", "description": "Whom"}}


async def test_fixed_values_fill_addresses_and_headers(tmp_path: Path) -> None:
    with cardless("0.3") as there:
        far = {"name": "far", "runtime": "a2a", "url": "{{vars.at}}", "headers": {"X-Who": "{{vars.who}}"}}
        head = f'vars: {{at: "{there.url}", who: Ada}}\nagents: {json.dumps([far])}'
        run = await ran(flow("name: a\ntype: a2a\nagent: far\ntask: hi", head=head), tmp_path)
    assert run.output == "old hi", run.why
    assert there.headers["x-who"] == "Ada"


async def test_event_names_may_use_fixed_values(tmp_path: Path) -> None:
    text = flow('name: w\ntype: wait\nevent: "paid-{{vars.x}}"\ntimeout: 300ms', head="vars: {x: 7}")
    (step,) = make_plan(read_document(text), base=tmp_path, env={}).steps
    assert step.event == "paid-7"
