"""`accord runs` as a process: runs are listed, shown, answered, cancelled and gone on with, without a server."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from accord.cli.failures import Exit
from tests.cli.flows import (
    AGENT,
    ASKING,
    CALLING,
    FAILING,
    HEAD,
    NESTED,
    QUICK,
    SLOW,
    WAITING,
    Flows,
    ended,
    run_id,
    said,
)
from tests.databases import emptied, postgres
from tests.serve.running import running

__all__ = ["postgres"]

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def flows(tmp_path: Path) -> Iterator[Flows]:
    with closing(Flows(tmp_path)) as found:
        yield found


def asked(flows: Flows) -> str:
    """Run something that asks, where nobody is who could answer; return its id."""
    done = flows("run", flows.write(ASKING))
    assert done.returncode == Exit.WAITS, done.stderr
    run = run_id(done.stderr)
    assert "gate asks: Ship it?" in done.stderr
    assert f"accord runs approve {run} gate" in done.stderr
    return run


# --- looking ----------------------------------------------------------------------------------------------------------


def test_run_lists_show_waiting_steps(flows: Flows) -> None:
    quick = run_id(flows("run", flows.write(QUICK)).stderr)
    waiting = asked(flows)
    listed = flows.json("runs", "list")
    assert [one["run"] for one in listed] == [waiting, quick], "those that began last are first"
    assert [one["waits_for"] for one in listed] == [["approval of gate"], []]
    assert [one["state"] for one in listed] == ["input-required", "completed"]
    assert {one["workflow"] for one in listed} == {"demo/main"}
    assert [one["run"] for one in flows.json("runs", "list", "--state", "open")] == [waiting]
    assert [one["run"] for one in flows.json("runs", "list", "--state", "ended")] == [quick]
    table = flows("runs", "list", "--limit", "1")
    assert table.stdout.splitlines()[0].split() == ["RUN", "WORKFLOW", "STATE", "STARTED", "DURATION", "WAITS_FOR"]
    assert "approval of gate" in table.stdout
    assert "more than 1" in table.stderr


def test_tasks_of_other_agents_are_no_runs(flows: Flows) -> None:
    with running(flows.folder) as echo:
        task = echo.send("hello")["id"]
    assert flows.json("runs", "list") == []
    done = flows("runs", "show", task)
    assert done.returncode == Exit.FAILED
    assert "unknown run" in done.stderr


def test_a_run_is_shown_with_its_steps(flows: Flows) -> None:
    text = FAILING.replace("first.txt; echo one", "first.txt; echo one").replace(
        "dependsOn: [first], command", "dependsOn: [first], retries: 1, retryDelay: 10ms, command"
    )
    failed = run_id(flows("run", flows.write(text)).stderr)
    found = flows.json("runs", "show", failed)
    steps = {step["name"]: step for step in found["steps"]}
    assert (found["state"], steps["first"]["status"], steps["last"]["status"]) == ("failed", "completed", "failed")
    assert steps["last"]["attempts"] == 2
    assert steps["last"]["exitCode"] == 1
    assert steps["first"]["seconds"] >= 0
    assert "last" in found["message"]
    shown = flows("runs", "show", failed).stdout
    assert "State: failed" in shown
    (line,) = [line for line in shown.splitlines() if line.startswith("last ")]
    assert line.split()[1:3] == ["deterministic", "failed"]


def test_parts_that_are_workflows_are_runs_of_their_own(flows: Flows) -> None:
    text = f"""{HEAD}
workflows:
  - {{name: outer, steps: [{{name: call, type: workflow, workflow: inner, input: word}}]}}
  - {{name: inner, steps: [{{name: say, type: deterministic, command: "echo {{{{input}}}}"}}]}}
