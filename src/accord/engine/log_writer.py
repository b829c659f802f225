"""The writer of a task's event log during an execution.

Events collect in a buffer while a commit is under way. The next commit writes them together.
"""

import asyncio
import logging
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from accord.engine.child_tasks import child_of
from accord.engine.context import Failed, Suspended
from accord.engine.hooks import EventsAppended, Hooks
from accord.engine.slots import ExecutionStart
from accord.engine.subscriptions import Hub
from accord.engine.task_store import PackedEvents, StoreRetries, TaskStore, retry_until_available
from accord.model import Event, EventBody, Message, Role, StatusUpdate, Task, TaskState
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.storage.commands import tasks
from accord.storage.commands.tasks import Append, Behind, Fenced, Rewound
from accord.storage.encoding import encode_body
from accord.storage.store import RESTARTED, BadValue, Command, StoreUnavailable

SNAPSHOT_EVENTS = 100
"""Events before the first snapshot.

Later snapshots follow whenever the number has doubled, so the total cost is linear.
"""

PARKED_SHARE = 16
"""An execution that suspends writes a snapshot after a sixteenth more events, so the total cost stays linear.

Short tasks get a snapshot at every suspension, so readers have nothing to fold. Long conversations are not rewritten on
every turn.
"""


class TaskLog:
    """An execution's view of its task's log."""

    def __init__(self, task: Task, seq: int, kept: int) -> None:
        """Start with a task after event `seq`. The store has its snapshot after event `kept`."""
        self.seq = seq
        self._task = task
        self._since: list[EventBody] = []
        self._kept = kept
        self._fresh: Task | None = None
        self.last: EventBody | None = None
        """The event `seq`, if this execution wrote it."""
        self.taken: Sequence[EventBody] = ()
        """Events that are being committed and may still be refused."""

    def now(self, bodies: Sequence[EventBody]) -> Task:
        """Return the task with all output: the events being committed, then the buffered ones."""
        return self.after((*self.taken, *bodies))

    def after(self, bodies: Sequence[EventBody]) -> Task:
        """Return the task after events that are not committed."""
        if not bodies and not self._since:
            return self._task
        return lifecycle.extended(self._task, (*self._since, *bodies))

    def said(self, at: int) -> Message:
        """Return the message at a position in the history."""
        history = self._task.history
        return history[at] if at < len(history) else self.after(()).history[at]

    def snapshot(self, bodies: Sequence[EventBody], *, parks: bool = False, ends: bool = False) -> Task | None:
        """Return the task after events that are about to be committed, if a snapshot is due."""
        due = max(1, self._kept // PARKED_SHARE) if parks else max(SNAPSHOT_EVENTS, self._kept)
        is_due = ends or self.seq + len(bodies) - self._kept >= due
        self._fresh = self.after(bodies) if is_due else None
        return self._fresh

    def committed(self, bodies: Sequence[EventBody]) -> None:
        """Add committed events and the snapshot that was returned for them."""
        self.taken = ()
        self.seq += len(bodies)
        self.last = bodies[-1] if bodies else self.last
        if self._fresh is None:
            self._since.extend(bodies)
        else:
            self._task, self._since, self._kept = self._fresh, [], self.seq

    def caught_up(self, events: Sequence[Event]) -> None:
        """Add events that others appended."""
        self.seq, self.last = events[-1].seq, None
        self._since.extend(event.body for event in events)


class UnreadMessages:
    """The caller's messages of a turn that no question has taken.

    A step stores an answer as its position in the history. The history only grows, already contains the text, and may
    repeat message IDs.
    """

    def __init__(self, turn: str, history: Sequence[Message], steps: Mapping[str, str]) -> None:
        """Skip messages up to the start of the turn, and messages that its steps have taken."""
        asked = f"{turn}/ask:"
        self._taken = {at for key, at in steps.items() if key.startswith(asked)}
        self._after = next((at for at, said in enumerate(history) if said.message_id == turn), 0)

    def take(self, history: Sequence[Message]) -> int | None:
        """Return the position of the oldest unread message and mark it as read, or None.

        Skips answers to questions that were passed on from child tasks.
        """
        user = Role.USER
        for at in range(self._after + 1, len(history)):
            if history[at].role is user and str(at) not in self._taken and child_of(history[at - 1]) is None:
                self._after = at
                return at
        return None


def last_state(bodies: Sequence[EventBody]) -> TaskState | None:
    """Return the state that events lead to, or None if no event changes it."""
    for body in reversed(bodies):
        if isinstance(body, StatusUpdate):
            return body.status.state
    return None


MAX_BUFFER = 256
"""Uncommitted events after which an agent has to wait. Commits of other tasks wait for them as well."""

BREATH = 64
"""Events after which an agent that never waits yields to the event loop."""

EARLY = frozenset({2, 4, 8, 16, 32})
"""Events after which an agent yields early, so that subscribers soon get the first output.

1 is left out, so that a single event and the end are committed together.
"""

log = logging.getLogger("accord.run")

Q = TypeVar("Q")
T = TypeVar("T")


class LogPorts(Struct, frozen=True, kw_only=True):
    """The store and the subscribers of logs, for their writers."""

    archive: TaskStore
    hub: Hub
    hooks: Hooks
    now_ms: Callable[[], int]


class LogWriterOwner(Protocol):
    """The execution that holds the claim of a log writer."""

    def is_fenced(self) -> None:
        """Called when another execution has the claim."""

    def is_refused(self) -> None:
        """Called when the output cannot be stored."""


class LogWriter:
    """Writes one task's log under one claim."""

    def __init__(self, start: ExecutionStart, agent: str, desk: LogPorts, holder: LogWriterOwner) -> None:
        """Continue the log at `start`, for the agent of that name."""
        self.job = start.job
        self.tenant = start.job.tenant
        self.known = TaskLog(start.task, start.seq, start.kept)
        self.heard = 0
        self.is_closed = False
        self.status_ms = 0
        self.buffer: list[EventBody] = []
        self._agent = agent
        self._desk = desk
        self._holder: LogWriterOwner = weakref.proxy(holder)  # no cycle: an ended execution is freed at once
        self._store = desk.archive.store
        self._has_large = start.has_large
        self._soon: asyncio.Handle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._said = 0

    @cached_property
    def _one(self) -> asyncio.Lock:
        """A lock for commits by other commands, created on first use because most executions need none."""
        return asyncio.Lock()

    @property
    def task(self) -> Task:
        """The current task, including uncommitted events."""
        return self.known.now(self.buffer)

    def close(self) -> None:
        """Stop committing. Uncommitted events are lost."""
        if self._soon is not None:
            self._soon.cancel()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        self._desk.hub.starve(self.tenant, self.job.key)

    # --- output ---------------------------------------------------------------------------------------------------

    async def put(self, body: EventBody) -> None:
        """Append an event, which is committed soon."""
        self.check_open()
        if self._flushing is not None and self._flushing.done():
            await self.quiesce()  # which raises the error of the commit
        self.buffer.append(body)
        self._said += 1
        if self._flushing is None and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._begin_flush)
        if len(self.buffer) >= MAX_BUFFER:
            await self.flush()
        elif self._said % BREATH == 0 or self._said in EARLY:
            await asyncio.sleep(0)

    def take(self) -> list[EventBody]:
        """Return the buffered events for a commit, and clear the buffer."""
        bodies, self.buffer = self.buffer, []
        return bodies

    async def flush(self) -> None:
        """Wait until all output is committed."""
        await self.quiesce()
        if self.buffer:
            self._begin_flush()
            await self.quiesce()

    async def quiesce(self) -> None:
        """Wait for the commit under way. Canceling the waiter does not cancel it."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        flushing = self._flushing
        if flushing is None:
            return
        try:
            await asyncio.shield(flushing)
        finally:
            if flushing.done() and self._flushing is flushing:
                self._flushing = None

    def check_open(self) -> None:
        """Raise Suspended if the execution is suspended and runs on, in a `finally` or after catching its end."""
        if self.is_closed:
            raise Suspended

    def _begin_flush(self) -> None:
        """Commit in the background. An agent that ends within its first turn of the loop needs none."""
        self._soon = None
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_on(), name=f"flush {self.job.key}")
            self._flushing.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as retrieved

    async def _flush_on(self) -> None:
        """Commit until the buffer is empty. Events that arrive meanwhile go into the next commit."""
        while bodies := self.take():
            await self._commit(bodies, tasks.append, _by_itself)

    # --- commits --------------------------------------------------------------------------------------------------

    async def commit(
        self, command: Command[[str, Q], T], around: Callable[[Append], Q], more: Sequence[EventBody] = ()
    ) -> T | None:
        """Commit all output, and `more`, with a command that does more.

        Returns None if the result of the command is not known.
        """
        given: list[T | None] = []

        async def do() -> None:
            given.append(await self._commit([*self.take(), *more], command, around))

        await self._alone(do)
        return given[0]

    async def catch_up(self) -> None:
        """Load events that others appended, while nothing is being committed."""
        await self._alone(self.take_in)

    async def _alone(self, do: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a function while nothing is being committed. Events that arrive meanwhile are committed after it."""
        async with self._one:
            await self.quiesce()
            self._flushing = asyncio.create_task(do(), name=f"alone {self.job.key}")
            await self.quiesce()
            if self.buffer and self._soon is None:
                self._begin_flush()

    async def _commit(
        self, bodies: list[EventBody], command: Command[[str, Q], T], around: Callable[[Append], Q]
    ) -> T | None:
        while True:
            request = await self.append(bodies)
            try:
                given = await self.persist(command, around(request), request.bodies)
            except Behind:
                await self.take_in()
                continue
            self.committed(request, bodies)
            return given

    async def persist(self, command: Command[[str, Q], T], request: Q, bodies: Sequence[EventBody] = ()) -> T | None:
        """Run a command, and retry it while the database is unavailable.

        An interrupted command may have been committed. Before appending again, the log is checked for the events. If
        they are there, the result of the command is unknown (None).
        """
        self.check_open()
        retries: StoreRetries | None = None
        while True:
            try:
                return await self._store.do(command, self.tenant, request)
            except (StoreUnavailable, Rewound) as error:
                if isinstance(error, Rewound):  # the node compares all its executions with the store and drops this one
                    self._desk.hub.heard([RESTARTED])
                retries = retries or StoreRetries(log, task_id=self.job.key)
                await retries.wait(error)
            except Behind:
                if retries is not None and await self.patiently(lambda: self._are_there(bodies)):
                    return None
                raise
            except Fenced:
                self._holder.is_fenced()
                raise
            except (BadValue, UnicodeEncodeError) as error:
                self.buffer.clear()  # events that depend on a missing one are invalid
                self.known.taken = ()
                self._holder.is_refused()
                raise Failed(f"The agent said something that cannot be kept: {error}") from error

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Call a function, and retry it while the database is unavailable."""
        return await retry_until_available(do, log, task_id=self.job.key)

    async def _are_there(self, bodies: Sequence[EventBody]) -> bool:
        rows = await self._store.read(tasks.events_after, self.tenant, self.job.key, self.known.seq, len(bodies))
        return [(kind, data) for _, kind, data, _ in rows] == [encode_body(body) for body in bodies]

    async def lost(self) -> tuple[int, int] | None:
        """Return the number of known events and the number that the store still has, or None if it has all."""
        known, last = self.known.seq, self.known.last
        head = await self._store.read(tasks.read_head, self.tenant, self.job.key)
        if head is None or head.last_seq < known:
            return known, 0 if head is None else head.last_seq
        if head.epoch != self.job.epoch or last is None or self._has_large:
            return None
        rows = await self._store.read(tasks.events_after, self.tenant, self.job.key, known - 1, 1)
        is_same = [(kind, data) for _, kind, data, _ in rows] == [encode_body(last)]
        return None if is_same else (known, known - 1)

    async def append(self, bodies: list[EventBody], *, parks: bool = False, ends: bool = False) -> Append:
        """Return the request that commits these events, with a snapshot if one is due."""
        self.check_open()
        archive, fresh = self._desk.archive, self.known.snapshot(bodies, parks=parks, ends=ends)
        self.known.taken = bodies
        self._has_large = self._has_large or any(map(archive.has_large, bodies))
        packed = PackedEvents(bodies, fresh, ())
        if self._has_large:
            packed = await self.patiently(lambda: archive.pack(self.tenant, bodies, fresh))
        state = last_state(bodies)
        if ends and fresh is not None:  # perhaps set by an earlier event: the end removes the task's timers
            state = fresh.status.state
        return Append(
            task_id=self.job.key,
            epoch=self.job.epoch,
            after=self.known.seq,
            bodies=packed.bodies,
            at=self.status_ms if state is not None and self.status_ms else self._desk.now_ms(),
            state=state,
            snapshot=packed.snapshot,
            blobs=packed.blobs,
        )

    def committed(self, request: Append, bodies: Sequence[EventBody]) -> None:
        """Pass committed events to subscribers and hooks."""
        self.known.committed(bodies)
        if not bodies:
            return
        hub = self._desk.hub
        if hub.is_followed(self.tenant, self.job.key):
            at = timestamp_ms(request.at)
            hub.feed(
                self.tenant,
                self.job.key,
                [Event(seq=seq, body=body, at=at) for seq, body in enumerate(bodies, request.after + 1)],
            )
        told = EventsAppended(
            tenant=self.tenant, task_id=self.job.key, agent=self._agent, seq=self.known.seq, count=len(bodies)
        )
        self._desk.hooks.tell(told)

    async def take_in(self) -> None:
        """Load events that others appended: messages of the caller."""
        archive, known = self._desk.archive, self.known
        while events := await self.patiently(lambda: archive.events(self.tenant, self.job.key, known.seq)):
            known.caught_up(events)
            self.heard += 1
            self._has_large = self._has_large or any(archive.has_large(event.body) for event in events)
            self._desk.hub.feed(self.tenant, self.job.key, events)


def _by_itself(request: Append) -> Append:
    return request
