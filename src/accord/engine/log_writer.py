"""Writes the event log of a task while it is executed.

Events gather while a commit is under way and are committed together by the next one.
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
from accord.engine.store_retry import StorePatience, retry_until_available
from accord.engine.subscriptions import Hub
from accord.engine.task_store import PackedEvents, TaskStore
from accord.model import Event, EventBody, Message, Role, StatusUpdate, Task, TaskState
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.storage.commands import tasks
from accord.storage.commands.tasks import Append, Behind, Fenced, Rewound
from accord.storage.encoding import encode_body
from accord.storage.store import RESTARTED, BadValue, Command, StoreUnavailable

SNAPSHOT_EVENTS = 100
"""A snapshot is written after so many events, and then whenever their number has doubled: linear in all."""

PARKED_SHARE = 16
"""A run that parks writes one whenever there is a sixteenth more, which is linear as well: at first every time, because
whoever reads or lists its task has nothing to fold then; but a long talk is not written down anew with every turn."""


class TaskLog:
    """What a run knows of its task's log."""

    def __init__(self, task: Task, seq: int, kept: int) -> None:
        """Begin with a task after event `seq`, of which the store has a snapshot after event `kept`."""
        self.seq = seq
        self._task = task
        self._since: list[EventBody] = []
        self._kept = kept
        self._fresh: Task | None = None
        self.last: EventBody | None = None
        """The event `seq`, if this run wrote it."""
        self.taken: Sequence[EventBody] = ()
        """Events that are being committed, and may yet be refused."""

    def now(self, bodies: Sequence[EventBody]) -> Task:
        """Return the task with all that was said: what is being committed, and then what still waits for that."""
        return self.after((*self.taken, *bodies))

    def after(self, bodies: Sequence[EventBody]) -> Task:
        """Return the task as it will be after events that are not committed."""
        if not bodies and not self._since:
            return self._task
        return lifecycle.extended(self._task, (*self._since, *bodies))

    def said(self, at: int) -> Message:
        """Return what was said at a place in the history; what was said before the run began is at hand."""
        history = self._task.history
        return history[at] if at < len(history) else self.after(()).history[at]

    def snapshot(self, bodies: Sequence[EventBody], *, parks: bool = False, ends: bool = False) -> Task | None:
        """Return the task after events that are about to be committed, if it is time to write it down."""
        due = max(1, self._kept // PARKED_SHARE) if parks else max(SNAPSHOT_EVENTS, self._kept)
        is_due = ends or self.seq + len(bodies) - self._kept >= due
        self._fresh = self.after(bodies) if is_due else None
        return self._fresh

    def committed(self, bodies: Sequence[EventBody]) -> None:
        """Take in events that were committed, with the snapshot that was returned for them."""
        self.taken = ()
        self.seq += len(bodies)
        self.last = bodies[-1] if bodies else self.last
        if self._fresh is None:
            self._since.extend(bodies)
        else:
            self._task, self._since, self._kept = self._fresh, [], self.seq

    def caught_up(self, events: Sequence[Event]) -> None:
        """Take in events that others added."""
        self.seq, self.last = events[-1].seq, None
        self._since.extend(event.body for event in events)


class UnreadMessages:
    """The caller's messages of a turn that have answered no question yet.

    An answer is noted by its place in the history, which only grows: what it says is kept there already, and ids may
    repeat.
    """

    def __init__(self, turn: str, history: Sequence[Message], steps: Mapping[str, str]) -> None:
        """Leave out what was said before the message that began the turn, and what is noted among its steps."""
        asked = f"{turn}/ask:"
        self._taken = {at for key, at in steps.items() if key.startswith(asked)}
        self._after = next((at for at, said in enumerate(history) if said.message_id == turn), 0)

    def take(self, history: Sequence[Message]) -> int | None:
        """Return the place of the oldest one, which from now on is read.

        What answers a question that was passed on is for whoever asked it.
        """
        user = Role.USER
        for at in range(self._after + 1, len(history)):
            if history[at].role is user and str(at) not in self._taken and child_of(history[at - 1]) is None:
                self._after = at
                return at
        return None


def last_state(bodies: Sequence[EventBody]) -> TaskState | None:
    """Return the state that events lead to, if any of them changes it."""
    for body in reversed(bodies):
        if isinstance(body, StatusUpdate):
            return body.status.state
    return None


MAX_BUFFER = 256
"""Events that an agent may be ahead of the disk before it has to wait: what others ask for waits for them as well."""

BREATH = 64
"""Events after which an agent that never waits lets others have a turn."""

EARLY = frozenset({2, 4, 8, 16, 32})
"""Events after which it does so as well: whoever follows waits for the first words. One that says one thing and is done
is committed at once."""

log = logging.getLogger("accord.run")

Q = TypeVar("Q")
T = TypeVar("T")


class LogPorts(Struct, frozen=True, kw_only=True):
    """What logs are written with: where they are kept, and who follows them."""

    archive: TaskStore
    hub: Hub
    hooks: Hooks
    now_ms: Callable[[], int]


class LogWriterOwner(Protocol):
    """Who holds the claim, and is told what becomes of it."""

    def is_fenced(self) -> None:
        """Another has the claim."""

    def is_refused(self) -> None:
        """What was said cannot be kept."""


class LogWriter:
    """Writes one task's log under one claim."""

    def __init__(self, start: ExecutionStart, agent: str, desk: LogPorts, holder: LogWriterOwner) -> None:
        """Go on where `start` is, for the agent of that name."""
        self.job = start.job
        self.tenant = start.job.tenant
        self.known = TaskLog(start.task, start.seq, start.kept)
        self.heard = 0
        self.is_closed = False
        self.status_ms = 0
        self.buffer: list[EventBody] = []
        self._agent = agent
        self._desk = desk
        self._holder: LogWriterOwner = weakref.proxy(holder)  # which has this: what is over goes at once, unsearched
        self._store = desk.archive.store
        self._has_large = start.has_large
        self._soon: asyncio.Handle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._said = 0

    @cached_property
    def _one(self) -> asyncio.Lock:
        """Held by what is committed in a way of its own; most runs only say things."""
        return asyncio.Lock()

    @property
    def task(self) -> Task:
        """The task as it is now, with what is not yet committed."""
        return self.known.now(self.buffer)

    def close(self) -> None:
        """Stop committing; what is not committed is lost."""
        if self._soon is not None:
            self._soon.cancel()
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        self._desk.hub.starve(self.tenant, self.job.key)

    # --- saying ---------------------------------------------------------------------------------------------------

    async def put(self, body: EventBody) -> None:
        """Say something; it is committed soon."""
        self.check_open()
        if self._flushing is not None and self._flushing.done():
            await self.quiesce()  # which raises what went wrong
        self.buffer.append(body)
        self._said += 1
        if self._flushing is None and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._begin_flush)
        if len(self.buffer) >= MAX_BUFFER:
            await self.flush()
        elif self._said % BREATH == 0 or self._said in EARLY:
            await asyncio.sleep(0)

    def take(self) -> list[EventBody]:
        """Return what gathered, for whoever commits it."""
        bodies, self.buffer = self.buffer, []
        return bodies

    async def flush(self) -> None:
        """Wait until everything said is committed."""
        await self.quiesce()
        if self.buffer:
            self._begin_flush()
            await self.quiesce()

    async def quiesce(self) -> None:
        """Wait for the commits under way; whoever is cancelled meanwhile does not cancel them."""
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
        """End a run again that has parked and goes on, in a `finally` or because it caught what ended it."""
        if self.is_closed:
            raise Suspended

    def _begin_flush(self) -> None:
        """Commit in the background. An agent that is done before its turn ends never gets here."""
        self._soon = None
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_on(), name=f"flush {self.job.key}")
            self._flushing.add_done_callback(lambda task: task.cancelled() or task.exception())  # known, if not awaited

    async def _flush_on(self) -> None:
        """Commit until nothing is left; what the agent says meanwhile goes with the next commit."""
        while bodies := self.take():
            await self._commit(bodies, tasks.append, _by_itself)

    # --- committing -----------------------------------------------------------------------------------------------

    async def commit(
        self, command: Command[[str, Q], T], around: Callable[[Append], Q], more: Sequence[EventBody] = ()
    ) -> T | None:
        """Commit everything said, and more, with a command that does more; None if it is not known what that gave."""
        given: list[T | None] = []

        async def do() -> None:
            given.append(await self._commit([*self.take(), *more], command, around))

        await self._alone(do)
        return given[0]

    async def catch_up(self) -> None:
        """Take in what others added to the log, while nothing is committed."""
        await self._alone(self.take_in)

    async def _alone(self, do: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something while nothing is committed; what is said meanwhile is committed after it."""
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
        """Run a command as often as it takes while the database cannot be used.

        Whether one that broke off was committed cannot be known, so before the events are appended again it is looked
        whether they are there; then what the command gave is not known either.
        """
        self.check_open()
        patience: StorePatience | None = None
        while True:
            try:
                return await self._store.do(command, self.tenant, request)
            except (StoreUnavailable, Rewound) as error:
                if isinstance(error, Rewound):  # the node compares all its runs with the store, and drops this one
                    self._desk.hub.heard([RESTARTED])
                patience = patience or StorePatience(log, task_id=self.job.key)
                await patience.wait(error)
            except Behind:
                if patience is not None and await self.patiently(lambda: self._are_there(bodies)):
                    return None
                raise
            except Fenced:
                self._holder.is_fenced()
                raise
            except (BadValue, UnicodeEncodeError) as error:
                self.buffer.clear()  # what follows on something that is missing makes no sense
                self.known.taken = ()
                self._holder.is_refused()
                raise Failed(f"The agent said something that cannot be kept: {error}") from error

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something as often as it takes while the database cannot be used."""
        return await retry_until_available(do, log, task_id=self.job.key)

    async def _are_there(self, bodies: Sequence[EventBody]) -> bool:
        rows = await self._store.read(tasks.events_after, self.tenant, self.job.key, self.known.seq, len(bodies))
        return [(kind, data) for _, kind, data, _ in rows] == [encode_body(body) for body in bodies]

    async def lost(self) -> tuple[int, int] | None:
        """Return how many events this run knows and how many of them the store still has; None if it has them all."""
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
        """Return what commits these events, with a snapshot if it is time for one."""
        self.check_open()
        archive, fresh = self._desk.archive, self.known.snapshot(bodies, parks=parks, ends=ends)
        self.known.taken = bodies
        self._has_large = self._has_large or any(map(archive.has_large, bodies))
        packed = PackedEvents(bodies, fresh, ())
        if self._has_large:
            packed = await self.patiently(lambda: archive.pack(self.tenant, bodies, fresh))
        state = last_state(bodies)
        if ends and fresh is not None:  # said before, perhaps: with its end the task's timers go
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
        """Show what is committed."""
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
        """Take in what others added to the log: messages of the caller."""
        archive, known = self._desk.archive, self.known
        while events := await self.patiently(lambda: archive.events(self.tenant, self.job.key, known.seq)):
            known.caught_up(events)
            self.heard += 1
            self._has_large = self._has_large or any(archive.has_large(event.body) for event in events)
            self._desk.hub.feed(self.tenant, self.job.key, events)


def _by_itself(request: Append) -> Append:
    return request
