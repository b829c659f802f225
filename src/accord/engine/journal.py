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
    """A call of another agent as a child task, which is stored under a key."""

    agent: str
    message: Message
    key: str
    timeout_ms: int | None = None


class StatusEntry(Struct, frozen=True):
    """A status update that is committed with journal entries: state, text or message, and metadata."""

    state: TaskState
    content: Message | str | None = None
    metadata: dict[str, Any] | None = None


class PreparedChild(NamedTuple):
    """A prepared child task, and the function that starts it once it is committed."""

    accept: AcceptRequest
    begin: Callable[[Acceptance], None]


class JournalExecution(Protocol):
    """The execution that a journal belongs to."""

    @property
    def task(self) -> Task:
        """The current task."""

    @property
    def entries(self) -> Mapping[str, str]:
        """All steps of the task by key."""

    async def commit(
        self, command: Command[[str, Q], T], around: Callable[[Append], Q], sayings: Sequence[StatusEntry] = ()
    ) -> T | None:
        """Commit all output and these status updates with a command that does more.

        Returns None if the result of the command is not known.
        """

    async def look(self) -> None:
        """Load changes that others made to the task."""

    def learn(self, entries: Mapping[str, str]) -> None:
        """Add written entries to the known steps."""

    def note(self, entries: Mapping[str, str], sayings: Sequence[StatusEntry] = ()) -> None:
        """Keep entries and status updates until the next commit."""

    def noted(self) -> Mapping[str, str]:
        """Return the entries of the next commit and clear them."""

    async def park(
        self, state: TaskState | None, message: Message | None, *, delay_ms: int | None, watch: ChildWatch | None
    ) -> None:
        """Suspend the task. Returns if the awaited event has already happened."""


class ChildPort(Protocol):
    """Access to the child tasks of an execution."""

    async def prepare(self, call: ChildCall, places: ExitStack) -> PreparedChild:
        """Prepare a child task. Its slots are reserved until the stack exits."""

    async def settled(self, task_id: str) -> Task:
        """Wait until a task has ended or asks, and return it."""

    async def read(self, task_id: str) -> Task | None:
        """Return the current task, or None."""

    def follow(self, task_id: str) -> AsyncGenerator[Event, None]:
        """Yield all events of a task until it has ended or asks."""

    async def tell(self, agent: str, message: Message, key: str) -> str:
        """Send a message to an agent's task, which is stored under a key."""

    async def cancel(self, agent: str, task_id: str) -> None:
        """Cancel an agent's task."""


class Journal:
    """The journal of one task, for one execution."""

    def __init__(self, run: JournalExecution, reach: ChildPort, hint: asyncio.Event) -> None:
        """Write through `run`. `hint` is set when the task may have changed."""
        self._run = run
        self.reach = reach
        self._hint = hint
        self._nudged = asyncio.Event()

    # --- entries --------------------------------------------------------------------------------------------------

    def entries(self, prefix: str) -> Iterator[tuple[str, str]]:
        """Yield the entries whose keys start with `prefix`: the rest of the key, and the entry."""
        for key, entry in self._run.entries.items():
            if key.startswith(prefix):
                yield key.removeprefix(prefix), entry

    def entry(self, key: str) -> str | None:
        """Return the entry under a key."""
        return self._run.entries.get(key)

    def child(self, key: str) -> str | None:
        """Return the ID of the child task under a key."""
        found = self._run.entries.get(key)
        return None if found is None else msgspec.json.decode(found, type=str)

    async def write(
        self, entries: Mapping[str, str], calls: Sequence[ChildCall] = (), sayings: Sequence[StatusEntry] = ()
    ) -> None:
        """Write entries, start tasks and append status updates with all earlier output, in one transaction."""
        entries = {**self._run.noted(), **entries}
        with ExitStack() as places:
            children = [await self.reach.prepare(call, places) for call in calls]
            accepts = tuple(child.accept for child in children)

            def around(last: Append) -> workflow_runs.JournalRequest:
                return workflow_runs.JournalRequest(last=last, entries=tuple(entries.items()), calls=accepts)

            made = await self._run.commit(workflow_runs.write_journal, around, sayings)
            if made is None:
                await self._run.look()  # the result is unknown: load what the store contains
                return
            begun = {call.key: msgspec.json.encode(one.task_id).decode() for call, one in zip(calls, made, strict=True)}
            self._run.learn({**entries, **begun})
            for child, accepted in zip(children, made, strict=True):
                child.begin(accepted)

    def note(self, entries: Mapping[str, str], sayings: Sequence[StatusEntry] = ()) -> None:
        """Write entries and status updates with the next commit, or with the end of the execution."""
        self._run.note(entries, sayings)

    # --- waiting --------------------------------------------------------------------------------------------------

    async def look(self) -> None:
        """Load new messages and signals."""
        await self._run.look()

    def nudge(self) -> None:
        """End the execution's current wait."""
        self._nudged.set()
        self._hint.set()

    async def nudged(self, seconds: float) -> None:
        """Wait for a nudge within this process, for at most `seconds`."""
        await _set(self._nudged, seconds)

    async def hinted(self, seconds: float) -> None:
        """Wait for a nudge or a possible message or signal, for at most `seconds`.

        Commits of the execution itself count as well.
        """
        await _set(self._hint, seconds)

    async def park(self, *, keys: Sequence[str], children: Mapping[str, bool], delay_ms: int | None) -> None:
        """Suspend until a signal, a change of a child, a message of the caller, or the timeout.

        `children` maps each child to whether it asks (true) or works. Returns if something has already happened.
        """
        watch = ChildWatch(keys=tuple(keys), children=dict(children))
        await self._run.park(None, None, delay_ms=delay_ms, watch=watch)


async def _set(event: asyncio.Event, seconds: float) -> None:
    """Wait until an event is set, for at most `seconds`, and clear it."""
    alarm = asyncio.get_running_loop().call_later(seconds, event.set)
    try:
        await event.wait()
    finally:
        alarm.cancel()
        event.clear()
