"""Agents served in this process over a store in memory, and assertions on their tasks."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from accord.a2a import A2A, Caller
from accord.agents.loader import as_agent
from accord.client import Client
from accord.client.client import PendingClient
from accord.client.text import Reply
from accord.engine.agent import Agent
from accord.engine.clock import SYSTEM
from accord.engine.messages import parts_of, text_of
from accord.errors import UnsupportedOperation
from accord.model import (
    ArtifactUpdate,
    CancelRequest,
    Event,
    EventBody,
    GetRequest,
    Message,
    MessageUpdate,
    Role,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskState,
)
from accord.protocol import lifecycle
from accord.protocol.operations import DialectName
from accord.server.application import Application
from accord.server.settings import Settings
from accord.server.settings_loader import settings_of
from accord.storage import schema
from accord.testing.asgi import AsgiTransport
from accord.testing.clock import MovableClock

IN_MEMORY_STORE: Mapping[str, Any] = {
    "store": "sqlite://:memory:",
    "server": {"grace_seconds": 0},
    "push": {"allow_private": True},
}
"""Settings of tests: a store in memory, no grace period, and webhooks on this machine."""

BOUND_SECONDS = 30.0
"""Timeout of each wait, in seconds: a hanging test gives no information."""


class Running:
    """The first of the running agents, as seen by one caller. `app` serves it over ASGI as well."""

    def __init__(self, app: Application, caller: Caller, bound: float, clock: MovableClock | None = None) -> None:
        """Call the default agent of a started application. Timeouts ignore a moved `clock`."""
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
        """Return a client of an agent, in any dialect; use it with `async with`.

        `agent` is the path name of an agent [default: the first]. The client calls the application as over HTTP, with
        everything except a socket. `more` are arguments of `Client.connect`.
        """
        url = self.app.url if agent is None else f"{self.app.url}/agents/{agent}"
        return Client.connect(url, transport=AsgiTransport(self.app), dialect=dialect, **more)

    async def hand_in(self, task: Task, key: str, value: Any = True) -> bool:
        """Deliver a signal to a task under a key (`ctx.wait`). False if the task already has it or has ended."""
        return await self.app.host.default.wake(self.caller.tenant, task.id, key, value)

    async def send(self, content: Any, *, task: Task | None = None, at_once: bool = False) -> Task | Message:
        """Send text, parts, data or a whole message to an open or a new task. `at_once` does not wait."""
        async with self._bounded_by(self._bound):
            return await self.service.send(self._request(content, task, at_once), self.caller)

    async def send_text(self, text: str, *, task: Task | None = None, at_once: bool = False) -> Task:
        """Send a text to an agent that answers with tasks, and return the task."""
        answer = await self.send(text, task=task, at_once=at_once)
        if isinstance(answer, Message):
            raise TypeError("The agent answers with a message alone: use `send` or `ask_text`")
        return answer

    async def ask_text(self, text: str, *, task: Task | None = None) -> str:
        """Send a text and return the answer's text."""
        return text_in(await self.send(text, task=task))

    def stream_text(self, text: str, *, task: Task | None = None) -> AsyncGenerator[Event, None]:
        """Send a text and yield the task's events as they arrive."""
        return self._bounded(self.service.stream(self._request(text, task), self.caller))

    async def get(self, task: Task) -> Task:
        """Return a task's current state."""
        async with self._bounded_by(self._bound):
            return await self.service.get(GetRequest(id=task.id), self.caller)

    async def cancel(self, task: Task) -> Task:
        """Cancel a task."""
        async with self._bounded_by(self._bound):
            return await self.service.cancel(CancelRequest(id=task.id), self.caller)

    async def reaches(self, task: Task, state: TaskState) -> Task:
        """Wait until a task is in a state. Raises AssertionError if it ends in another."""
        now = task
        with suppress(UnsupportedOperation):  # it has ended: there are no more events
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
        """Yield events, each within the timeout."""
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
    """Run agents, or functions as agents. Messages go to the first, and `ctx.call` finds the others by name.

    `store` is the path of a SQLite file or an address. With it, tasks are stored there and another block continues
    with them. `settings` are those of `accord.server`, by section: `running(agent, limits={"rate": 1})`.
    """
    async with AsyncExitStack() as stack:
        if clock is not None:
            stack.enter_context(clock.moving())
        app = application((agent, *others), store, clock, **settings)
        await stack.enter_async_context(app.lifespan())
        if clock is not None:
            stack.callback(clock.settle_with(lambda: app.host.node.store.do(schema.schema_version)))
        yield Running(app, caller or Caller(), bound, clock)


