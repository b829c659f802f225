"""Agents that run in this process over a store in memory: what the test of an agent needs, without a server.

    async with running(greeter) as a2a:
        assert await a2a.ask_text("hi") == "hello"

They are hosted exactly as `accord serve` hosts them, so waiting, parking and cancelling are the real ones; only nothing
outlives the block. It makes no agent and checks nothing: it stands on `accord.app`, and tests stand on it.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from accord.a2a import A2A, Caller
from accord.agents.loader import as_agent
from accord.app import Application
from accord.client import Client
from accord.client.client import PendingClient
from accord.config import settings_of
from accord.config.settings import Settings
from accord.engine.agent import Agent
from accord.engine.clock import SYSTEM
from accord.engine.messages import parts_of, text_of
from accord.errors import UnsupportedOperation
from accord.model import (
    CancelRequest,
    Event,
    GetRequest,
    Message,
    Role,
    SendConfiguration,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskState,
)
from accord.protocol import lifecycle
from accord.protocol.operations import DialectName
from accord.storage import migrate
from accord.testing.clock import MovableClock
from accord.testing.transport import AsgiTransport

IN_MEMORY: Mapping[str, Any] = {
    "store": "sqlite://:memory:",
    "server": {"grace_seconds": 0},
    "push": {"allow_private": True},
}
"""Nothing is kept, nothing is waited for at the end, and webhooks may be on this machine: those of tests are."""

BOUND_SECONDS = 30.0
"""How long to wait for anything: a test that hangs says nothing."""


class Running:
    """The first of some running agents, as one caller sees it; `app` serves it over ASGI as well."""

    def __init__(self, app: Application, caller: Caller, bound: float, clock: MovableClock | None = None) -> None:
        """Talk to the default agent of a started application; a clock that is moved is not what we are bound by."""
        self.app = app
        self.caller = caller
        self.service: A2A = app.host.default
        self._bound = bound
        self._bounded_by: Callable[[float], AbstractAsyncContextManager[Any]] = (
            clock.bound if clock else asyncio.timeout
        )
        self._sent = 0

    def client(
        self, agent: str | None = None, *, dialect: str | DialectName | None = None, **more: Any
    ) -> PendingClient:
        """Return a client of an agent, the first unless one is named by its path, in any dialect; `async with` it.

        It talks to the application as over HTTP, with everything in between but a socket. `more` is for
        `Client.connect`.
        """
        url = self.app.url if agent is None else f"{self.app.url}/agents/{agent}"
        return Client.connect(url, transport=AsgiTransport(self.app), dialect=dialect, **more)

    async def hand_in(self, task: Task, key: str, value: Any = True) -> bool:
        """Hand a task what it waits for under a key (`ctx.wait`); false if it has that already, or has ended."""
        return await self.app.host.default.wake(self.caller.tenant, task.id, key, value)

    async def send(self, content: Any, *, task: Task | None = None, at_once: bool = False) -> Task | Message:
        """Send text, parts or data to an open task or a new one, or a whole message; `at_once` does not wait."""
        async with self._bounded_by(self._bound):
            return await self.service.send(self._request(content, task, at_once), self.caller)

    async def send_text(self, text: str, *, task: Task | None = None, at_once: bool = False) -> Task:
        """Send a text to an agent that answers with tasks."""
        answer = await self.send(text, task=task, at_once=at_once)
        if isinstance(answer, Message):
            raise TypeError("The agent answers with a message alone: use `send` or `ask_text`")
        return answer

    async def ask_text(self, text: str, *, task: Task | None = None) -> str:
        """Send a text and return that of the answer."""
        return text_in(await self.send(text, task=task))

    def stream_text(self, text: str, *, task: Task | None = None) -> AsyncGenerator[Event, None]:
        """Send a text and yield what comes of it, as it comes."""
        return self._bounded(self.service.stream(self._request(text, task), self.caller))

    async def get(self, task: Task) -> Task:
        """Return a task as it is now."""
        async with self._bounded_by(self._bound):
            return await self.service.get(GetRequest(id=task.id), self.caller)

    async def cancel(self, task: Task) -> Task:
        """Cancel a task."""
        async with self._bounded_by(self._bound):
            return await self.service.cancel(CancelRequest(id=task.id), self.caller)

    async def reaches(self, task: Task, state: TaskState) -> Task:
        """Wait until a task is in a state; one that ends in another raises AssertionError."""
        now = task
        with suppress(UnsupportedOperation):  # it has ended: there is nothing to follow
            followed = self.service.subscribe(SubscribeRequest(id=task.id), self.caller)
            async with aclosing(self._bounded(followed)) as events:
                async for event in events:
                    now = event.body if isinstance(event.body, Task) else lifecycle.apply(now, event.body)
                    if now.status.state is state:
                        return now
        now = await self.get(task)
        if now.status.state is not state:
            raise AssertionError(f"The task is {now.status.state.name} and will not be {state.name}")
        return now

    def _request(self, content: Any, task: Task | None, at_once: bool = False) -> SendRequest:
        self._sent += 1
        message = content
        if not isinstance(content, Message):
            message = Message(
                message_id=f"sent-{self._sent}",
                role=Role.USER,
                parts=parts_of(content),
                task_id=None if task is None else task.id,
            )
        return SendRequest(message=message, configuration=SendConfiguration(return_immediately=at_once))

    async def _bounded(self, events: AsyncIterator[Event]) -> AsyncGenerator[Event, None]:
        """Yield events, none of which may take longer than the bound."""
        async with aclosing(events) as following:  # type: ignore[type-var]  # every service stream is a generator
            while True:
                async with self._bounded_by(self._bound):
                    event = await anext(following, None)
                if event is None:
                    return
                yield event


@asynccontextmanager
async def running(
    agent: Agent | Callable[..., Any],
    *others: Agent | Callable[..., Any],
    caller: Caller | None = None,
    bound: float = BOUND_SECONDS,
    store: Path | str | None = None,
    clock: MovableClock | None = None,
    **settings: Any,
) -> AsyncIterator[Running]:
    """Run agents, or functions as agents; the first is talked to, and `ctx.call` finds the others by name.

    With a `store`, the path of a SQLite file or an address, everything is kept there, so that another block goes on
    with it. `settings` are those of `accord.config`, by section: `running(agent, limits={"rate": 1})`.
    """
    async with AsyncExitStack() as stack:
        if clock is not None:
            stack.enter_context(clock.moving())
        app = application((agent, *others), store, clock, **settings)
        await stack.enter_async_context(app.lifespan())
        if clock is not None:
            stack.callback(clock.settle_with(lambda: app.host.engine.store.do(migrate.version)))
        yield Running(app, caller or Caller(), bound, clock)


_numbers = count(1)


def application(
    agents: Iterable[Agent | Callable[..., Any]],
    store: Path | str | None = None,
    clock: MovableClock | None = None,
    **settings: Any,
) -> Application:
    """Return an application as tests need one; whoever asks for it starts and stops it."""
    made = [as_agent(given, getattr(given, "__name__", "agent")) for given in agents]
    stated = _settings(settings, store)
    if clock is not None and not (stated.store or "").startswith("sqlite:"):
        raise ValueError("Only SQLite's clock can be moved: a clock goes with a store in memory, or in a file")
    return Application(made, stated, clock=SYSTEM if clock is None else clock.clock)


def _settings(given: Mapping[str, Any], store: Path | str | None) -> Settings:
    # Each has an address of its own, by which clients remember cards, and at which agents elsewhere do not report.
    here: dict[str, Any] = {
        **IN_MEMORY,
        "server": {**IN_MEMORY["server"], "url": f"http://localhost:{next(_numbers)}"},
    }
    if store is not None:
        here["store"] = f"sqlite:///{store}" if isinstance(store, Path) else store
    for name, said in given.items():
        here[name] = {**here[name], **said} if isinstance(here.get(name), dict) and isinstance(said, dict) else said
    return settings_of(here, "running", os.environ)


def text_in(answer: Task | Message) -> str:
    """Return what an answer says: the text of its artifacts, or of its status or message if there are none."""
    if isinstance(answer, Message):
        return text_of(answer.parts)
    made = text_of(part for artifact in answer.artifacts for part in artifact.parts)
    return made or (text_of(answer.status.message.parts) if answer.status.message else "")
