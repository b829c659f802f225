"""Talking to a subject's agent over A2A: in this process, or over HTTP where it is served by one of its own."""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from accord.a2a import A2A, Caller
from accord.client import Client
from accord.engine.messages import parts_of
from accord.model import (
    ArtifactUpdate,
    CancelRequest,
    Event,
    GetRequest,
    Message,
    Part,
    Role,
    SendConfiguration,
    SendRequest,
    Task,
    TaskState,
)
from accord.protocol import lifecycle
from accord.server.agents import redescribe
from accord.testing import running
from tests.agents.contract.subjects import PACKAGE, Subject, called
from tests.environments import interpreter
from tests.serve.running import Server

BOUND_SECONDS = 60
"""For machines that are busy with other things."""

TIMEOUT_SECONDS = 3.0
"""How long an agent may take whose time is limited: enough to begin, wherever it runs."""

HURRIED = "hurried"
"""The agent that behaves like `slow` and whose time is limited."""

LEASES = {"ACCORD_ENGINE__LEASE_SECONDS": "1.5", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
"""Short enough to wait for."""

_numbers = iter(range(10**9))


class Talk:
    """One agent, as a caller sees it."""

    def __init__(self, a2a: A2A, caller: Caller, scratch: Path) -> None:
        self._a2a = a2a
        self._caller = caller
        self.scratch = scratch

    async def send(self, *content: Any, at_once: bool = False, **ids: Any) -> Task:
        """Say something and return the task, when it has ended or waits, or at once."""
        async with asyncio.timeout(BOUND_SECONDS):
            task = await self._a2a.send(_request(content, at_once=at_once, **ids), self._caller)
        assert isinstance(task, Task)
        return task

    async def stream(self, *content: Any) -> AsyncGenerator[Event, None]:
        """Say something and yield what comes of it."""
        events = self._a2a.stream(_request(content, at_once=False), self._caller)
        async with aclosing(events) as following:  # type: ignore[type-var]  # every stream is a generator
            while True:
                async with asyncio.timeout(BOUND_SECONDS):
                    event = await anext(following, None)
                if event is None:
                    return
                yield event

    async def get(self, task: Task) -> Task:
        """Return a task as it is now."""
        return await self._a2a.get(GetRequest(id=task.id), self._caller)

    async def cancel(self, task: Task) -> Task:
        """Cancel a task."""
        async with asyncio.timeout(BOUND_SECONDS):
            return await self._a2a.cancel(CancelRequest(id=task.id), self._caller)

    async def reaches(self, task: Task, state: TaskState) -> Task:
        """Wait until a task is in a state; it may not end in another."""
        async with asyncio.timeout(BOUND_SECONDS):
            while (now := await self.get(task)).status.state is not state:
                assert now.status.state not in lifecycle.TERMINAL, f"it is {now.status.state.name}: {status(now)}"
                await asyncio.sleep(0.05)
        return now


def _request(content: tuple[Any, ...], *, at_once: bool, **ids: Any) -> SendRequest:
    parts = tuple(part for one in content for part in parts_of(one))
    message = Message(message_id=f"contract-{next(_numbers)}", role=Role.USER, parts=parts, **ids)
    return SendRequest(message=message, configuration=SendConfiguration(return_immediately=at_once))


# --- where the agent is -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def in_process(subject: Subject, behaviour: str, scratch: Path) -> AsyncIterator[Talk]:
    """Run an agent in this process, over a store in memory."""
    assert subject.make is not None
    agent = subject.make("slow" if behaviour == HURRIED else behaviour, scratch)
    assert agent.profile.crash is subject.crash
    if behaviour == HURRIED:
        agent = redescribe(agent, partial(replace, timeout=TIMEOUT_SECONDS))
    async with running(agent) as a2a:
        yield Talk(a2a.service, a2a.caller, scratch)


def serve(environment: str | None, folder: Path, behaviours: Mapping[str, Iterable[str]]) -> Server:
    """Serve agents of subjects in a process of their own, with the Python of their environment or with ours.

    Twice in a folder it is two nodes of one store.
    """
    tables = [_table(environment, name, does) for name, has in behaviours.items() for does in sorted(has)]
    (folder / "accord.toml").write_text("\n".join(tables))
    python = None if environment is None else str(interpreter(environment))
    env: dict[str, Any] = LEASES | {"SCRATCH": str(folder)}
    return Server(folder, "--store", f"sqlite:///{folder}/accord.db", python=python, **env)


def _table(environment: str | None, name: str, behaviour: str) -> str:
    does, limit = ("slow", f"timeout = {TIMEOUT_SECONDS}") if behaviour == HURRIED else (behaviour, "")
    target = f"hosted:{name}.{does}" if environment is None else f"peers.{name}:{does}"
    return f'[agents.{called(name, behaviour)}]\ntarget = "{PACKAGE}.{target}"\n{limit}\n'


@asynccontextmanager
async def over_http(server: Server, name: str, behaviour: str, scratch: Path) -> AsyncIterator[Talk]:
    """Talk to one of the agents of a server."""
    async with Client.connect(f"{server.url}/agents/{called(name, behaviour)}", timeout=BOUND_SECONDS) as client:
        yield Talk(client, Caller(), scratch)


# --- what it says -----------------------------------------------------------------------------------------------------


def text(task: Task) -> str:
    """Return everything that a task's artifacts say."""
    return "".join(part.text or "" for part in made(task))


def made(task: Task) -> list[Part]:
    """Return the parts of a task's artifacts."""
    return [part for artifact in task.artifacts for part in artifact.parts]


def status(task: Task) -> str:
    """Return what a task's status says."""
    return "".join(part.text or "" for part in task.status.message.parts) if task.status.message else ""


def chunk(event: Event) -> str:
    """Return the text that an event adds to an artifact."""
    body = event.body
    return "".join(part.text or "" for part in body.artifact.parts) if isinstance(body, ArtifactUpdate) else ""


# --- what it does -----------------------------------------------------------------------------------------------------


def beats(scratch: Path) -> int:
    """Return how often the work has shown that it goes on."""
    file = scratch / "beats"
    return os.path.getsize(file) if file.exists() else 0


async def goes_on(scratch: Path) -> None:
    """Wait until the work goes on."""
    before = beats(scratch)
    async with asyncio.timeout(BOUND_SECONDS):
        while beats(scratch) <= before + 1:  # noqa: ASYNC110  # it is done in a thread or a process
            await asyncio.sleep(0.02)


async def silence(scratch: Path, quiet_seconds: float = 0.5) -> int:
    """Wait until the work has shown nothing for a while, and return how often it had."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            before = beats(scratch)
            await asyncio.sleep(quiet_seconds)
            if beats(scratch) == before:
                return before


async def did(scratch: Path, *done: str) -> None:
    """Wait until these steps are done."""
    async with asyncio.timeout(BOUND_SECONDS):
        while steps(scratch) != list(done):  # noqa: ASYNC110  # it is done in another process
            await asyncio.sleep(0.02)


def steps(scratch: Path) -> list[str]:
    """Return which steps were begun."""
    file = scratch / "steps"
    return file.read_text().split() if file.exists() else []
