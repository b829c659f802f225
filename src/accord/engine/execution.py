"""One execution of an agent: from a claimed job to its end, suspension or loss.

Every write carries the claim's epoch, so an execution that lost its lease cannot write.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

from msgspec.structs import replace

from accord.engine import outcome
from accord.engine.agent import Agent
from accord.engine.budgets import TaskUsage
from accord.engine.child_tasks import ChildCalls, Spawning
from accord.engine.context import Context, Failed, Suspended
from accord.engine.journal import Journal, StatusEntry
from accord.engine.log_writer import LogPorts, LogWriter, UnreadMessages
from accord.engine.messages import as_message
from accord.engine.outcome import ResultBroadcast
from accord.engine.slots import ExecutionStart
from accord.engine.task_store import ConversationHistory
from accord.engine.tracing import ExecutionSpan, Tracer
from accord.model import (
    Artifact,
    ArtifactUpdate,
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
from accord.storage.commands import steps, task_endings, task_lifecycle, tasks
from accord.storage.commands.jobs import SLA
from accord.storage.commands.steps import ChildWatch
from accord.storage.commands.tasks import Append, Behind, Fenced
from accord.storage.encoding import TERMINAL, state_name
from accord.storage.store import Command, StoreUnavailable

log = logging.getLogger("accord.run")

Q = TypeVar("Q")
T = TypeVar("T")


class ExecutionPorts(LogPorts, frozen=True, kw_only=True):
    """The node's functions for its executions."""

    make_id: Callable[[], str]
    calls: Callable[["Execution"], ChildCalls]
    journal: Callable[["Execution"], Journal]
    spawning: Callable[["Execution"], Spawning]
    alarm: Callable[[int], None]


