"""`accord run` as a process: what it prints where, how it ends, and how a run that was left is gone on with."""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from accord.cli.failures import Exit
from accord.cli.run_host import RunCommand
from accord.cli.tables import OutputFormat
from tests.cli.flows import (
    AGENT,
    ASKING,
    CALLING,
    FAILING,
    HEAD,
    NESTED,
    QUICK,
    QUICKLY,
    SLOW,
    Flows,
    ended,
    run_id,
    said,
    until,
)
from tests.cli.terminal import CTRL_D, terminal
from tests.ports import free_port
from tests.serve.running import running


@pytest.fixture
def flows(tmp_path: Path) -> Iterator[Flows]:
    with closing(Flows(tmp_path)) as found:
        yield found


# --- to its end -------------------------------------------------------------------------------------------------------


@pytest.mark.proves("1-40", "1-41")
def test_the_output_of_a_run_is_all_there_is_on_standard_output(flows: Flows) -> None:
    done = flows("run", flows.write(QUICK), "--input", "world")
    assert done.returncode == Exit.DONE, done.stderr
    assert done.stdout == "hello world and more\n"
    told = done.stderr.splitlines()
    assert "hello: started" in told
    assert any(line.startswith("each[1]: completed after ") for line in told)
    assert "hello | hello world" in told


def test_input_and_values_come_from_pipe_flags_and_files(flows: Flows) -> None:
    flows.write('{"one": "from the file", "two": "of the file"}', "values.json")
    command = "echo {{input}}; echo {{vars.one}}; echo {{vars.two}}"
    steps = f'{HEAD}workflows: [{{name: main, steps: [{{name: a, type: deterministic, command: "{command}"}}]}}]\n'
    done = flows(
        *("run", flows.write(steps), "--input", "-", "--vars-file", "values.json", "--var", "one=from a=flag"),
        typed="typed",
    )
    assert (done.returncode, done.stdout) == (Exit.DONE, "typed\nfrom a=flag\nof the file\n"), done.stderr


