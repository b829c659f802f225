"""The journal of an execution that has many steps and children at once.

Each entry is written once and found by every later execution. What one call writes is committed in one transaction.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from accord.model import Event, Message, Task, TaskState
from accord.storage.commands import workflow_runs
from accord.storage.commands.steps import ChildWatch
from accord.storage.commands.task_lifecycle import Acceptance, AcceptRequest
from accord.storage.commands.tasks import Append
from accord.storage.store import Command

Q = TypeVar("Q")
T = TypeVar("T")


class ChildCall(Struct, frozen=True, kw_only=True):
    """Something that another agent is to do, as a child task that is noted under a key."""

    agent: str
    message: Message
    key: str
    timeout_ms: int | None = None


class StatusEntry(Struct, frozen=True):
    """A status that is said together with what is written: a state, a text or message, and metadata."""

    state: TaskState
    content: Message | str | None = None
    metadata: dict[str, Any] | None = None


class PreparedChild(NamedTuple):
    """A child as it is about to be made, and what goes on with it then."""

    accept: AcceptRequest
    begin: Callable[[Acceptance], None]


class JournalExecution(Protocol):
    """The run whose journal it is."""

    @property
    def task(self) -> Task:
        """The task as it is now."""

    @property
    def entries(self) -> Mapping[str, str]:
        """Everything that is kept of the task, by key."""

    async def commit(
        self, command: Command[[str, Q], T], around: Callable[[Append], Q], sayings: Sequence[StatusEntry] = ()
    ) -> T | None:
        """Commit everything said, and these last, with a command that does more; None if it is not known what that
        gave."""

    async def look(self) -> None:
        """Take in what others have done to the task."""

    def learn(self, entries: Mapping[str, str]) -> None:
        """Know what has been written down."""

    def note(self, entries: Mapping[str, str], sayings: Sequence[StatusEntry] = ()) -> None:
        """Keep entries, and what is said, until the next commit."""

    def noted(self) -> Mapping[str, str]:
        """Return the entries that are to be committed now."""

    async def park(
        self, state: TaskState | None, message: Message | None, *, delay_ms: int | None, watch: ChildWatch | None
    ) -> None:
        """End the run until something happens; returns if that has happened already."""


class ChildPort(Protocol):
    """How the tasks that a run has begun are reached."""

    async def prepare(self, call: ChildCall, places: ExitStack) -> PreparedChild:
        """Make a child ready; places for it are kept until the stack is left."""

    async def settled(self, task_id: str) -> Task:
        """Wait until a task has ended or asks, and return it."""

    async def read(self, task_id: str) -> Task | None:
        """Return a task as it is now."""

    def follow(self, task_id: str) -> AsyncGenerator[Event, None]:
        """Yield all that has happened to a task and happens, until it has ended or asks."""

    async def tell(self, agent: str, message: Message, key: str) -> str:
        """Say something to an agent's task, which is noted under a key."""

    async def cancel(self, agent: str, task_id: str) -> None:
        """End an agent's task."""


class Journal:
    """The journal of one task, as one run of it knows it."""

    def __init__(self, run: JournalExecution, reach: ChildPort, hint: asyncio.Event) -> None:
        """Write through `run`; `hint` is set when somebody may have done something to the task."""
        self._run = run
        self.reach = reach
        self._hint = hint
        self._nudged = asyncio.Event()

    # --- what is written ------------------------------------------------------------------------------------------

    def entries(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield what is written under keys that begin so: the rest of the key, and the entry."""
        for key, entry in self._run.entries.items():
            if key.startswith(prefix):
                yield key.removeprefix(prefix), entry

    def entry(self, key: str) -> str | None:
        """Return what is written under a key."""
        return self._run.entries.get(key)

    def child(self, key: str) -> str | None:
        """Return the task that was begun under a key."""
        found = self._run.entries.get(key)
        return None if found is None else msgspec.json.decode(found, type=str)

    async def write(
        self, entries: Mapping[str, str], calls: Sequence[ChildCall] = (), sayings: Sequence[StatusEntry] = ()
    ) -> None:
        """Write entries, begin tasks and say something, with everything that was said before: all of it, or nothing."""
        entries = {**self._run.noted(), **entries}
        with ExitStack() as places:
            children = [await self.reach.prepare(call, places) for call in calls]
            accepts = tuple(child.accept for child in children)

            def around(last: Append) -> workflow_runs.JournalRequest:
                return workflow_runs.JournalRequest(last=last, entries=tuple(entries.items()), calls=accepts)

            made = await self._run.commit(workflow_runs.write_journal, around, sayings)
            if made is None:
                await self._run.look()  # what is there is all that is known
                return
            begun = {call.key: msgspec.json.encode(one.task_id).decode() for call, one in zip(calls, made, strict=True)}
            self._run.learn({**entries, **begun})
            for child, accepted in zip(children, made, strict=True):
                child.begin(accepted)

    def note(self, entries: Mapping[str, str], sayings: Sequence[StatusEntry] = ()) -> None:
        """Write entries and say something with what is written next, or with the end of the run."""
        self._run.note(entries, sayings)

    # --- what is waited for ---------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Take in what others have said or handed in since."""
        await self._run.look()

    def nudge(self) -> None:
        """End the wait of the run for something."""
        self._nudged.set()
        self._hint.set()

    async def nudged(self, seconds: float) -> None:
        """Wait until somebody here nudges, at the latest for a while: nobody else is waited for."""
        await _set(self._nudged, seconds)

    async def hinted(self, seconds: float) -> None:
        """Wait until somebody may have said or handed in something, or nudges, at the latest for a while.

        What the run itself commits is a hint as well.
        """
        await _set(self._hint, seconds)

    async def park(self, *, keys: Sequence[str], children: Mapping[str, bool], delay_ms: int | None) -> None:
        """End this run until something is handed in under a key, a child moves, the caller speaks or time is over.

        Each child is known to ask (true) or to work. Returns if something has happened already.
        """
        watch = ChildWatch(keys=tuple(keys), children=dict(children))
        await self._run.park(None, None, delay_ms=delay_ms, watch=watch)


async def _set(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, at the latest for a while, and clear it."""
    alarm = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        alarm.cancel()
        event.clear()