class Execution:
    """One execution of an agent, which its context writes through.

    It has fewer than 30 attributes: Python creates such objects quickly.
    """

    def __init__(self, agent: Agent, start: ExecutionStart, tools: ExecutionPorts) -> None:
        """Prepare to run `agent`."""
        self.agent = agent
        self.job = start.job
        self.tenant = start.job.tenant
        self.caller = start.caller
        self.message = start.message
        self.deadline_at = start.deadline_at
        self.trace = start.trace
        self.is_cancelled = False
        self.is_settling = False
        self.on_lost: Callable[[], object] = lambda: None
        loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[Task | None] = loop.create_future()
        self.rest = ResultBroadcast(loop)
        self._tools = tools
        self.now_ms, self.message_id = tools.now_ms, tools.make_id
        self._store = tools.archive.store
        self._steps = start.steps
        self._noted: dict[str, str] = {}
        self._told: list[EventBody] = []
        known = start.steps.get(steps.USAGE_STEP)
        self.spending = TaskUsage(self, agent.profile.budget, known, self._store, tools.hooks)
        self._writer = LogWriter(start, agent.profile.name, tools, self)
        self.context_id = start.task.context_id or ""
        self._history = start.task.history
        self._state = start.task.status.state
        self._parent_id, self._was_asking = start.parent_id, self._state in lifecycle.INTERRUPTED
        self._begun = {artifact.artifact_id for artifact in start.task.artifacts} if start.resumes else set()

    @property
    def attempt(self) -> int:
        """The number of this execution: 1, or more if an earlier one was lost."""
        return self.job.attempts

    @property
    def epoch(self) -> int:
        """The epoch of the claim."""
        return self.job.epoch

    @property
    def seq(self) -> int:
        """The sequence number of the last known event."""
        return self._writer.known.seq

    @property
    def place(self) -> int:
        """The position of the turn's message in the history, from 1."""
        wanted = self.message.message_id
        return next((at for at, said in enumerate(self._history, 1) if said.message_id == wanted), 1)

    @property
    def is_child(self) -> bool:
        """Whether another task called this one."""
        return self._parent_id is not None

    @cached_property
    def _parking(self) -> asyncio.Lock:
        """A lock for suspending, created on first use because most executions never suspend."""
        return asyncio.Lock()

    @cached_property
    def conversation(self) -> ConversationHistory:
        """The conversation of the task."""
        return ConversationHistory(self, self._tools.archive)

    @cached_property
    def calls(self) -> ChildCalls:
        """Access to child tasks, created on first use."""
        return self._tools.calls(self)

    @cached_property
    def spawning(self) -> Spawning:
        """Access to tasks of the same conversation, created on first use."""
        return self._tools.spawning(self)

    @cached_property
    def _unread(self) -> UnreadMessages:
        """The caller's messages that no question has taken, created on first use."""
        return UnreadMessages(self.message.message_id, self._history, self._steps)

    @cached_property
    def journal(self) -> Journal:
        """The journal, for agents with many concurrent steps."""
        return self._tools.journal(self)

    async def flush(self) -> None:
        """Wait until all output is committed."""
        await self._writer.flush()

    async def lost(self) -> tuple[int, int] | None:
        """Return the number of known events and the number that the store still has, or None if it has all."""
        return await self._writer.lost()

    async def persist(self, command: Command[[str, Q], T], request: Q) -> T | None:
        """Run a command, and retry it while the database is unavailable."""
        return await self._writer.persist(command, request)

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Call a function, and retry it while the database is unavailable."""
        return await self._writer.patiently(do)

    # --- startup, work, end ---------------------------------------------------------------------------------------

    async def execute(self) -> None:
        """Run the agent to its end and set `outcome`: the task, or None if the execution was lost.

        `rest` gets the same result, or before that the task as the agent reports it when it waits for input.
        """
        ended: Task | None = None
        try:
            if self._state is TaskState.SUBMITTED and not self.agent.profile.reports_start:
                await self.status(TaskState.WORKING, None, None)
            ended = await self._work()
        except Fenced as error:
            log.debug("run.fenced", extra={"task_id": self.job.key, "reason": str(error)})
        except BaseException:  # `Suspended`, or an exception group that contains it
            if not self._writer.is_closed:
                raise
            ended = self.task
        finally:
            self._writer.close()
            if not self.outcome.done():
                self.outcome.set_result(ended)
            self.rest.tell(ended)

    async def traced(self, tracer: Tracer) -> None:
        """Execute as a span of the task's trace, which may have started on another node."""
        running = ExecutionSpan(
            agent=self.agent.profile.name,
            task_id=self.job.key,
            context_id=self.context_id,
            tenant=self.tenant,
            attempt=self.attempt,
            trace=self.trace,
        )
        with tracer.around(running) as span:
            await self.execute()
            ended = self.outcome.result()
            span.note(state=None if ended is None else state_name(ended.status.state))

    async def _work(self) -> Task:
        """Run the agent and commit the end of the task."""
        state, text = await self._do()
        if self.is_cancelled:
            raise asyncio.CancelledError  # the agent was stopped: its result is not the task's end
        try:
            return await self.end(state, text)
        except (Fenced, StoreUnavailable):
            raise
        except Exception as error:  # the agent wrote a value that no store accepts
            log.exception("run.not_kept", extra={"task_id": self.job.key})
            self.note({steps.FAILURE_STEP: outcome.failure_entry(error)})
            return await self.end(TaskState.FAILED, str(error) if isinstance(error, Failed) else "The agent failed")

    async def _do(self) -> tuple[TaskState, str | None]:
        """Run the agent and return the final state and the text for the caller."""
        try:
            await self.agent.run(Context(self))
        except asyncio.CancelledError:
            if outcome.is_being_cancelled():
                raise
            log.info("run.agent_interrupted", extra={"task_id": self.job.key})
            return TaskState.FAILED, "The agent was interrupted"
        except Exception as error:  # an agent may raise anything: logged in full, not shown to callers
            if (told := outcome.failure_status(error)) is not None:
                return told
            log.exception("run.agent_failed", extra={"task_id": self.job.key})
            self.note({steps.FAILURE_STEP: outcome.failure_entry(error)})
            return TaskState.FAILED, "The agent failed"
        return TaskState.COMPLETED, None

    async def end(self, state: TaskState, text: str | None = None) -> Task:
        """Commit the final state and release the job. A final state that the agent wrote itself is not repeated."""
        await self._writer.quiesce()
        if "calls" in vars(self):
            await self.spending.recount()
        is_said = self._state in lifecycle.TERMINAL
        bodies, self._told = self._told + self._writer.take(), []
        if not is_said:
            said = as_message(text, self.message_id(), self.job.key, self.context_id) if text else None
            bodies.append(self._update(state, said, None))
        await self._settle(bodies)
        return self.task

    # --- interface of the context ---------------------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """The current task, including uncommitted events."""
        return self._writer.task

    async def status(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> None:
        """Append a status."""
        if self._state is TaskState.UNKNOWN and state is TaskState.WORKING:
            return  # the task was given up: only its end matters
        await self._put(self._entered(state, message, metadata))
        if state in lifecycle.INTERRUPTED:  # the agent waits for input: notify the waiters
            await self.flush()
            self._rests()

    def _entered(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> StatusUpdate:
        """Change the state and return the status update."""
        lifecycle.check(self._state, state)
        self._state = state
        if self.rest.is_told:
            self.rest = ResultBroadcast(self.outcome.get_loop())
        return self._update(state, message, metadata)

    async def say(self, message: Message) -> None:
        """Append a message of the agent to the history."""
        await self._put(MessageUpdate(task_id=self.job.key, context_id=self.context_id, message=message))

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Append a chunk. An artifact's first chunk in an execution replaces chunks of earlier executions."""
        update = ArtifactUpdate(
            task_id=self.job.key,
            context_id=self.context_id,
            artifact=artifact,
            append=append and artifact.artifact_id in self._begun,
            last_chunk=last_chunk,
        )
        self._begun.add(artifact.artifact_id)
        await self._put(update)

    async def finish(self, artifact_id: str) -> None:
        """Mark an artifact as complete: on its last chunk if that is uncommitted, otherwise with an empty chunk."""
        for at, body in reversed(list(enumerate(self._writer.buffer))):
            if isinstance(body, ArtifactUpdate) and body.artifact.artifact_id == artifact_id:
                self._writer.buffer[at] = replace(body, last_chunk=True)
                return
        if artifact_id in self._begun and self._state not in lifecycle.TERMINAL:
            nothing = Artifact(artifact_id=artifact_id, parts=(lifecycle.NOTHING,))
            await self.artifact(nothing, append=True, last_chunk=True)

    async def has_ended(self) -> bool:
        """Whether the task has ended, by this execution or otherwise."""
        head = await self.patiently(lambda: self._store.read(tasks.read_head, self.tenant, self.job.key))
        return head is None or head.state in TERMINAL

    @property
    def entries(self) -> Mapping[str, str]:
        """All steps of the task by key."""
        return self._steps

    def learn(self, entries: Mapping[str, str]) -> None:
        """Add written entries to the known steps."""
        self._steps.update(entries)

    def note(self, entries: Mapping[str, str], sayings: Sequence[StatusEntry] = ()) -> None:
        """Keep entries and status updates until the next commit of the journal or the end."""
        self.learn(entries)
        self._noted.update(entries)
        self._told += [self._said(saying) for saying in sayings]

    def noted(self) -> Mapping[str, str]:
        """Return the entries of the next commit and clear them."""
        found, self._noted = self._noted, {}
        return found

    async def commit(
        self, command: Command[[str, Q], T], around: Callable[[Append], Q], sayings: Sequence[StatusEntry] = ()
    ) -> T | None:
        """Commit all output and these status updates with a command that does more.

        Returns None if the result of the command is not known.
        """
        if self._state in lifecycle.TERMINAL:
            raise lifecycle.TaskEnded(f"Task {self.job.key} has ended")
        told, self._told = self._told, []
        given = await self._writer.commit(command, around, told + [self._said(saying) for saying in sayings])
        if sayings and self._state in lifecycle.INTERRUPTED:
            self._rests()
        return given

    def _rests(self) -> None:
        """Notify waiters, unless a concurrent branch of the agent has done so."""
        self.rest.tell(self.task)

    def _said(self, saying: StatusEntry) -> StatusUpdate:
        content = saying.content
        if isinstance(content, str):
            content = as_message(content, self.message_id(), self.job.key, self.context_id)
        return self._entered(saying.state, content, saying.metadata)

    async def look(self) -> None:
        """Load changes that others made to the task."""
        await self._writer.catch_up()
        self._steps = await self.patiently(lambda: self._store.read(steps.load_steps, self.tenant, self.job.key))

    def recall(self, key: str) -> str | None:
        """Return the result of a step."""
        return self._steps.get(key)

    async def remember(self, key: str, output: str) -> None:
        """Commit the result of a step."""
        await self.persist(steps.commit_step, self._step(key, output))
        self._steps[key] = output

    def answered(self, key: str) -> Message | None:
        """Return the message that answered a question, or None."""
        at = self._steps.get(key)
        return None if at is None else self._writer.known.said(int(at))

    async def take(self, key: str) -> bool:
        """Answer a question with the caller's oldest unread message. Return false without a message."""
        at = self._unread.take(self._writer.known.after(()).history)
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
        watch: ChildWatch | None = None,
    ) -> None:
        """Suspend the task. Returns if the awaited event has already happened."""
        if self._noted:
            await self.journal.write({})
        heard = self._writer.heard
        async with self._parking:  # branches of an agent may suspend at the same time
            self._writer.check_open()
            await self._writer.quiesce()
            if self._writer.heard != heard:
                return  # a commit found a message that arrived after the agent looked for one
            before = self._state
            if state is not None:
                lifecycle.check(self._state, state)
            bodies = self._writer.take()
            if state is not None:
                bodies.append(self._update(state, message, None))
                self._state = state
            try:
                await self._settle(bodies, parks=True, delay_ms=delay_ms, awaited=awaited, child=child, watch=watch)
            except (Behind, task_lifecycle.AlreadySignaled) as error:
                self._state, self._writer.known.taken = before, ()
                self._writer.buffer = bodies[: len(bodies) - (state is not None)]
                if isinstance(error, Behind):
                    await self._writer.take_in()
                else:
                    self._steps = await self.patiently(
                        lambda: self._store.read(steps.load_steps, self.tenant, self.job.key)
                    )
                return
            self._writer.is_closed = True
        if delay_ms is not None:
            self._tools.alarm(delay_ms)
        raise Suspended

    async def limit(self, key: str, seconds: float, reason: str) -> None:
        """Set the timer that gives the task up as unknown, and commit it as a step."""
        delay = round(seconds * 1000)
        timer = task_endings.TaskTimer(task_id=self.job.key, kind=SLA, delay_ms=delay, arg=reason)
        step = self._step(key, str(self.now_ms() + delay))
        await self.persist(task_endings.set_timer_once, task_endings.TimerRequest(timer=timer, step=step))
        self._steps[key] = step.output
        self._tools.alarm(delay)

    # --- event log ------------------------------------------------------------------------------------------------

    async def _put(self, body: EventBody) -> None:
        self._writer.check_open()
        if self._state in lifecycle.TERMINAL and not isinstance(body, StatusUpdate):
            raise lifecycle.TaskEnded(f"Task {self.job.key} has ended")
        await self._writer.put(body)

    def is_fenced(self) -> None:
        """Stop: another node has the claim."""
        self.is_cancelled = True
        self.on_lost()  # an agent that catches every exception must not continue

    def is_refused(self) -> None:
        """Return to the state in the log: the last output cannot be stored."""
        self._state = self.task.status.state

    async def _settle(self, bodies: list[EventBody], *, parks: bool = False, **waits: Any) -> None:
        entries = tuple(self.noted().items())
        while True:
            request = await self._writer.append(bodies, parks=parks, ends=not parks)
            tells = not parks or self._was_asking or request.state in lifecycle.INTERRUPTED
            parent_id = self._parent_id if tells else None
            settle = task_lifecycle.SettleRequest(
                last=request, job=self.job, entries=entries, parks=parks, parent_id=parent_id, **waits
            )
            self.is_settling = True
            try:
                ended = await self._writer.persist(task_lifecycle.settle_execution, settle, request.bodies)
            except Behind:
                if parks:
                    raise  # a message arrived: it may be the awaited one
                await self._writer.take_in()
                continue
            finally:
                self.is_settling = False
            self._writer.committed(request, bodies)
            self._tools.hooks.tell_ended(settle.ended if ended is None else ended)
            return

    # --- helpers --------------------------------------------------------------------------------------------------

    def _step(self, key: str, output: str) -> steps.StepResult:
        return steps.StepResult(task_id=self.job.key, epoch=self.job.epoch, key=key, output=output, at=self.now_ms())

    def _update(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> StatusUpdate:
        self._writer.status_ms = self.now_ms()
        status = TaskStatus(state=state, message=message, timestamp=timestamp_ms(self._writer.status_ms))
        shown = self.spending.shown_in(metadata)
        return StatusUpdate(task_id=self.job.key, context_id=self.context_id, status=status, metadata=shown)