_numbers = count(1)


def application(
    agents: Iterable[Agent | Callable[..., Any]],
    store: Path | str | None = None,
    clock: MovableClock | None = None,
    **settings: Any,
) -> Application:
    """Return an application with settings for tests. The caller starts and stops it."""
    made = [as_agent(given, getattr(given, "__name__", "agent")) for given in agents]
    stated = _settings(settings, store)
    if clock is not None and not (stated.store or "").startswith("sqlite:"):
        raise ValueError("Only SQLite's clock can be moved: a clock goes with a store in memory, or in a file")
    return Application(made, stated, clock=SYSTEM if clock is None else clock.clock)


def _settings(given: Mapping[str, Any], store: Path | str | None) -> Settings:
    # Each has its own address, under which clients cache cards, and to which remote agents cannot report.
    here: dict[str, Any] = {
        **IN_MEMORY_STORE,
        "server": {**IN_MEMORY_STORE["server"], "url": f"http://localhost:{next(_numbers)}"},
    }
    if store is not None:
        here["store"] = f"sqlite:///{store}" if isinstance(store, Path) else store
    for name, said in given.items():
        here[name] = {**here[name], **said} if isinstance(here.get(name), dict) and isinstance(said, dict) else said
    return settings_of(here, "running", os.environ)


def text_in(answer: Task | Message) -> str:
    """Return an answer's text: that of its artifacts, or of its status or message if there are none."""
    if isinstance(answer, Message):
        return text_of(answer.parts)
    made = text_of(part for artifact in answer.artifacts for part in artifact.parts)
    return made or (text_of(answer.status.message.parts) if answer.status.message else "")


ExpectedValue = str | re.Pattern[str]
"""An expected text: an exact string, or a pattern to search for."""

SHOWN_CHARACTERS = 200
"""Maximum characters of a text in a failure message."""


def assert_task(
    task: Task | Reply | Iterable[Event | EventBody],
    *,
    state: TaskState | str | None = None,
    text: ExpectedValue | None = None,
    artifacts: Mapping[str, ExpectedValue] | Sequence[ExpectedValue] | None = None,
    history: Sequence[ExpectedValue] | None = None,
    events: Sequence[str] | None = None,
) -> Task:
    """Assert that a task is as expected, and return it. Omitted expectations are not checked.

    `state` is a state or its name (`"completed"`). `text` is the text of all artifacts, or of the status without
    any. `artifacts` are all texts, by id or in order. `history` lists the messages as `user: ...` and `agent: ...`.

    Instead of a task, a stream's events may be passed, from which the task is folded. `events` is then their
    outline: the names of states, with `artifact` and `message` between them.
    """
    found, seen = _task_and_outline(task)
    wrong: list[str] = []
    if state is not None and found.status.state is not (wanted := _state(state)):
        wrong.append(f"state: {_state_name(found.status.state)}, not {_state_name(wanted)}")
    if text is not None and not _matches(text, said := text_in(found)):
        wrong.append(f"text: {_shortened(said)}, not {_describe_expected(text)}")
    if artifacts is not None:
        wrong += _artifacts(artifacts, found)
    if history is not None:
        wrong += _listed("history", [f"{_role(one)}: {text_of(one.parts)}" for one in found.history], history)
    if events is not None:
        if seen is None:
            raise TypeError("A task has no events: pass the events of its stream instead")
        wrong += _listed("events", seen, events)
    if wrong:
        raise AssertionError(
            "\n".join([f"The task {found.id} is not as expected:", *(f"  {one}" for one in wrong), *_full_text(found)])
        )
    return found


