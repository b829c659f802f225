"""The writer of a task's event log during an execution.

Events collect in a buffer while a commit is under way. The next commit writes them together.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct

from accord.a2a import Caller
from accord.engine.hooks import EventsAppended, Hooks
from accord.engine.messages import child_of
from accord.engine.outcome import Failed, Suspended
from accord.engine.subscriptions import Hub
from accord.engine.task_store import PackedEvents, StoreRetries, TaskStore, retry_until_available
from accord.model import Event, EventBody, Message, Role, StatusUpdate, Task, TaskState
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.storage.commands import tasks
from accord.storage.commands.jobs import ClaimedJob
from accord.storage.commands.tasks import Append, Behind, Fenced, Rewound
from accord.storage.encoding import encode_body
from accord.storage.store import RESTARTED, BadValue, Command, StoreUnavailable

SNAPSHOT_EVENTS = 100
"""Events before the first snapshot.

Later snapshots follow whenever the number has doubled, so the total cost is linear.
"""

SUSPENDED_SHARE = 16
"""An execution that suspends writes a snapshot after a sixteenth more events, so the total cost stays linear.

Short tasks get a snapshot at every suspension, so readers have nothing to fold. Long conversations are not rewritten on
every turn.
"""

MAX_BUFFER = 256
"""Uncommitted events after which an agent has to wait. Commits of other tasks wait for them as well."""

YIELD_EVENTS = 64
"""Events after which an agent that never waits yields to the event loop."""

FIRST_YIELDS = frozenset({2, 4, 8, 16, 32})
"""Events after which an agent yields early, so that subscribers soon get the first output.

1 is left out, so that a single event and the end are committed together.
"""

log = logging.getLogger("accord.run")

Q = TypeVar("Q")
T = TypeVar("T")


class ExecutionStart(Struct, frozen=True, kw_only=True):
    """The input of an execution: the task after event `seq`, with the store's snapshot after event `snapshot_seq`."""

    job: ClaimedJob
    task: Task
    seq: int
    snapshot_seq: int
    message: Message
    caller: Caller
    steps: dict[str, str]
    deadline_at: int | None = None
    parent_id: str | None = None
    resumes: bool = False
    has_large: bool = False
    trace: str | None = None


