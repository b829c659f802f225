"""Commands with a terminal: they ask, are held while they wait, and are answered; or are let go of."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from accord.agents.process import ProcessAgent, running_commands
from accord.model import TaskState
from accord.testing import running
from tests.agents.process.conftest import Making, completed, lives, sent, status, text, until, words


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_commands, "LOOK_SECONDS", 0.05)


def held(agent: ProcessAgent) -> list[int]:
    """The processes that are held."""
    assert agent._resources is not None
    return [kept.live.process.pid for kept in agent._resources.parked._parked.values()]


async def test_answers_are_typed_into_the_same_process(making: Making) -> None:
    agent = making(command=words("asks"), mode="pty")
    async with running(agent) as a2a:
        asked = await sent(a2a, "delete it")
        assert asked.status.state is TaskState.INPUT_REQUIRED
        assert status(asked).endswith("100%\nDo delete it? [y/N]")
        assert status(asked).count("%") <= 2, (
            "what was shown first cannot be taken back; what was written over is left out"
        )
        [pid] = held(agent)
        done = await sent(a2a, "sure", task=asked)
        assert f"delete it: sure, pid {pid}" in completed(done)
        assert text(done).startswith("ready\n")
        assert not held(agent)


async def test_questions_repeat_and_yes_is_translated(making: Making) -> None:
    async with running(making(command=words("asks", "--twice"), mode="pty", answers={"yes": "Y!"})) as a2a:
        asked = await sent(a2a, "it")
        assert "What first?" in status(asked)
        asked = await sent(a2a, "this", task=asked)
        assert (asked.status.state, "first this" in status(asked)) == (TaskState.INPUT_REQUIRED, True)
        assert "it: Y!, pid" in completed(await sent(a2a, "Yes", task=asked))


async def test_control_characters_are_not_typed(making: Making) -> None:
    async with running(making(command=words("asks"), mode="pty")) as a2a:
        asked = await sent(a2a, "a\x03b\x1b[A")
        assert "Do ab[A? [y/N]" in status(asked)
        assert "ab[A: no\x03"[:-1] in completed(await sent(a2a, "no\x03", task=asked))


async def test_several_lines_are_one_input(making: Making) -> None:
    async with running(making(command=words("asks"), mode="pty")) as a2a:
        asked = await sent(a2a, "delete it\ny")
        assert "Do delete it y? [y/N]" in status(asked)
        failed = await sent(a2a, "x" * 5000)
        assert "too long to be typed" in status(failed)


async def test_a_cancel_ends_the_suspended_process(making: Making) -> None:
    agent = making(command=words("asks"), mode="pty")
    async with running(agent) as a2a:
        asked = await sent(a2a, "delete it")
        [pid] = held(agent)
        assert (await a2a.cancel(asked)).status.state is TaskState.CANCELED
        await until(lambda: not lives(pid) and not held(agent))


async def test_a_suspended_process_times_out(making: Making) -> None:
    agent = making(command=words("asks"), mode="pty", answer_timeout=0.2)
    async with running(agent) as a2a:
        asked = await sent(a2a, "delete it")
        failed = await a2a.reaches(asked, TaskState.FAILED)
        assert status(failed) == "The question was not answered in time"
        assert not held(agent)


async def test_an_answer_without_process_fails_without_a_session(making: Making) -> None:
    agent = making(command=words("asks"), mode="pty")
    async with running(agent) as a2a:
        asked = await sent(a2a, "delete it")
        assert agent._resources is not None
        await agent._resources.parked.close()
        failed = await sent(a2a, "yes", task=asked)
        assert (failed.status.state, status(failed)) == (TaskState.FAILED, "The process that asked has ended")


async def test_an_answer_without_process_resumes_the_session(making: Making, binary: Callable[[str], str]) -> None:
    agent = making(preset="goose", path=binary("goose"), mode="pty")
    async with running(agent) as a2a:
        asked = await sent(a2a, "delete it")
        assert "Goose would like to call rm" in status(asked)
        assert agent._resources is not None
        await agent._resources.parked.close()
        assert "told: delete it\n\nPut files" in text(asked)
        done = await sent(a2a, "yes", task=asked)
        named = re.findall(r"session (\S+)", completed(done))
        assert len(set(named)) == 1
        assert "resumed: You asked:" in text(done)
        assert "The answer is: yes" in text(done)


async def test_the_terminal_answers_device_queries(making: Making) -> None:
    script = r"stty -icanon min 6; printf '\033[6n'; dd bs=6 count=1 2>/dev/null | od -An -c"
    async with running(making(command=["sh", "-c", script, "{prompt}"], mode="pty", allow_interpreter=True)) as a2a:
        assert completed(await sent(a2a, "go")).split() == ["033", "[", "1", ";", "1", "R"]


async def test_missing_sessions_restart(making: Making, tmp_path: Path) -> None:
    program = tmp_path / "claude"
    program.write_text('#!/bin/sh\ncase "$*" in *--resume*) echo "No conversation found"; exit 1;; esac\necho "$@"\n')
    program.chmod(0o755)
    async with running(making(preset="claude", path=str(program), mode="pty")) as a2a:
        first = await sent(a2a, "one")
        assert re.match(r"--session-id \S+ -- one\b", completed(first))
        again = completed(await sent(a2a, "two", context=first.context_id))
        assert re.search(r"--session-id \S+ -- two\b", again)


async def test_a_silent_command_is_nudged_and_then_given_up(making: Making) -> None:
    said = {"command": ["sh", "-c", "echo; while read x; do echo got $x; done"], "mode": "pty", "nudge_after": 0.8}
    async with running(making(**said, nudge="wake up", nudges=2)) as a2a:
        failed = await sent(a2a, "go")
        assert failed.status.state is TaskState.FAILED
        assert text(failed) == "got go\ngot wake up\ngot wake up"
        assert "after 2 reminders" in status(failed)
    async with running(making(**said, nudges=0, on_idle="finish")) as a2a:
        assert completed(await sent(a2a, "go")) == "got go"


async def test_a_pattern_ends_the_work_of_a_command_that_does_not_end(making: Making) -> None:
    said = {
        "command": ["sh", "-c", "echo; while read x; do echo DONE: $x; done"],
        "mode": "pty",
        "done": r"^DONE: \w+$",
    }
    async with running(making(**said)) as a2a:
        assert completed(await sent(a2a, "go")) == "DONE: go"