def _task_and_outline(given: Task | Reply | Iterable[Event | EventBody]) -> tuple[Task, list[str] | None]:
    """Return a task, and the outline of the events from which it was folded."""
    if isinstance(given, Task):
        return given, None
    if isinstance(given, Reply):
        if isinstance(given.raw, Message):
            raise AssertionError(f"The answer is a message without a task: {_shortened(given.text)}")
        return given.raw, None
    if isinstance(given, Message):
        raise AssertionError(f"The answer is a message without a task: {_shortened(text_of(given.parts))}")
    bodies = [one.body if isinstance(one, Event) else one for one in given]
    first = bodies[0] if bodies else None
    if not isinstance(first, Task):
        raise AssertionError(f"The first event of a stream is its task, and this is {type(first).__name__}")
    task = first
    for body in bodies[1:]:
        task = body if isinstance(body, Task) else lifecycle.apply(task, body)
    return task, [_outlined(body) for body in bodies]


def _outlined(body: EventBody) -> str:
    match body:
        case Task() | StatusUpdate():
            return _state_name(body.status.state)
        case ArtifactUpdate():
            return "artifact"
        case MessageUpdate() | Message():
            return "message"
    raise TypeError(f"{type(body).__name__} is no event")


def _artifacts(wanted: Mapping[str, ExpectedValue] | Sequence[ExpectedValue], task: Task) -> list[str]:
    found = {one.artifact_id: text_of(one.parts) for one in task.artifacts}
    if not isinstance(wanted, Mapping):
        return _listed("artifacts", list(found.values()), wanted)
    wrong = [f"artifacts: there is no {id!r}, but {', '.join(found) or 'none'}" for id in wanted if id not in found]
    wrong += [f"artifacts: {id!r} was not expected" for id in found if id not in wanted]
    both = [id for id in wanted if id in found and not _matches(wanted[id], found[id])]
    return wrong + [
        f"artifacts: {id!r} is {_shortened(found[id])}, not {_describe_expected(wanted[id])}" for id in both
    ]


def _listed(what: str, found: Sequence[str], wanted: Sequence[ExpectedValue]) -> list[str]:
    wrong = []
    for place in range(max(len(found), len(wanted))):
        if place >= len(wanted):
            wrong.append(f"{what}[{place}]: {_shortened(found[place])} was not expected")
        elif place >= len(found):
            wrong.append(f"{what}[{place}]: nothing, not {_describe_expected(wanted[place])}")
        elif not _matches(wanted[place], found[place]):
            wrong.append(f"{what}[{place}]: {_shortened(found[place])}, not {_describe_expected(wanted[place])}")
    return wrong


def _matches(wanted: ExpectedValue, found: str) -> bool:
    return wanted == found if isinstance(wanted, str) else wanted.search(found) is not None


def _describe_expected(wanted: ExpectedValue) -> str:
    return _shortened(wanted) if isinstance(wanted, str) else f"something with /{wanted.pattern}/"


def _shortened(text: str) -> str:
    return repr(text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}...")


def _state(state: TaskState | str) -> TaskState:
    return state if isinstance(state, TaskState) else TaskState[state.upper().replace("-", "_")]


def _state_name(state: TaskState) -> str:
    return state.name.lower().replace("_", "-")


def _role(message: Message) -> str:
    return message.role.name.lower()


def _full_text(task: Task) -> list[str]:
    """Return the task as text, for a failure message."""
    status = f": {_shortened(text_of(task.status.message.parts))}" if task.status.message else ""
    lines: list[Any] = ["It is:", f"  state {_state_name(task.status.state)}{status}"]
    lines += [f"  artifact {one.artifact_id!r}: {_shortened(text_of(one.parts))}" for one in task.artifacts]
    return lines + [f"  {_role(one)}: {_shortened(text_of(one.parts))}" for one in task.history]