"""
    done = flows("run", flows.write(text))
    assert done.stdout == "word\n", done.stderr
    run = run_id(done.stderr)
    (step,) = flows.json("runs", "show", run)["steps"]
    assert [one["run"] for one in flows.json("runs", "list")] == [run]
    inner = [one for one in flows.json("runs", "list", "--inner") if one["parent"] == run]
    assert [one["run"] for one in inner] == [step["child"]]
    refused = flows("runs", "resume", step["child"])
    assert refused.returncode == Exit.FAILED
    assert run in refused.stderr


def test_a_log_is_printed_with_times_and_steps(flows: Flows) -> None:
    run = run_id(flows("run", flows.write(QUICK), "--input", "world").stderr)
    lines = [json.loads(line) for line in flows("runs", "logs", run, "-o", "json").stdout.splitlines()]
    assert all(line["at"] for line in lines)
    assert {"hello", "each", "each[0]", "each[1]", "join"} <= {line["step"] for line in lines}
    only = flows("runs", "logs", run, "--step", "join").stdout
    assert "hello world and more" in only
    assert "each" not in only
    assert "the log is empty" in flows("runs", "logs", run, "--step", "nothing").stderr


def test_a_log_is_followed_to_the_end_of_the_run(flows: Flows) -> None:
    runs = flows.started("run", flows.write(SLOW))
    run = run_id(said(runs, "slow: started"))
    follower = flows.started("runs", "logs", run, "--follow", "-o", "json")
    assert follower.stdout is not None
    first = json.loads(follower.stdout.readline())
    assert first["step"] == "before"
    (flows.folder / "go").touch()
    code, out, _ = ended(follower)
    assert code == Exit.DONE
    assert json.loads(out.splitlines()[-1])["step"] == "after"
    assert ended(runs)[0] == Exit.DONE


# --- giving -----------------------------------------------------------------------------------------------------------


def test_a_run_that_waits_is_approved_and_gone_on_with(flows: Flows) -> None:
    run = asked(flows)
    approved = flows("runs", "approve", run, "--comment", "well done")
    assert approved.returncode == Exit.DONE
    assert approved.stdout == "gate is approved\n"
    assert f"accord runs resume {run}" in approved.stderr, "there is no node"
    assert flows.json("runs", "list")[0]["waits_for"] == ["a node: accord runs resume"]
    again = flows("runs", "reject", run, "gate")
    assert again.returncode == Exit.FAILED
    assert "has been decided" in again.stderr
    done = flows("runs", "resume", run)
    assert (done.returncode, done.stdout) == (Exit.DONE, "shipped\n"), done.stderr
    assert flows.lines("built.txt") == ["built"]
    gate = {step["name"]: step for step in flows.json("runs", "show", run)["steps"]}["gate"]
    assert gate["output"] == "well done"


def test_runs_are_kept_in_a_database_server_as_well(flows: Flows, postgres: str) -> None:
    asyncio.run(emptied(postgres))
    done = flows("run", flows.write(ASKING), ACCORD_STORE=postgres)
    assert done.returncode == Exit.WAITS, done.stderr
    run = run_id(done.stderr)
    assert postgres not in done.stderr
    listed = json.loads(flows("runs", "list", "-o", "json", ACCORD_STORE=postgres).stdout)
    assert [(one["run"], one["waits_for"]) for one in listed] == [(run, ["approval of gate"])]
    assert flows("runs", "approve", run, ACCORD_STORE=postgres).returncode == Exit.DONE
    done = flows("runs", "resume", run, ACCORD_STORE=postgres)
    assert (done.returncode, done.stdout) == (Exit.DONE, "shipped\n"), done.stderr


def test_a_run_that_waits_asks_again_when_it_is_resumed(flows: Flows) -> None:
    run = asked(flows)
    done = flows("runs", "resume", run)
    assert done.returncode == Exit.WAITS
    assert done.stdout == ""
    assert flows.lines("built.txt") == ["built"]


def test_a_run_that_is_rejected_fails(flows: Flows) -> None:
    run = asked(flows)
    assert flows("runs", "reject", run, "--comment", "not yet").stdout == "gate is rejected\n"
    done = flows("runs", "resume", run, "-o", "json")
    assert done.returncode == Exit.FAILED
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["state"] == "failed"
    assert "not yet" in last["error"]


def test_only_waiting_approvals_are_approved(flows: Flows) -> None:
    run = asked(flows)
    for arguments, why in [
        ((run, "build"), "no approval build"),
        ((run, "nothing"), "no approval nothing"),
        ((NOBODY,), "unknown run"),
    ]:
        done = flows("runs", "approve", *arguments)
        assert done.returncode == Exit.FAILED
        assert why in done.stderr
    two = ASKING.replace("dependsOn: [gate]", "dependsOn: [gate, other]").replace(
        "      - {name: ship", "      - {name: other, type: approval, task: Sure?}\n      - {name: ship"
    )
    told = flows("run", flows.write(two)).stderr
    both = run_id(told)
    for step in ("gate", "other"):
        assert told.count(f"accord runs approve {both} {step}\n") == 1
        assert told.count(f"accord runs reject {both} {step}\n") == 1
    unsaid = flows("runs", "approve", both)
    assert unsaid.returncode == Exit.FAILED
    assert "several steps wait for approval: " in unsaid.stderr
    assert flows("runs", "approve", both, "other").returncode == Exit.DONE
    assert flows("runs", "approve", both, "gate").returncode == Exit.DONE
    assert flows("runs", "resume", both).stdout == "shipped\n"


def test_nested_approvals_are_given_at_the_run(flows: Flows) -> None:
    done = flows("run", flows.write(NESTED))
    assert done.returncode == Exit.WAITS, done.stderr
    run = run_id(done.stderr)
    approved = flows("runs", "approve", run, "--comment", "fine")
    assert (approved.returncode, approved.stdout) == (Exit.DONE, "call is approved\n"), approved.stderr
    done = flows("runs", "resume", run)
    assert (done.returncode, done.stdout) == (Exit.DONE, "fine\n"), done.stderr


def test_a_part_of_a_run_is_approved_itself(flows: Flows) -> None:
    run = run_id(flows("run", flows.write(NESTED)).stderr)
    (step,) = flows.json("runs", "show", run)["steps"]
    assert flows("runs", "reject", step["child"], "gate", "--comment", "no").returncode == Exit.DONE
    done = flows("runs", "resume", run)
    assert done.returncode == Exit.FAILED
    assert "not approved: no" in done.stderr


def test_served_workflows_continue_without_the_cli(flows: Flows) -> None:
    with running(flows.folder, flows.write(ASKING)) as server:
        run = server.send("now")["id"]
        assert flows.json("runs", "show", run)["waits_for"] == ["approval of gate"]
        approved = flows("runs", "approve", run)
        assert (approved.returncode, approved.stderr) == (Exit.DONE, "")
        assert flows("runs", "logs", run, "--follow").returncode == Exit.DONE
        assert server.get(run)["status"]["state"] == "TASK_STATE_COMPLETED"


def test_agent_questions_are_answered_by_another_process(flows: Flows) -> None:
    with running(flows.folder, AGENT) as server:
        done = flows("run", flows.write(CALLING.format(url=server.url, task="ask")), ACCORD_STORE="sqlite:///own.db")
        assert done.returncode == Exit.WAITS, done.stderr
        run = run_id(done.stderr)
        assert f"accord runs answer {run} TEXT" in done.stderr
        assert "call asks: Which day?" in done.stderr
        answered = flows("runs", "answer", run, "Sunday", ACCORD_STORE="sqlite:///own.db")
        assert (answered.returncode, answered.stdout) == (Exit.DONE, f"{run} is answered\n")
        nothing = flows("runs", "answer", run, "Monday", ACCORD_STORE="sqlite:///own.db")
        assert nothing.returncode == Exit.FAILED
        assert "has no pending question" in nothing.stderr
        done = flows("runs", "resume", run, ACCORD_STORE="sqlite:///own.db")
        assert (done.returncode, done.stdout) == (Exit.DONE, "It is Sunday\n"), done.stderr


def test_an_event_is_handed_in_to_a_run_that_waits_for_it(flows: Flows) -> None:
    process = flows.started("run", flows.write(WAITING))
    run = run_id(told := said(process, "waits for the signal"))
    assert f"The run waits for the signal payment: accord runs signal {run} payment\n" in told
    assert flows.json("runs", "show", run)["waits_for"] == ["event payment"]
    wrong = flows("runs", "signal", run, "refund")
    assert wrong.returncode == Exit.FAILED
    assert "refund" in wrong.stderr
    assert flows("runs", "signal", run, "payment", "--data", '{"amount": 5}').returncode == Exit.DONE
    code, out, err = ended(process)
    assert (code, out) == (Exit.DONE, "got 5\n"), err
    assert "runs signal" not in err, "it is said once"
    late = flows("runs", "signal", run, "payment")
    assert late.returncode == Exit.FAILED
    assert "has ended: it is completed" in late.stderr


def test_a_time_that_is_waited_for_is_shown(flows: Flows) -> None:
    steps = "[{name: rest, type: wait, until: '2099-01-01T00:00:00Z'}]"
    process = flows.started("run", flows.write(f"{HEAD}workflows: [{{name: main, steps: {steps}}}]\n"))
    run = run_id(said(process, "rest: started"))
    assert flows.json("runs", "show", run)["waits_for"] == ["rest until 2099-01-01T00:00:00.000Z"]
    assert flows("runs", "approve", run).stderr == "accord runs: no step waits for approval\n"
    assert flows("runs", "cancel", run).returncode == Exit.DONE
    assert ended(process)[0] == Exit.FAILED


def test_a_run_is_cancelled_wherever_it_is(flows: Flows) -> None:
    process = flows.started("run", flows.write(SLOW))
    run = run_id(said(process, "slow: started"))
    done = flows("runs", "cancel", run, "--reason", "no longer needed")
    assert (done.returncode, done.stdout) == (Exit.DONE, f"{run} is canceled\n")
    code, out, err = ended(process)
    assert (code, out) == (Exit.FAILED, "")
    assert "no longer needed" in err
    again = flows("runs", "cancel", run)
    assert again.returncode == Exit.FAILED
    assert "it is canceled" in again.stderr
    (flows.folder / "go").touch()
    resumed = flows("runs", "resume", run)
    assert (resumed.returncode, resumed.stdout) == (Exit.DONE, "after went\n"), resumed.stderr
    assert flows.lines("before.txt") == ["before"]


def test_a_step_that_was_under_way_ended_with_its_run(flows: Flows) -> None:
    run = asked(flows)
    assert flows("runs", "cancel", run).returncode == Exit.DONE
    steps = {step["name"]: step for step in flows.json("runs", "show", run)["steps"]}
    assert [steps[name]["status"] for name in ("build", "gate", "ship")] == ["completed", "cancelled", "pending"]
    assert steps["gate"]["endedAt"] >= steps["gate"]["begunAt"]
    assert flows.json("runs", "show", run)["steps"][1] == steps["gate"], "it takes no longer than it took"
    for arguments in (["approve", run], ["reject", run, "gate"], ["answer", run, "x"]):
        late = flows("runs", *arguments)
        assert late.returncode == Exit.FAILED
        assert "has ended: it is canceled" in late.stderr


def test_a_step_ends_with_a_run_that_has_no_more_time(flows: Flows) -> None:
    done = flows("run", flows.write(SLOW.replace("{pattern: dag}", "{pattern: dag, timeout: 2s}")), "-o", "json")
    assert done.returncode == Exit.FAILED, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    slow = {step["name"]: step for step in last["steps"]}["slow"]
    assert slow["status"] == "cancelled"
    (shown,) = [step for step in flows.json("runs", "show", last["run"])["steps"] if step["name"] == "slow"]
    assert (shown["status"], shown["endedAt"]) == ("cancelled", slow["endedAt"])


@pytest.mark.parametrize("verb", ["show", "logs", "resume", "cancel", "approve"])
def test_a_run_that_is_not_there_is_missed(flows: Flows, verb: str) -> None:
    nothing = flows("runs", verb, NOBODY)
    assert nothing.returncode == Exit.FAILED
    assert "There is no database" in nothing.stderr
    flows("run", flows.write(QUICK))
    missing = flows("runs", verb, NOBODY)
    assert missing.returncode == Exit.FAILED
    assert "unknown run" in missing.stderr