def test_json_has_a_line_per_event_and_for_the_result(flows: Flows) -> None:
    done = flows("run", flows.write(QUICK), "--input", "world", "-o", "json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0] == {"event": "begun", "run": run_id(done.stderr)}
    assert {"started", "ended"} <= {line["event"] for line in lines}
    last = lines[-1]
    assert (last["event"], last["state"], last["output"]) == ("run", "completed", "hello world and more")
    assert {step["name"]: step["status"] for step in last["steps"]}["each[1]"] == "completed"


def test_step_events_have_channels_and_attempt_results(flows: Flows) -> None:
    text = FAILING.replace("{pattern: dag}", "{pattern: dag, channel: news}").replace(
        "dependsOn: [first], command", "dependsOn: [first], retries: 1, retryDelay: 10ms, command"
    )
    file = flows.write(text)
    plain = flows("run", file)
    assert re.search(r"^last: failed after [0-9.]+s, will be retried: ", plain.stderr, re.MULTILINE), plain.stderr
    told = [json.loads(line) for line in flows("run", file, "-o", "json").stdout.splitlines()]
    ends = [line for line in told if line["event"] == "ended"]
    assert [line["channels"] for line in ends] == [["news"]] * 3
    logged = flows("runs", "logs", told[0]["run"], "-o", "json").stdout.splitlines()
    assert [json.loads(line)["channels"] for line in logged if '"ended"' in line] == [["news"]] * 3


def test_a_builder_is_run_like_a_file(flows: Flows) -> None:
    flows.write(
        "from accord.workflows import workflow\n"
        'flow = workflow("built").step("only", type="deterministic", command="echo {{input}}")\n'
        "other = 1\n",
        "built.py",
    )
    done = flows("run", "built.py:flow", "--input", "word")
    assert (done.returncode, done.stdout) == (Exit.DONE, "word\n"), done.stderr
    assert "must be a workflow file" in flows("run", "built.py:other").stderr
    assert flows("run", "built.py:nothing").returncode == Exit.MISUSED


def test_one_of_several_workflows_is_chosen(flows: Flows) -> None:
    step = '{name: a, type: deterministic, command: "echo %s"}'
    text = f"{HEAD}workflows:\n" + "".join(f"  - {{name: {name}, steps: [{step % name}]}}\n" for name in ("one", "two"))
    file = flows.write(text)
    assert flows("run", file).stdout == "one\n"
    assert flows("run", file, "--workflow", "two").stdout == "two\n"
    refused = flows("run", file, "--workflow", "tow")
    assert refused.returncode == Exit.MISUSED
    assert "UNKNOWN_WORKFLOW" in refused.stderr


def test_a_dry_run_only_prints_the_plan(flows: Flows) -> None:
    file = flows.write(FAILING)
    done = flows("run", file, "--dry-run")
    assert done.returncode == Exit.DONE
    assert "Wave 2" in done.stdout
    assert "last (deterministic) after first" in done.stdout
    found = flows.json("run", file, "--dry-run")
    assert (found["total"], found["peak"]) == (2, 1)
    assert flows.lines("first.txt") == []
    assert flows("runs", "list").returncode == Exit.FAILED, "there is not even a store"


# --- what cannot be run -----------------------------------------------------------------------------------------------


def test_file_errors_name_their_location(flows: Flows) -> None:
    done = flows("run", flows.write(QUICK.replace("dependsOn: [hello, each]", "dependsOn: [helo, each]")))
    assert done.returncode == Exit.MISUSED
    assert done.stdout == ""
    assert "flow.yaml:13:" in done.stderr
    assert "UNKNOWN_DEPENDENCY" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "Missing workflow file"),
        (["nothing.yaml"], "nothing.yaml"),
        (["nothing.py:flow"], "There is no file nothing.py"),
        (["flow.yaml", "--var", "novalue"], "NAME=VALUE"),
        (["flow.yaml", "--vars-file", "nothing.json"], "nothing.json"),
        (["flow.yaml", "--resume", "x", "--dry-run"], "excludes --previous-run and --dry-run"),
        (["flow.yaml", "--store", "mysql://x"], "mysql"),
        (["flow.yaml", "--var", "typo=3"], "no input or variable 'typo'"),
        (["flow.yaml", "--start-from", "jion"], "did you mean 'join'?"),
        (["flow.yaml", "--start-from", "jion", "--dry-run"], "Unknown step 'jion'"),
        (["flow.yaml", "--previous-run", "nope"], "There is no database"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(flows: Flows, arguments: list[str], why: str) -> None:
    flows.write(QUICK)
    done = flows("run", *arguments)
    assert done.returncode == Exit.MISUSED
    assert why in " ".join(done.stderr.split())
    assert flows("runs", "list").returncode == Exit.FAILED, "there is not even a store"


def test_mistyped_value_names_get_a_suggestion(flows: Flows) -> None:
    command = "echo {{inputs.topic}} {{vars.word}} {{free}}"
    step = f'{{name: a, type: deterministic, command: "{command}", if: "other != 1"}}'
    given = 'inputs: {topic: {default: ""}}\nvars: {word: ""}\n'
    file = flows.write(f"{HEAD}{given}workflows: [{{name: main, steps: [{step}]}}]\n")
    values = [part for name in ("topic", "word", "free", "other") for part in ("--var", f"{name}={name[0]}")]
    done = flows("run", file, *values)
    assert (done.returncode, done.stdout) == (Exit.DONE, "t w f\n"), done.stderr
    refused = flows("run", file, *values, "--var", "topci=x")
    assert refused.returncode == Exit.MISUSED
    assert "did you mean 'topic'?" in refused.stderr
    assert len(flows.json("runs", "list")) == 1


def test_missing_values_are_reported_before_the_run(flows: Flows) -> None:
    text = FAILING.replace("workflows:", "inputs: {topic: {required: true}}\nworkflows:")
    done = flows("run", flows.write(text))
    assert done.returncode == Exit.MISUSED
    assert "MISSING_INPUT" in done.stderr
    assert "flow.yaml" in done.stderr
    assert flows.lines("first.txt") == []


def test_missing_files_are_reported(flows: Flows) -> None:
    done = flows("run", "missing.yaml")
    assert done.returncode == Exit.MISUSED
    assert "FILE: There is no file missing.yaml\n" in done.stderr
    assert "YAML" not in done.stderr


def test_a_key_that_is_missing_is_named(flows: Flows) -> None:
    step = '{name: a, type: a2a, url: "http://127.0.0.1:9", task: x, credentials: nobody}'
    done = flows("run", flows.write(f"{HEAD}workflows: [{{name: main, steps: [{step}]}}]\n"))
    assert done.returncode in (Exit.FAILED, Exit.MISUSED)
    assert "nobody" in done.stderr


# --- what fails, and what is done again -------------------------------------------------------------------------------


def test_failed_runs_resume_without_completed_steps(flows: Flows) -> None:
    failed = flows("run", flows.write(FAILING))
    assert failed.returncode == Exit.FAILED
    assert failed.stdout == ""
    assert "last: failed" in failed.stderr
    run = run_id(failed.stderr)
    assert f"accord runs resume {run}" in failed.stderr
    (flows.folder / "fixed").touch()
    (flows.folder / "flow.yaml").unlink()  # the run has the document
    resumed = flows("runs", "resume", run)
    assert (resumed.returncode, resumed.stdout) == (Exit.DONE, "fine\n"), resumed.stderr
    assert flows.lines("first.txt") == ["first"], "what was done is not done again"
    assert run_id(resumed.stderr) != run
    over = flows("runs", "resume", run_id(resumed.stderr))
    assert over.returncode == Exit.FAILED
    assert "has completed" in over.stderr


def test_the_resume_hint_names_the_store_without_password(flows: Flows) -> None:
    failed = flows("run", flows.write(FAILING), "--store", "sqlite:///own.db")
    assert f"accord runs resume {run_id(failed.stderr)} --store sqlite:///own.db" in failed.stderr
    going = RunCommand("postgresql://me:secret@127.0.0.1/db", OutputFormat.TEXT)
    going.run_id = "r"
    assert going.shell_command("runs resume") == "accord runs resume r --store URL"


TOO_EARLY = FAILING + "      - {name: end, type: deterministic, dependsOn: [last], command: echo end}\n"


def test_a_mended_file_takes_over_from_an_earlier_run(flows: Flows) -> None:
    run = run_id(flows("run", flows.write(FAILING)).stderr)
    file = flows.write(FAILING.replace("test -f fixed && echo fine", "echo mended"))
    done = flows("run", file, "--previous-run", run)
    assert (done.returncode, done.stdout) == (Exit.DONE, "mended\n"), done.stderr
    assert flows("run", file, "--resume", run).stdout == "mended\n"
    assert flows.lines("first.txt") == ["first"]
    from_first = flows("run", file, "--start-from", "first", "--previous-run", run)
    assert from_first.returncode == Exit.DONE
    assert flows.lines("first.txt") == ["first", "first"]
    other = flows("run", flows.write(QUICK.replace("name: demo", "name: other"), "o.yaml"), "--previous-run", run)
    assert other.returncode == Exit.MISUSED
    assert "Unknown previous run" in other.stderr
    nowhere = flows("run", file, "--previous-run", "nope")
    assert nowhere.returncode == Exit.MISUSED
    assert "Unknown previous run nope of demo" in nowhere.stderr
    too_early = flows("run", flows.write(TOO_EARLY), "--previous-run", run, "--start-from", "end")
    assert too_early.returncode == Exit.MISUSED
    assert "has not completed last" in too_early.stderr
    assert len(flows.json("runs", "list", "--state", "all")) == 4, "what is refused is not stored"


def test_runs_keep_shared_values_after_a_file_change(flows: Flows) -> None:
    step = '{name: a, type: deterministic, command: "echo %s", set: {seen: "{{steps.a.output}}"}}'
    text = f"{HEAD}state: {{backend: database}}\nworkflows: [{{name: main, steps: [{step}]}}]\n"
    assert flows("run", flows.write(text % "first")).returncode == Exit.DONE
    assert flows("run", flows.write(text % "again {{state.seen}}")).stdout == "again first\n"


def test_a_run_may_start_in_the_middle(flows: Flows) -> None:
    (flows.folder / "fixed").touch()
    done = flows("run", flows.write(FAILING), "--start-from", "last")
    assert (done.returncode, done.stdout) == (Exit.DONE, "fine\n"), done.stderr
    assert flows.lines("first.txt") == []


# --- what is interrupted ----------------------------------------------------------------------------------------------


def test_killed_runs_resume(flows: Flows) -> None:
    process = flows.started("run", flows.write(SLOW))
    run = run_id(said(process, "slow: started"))
    process.kill()
    ended(process)
    left = flows.json("runs", "show", run)
    assert left["state"] == "working"
    (flows.folder / "go").touch()
    done = flows("runs", "resume", run)
    assert (done.returncode, done.stdout) == (Exit.DONE, "after went\n"), done.stderr
    assert run_id(done.stderr) == run, "it is the same run"
    assert flows.lines("before.txt") == ["before"], "what was committed is not done again"


AGENT_FLOW = f"""{HEAD}
agents: [{{name: worker, command: "sh FOLDER/agent.sh", interactive: false}}]
workflows: [{{name: main, steps: [{{name: work, agent: worker, task: "Do it", timeout: 5m}}]}}]
"""


def stopped_at_work(flows: Flows, text: str, number: signal.Signals) -> str:
    """Stop a run while its agent works, see to it that the agent is gone, and return its id."""
    flows.write("echo $$ >> pids.txt; while ! test -f go; do sleep 0.05; done; echo made", "agent.sh")
    process = flows.started("run", flows.write(text.replace("FOLDER", str(flows.folder))))
    run = run_id(said(process, "work: started"))
    (first,) = until(lambda: flows.lines("pids.txt"))
    process.send_signal(number)
    ended(process)
    until(lambda: not Path(f"/proc/{first}").exists())
    (flows.folder / "go").touch()
    return run


def test_agents_of_killed_runs_restart_if_allowed(flows: Flows) -> None:
    run = stopped_at_work(flows, AGENT_FLOW.replace("timeout: 5m", "timeout: 5m, onCrash: restart"), signal.SIGKILL)
    done = flows("runs", "resume", run)
    assert (done.returncode, done.stdout) == (Exit.DONE, "made\n"), done.stderr
    assert len(flows.lines("pids.txt")) == 2


def test_unrepeatable_agents_restart_only_on_request(flows: Flows) -> None:
    run = stopped_at_work(flows, AGENT_FLOW, signal.SIGINT)
    failed = flows("runs", "resume", run)
    assert failed.returncode == Exit.FAILED
    assert "work: failed" in failed.stderr
    assert len(flows.lines("pids.txt")) == 1
    done = flows("runs", "resume", run)
    assert (done.returncode, done.stdout) == (Exit.DONE, "made\n"), done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_runs_can_be_resumed(flows: Flows, number: signal.Signals) -> None:
    process = flows.started("run", flows.write(SLOW))
    run = run_id(said(process, "slow: started"))
    process.send_signal(number)
    code, out, err = ended(process)
    assert (code, out) == (Exit.INTERRUPTED, "")
    assert f"accord runs resume {run}" in err
    assert "Traceback" not in err
    (listed,) = flows.json("runs", "list", "--state", "open")
    assert listed["waits_for"] == ["a node: accord runs resume"]
    (flows.folder / "go").touch()
    assert flows("run", "--resume", run).stdout == "after went\n"
    assert flows.lines("before.txt") == ["before"]


def test_resuming_reports_a_wait_for_a_lease(flows: Flows) -> None:
    first = flows.started("run", flows.write(SLOW))
    run = run_id(said(first, "slow: started"))
    second = flows.started("runs", "resume", run)
    assert "waits for the lease of another node" in said(second, "after its last heartbeat")
    (flows.folder / "go").touch()
    assert ended(first)[:2] == (Exit.DONE, "after went\n")
    assert ended(second)[:2] == (Exit.DONE, "after went\n")
    assert flows.lines("before.txt") == ["before"]


def test_a_run_that_has_not_ended_takes_no_other_values(flows: Flows) -> None:
    run = run_id(flows("run", flows.write(ASKING)).stderr)
    done = flows("run", "--resume", run, "--var", "a=b")
    assert done.returncode == Exit.MISUSED
    assert "keeps its values" in done.stderr


def test_two_documents_of_one_name_do_not_do_each_others_work(flows: Flows) -> None:
    """A run that is resumed beside another document of the same name, in the same store, is still its own."""
    asking = run_id(flows("run", flows.write(ASKING)).stderr)
    process = flows.started("run", flows.write(SLOW, "slow.yaml"))
    said(process, "slow: started")
    assert flows("runs", "approve", asking).returncode == Exit.DONE
    assert flows.json("runs", "show", asking)["state"] != "completed"
    (flows.folder / "go").touch()
    assert ended(process)[0] == Exit.DONE
    assert flows("runs", "resume", asking).stdout == "shipped\n"


# --- in a terminal ----------------------------------------------------------------------------------------------------


def test_steps_are_a_tree_in_a_terminal_and_the_output_stands_below(flows: Flows) -> None:
    file = flows.write(SLOW)
    with terminal(flows.folder, "run", file, **QUICKLY) as shown:
        shown.says("slow")
        shown.says("1 of 3 steps")
        (flows.folder / "go").touch()
        shown.says("3 of 3 steps")
        assert shown.ended() == Exit.DONE
        assert "✓" in shown.shown
        assert shown.shown.rstrip().endswith("after went")


def test_approvals_are_given_in_the_terminal(flows: Flows) -> None:
    with terminal(flows.folder, "run", flows.write(ASKING), **QUICKLY) as shown:
        shown.says("gate: Ship it?")
        shown.says("y or n")
        shown.press("perhaps\n")
        shown.says("y or n", 2)
        shown.press("y looks good\n")
        shown.says("3 of 3 steps")
        assert shown.ended() == Exit.DONE
        run = run_id(shown.shown)
    steps = {step["name"]: step for step in flows.json("runs", "show", run)["steps"]}
    assert steps["gate"]["output"] == "looks good"


def test_nested_approvals_are_given_in_the_terminal(flows: Flows) -> None:
    with terminal(flows.folder, "run", flows.write(NESTED), **QUICKLY) as shown:
        shown.says("call: Go on?")
        shown.says("y or n")
        shown.press("yes fine\n")
        assert shown.ended() == Exit.DONE
        assert shown.shown.rstrip().endswith("fine")


def test_a_question_in_the_terminal_is_not_drawn_over(flows: Flows) -> None:
    text = SLOW.replace("    steps:", '    steps:\n      - {name: gate, type: approval, task: "Sure?"}')
    with terminal(flows.folder, "run", flows.write(text), **QUICKLY) as shown:
        shown.says("y or n")
        run = run_id(shown.shown)
        (flows.folder / "go").touch()
        until(lambda: flows.json("runs", "show", run)["steps"][-1]["status"] == "completed")
        assert shown.shown.endswith("optionally with a comment: ")
        shown.press("yes\n")
        assert shown.ended() == Exit.DONE
        assert "4 of 4 steps" in shown.shown


def test_closed_input_leaves_the_question_open(flows: Flows) -> None:
    with terminal(flows.folder, "run", flows.write(ASKING), **QUICKLY) as shown:
        shown.says("y or n")
        shown.press(CTRL_D)
        shown.says("accord runs approve ")
        assert shown.ended() == Exit.WAITS


def test_closed_input_disables_prompts(flows: Flows) -> None:
    text = SLOW.replace(
        "    steps:", '    steps:\n      - {name: gate, type: approval, dependsOn: [after], task: "Sure?"}'
    )
    with terminal(flows.folder, "run", flows.write(text), **QUICKLY) as shown:
        shown.says("1 of 4 steps")
        shown.press("y\n")
        shown.press(CTRL_D)
        (flows.folder / "go").touch()
        shown.says("accord runs approve ")
        assert shown.ended() == Exit.WAITS


def test_rejected_approvals_fail_the_run(flows: Flows) -> None:
    with terminal(flows.folder, "run", flows.write(ASKING), **QUICKLY) as shown:
        shown.says("y or n")
        shown.press("no not today\n")
        assert shown.ended() == Exit.FAILED
        assert "not today" in shown.shown


def test_approvals_given_by_others_close_the_prompt(flows: Flows) -> None:
    with terminal(flows.folder, "run", flows.write(ASKING), **QUICKLY) as shown:
        shown.says("y or n")
        run = run_id(shown.shown)
        approved = flows("runs", "approve", run, "gate", "--comment", "from afar")
        assert approved.returncode == Exit.DONE, approved.stderr
        assert approved.stderr == "", "a node is there"
        assert shown.ended() == Exit.DONE
        assert shown.shown.rstrip().endswith("shipped")


def test_agent_messages_and_questions_appear_in_the_terminal(flows: Flows) -> None:
    file = flows.folder / "go"
    with running(flows.folder, AGENT) as server:
        held = flows.write(CALLING.format(url=server.url, task=f"hold {file}"))
        with terminal(flows.folder, "run", held, ACCORD_STORE="sqlite:///own.db", **QUICKLY) as shown:
            shown.says("begun")  # the last line of what it says
            file.touch()
            assert shown.ended() == Exit.DONE
            assert shown.shown.rstrip().endswith("begun done")
        asks = flows.write(CALLING.format(url=server.url, task="ask"))
        with terminal(flows.folder, "run", asks, ACCORD_STORE="sqlite:///own.db", **QUICKLY) as shown:
            shown.says("call: Which day?")
            shown.says("answer: ")
            shown.press("Sunday\n")
            assert shown.ended() == Exit.DONE
            assert shown.shown.rstrip().endswith("It is Sunday")


def test_questions_are_asked_one_by_one_and_once(flows: Flows) -> None:
    text = f"""{HEAD}
workflows:
  - name: main
    steps:
      - {{name: one, type: approval, task: "First?"}}
      - {{name: two, type: approval, task: "Second?"}}
      - {{name: three, type: approval, dependsOn: [two], task: "Third?"}}
"""
    with terminal(flows.folder, "run", flows.write(text), **QUICKLY) as shown:
        shown.says("? one: First?")
        shown.says("y or n")
        run = run_id(shown.shown)
        assert flows("runs", "approve", run, "one", "--comment", "from afar").returncode == Exit.DONE
        for number, question in enumerate(["? two: Second?", "? three: Third?"], start=2):
            shown.says(question)
            shown.says("y or n", number)
            shown.press("yes\n")
        assert shown.ended() == Exit.DONE
        assert [shown.shown.count(f"? {name}: ") for name in ("one", "two", "three")] == [1, 1, 1]
    steps = {step["name"]: step for step in flows.json("runs", "show", run)["steps"]}
    assert steps["one"]["output"] == "from afar"


def test_ctrl_c_in_a_run_shows_how_to_resume(flows: Flows) -> None:
    with terminal(flows.folder, "run", flows.write(SLOW), **QUICKLY) as shown:
        shown.says("1 of 3 steps")
        assert shown.interrupted() == Exit.INTERRUPTED
        shown.says("accord runs resume ")
        assert "Traceback" not in shown.shown


def test_warnings_do_not_mix_with_run_output(flows: Flows) -> None:
    """The display says why the step failed; the records are there on request."""
    file = flows.write(
        f"""
version: "1.0"
name: far
swarm: {{pattern: dag}}
agents:
  - {{name: there, runtime: a2a, url: "http://127.0.0.1:{free_port()}/"}}
workflows:
  - name: far
    steps:
      - {{name: one, agent: there, task: hello, timeout: 1s}}
"""
    )
    shown = flows("run", file).stderr
    assert "one: failed" in shown
    assert " WARNING " not in shown
    assert " WARNING accord.remote: " in flows("run", file, ACCORD_TELEMETRY__LOG_LEVEL="warning").stderr
