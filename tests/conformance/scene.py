"""Where a scenario plays: a running server, the ways that its callers talk to it, and what they talk to.

It has the few things that a client of any dialect does (say something, wait, read on), written once so that scenarios
read as what they prove.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack
from typing import Any, Protocol

from accord import Context, agent
from accord.engine.agent import Agent
from accord.errors import AccordError, UnsupportedOperation
from accord.model import (
    ArtifactUpdate,
    Event,
    EventBody,
    GetRequest,
    Message,
    Part,
    Role,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskState,
)
from accord.protocol import lifecycle
from accord.protocol.operations import Operation
from accord.testing import Webhooks, catching, conformance
from tests.conformance.codes import CODES, expected
from tests.conformance.wire import V1, Binding, Events, Refusal, Seen, Speech, Wire

REST = lifecycle.ENDED | lifecycle.INTERRUPTED
"""States in which nothing happens without the caller."""


class Gate:
    """An agent that says what it hears at once, and the end only when it is let go on."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.reached = asyncio.Event()
        self.runs = 0
        self.agent: Agent = agent(name="gate", description="Waits", skills=["Wait"], extended_skills=["Hurry"])(
            self._run
        )

    async def _run(self, ctx: Context) -> AsyncIterator[str]:
        self.runs += 1
        yield f"{ctx.text} "
        await ctx.flush()
        self.reached.set()
        await self.go.wait()
        yield "to "
        yield "the end"


class Wires(Protocol):
    """Makes the wires of a server's callers."""

    def __call__(self, speech: Speech, caller: str, *, unsaid: bool = False) -> Wire: ...


class Scene:
    """One server, as three people see it over one wire: `wire` is Alice's, `other` Bob's, `stranger` nobody's.

    `reader` is Alice as well, who may only look. `v1` is her over JSON-RPC in A2A 1.0, `unsaid` her without a word
    about which dialect she speaks.
    """

    def __init__(self, gate: Gate, wires: Wires, speech: Speech, stack: AsyncExitStack) -> None:
        self.gate = gate
        self.wire, self.other, self.stranger, self.reader = (
            wires(speech, name) for name in ("alice", "bob", "", "reader")
        )
        self._wires, self._speech, self._stack = wires, speech, stack

    @property
    def v1(self) -> Wire:
        return self._wires(Speech(V1, Binding.JSONRPC), "alice")

    @property
    def unsaid(self) -> Wire:
        return self._wires(self._speech, "alice", unsaid=True)

    @property
    def operations(self) -> list[Operation]:
        """Everything that can be asked for."""
        return [operation for operation in Operation if self._speech.has(operation)]

    @property
    def sent(self) -> set[Operation]:
        """Everything that was asked for."""
        return self.wire.sent | self.other.sent | self.stranger.sent | self.reader.sent

    async def receiver(self) -> Webhooks:
        """A new webhook."""
        return await self._stack.enter_async_context(catching())


# --- saying something ---------------------------------------------------------------------------------------------

_numbers = iter(range(10**9))


def saying(text: str, *, at_once: bool = False, **fields: Any) -> SendRequest:
    """A message that nobody sent before, unless it is given an id."""
    configuration = fields.pop("configuration", SendConfiguration(return_immediately=True) if at_once else None)
    given = {"message_id": f"m-{next(_numbers)}", "role": Role.USER, "parts": (Part(text=text),), **fields}
    return SendRequest(message=Message(**given), configuration=configuration)


async def outcome(wire: Wire, text: str, **fields: Any) -> Task:
    """Say something and return the task once it rests; where an answer holds too little the task is read."""
    answer = await wire.ask(Operation.SEND, saying(text, **fields))
    if Operation.SEND in wire.dialect.partial_results:
        return await rested(wire, answer.id)
    assert isinstance(answer, Task)
    return answer


