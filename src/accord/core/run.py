"""One run of one agent: from a claimed job to its end, parking or loss.

What the agent says is buffered and committed in the background; the next commit takes whatever gathered during the
last, so a fast agent is not slowed by the disk and a slow one is not delayed. Nothing is shown before it is committed.
Every write carries the claim's epoch: a run that lost its claim finds out by writing and stops.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from accord.core import failures
from accord.core.agent import Agent
from accord.core.archive import Archive, Packed
from accord.core.budgets import Spending
from accord.core.calls import Calls
from accord.core.context import Context, Failed, Parked
from accord.core.conversation import Conversation
from accord.core.follow import Hub
from accord.core.hooks import EventsAppended, Hooks
from accord.core.output import spoken
from accord.core.patience import patiently
from accord.core.start import Start
from accord.core.tasklog import TaskLog, Unread, last_state
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    MessageUpdate,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.storage.commands import endings, runs, steps, tasks, usage
from accord.storage.commands.jobs import SLA
from accord.storage.commands.tasks import Append, Behind, Fenced
from accord.storage.records import TERMINAL, encode_body
from accord.storage.store import BadValue, Command

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


class Tools(Struct, frozen=True, kw_only=True):
    """What the node lends its runs."""

    archive: Archive
    hub: Hub
    hooks: Hooks
    now_ms: Callable[[], int]
    make_id: Callable[[], str]
    calls: Callable[["Run"], Calls]
    alarm: Callable[[int], None]


class Run:
    """One run; the context writes through it."""

    def __init__(self, agent: Agent, start: Start, tools: Tools) -> None:
        """Prepare to run `agent`."""
        self.agent = agent
        self.job = start.job
        self.tenant = start.job.tenant
        self.caller = start.caller
        self.message = start.message
        self.attempt = start.job.attempts
        self.epoch = start.job.epoch
        self.deadline_at = start.deadline_at
        self.is_cancelled = False
        self.is_settling = False
        self._is_parked = False
        self._parking = asyncio.Lock()
        self._heard = 0
        self.on_lost: Callable[[], object] = lambda: None
        self.outcome: asyncio.Future[Task | None] = asyncio.get_running_loop().create_future()
        self.rest: asyncio.Future[Task | None] = asyncio.get_running_loop().create_future()
        self._tools = tools
        self.now_ms, self.message_id = tools.now_ms, tools.make_id
        self._store = tools.archive.store
        self._steps = start.steps
        known = start.steps.get(usage.ACCOUNT)
        self.spending = Spending(self, agent.profile.budget, known, self._store, tools.hooks)
        self._log = TaskLog(start.task, start.seq, start.kept)
        self._context_id = start.task.context_id or ""
        self._unread = Unread(start.message.message_id, start.task.history, start.steps)
        self._has_large = start.has_large
        self._state = start.task.status.state
        self._asks_for = start.parent_id if self._state in lifecycle.INTERRUPTED else None
        self._buffer: list[EventBody] = []
        self._soon: asyncio.Handle | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._begun = {artifact.artifact_id for artifact in start.task.artifacts} if start.resumes else set()
        self._said = 0
        self._status_ms = 0

    @cached_property
    def conversation(self) -> Conversation:
        """The conversation that its task belongs to."""
        return Conversation(self, self._tools.archive)

    @cached_property
    def calls(self) -> Calls:
        """How it calls other agents; most call none."""
        return self._tools.calls(self)

    # --- startup, work, end ---------------------------------------------------------------------------------------

    async def execute(self) -> None:
        """Run the agent to its end; whatever that is, the outcome is set: the task, or None if the run was lost.

        Its `rest` is that as well, or the task as the agent shows it while it waits for somebody else.
        """
        ended: Task | None = None
        try:
            if self._state is TaskState.SUBMITTED:
                await self.status(TaskState.WORKING, None, None)
            ended = await self._work()
        except Fenced as error:
            log.info("run lost its claim", extra={"task_id": self.job.key, "reason": str(error)})
        except BaseException:  # `Parked`, or a group around it
            if not self._is_parked:
                raise
            ended = self.task
        finally:
            if self._soon is not None:
                self._soon.cancel()
            if self._flushing is not None:
                self._flushing.cancel()
                self._flushing = None
            self._tools.hub.starve(self.tenant, self.job.key)
            for told in (self.outcome, self.rest):
                if not told.done():
                    told.set_result(ended)

    async def _work(self) -> Task:
        """Run the agent and say how it ended."""
        state, text = await self._do()
        if self.is_cancelled:
            raise asyncio.CancelledError  # the agent was stopped: whatever it made of that is not its end
        try:
            return await self.end(state, text)
        except Fenced:
            raise
        except Exception as error:  # it said what no store can keep
            log.exception("what the agent said was not kept", extra={"task_id": self.job.key})
            return await self.end(TaskState.FAILED, str(error) if isinstance(error, Failed) else "The agent failed")

    async def _do(self) -> tuple[TaskState, str | None]:
        """Run the agent and return how the task ends, and what its caller is told."""
        try:
            await self.agent.run(Context(self))
        except asyncio.CancelledError:
            if failures.is_being_cancelled():
                raise
            log.info("agent was interrupted", extra={"task_id": self.job.key})
            return TaskState.FAILED, "The agent was interrupted"
        except Exception as error:  # an agent may raise anything: logged in full, shown as nothing
            if (told := failures.told(error)) is not None:
                return told
            log.exception("agent failed", extra={"task_id": self.job.key})
            return TaskState.FAILED, "The agent failed"
        return TaskState.COMPLETED, None

    async def end(self, state: TaskState, text: str | None = None) -> Task:
        """Say how it ended, and let go of the job; an agent that said so itself is not repeated."""
        await self._quiesce()
        if "calls" in vars(self):
            await self.spending.recount()
        is_said = self._state in lifecycle.TERMINAL
        bodies = self._take()
        if not is_said:
            said = spoken(text, self.message_id(), self.job.key, self._context_id) if text else None
            bodies.append(self._update(state, said, None))
        await self._settle(bodies)
        return self.task

    # --- what the context writes ----------------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """The task as it is now, with what is not yet committed."""
        return self._log.after(self._buffer)

    async def status(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> None:
        """Append a status."""
        if self._state is TaskState.UNKNOWN and state is TaskState.WORKING:
            return  # the task was given up: only its end is news
        lifecycle.check(self._state, state)
        update = self._update(state, message, metadata)
        self._state = state
        await self._put(update)
        if self.rest.done():
            self.rest = asyncio.get_running_loop().create_future()
        if state in lifecycle.INTERRUPTED:  # the agent waits for somebody else: who waits for it is told
            await self.flush()
            self.rest.set_result(self.task)

    async def say(self, message: Message) -> None:
        """Append a message of the agent to the history."""
        await self._put(MessageUpdate(task_id=self.job.key, context_id=self._context_id, message=message))

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Append a chunk; the first one of an artifact in a run replaces what an earlier run left of it."""
        update = ArtifactUpdate(
            task_id=self.job.key,
            context_id=self._context_id,
            artifact=artifact,
            append=append and artifact.artifact_id in self._begun,
            last_chunk=last_chunk,
        )
        self._begun.add(artifact.artifact_id)
        await self._put(update)

    async def finish(self, artifact_id: str) -> None:
        """Say that an artifact is whole: with its last chunk if that is still here, otherwise with an empty one."""
        for at, body in reversed(list(enumerate(self._buffer))):
            if isinstance(body, ArtifactUpdate) and body.artifact.artifact_id == artifact_id:
                self._buffer[at] = replace(body, last_chunk=True)
                return
        if artifact_id in self._begun and self._state not in lifecycle.TERMINAL:
            nothing = Artifact(artifact_id=artifact_id, parts=(lifecycle.NOTHING,))
            await self.artifact(nothing, append=True, last_chunk=True)

    async def flush(self) -> None:
        """Wait until everything said is committed."""
        await self._quiesce()
        if self._buffer:
            self._begin_flush()
            await self._quiesce()

    async def has_ended(self) -> bool:
        """Whether the task has ended, here or from outside."""
        head = await self.patiently(lambda: self._store.read(tasks.read_head, self.tenant, self.job.key))
        return head is None or head.state in TERMINAL

    def recall(self, key: str) -> str | None:
        """Return what a step gave."""
        return self._steps.get(key)

    async def remember(self, key: str, output: str) -> None:
        """Commit what a step gave."""
        await self.persist(steps.commit, self._step(key, output))
        self._steps[key] = output

    def answered(self, key: str) -> Message | None:
        """Return the message that answered a question, if one has."""
        at = self._steps.get(key)
        return None if at is None else self._log.said(int(at))

    async def take(self, key: str) -> bool:
        """Let the oldest unread message of the caller answer a question; false if there is none."""
        at = self._unread.take(self._log.after(()).history)
        if at is None:
            return False
        await self.remember(key, str(at))
        return True

    async def park(
        self,
        state: TaskState | None,
        message: Message | None,
        *,
        delay_ms: int | None = None,
        awaited: str | None = None,
        child: str | None = None,
    ) -> None:
        """End the run until something happens; returns if that has happened already."""
        heard = self._heard
        async with self._parking:  # what an agent does at the same time may want to wait at the same time
            self._check_parked()
            await self._quiesce()
            if self._heard != heard:
                return  # a commit found what somebody said after the agent looked whether anybody had
            before = self._state
            if state is not None:
                lifecycle.check(self._state, state)
            bodies = self._take()
            if state is not None:
                bodies.append(self._update(state, message, None))
                self._state = state
            try:
                await self._settle(bodies, parks=True, delay_ms=delay_ms, awaited=awaited, child=child)
            except (Behind, runs.AlreadyWoken) as error:
                self._state, self._buffer = before, bodies[: len(bodies) - (state is not None)]
                if isinstance(error, Behind):
                    await self._catch_up()
                else:
                    self._steps = await self.patiently(lambda: self._store.read(steps.load, self.tenant, self.job.key))
                return
            self._is_parked = True
        if delay_ms is not None:
            self._tools.alarm(delay_ms)
        raise Parked

    async def limit(self, key: str, seconds: float, reason: str) -> None:
        """Give the task up as unknown after a while, and commit that as a step."""
        delay = round(seconds * 1000)
        timer = endings.Timer(task_id=self.job.key, kind=SLA, delay_ms=delay, arg=reason)
        step = self._step(key, str(self.now_ms() + delay))
        await self.persist(endings.limit, endings.Limit(timer=timer, step=step))
        self._steps[key] = step.output
        self._tools.alarm(delay)

    # --- the log --------------------------------------------------------------------------------------------------

    async def _put(self, body: EventBody) -> None:
        self._check_parked()
        if self._state in lifecycle.TERMINAL and not isinstance(body, StatusUpdate):
            raise lifecycle.TaskEnded(f"Task {self.job.key} has ended")
        if self._flushing is not None and self._flushing.done():
            await self._quiesce()  # which raises what went wrong
        self._buffer.append(body)
        self._said += 1
        if self._flushing is None and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._begin_flush)
        if len(self._buffer) >= MAX_BUFFER:
            await self.flush()
        elif self._said % BREATH == 0 or self._said in EARLY:
            await asyncio.sleep(0)

    def _begin_flush(self) -> None:
        """Commit in the background. An agent that is done before its turn ends never gets here."""
        self._soon = None
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush_on(), name=f"flush {self.job.key}")
            self._flushing.add_done_callback(lambda task: task.cancelled() or task.exception())  # known, if not awaited

    async def _flush_on(self) -> None:
        """Commit until nothing is left; what the agent says meanwhile goes with the next commit."""
        while bodies := self._take():
            await self._commit(bodies)

    async def _quiesce(self) -> None:
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

    def _take(self) -> list[EventBody]:
        bodies, self._buffer = self._buffer, []
        return bodies

    async def _commit(self, bodies: list[EventBody]) -> None:
        while True:
            request = await self._append(bodies)
            try:
                await self.persist(tasks.append, request, request.bodies)
            except Behind:
                await self._catch_up()
                continue
            self._committed(request, bodies)
            return

    async def persist(self, command: Command[[str, Q], T], request: Q, bodies: Sequence[EventBody] = ()) -> T | None:
        """Run a command as often as it takes while the database cannot be used.

        Whether one that broke off was committed cannot be known, so before the events are appended again it is looked
        whether they are there.
        """
        self._check_parked()
        tries = 0

        async def attempt() -> T:
            nonlocal tries
            tries += 1
            return await self._store.do(command, self.tenant, request)

        try:
            return await self.patiently(attempt)
        except Behind:
            if tries > 1 and await self.patiently(lambda: self._are_there(bodies)):
                return None
            raise
        except Fenced:
            self.is_cancelled = True
            self.on_lost()  # an agent that catches every exception must not go on
            raise
        except (BadValue, UnicodeEncodeError) as error:
            self._buffer.clear()  # what follows on something that is missing makes no sense
            self._state = self.task.status.state
            raise Failed(f"The agent said something that cannot be kept: {error}") from error

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Do something as often as it takes while the database cannot be used."""
        return await patiently(do, log, task_id=self.job.key)

    async def _are_there(self, bodies: Sequence[EventBody]) -> bool:
        rows = await self._store.read(tasks.events_after, self.tenant, self.job.key, self._log.seq, len(bodies))
        return [(kind, data) for _, kind, data, _ in rows] == [encode_body(body) for body in bodies]

    async def _settle(self, bodies: list[EventBody], *, parks: bool = False, **waits: Any) -> None:
        while True:
            request = await self._append(bodies, parks=parks, ends=not parks)
            settle = runs.Settle(last=request, job=self.job, parks=parks, parent_id=self._asks_for, **waits)
            self.is_settling = True
            try:
                await self.persist(runs.settle, settle, request.bodies)
            except Behind:
                if parks:
                    raise  # somebody said something: what the run wanted to wait for may be there
                await self._catch_up()
                continue
            finally:
                self.is_settling = False
            self._committed(request, bodies)
            return

    async def _append(self, bodies: list[EventBody], *, parks: bool = False, ends: bool = False) -> Append:
        archive, fresh = self._tools.archive, self._log.snapshot(bodies, parks=parks, ends=ends)
        self._has_large = self._has_large or any(archive.has_large(body) for body in bodies)
        packed = Packed(bodies, fresh, ())
        if self._has_large:
            packed = await self.patiently(lambda: archive.pack(self.tenant, bodies, fresh))
        state = last_state(bodies)
        if ends and fresh is not None:  # said before, perhaps: with its end the task's timers go
            state = fresh.status.state
        return Append(
            task_id=self.job.key,
            epoch=self.job.epoch,
            after=self._log.seq,
            bodies=packed.bodies,
            at=self._status_ms if state is not None and self._status_ms else self.now_ms(),
            state=state,
            snapshot=packed.snapshot,
            blobs=packed.blobs,
        )

    def _committed(self, request: Append, bodies: Sequence[EventBody]) -> None:
        self._log.committed(bodies)
        if bodies:
            if self._tools.hub.is_followed(self.tenant, self.job.key):
                at = timestamp_ms(request.at)
                events = [Event(seq=seq, body=body, at=at) for seq, body in enumerate(bodies, request.after + 1)]
                self._tools.hub.feed(self.tenant, self.job.key, events)
            agent, count = self.agent.profile.name, len(bodies)
            self._tools.hooks.tell(
                EventsAppended(tenant=self.tenant, task_id=self.job.key, agent=agent, seq=self._log.seq, count=count)
            )

    async def _catch_up(self) -> None:
        """Take in what others added to the log: messages of the caller."""
        archive, known = self._tools.archive, self._log
        while events := await self.patiently(lambda: archive.events(self.tenant, self.job.key, known.seq)):
            known.caught_up(events)
            self._heard += 1
            self._has_large = self._has_large or any(archive.has_large(event.body) for event in events)
            self._tools.hub.feed(self.tenant, self.job.key, events)

    # --- small things ---------------------------------------------------------------------------------------------

    def _check_parked(self) -> None:
        """End a run again that has parked and goes on, in a `finally` or because it caught what ended it."""
        if self._is_parked:
            raise Parked

    def _step(self, key: str, output: str) -> steps.Step:
        return steps.Step(task_id=self.job.key, epoch=self.job.epoch, key=key, output=output, at=self.now_ms())

    def _update(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> StatusUpdate:
        self._status_ms = self.now_ms()
        status = TaskStatus(state=state, message=message, timestamp=timestamp_ms(self._status_ms))
        shown = self.spending.shown_in(metadata)
        return StatusUpdate(task_id=self.job.key, context_id=self._context_id, status=status, metadata=shown)
