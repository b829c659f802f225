"""Agents that run in this process over a store in memory: what the test of an agent needs, without a server.

    async with running(greeter) as a2a:
        assert await a2a.ask_text("hi") == "hello"

They are hosted exactly as `accord serve` hosts them, so waiting, parking and cancelling are the real ones; only nothing
outlives the block. It makes no agent and checks nothing: it stands on `accord.app`, and tests stand on it.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from accord.agents.load import as_agent
from accord.app import Application
from accord.config.settings import Server, Settings
from accord.core.agent import Agent
from accord.core.interface import A2A, Caller
from accord.core.output import parts_of, text_of
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

IN_MEMORY = Settings(store="sqlite://:memory:", server=Server(grace_seconds=0))
"""Nothing is kept, and nothing is waited for at the end."""

BOUND_SECONDS = 30.0
"""How long to wait for anything: a test that hangs says nothing."""


class Running:
    """The first of some running agents, as one caller sees it; `app` serves it over ASGI as well."""

    def __init__(self, app: Application, caller: Caller, bound: float) -> None:
        """Talk to the default agent of a started application."""
        self.app = app
        self.caller = caller
        self.service: A2A = app.host.default
        self._bound = bound
        self._sent = 0

    async def send(self, content: Any, *, task: Task | None = None, at_once: bool = False) -> Task | Message:
        """Send text, parts or data to an open task or a new one, or a whole message; `at_once` does not wait."""
        async with asyncio.timeout(self._bound):
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
        async with asyncio.timeout(self._bound):
            return await self.service.get(GetRequest(id=task.id), self.caller)

    async def cancel(self, task: Task) -> Task:
        """Cancel a task."""
        async with asyncio.timeout(self._bound):
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
                async with asyncio.timeout(self._bound):
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
) -> AsyncIterator[Running]:
    """Run agents, or functions as agents; the first is talked to, and `ctx.call` finds the others by name."""
    agents = [as_agent(given, getattr(given, "__name__", "agent")) for given in (agent, *others)]
    app = Application(agents, IN_MEMORY)
    async with app.lifespan():
        yield Running(app, caller or Caller(), bound)


def text_in(answer: Task | Message) -> str:
    """Return what an answer says: the text of its artifacts, or of its status or message if there are none."""
    if isinstance(answer, Message):
        return text_of(answer.parts)
    made = text_of(part for artifact in answer.artifacts for part in artifact.parts)
    return made or (text_of(answer.status.message.parts) if answer.status.message else "")