async def begun(wire: Wire, text: str, **fields: Any) -> str:
    """Say something and return the id of the task that comes of it, whatever the dialect says first."""
    async with wire.follow(Operation.STREAM, saying(text, **fields)) as events:
        return task_of((await anext(events)).body)


async def rested(wire: Wire, task_id: str) -> Task:
    """Follow a task until it rests, and read it."""
    try:
        async with wire.follow(Operation.SUBSCRIBE, SubscribeRequest(id=task_id)) as events:
            async for seen in events:
                if state_of(seen.body) in REST and (await read(wire, task_id)).status.state in REST:
                    break  # a stream that begins with the beginning tells earlier rests as well
    except Refusal as refusal:  # it has ended: there is nothing to follow
        if not isinstance(refusal.error, UnsupportedOperation):
            raise
    return await read(wire, task_id)


async def read(wire: Wire, task_id: str) -> Task:
    """Read a task."""
    found: Task = await wire.ask(Operation.GET, GetRequest(id=task_id))
    return found


# --- looking ------------------------------------------------------------------------------------------------------


def text_of(answer: Task | Message) -> str:
    """What an answer says: that of its artifacts, or of its status."""
    if isinstance(answer, Message):
        return "".join(part.text or "" for part in answer.parts)
    said = "".join(part.text or "" for artifact in answer.artifacts for part in artifact.parts)
    return said or (text_of(answer.status.message) if answer.status.message else "")


def state_of(body: EventBody) -> TaskState | None:
    """The state that an event tells."""
    return body.status.state if isinstance(body, Task | StatusUpdate) else None


def states(events: list[Seen]) -> list[TaskState]:
    """The states that a stream went through."""
    return [state for seen in events if (state := state_of(seen.body))]


def task_of(body: EventBody) -> str:
    """The task that an event is about."""
    found = body.id if isinstance(body, Task) else body.task_id
    assert found
    return found


def folded(events: list[Seen]) -> Task:
    """The task that a stream which begins with it adds up to."""
    first = events[0].body
    assert isinstance(first, Task)
    changes = [Event(seq=at, body=seen.body) for at, seen in enumerate(events[1:], 1)]
    return lifecycle.fold(first, changes)


def spoken(events: list[Seen]) -> str:
    """The text of all artifacts that a stream brings."""
    updates = [seen.body for seen in events if isinstance(seen.body, ArtifactUpdate)]
    return "".join(part.text or "" for update in updates for part in update.artifact.parts)


async def until(events: Events, state: TaskState) -> list[Seen]:
    """Read a stream until a state."""
    found = []
    async for seen in events:
        found.append(seen)
        if state_of(seen.body) is state:
            return found
    raise AssertionError(f"The stream ended before {state.name}: {found}")


# --- being refused ------------------------------------------------------------------------------------------------


async def refused(wire: Wire, error: type[AccordError], asking: Coroutine[Any, Any, Any]) -> Refusal:
    """Be refused with an error, under the codes that it has over this wire."""
    try:
        answer = await asking
    except Refusal as refusal:
        check(wire, error, refusal)
        return refusal
    raise AssertionError(f"Not refused, but answered {answer!r}")


def check(wire: Wire, error: type[AccordError], refusal: Refusal) -> None:
    """Compare a refusal with what the error is on this wire."""
    assert isinstance(refusal.error, error), refusal
    if refusal.code is None:
        return  # answered as a result, which only the decoder can tell
    assert (refusal.code, refusal.status) == expected(error, wire), refusal
    assert refusal.error.message
    if wire.binding is Binding.GRPC and wire.name.value == "v03" and (name := CODES[error].name):
        assert refusal.error.message.startswith(f"{name}: "), refusal


async def opened(wire: Wire, operation: Operation, request: Any, **more: Any) -> list[Seen]:
    """Read a stream from its beginning to its end."""
    async with wire.follow(operation, request, **more) as events:
        return await events.rest()


CONFORMANCE: Agent = conformance.agent
