"""Commands to test with: scripts that behave like the real ones, and agents made of them."""

import asyncio
import os
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from accord.a2a import Caller
from accord.agents.command_supervisor import descendants
from accord.agents.process import ProcessAgent, ProcessOptions
from accord.api.agent_types import AgentArguments
from accord.engine.node import Limits
from accord.model import Message, Part, Role, Task, TaskState
from accord.server.application import Application
from accord.server.settings import ServerSettings, Settings
from accord.testing.inprocess import Running

CLIS = Path(__file__).parent / "clis"
BOUND_SECONDS = 30


def words(script: str, *args: str) -> tuple[str, ...]:
    """The command of a script."""
    return (sys.executable, "-I", str(CLIS / f"{script}.py"), *args)


Making = Callable[..., ProcessAgent]
Left = Callable[[], set[int]]


@pytest.fixture
def binary(tmp_path: Path) -> Callable[[str], str]:
    """A function that returns a script as a program under its name, as a preset wants one."""

    def make(script: str) -> str:
        file = tmp_path / "bin" / script
        file.parent.mkdir(exist_ok=True)
        file.write_text(f'#!/bin/sh\nexec {shlex.join(words(script))} "$@"\n')
        file.chmod(0o755)
        return str(file)

    return make


@pytest.fixture
def left() -> Left:
    """A function that returns what was started during the test and is still there; others share this process."""
    before = set(descendants(os.getpid()))

    def look() -> set[int]:
        others = before.union(*(descendants(pid) for pid in before))
        return set(descendants(os.getpid())) - others

    return look


@pytest.fixture
def making(tmp_path: Path) -> Making:
    """A function that makes an agent, whose home and places are below the test's folder."""

    def make(**said: Any) -> ProcessAgent:
        name = said.pop("name", "coder")
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **said.pop("environ", {})}
        options = msgspec.convert({"root": str(tmp_path / "work"), "grace": 0.5, **said}, ProcessOptions)
        return ProcessAgent(AgentArguments(options=options, name=name, env=env))

    return make


@asynccontextmanager
async def another(making: Making, store: str, **said: Any) -> AsyncIterator[Running]:
    """Another node of the same store, with the same agent."""
    limits = Limits(lease_seconds=1.5, poll_seconds=0.1)
    app = Application([making(**said)], Settings(store=store, server=ServerSettings(grace_seconds=0), engine=limits))
    async with app.lifespan():
        yield Running(app, Caller(), BOUND_SECONDS)


def message(text: str, *parts: Part, context: str | None = None, task: Task | None = None) -> Message:
    """A message in a conversation."""
    message.count += 1  # type: ignore[attr-defined]
    return Message(
        message_id=f"said-{message.count}",  # type: ignore[attr-defined]
        role=Role.USER,
        parts=(Part(text=text), *parts),
        context_id=context,
        task_id=None if task is None else task.id,
    )


message.count = 0  # type: ignore[attr-defined]


async def sent(a2a: Running, text: str, *parts: Part, context: str | None = None, task: Task | None = None) -> Task:
    """What becomes of a message."""
    answer = await a2a.send(message(text, *parts, context=context, task=task))
    assert isinstance(answer, Task)
    return answer


def text(task: Task) -> str:
    """What the artifacts say."""
    return "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)


def status(task: Task) -> str:
    """What the status says."""
    said = task.status.message
    return "" if said is None else "".join(part.text or "" for part in said.parts)


def completed(task: Task) -> str:
    """The text of a task that must be completed."""
    assert task.status.state is TaskState.COMPLETED, status(task)
    return text(task)


async def until(is_so: Callable[[], Any] | Callable[[], Awaitable[Any]]) -> Any:
    """Wait until something is so, in the world outside that tells nobody; return what it was."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            found = is_so()
            found = await found if asyncio.iscoroutine(found) else found
            if found:
                return found
            await asyncio.sleep(0.02)


def lives(pid: int) -> bool:
    """Whether a process is there and is no corpse."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
