"""Commands without a terminal: what is said to them, what they say, and how they end."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accord.model import Part, Task, TaskState
from accord.testing import running
from tests.agents.process.conftest import Left, Making, completed, message, sent, status, text, until, words


async def test_commands_get_the_prompt_and_lose_their_colors(making: Making) -> None:
    async with running(making(command=words("does", "echo"))) as a2a:
        assert completed(await sent(a2a, "hello")) == "you said hello"


async def test_prompt_arguments_are_not_flags(making: Making) -> None:
    async with running(making(command=words("does", "arguments"), args=["--for", "{prompt}"])) as a2a:
        assert json.loads(completed(await sent(a2a, "--help"))) == ["--for", " --help"]


async def test_nonzero_exit_codes_fail_with_the_last_output(making: Making) -> None:
    async with running(making(command=words("does", "fail"))) as a2a:
        failed = await sent(a2a, "weather")
        assert failed.status.state is TaskState.FAILED
        assert status(failed) == "coder ended with exit code 3: a first line\nno such city"


async def test_claude(making: Making, binary: Callable[[str], str]) -> None:
    async with running(making(preset="claude", path=binary("claude"))) as a2a:
        first = await sent(a2a, "my name is Ada")
        assert completed(first) == "my name is Ada "
        again = await sent(a2a, "and again", context=first.context_id)
        assert completed(again) == "my name is Ada | and again "
        assert "Ada" not in text(await sent(a2a, "elsewhere"))
        assert again.metadata is not None
        assert again.metadata["usage"]["inputTokens"] == 7
        assert again.metadata["usage"]["outputTokens"] == 5
        assert again.metadata["usage"]["cost"] == 0.25


async def test_files_go_in_and_out(making: Making) -> None:
    given = Part(raw=b"one", filename="../a b.txt", media_type="text/plain")
    async with running(making(command=words("does", "files"))) as a2a:
        done = await sent(a2a, "take this", given)
        assert "inbox/a_b.txt" in completed(done)
        files = {part.filename: part.raw for artifact in done.artifacts for part in artifact.parts if part.raw}
        assert files == {"a_b.txt": b"one!"}


async def test_codex(making: Making, binary: Callable[[str], str]) -> None:
    async with running(making(preset="codex", path=binary("codex"))) as a2a:
        first = await sent(a2a, "one")
        assert completed(first) == "you said one"
        assert completed(await sent(a2a, "two", context=first.context_id)) == "you said one | two"
        failed = await sent(a2a, "fail")
        assert (failed.status.state, status(failed)) == (TaskState.FAILED, "coder failed: no such city")
        assert first.metadata is not None
        assert first.metadata["usage"]["totalTokens"] == 12


async def test_denied_tools_run_after_approval(making: Making, binary: Callable[[str], str]) -> None:
    async with running(making(preset="claude", path=binary("claude"))) as a2a:
        asked = await sent(a2a, "run ls (here), now")
        assert asked.status.state is TaskState.INPUT_REQUIRED
        assert "Allow Bash(ls (here), now)?" in status(asked)
        done = await sent(a2a, "yes", task=asked)
        assert completed(done) == "I may not ran ls (here), now "
        assert [artifact.artifact_id for artifact in done.artifacts] == ["answer-1", "answer-1-2"]
        assert done.metadata is not None
        assert done.metadata["usage"]["cost"] == 0.75


async def test_refused_tools_do_not_run(making: Making, binary: Callable[[str], str]) -> None:
    async with running(making(preset="claude", path=binary("claude"))) as a2a:
        asked = await sent(a2a, "run rm -rf")
        done = await sent(a2a, "no never", task=asked)
        assert "You are not allowed to do this: Bash(rm -rf). never" in completed(done)
        assert "ran" not in text(done)


async def test_a_budget_stops_it_in_the_middle(making: Making, binary: Callable[[str], str], left: Left) -> None:
    async with running(making(preset="claude", path=binary("claude"), max_tokens=5)) as a2a:
        failed = await sent(a2a, "sleep")
        assert (failed.status.state, status(failed)) == (TaskState.FAILED, "The budget of 5 tokens is spent")
        await until(lambda: not left())


async def test_turns_of_a_conversation_follow_each_other(making: Making, tmp_path: Path) -> None:
    script = 'echo begin >> "$HOME/log"; while ! test -e "$HOME/go"; do sleep 0.02; done; echo end >> "$HOME/log"'
    async with running(making(command=["sh", "-c", script])) as a2a:
        tasks = [await a2a.send(message("go", context="one"), at_once=True) for _ in range(2)]
        log = tmp_path / "log"
        await until(log.exists)
        (tmp_path / "go").touch()
        for task in tasks:
            assert isinstance(task, Task)
            await a2a.reaches(task, TaskState.COMPLETED)
        assert log.read_text().split() == ["begin", "end"] * 2


async def test_an_error_in_its_result_fails_the_task(making: Making, binary: Callable[[str], str]) -> None:
    async with running(making(preset="claude", path=binary("claude"))) as a2a:
        failed = await sent(a2a, "break")
        assert (failed.status.state, status(failed)) == (TaskState.FAILED, "coder failed: the credit is used up")


async def test_missing_sessions_restart(making: Making, binary: Callable[[str], str], tmp_path: Path) -> None:
    async with running(making(preset="claude", path=binary("claude"))) as a2a:
        first = await sent(a2a, "one")
        shutil.rmtree(tmp_path / "sessions")
        assert completed(await sent(a2a, "two", context=first.context_id)) == "two "
        assert completed(await sent(a2a, "three", context=first.context_id)) == "two | three "


async def test_script_questions_reach_the_caller(making: Making) -> None:
    async with running(making(command=words("does", "lines"), events="lines")) as a2a:
        asked = await sent(a2a, "book a trip")
        assert (asked.status.state, status(asked)) == (TaskState.INPUT_REQUIRED, "Which city?")
        assert completed(await sent(a2a, "Rome", task=asked)) == "to Rome"


async def test_it_gets_no_more_of_the_environment_than_is_allowed(making: Making) -> None:
    hidden = {"ACCORD_STORE": "postgres://u:secret@db/x", "PGPASSWORD": "secret", "OTHER": "x"}
    agent = making(
        command=words("does", "environment"),
        environ={**hidden, "API_KEY": "key-of-the-model", "LANG": "C.UTF-8"},
        env={"EXTRA": "1"},
        pass_env=["API_KEY"],
    )
    async with running(agent) as a2a:
        done = await sent(a2a, "show")
        found = json.loads(completed(done))
    assert not hidden.keys() & found.keys()
    assert "secret" not in text(done)
    assert (found["API_KEY"], found["EXTRA"], found["LANG"]) == ("key-of-the-model", "1", "C.UTF-8")
    assert (found["TASK_ID"], found["CONTEXT_ID"]) == (done.id, done.context_id)


async def test_secrets_that_it_was_given_are_not_in_its_last_words(making: Making) -> None:
    agent = making(command=["sh", "-c", "echo bad key $API_KEY >&2; exit 1"], env={"API_KEY": "key-of-the-model"})
    async with running(agent) as a2a:
        assert status(await sent(a2a, "go")) == "coder ended with exit code 1: bad key ***"


async def test_missing_commands_are_reported(making: Making) -> None:
    async with running(making(command="no-such-command")) as a2a:
        failed = await sent(a2a, "go")
        assert failed.status.state is TaskState.FAILED
        assert status(failed) == "coder could not be started: No such file or directory"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"command": words("does", "flood"), "output_limit": 50_000}, "It printed more than 50000 bytes"),
        ({"command": words("does", "hang"), "first_output": 0.3}, "It printed nothing within 0.3 seconds"),
        ({"command": words("does", "words"), "idle_timeout": 0.3}, "It printed nothing for 0.3 seconds"),
    ],
)
async def test_a_limit_fails_the_task(making: Making, said: dict[str, Any], reason: str) -> None:
    async with running(making(**said)) as a2a:
        failed = await sent(a2a, "go")
        assert (failed.status.state, status(failed)) == (TaskState.FAILED, f"coder failed: {reason}")


async def test_closing_its_output_is_not_ending(making: Making) -> None:
    command = ["sh", "-c", "echo done; exec >&- 2>&-; sleep 1000"]
    async with running(making(command=command, idle_timeout=0.3)) as a2a:
        failed = await sent(a2a, "go")
        assert status(failed) == "coder failed: It closed its output and did not end"


async def test_a_signal_is_named(making: Making) -> None:
    async with running(making(command=["sh", "-c", "kill -SEGV $$"])) as a2a:
        assert status(await sent(a2a, "go")) == "coder was ended by SIGSEGV"


async def test_a_long_prompt_is_read_while_its_answer_is(making: Making) -> None:
    async with running(making(command="cat")) as a2a:
        assert completed(await sent(a2a, "x" * 500_000)) == "x" * 500_000
    async with running(making(command=["echo", "{prompt}"])) as a2a:
        failed = await sent(a2a, "x" * 500_000)
        assert "too long" in status(failed)


async def test_too_many_or_too_large_files_are_refused(making: Making) -> None:
    async with running(making(command="cat", max_files=1, max_file_bytes=4)) as a2a:
        file = Part(raw=b"four", filename="a")
        assert "inbox/a" in completed(await sent(a2a, "go", file))
        for refused in ((file, file), (Part(raw=b"large", filename="a"),)):
            assert (await sent(a2a, "go", *refused)).status.state is TaskState.REJECTED


async def test_background_processes_end_with_the_command(making: Making, left: Left) -> None:
    async with running(making(command=words("does", "leave"))) as a2a:
        assert completed(await sent(a2a, "go")) == "done"
    assert not left()