class TaskLog:
    """An execution's view of its task's log."""

    def __init__(self, task: Task, seq: int, snapshot_seq: int) -> None:
        """Start with a task after event `seq`. The store has its snapshot after event `snapshot_seq`."""
        self.seq = seq
        self._task = task
        self._later: list[EventBody] = []
        self._snapshot_seq = snapshot_seq
        self._next_snapshot: Task | None = None
        self.last: EventBody | None = None
        """The event `seq`, if this execution wrote it."""
        self.committing: Sequence[EventBody] = ()
        """Events that are being committed and may still be refused."""

    def current(self, bodies: Sequence[EventBody]) -> Task:
        """Return the task with all output: the events being committed, then the buffered ones."""
        return self.after((*self.committing, *bodies))

    def after(self, bodies: Sequence[EventBody]) -> Task:
        """Return the task after events that are not committed."""
        if not bodies and not self._later:
            return self._task
        return lifecycle.extended(self._task, (*self._later, *bodies))

    def message_at(self, at: int) -> Message:
        """Return the message at a position in the history."""
        history = self._task.history
        return history[at] if at < len(history) else self.after(()).history[at]

    def snapshot(self, bodies: Sequence[EventBody], *, suspends: bool = False, ends: bool = False) -> Task | None:
        """Return the task after events that are about to be committed, if a snapshot is due."""
        due = max(1, self._snapshot_seq // SUSPENDED_SHARE) if suspends else max(SNAPSHOT_EVENTS, self._snapshot_seq)
        is_due = ends or self.seq + len(bodies) - self._snapshot_seq >= due
        self._next_snapshot = self.after(bodies) if is_due else None
        return self._next_snapshot

    def committed(self, bodies: Sequence[EventBody]) -> None:
        """Add committed events and the snapshot that was returned for them."""
        self.committing = ()
        self.seq += len(bodies)
        self.last = bodies[-1] if bodies else self.last
        if self._next_snapshot is None:
            self._later.extend(bodies)
        else:
            self._task, self._later, self._snapshot_seq = self._next_snapshot, [], self.seq

    def caught_up(self, events: Sequence[Event]) -> None:
        """Add events that others appended."""
        self.seq, self.last = events[-1].seq, None
        self._later.extend(event.body for event in events)


class UnreadMessages:
    """The caller's messages of a turn that no question has taken.

    A step stores an answer as its position in the history. The history only grows, already contains the text, and may
    repeat message IDs.
    """

    def __init__(self, turn: str, history: Sequence[Message], steps: Mapping[str, str]) -> None:
        """Skip messages up to the start of the turn, and messages that its steps have taken."""
        prefix = f"{turn}/ask:"
        self._taken = {at for key, at in steps.items() if key.startswith(prefix)}
        self._after = next((at for at, message in enumerate(history) if message.message_id == turn), 0)

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


class LogWriter:
    """Writes one task's log under one claim."""

    def __init__(
        self, start: ExecutionStart, task_store: TaskStore, hub: Hub, hooks: Hooks, now_ms: Callable[[], int]
    ) -> None:
        """Continue the log at `start`. Committed events go to subscribers and hooks."""
        self.job = start.job
        self.tenant = start.job.tenant
        self.log = TaskLog(start.task, start.seq, start.snapshot_seq)
        self.task_store, self.hub, self.hooks, self.now_ms = task_store, hub, hooks, now_ms
        self.is_closed = False
        self._store = task_store.store
        self._catch_ups = 0
        self._status_ms = 0
        self._buffer: list[EventBody] = []
        self._has_large = start.has_large
        self._flush_handle: asyncio.Handle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._written = 0

    def _fenced(self) -> None:
        """Handle that another execution has the claim."""

    def _refused(self) -> None:
        """Handle output that cannot be stored."""

    @cached_property
    def _exclusive(self) -> asyncio.Lock:
        """A lock for commits by other commands, created on first use because most executions need none."""
        return asyncio.Lock()

    @property
    def task(self) -> Task:
        """The current task, including uncommitted events."""
        return self.log.current(self._buffer)

    def _close(self) -> None:
        """Stop committing. Uncommitted events are lost."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        self.hub.starve(self.tenant, self.job.key)

    # --- output ---------------------------------------------------------------------------------------------------

    async def _write(self, body: EventBody) -> None:
        """Append an event, which is committed soon."""
        if self.is_closed:
            raise Suspended  # the agent runs on, in a `finally` or after it caught the end
        if self._flushing is not None and self._flushing.done():
            await self._quiesce()  # which raises the error of the commit
        self._buffer.append(body)
        self._written += 1
        if self._flushing is None and self._flush_handle is None:
            self._flush_handle = asyncio.get_running_loop().call_soon(self._begin_flush)
        if len(self._buffer) >= MAX_BUFFER:
            await self.flush()
        elif self._written % YIELD_EVENTS == 0 or self._written in FIRST_YIELDS:
            await asyncio.sleep(0)

    def _take_buffer(self) -> list[EventBody]:
        """Return the buffered events for a commit, and clear the buffer."""
        bodies, self._buffer = self._buffer, []
        return bodies

    async def flush(self) -> None:
        """Wait until all output is committed."""
        await self._quiesce()
        if self._buffer:
            self._begin_flush()
            await self._quiesce()

    async def _quiesce(self) -> None:
        """Wait for the commit under way. Canceling the waiter does not cancel it."""
        if self._flush_handle is not None:
            self._flush_handle.cancel()
            self._flush_handle = None
        flushing = self._flushing
        if flushing is None:
            return
        try:
            await asyncio.shield(flushing)
        finally:
            if flushing.done() and self._flushing is flushing:
                self._flushing = None

    def _begin_flush(self) -> None:
        """Commit in the background. An agent that ends within its first turn of the loop needs none."""
        self._flush_handle = None
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_on(), name=f"flush {self.job.key}")
            self._flushing.add_done_callback(lambda task: task.cancelled() or task.exception())  # mark as retrieved

    async def _flush_on(self) -> None:
        """Commit until the buffer is empty. Events that arrive meanwhile go into the next commit."""
        while bodies := self._take_buffer():
            await self._commit(bodies, tasks.append, None)

    # --- commits --------------------------------------------------------------------------------------------------

    async def commit_with(
        self, command: Command[[str, Q], T], around: Callable[[Append], Q], more: Sequence[EventBody] = ()
    ) -> T | None:
        """Commit all output, and `more`, with a command that does more.

        Returns None if the result of the command is not known.
        """
        results: list[T | None] = []

        async def do() -> None:
            results.append(await self._commit([*self._take_buffer(), *more], command, around))

        await self._exclusively(do)
        return results[0]

    async def catch_up(self) -> None:
        """Load events that others appended, while nothing is being committed."""
        await self._exclusively(self._load_others)

    async def _exclusively(self, do: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a function while nothing is being committed. Events that arrive meanwhile are committed after it."""
        async with self._exclusive:
            await self._quiesce()
            self._flushing = asyncio.create_task(do(), name=f"commit {self.job.key}")
            await self._quiesce()
            if self._buffer and self._flush_handle is None:
                self._begin_flush()

    async def _commit(
        self, bodies: list[EventBody], command: Command[[str, Any], T], around: Callable[[Append], Any] | None
    ) -> T | None:
        while True:
            request = await self._request(bodies)
            try:
                result = await self.persist(command, around(request) if around else request, request.bodies)
            except Behind:
                await self._load_others()
                continue
            self._committed(request, bodies)
            return result

    async def persist(self, command: Command[[str, Q], T], request: Q, bodies: Sequence[EventBody] = ()) -> T | None:
        """Run a command, and retry it while the database is unavailable.

        An interrupted command may have been committed. Before appending again, the log is checked for the events. If
        they are there, the result of the command is unknown (None).
        """
        if self.is_closed:
            raise Suspended
        retries: StoreRetries | None = None
        while True:
            try:
                return await self._store.do(command, self.tenant, request)
            except (StoreUnavailable, Rewound) as error:
                if isinstance(error, Rewound):  # the node compares all its executions with the store and drops this one
                    self.hub.heard([RESTARTED])
                retries = retries or StoreRetries(log, task_id=self.job.key)
                await retries.wait(error)
            except Behind:
                if retries is not None and await self.retry(lambda: self._are_stored(bodies)):
                    return None
                raise
            except Fenced:
                self._fenced()
                raise
            except (BadValue, UnicodeEncodeError) as error:
                self._buffer.clear()  # events that depend on a missing one are invalid
                self.log.committing = ()
                self._refused()
                raise Failed(f"The agent's output cannot be stored: {error}") from error

    async def retry(self, do: Callable[[], Awaitable[T]]) -> T:
        """Call a function, and retry it while the database is unavailable."""
        return await retry_until_available(do, log, task_id=self.job.key)

    async def _are_stored(self, bodies: Sequence[EventBody]) -> bool:
        rows = await self._store.read(tasks.events_after, self.tenant, self.job.key, self.log.seq, len(bodies))
        return [(kind, data) for _, kind, data, _ in rows] == [encode_body(body) for body in bodies]

    async def lost(self) -> tuple[int, int] | None:
        """Return the number of known events and the number that the store still has, or None if it has all."""
        known, last = self.log.seq, self.log.last
        head = await self._store.read(tasks.read_head, self.tenant, self.job.key)
        if head is None or head.last_seq < known:
            return known, 0 if head is None else head.last_seq
        if head.epoch != self.job.epoch or last is None or self._has_large:
            return None
        rows = await self._store.read(tasks.events_after, self.tenant, self.job.key, known - 1, 1)
        is_same = [(kind, data) for _, kind, data, _ in rows] == [encode_body(last)]
        return None if is_same else (known, known - 1)

    async def _request(self, bodies: list[EventBody], *, suspends: bool = False, ends: bool = False) -> Append:
        """Return the request that commits these events, with a snapshot if one is due."""
        if self.is_closed:
            raise Suspended
        task_store, fresh = self.task_store, self.log.snapshot(bodies, suspends=suspends, ends=ends)
        self.log.committing = bodies
        self._has_large = self._has_large or any(map(task_store.has_large, bodies))
        packed = PackedEvents(bodies, fresh, ())
        if self._has_large:
            packed = await self.retry(lambda: task_store.pack(self.tenant, bodies, fresh))
        state = last_state(bodies)
        if ends and fresh is not None:  # perhaps set by an earlier event: the end removes the task's timers
            state = fresh.status.state
        return Append(
            task_id=self.job.key,
            epoch=self.job.epoch,
            after=self.log.seq,
            bodies=packed.bodies,
            at=self._status_ms if state is not None and self._status_ms else self.now_ms(),
            state=state,
            snapshot=packed.snapshot,
            blobs=packed.blobs,
        )

    def _committed(self, request: Append, bodies: Sequence[EventBody]) -> None:
        """Pass committed events to subscribers and hooks."""
        self.log.committed(bodies)
        if not bodies:
            return
        hub = self.hub
        if hub.is_followed(self.tenant, self.job.key):
            at = timestamp_ms(request.at)
            hub.feed(
                self.tenant,
                self.job.key,
                [Event(seq=seq, body=body, at=at) for seq, body in enumerate(bodies, request.after + 1)],
            )
        appended = EventsAppended(
            tenant=self.tenant, task_id=self.job.key, agent=self.job.queue, seq=self.log.seq, count=len(bodies)
        )
        self.hooks.emit(appended)

    async def _load_others(self) -> None:
        """Load events that others appended: messages of the caller."""
        task_store, known_log = self.task_store, self.log
        while events := await self.retry(lambda: task_store.events(self.tenant, self.job.key, known_log.seq)):
            known_log.caught_up(events)
            self._catch_ups += 1
            self._has_large = self._has_large or any(task_store.has_large(event.body) for event in events)
            self.hub.feed(self.tenant, self.job.key, events)
