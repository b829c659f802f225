"""A conversation without a terminal: lines in, answers out."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from accord.cli.failures import Exit
from tests.cli.test_commands import AGENT
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, Server, environment, running


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("served"), AGENT) as server:
        yield server


def chat(folder: Path, lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "accord", "chat", *arguments],
        input=lines,
        capture_output=True,
        text=True,
        timeout=BOUND_SECONDS,
        check=False,
        cwd=folder,
        env=environment(folder),
    )


def test_lines_are_answered_and_a_question_by_the_next_line(served: Server, tmp_path: Path) -> None:
    done = chat(tmp_path, "hello\n\nask\nSunday\nbye\n", served.url)
    assert done.returncode == Exit.DONE, done.stderr
    assert done.stdout.splitlines() == ["hello, it says", "Which day?", "It is Sunday", "bye, it says"]
    assert not done.stderr


def test_one_conversation_has_one_context(served: Server, tmp_path: Path) -> None:
    done = chat(tmp_path, "one\ntwo\n", served.url, "-o", "json")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    tasks = [event["task"] for event in events if "task" in event]
    assert len({task["id"] for task in tasks}) == 2
    assert len({task["contextId"] for task in tasks}) == 1


def test_a_failure_ends_the_chat(served: Server, tmp_path: Path) -> None:
    done = chat(tmp_path, "one\n", f"http://localhost:{free_port()}")
    assert done.returncode == Exit.UNREACHABLE
    assert not done.stdout
    done = chat(tmp_path, "one\ntwo\n", served.url, "--task-id", "nothing")
    assert done.returncode == Exit.FAILED
    assert not done.stdout
