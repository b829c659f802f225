"""One execution of an agent: from a claimed job to its end, suspension or loss.

Every write carries the claim's epoch, so an execution that lost its lease cannot write.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from accord.engine import outcome
from accord.engine.hooks import UsageReported
from accord.engine.log_writer import ExecutionStart, LogWriter, UnreadMessages
from accord.engine.messages import as_message
from accord.engine.node_port import ExecutionNode
from accord.engine.outcome import Failed, ResultBroadcast, Suspended
from accord.engine.tracing import ExecutionSpan, Tracer
from accord.model import (
    Artifact,
    ArtifactUpdate,
    EventBody,
    Message,
    MessageUpdate,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp_ms
from accord.model.metadata_keys import USAGE
from accord.protocol import lifecycle
from accord.protocol.budgets import Budget, TokenUsage, read_budget
from accord.storage.commands import steps, task_endings, task_lifecycle, tasks, workflow_runs
from accord.storage.commands.jobs import SLA
from accord.storage.commands.steps import ChildWatch
from accord.storage.commands.task_lifecycle import Acceptance, AcceptRequest
from accord.storage.commands.tasks import Append, Behind, Fenced
from accord.storage.encoding import TERMINAL, state_name
from accord.storage.store import StoreUnavailable

log = logging.getLogger("accord.run")

NO_USAGE = TokenUsage()


class StatusEntry(Struct, frozen=True):
    """A status update that is committed with journal entries: state, text or message, and metadata."""

    state: TaskState
    content: Message | str | None = None
    metadata: dict[str, Any] | None = None


def budget_of(limit: Budget, task: Task) -> Budget:
    """Return the budget of a task: the agent's budget per task, tightened by the caller's messages."""
    for message in task.history:
        if message.metadata is not None and message.role is Role.USER:
            limit = limit.tightened(read_budget(message.metadata))
    return limit


class Execution(LogWriter):
    """One execution of an agent, which its context writes through."""

    def __init__(self, node: ExecutionNode, start: ExecutionStart, *, limit: Budget, reports_start: bool) -> None:
        """Prepare an execution on a node, with the agent's budget per task.

        With `reports_start` the agent sets the task to working by itself.
        """
        super().__init__(start, node.task_store, node.hub, node.hooks, node.now_ms)
        self.node = node
        self.caller = start.caller
        self.message = start.message
        self.deadline_at = start.deadline_at
        self.parent_id = start.parent_id
        self.context_id = start.task.context_id or ""
        self.message_id = node.make_id
        self.is_cancelled = False
        self.is_settling = False
        self.has_called = False
        self.on_stop: Callable[[], object] = lambda: None
        self.result = ResultBroadcast()
        self._limit = limit
        self._reports_start = reports_start
        self._trace = start.trace
        self.steps = start.steps
        self._pending_entries: dict[str, str] = {}
        self._pending_statuses: list[EventBody] = []
        self._account = steps.decode_account(start.steps.get(steps.USAGE_STEP))
        self._history = start.task.history
        self._state = start.task.status.state
        self._was_asking = self._state in lifecycle.INTERRUPTED
        self._artifact_ids = {artifact.artifact_id for artifact in start.task.artifacts} if start.resumes else set()

    @property
    def turn_position(self) -> int:
        """The position of the turn's message in the history, from 1."""
        turn_id = self.message.message_id
        return next((at for at, message in enumerate(self._history, 1) if message.message_id == turn_id), 1)

    @cached_property
    def _suspending(self) -> asyncio.Lock:
        """A lock for suspending, created on first use because most executions never suspend."""
        return asyncio.Lock()

    @cached_property
    def _unread(self) -> UnreadMessages:
        """The caller's messages that no question has taken, created on first use."""
        return UnreadMessages(self.message.message_id, self._history, self.steps)

    # --- startup, work, end ---------------------------------------------------------------------------------------

    async def execute(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the agent to its end and set the result: the task, or None if the execution was lost."""
        ended: Task | None = None
        try:
            if self._state is TaskState.SUBMITTED and not self._reports_start:
                await self.status(TaskState.WORKING, None, None)
            ended = await self._work(work)
        except Fenced as error:
            log.debug("run.fenced", extra={"task_id": self.job.key, "reason": str(error)})
        except BaseException:  # `Suspended`, or an exception group that contains it
            if not self.is_closed:
                raise
            ended = self.task
        finally:
            self._close()
            self.result.end(ended)

    async def execute_traced(self, tracer: Tracer, work: Callable[[], Awaitable[None]]) -> None:
        """Execute as a span of the task's trace, which may have started on another node."""
        start = ExecutionSpan(
            agent=self.job.queue,
            task_id=self.job.key,
            context_id=self.context_id,
            tenant=self.tenant,
            attempt=self.job.attempts,
            trace=self._trace,
        )
        with tracer.around(start) as span:
            await self.execute(work)
            ended = self.result.task
            span.note(state=None if ended is None else state_name(ended.status.state))

    async def _work(self, work: Callable[[], Awaitable[None]]) -> Task:
        """Run the agent and commit the end of the task."""
        state, text = await self._run_agent(work)
        if self.is_cancelled:
            raise asyncio.CancelledError  # the agent was stopped: its result is not the task's end
        try:
            return await self.end(state, text)
        except (Fenced, StoreUnavailable):
            raise
        except Exception as error:  # the agent wrote a value that no store accepts
            log.exception("run.not_kept", extra={"task_id": self.job.key})
            self.add_pending({steps.FAILURE_STEP: outcome.failure_entry(error)})
            return await self.end(TaskState.FAILED, str(error) if isinstance(error, Failed) else "The agent failed")

    async def _run_agent(self, work: Callable[[], Awaitable[None]]) -> tuple[TaskState, str | None]:
        """Run the agent and return the final state and the text for the caller."""
        try:
            await work()
        except asyncio.CancelledError:
            if outcome.is_being_cancelled():
                raise
            log.info("run.agent_interrupted", extra={"task_id": self.job.key})
            return TaskState.FAILED, "The agent was interrupted"
        except Exception as error:  # an agent may raise anything: logged in full, not shown to callers
            if (failure := outcome.failure_status(error)) is not None:
                return failure
            log.exception("run.agent_failed", extra={"task_id": self.job.key})
            self.add_pending({steps.FAILURE_STEP: outcome.failure_entry(error)})
            return TaskState.FAILED, "The agent failed"
        return TaskState.COMPLETED, None

    async def end(self, state: TaskState, text: str | None = None) -> Task:
        """Commit the final state and release the job. A final state that the agent wrote itself is not repeated."""
        await self._quiesce()
        if self.has_called:
            await self.recount_usage()
        is_written = self._state in lifecycle.TERMINAL
        bodies, self._pending_statuses = self._pending_statuses + self._take_buffer(), []
        if not is_written:
            message = as_message(text, self.message_id(), self.job.key, self.context_id) if text else None
            bodies.append(self._update(state, message, None))
        await self._settle(bodies)
        return self.task

    def stop(self) -> None:
        """Cancel the agent, even if it catches every exception."""
        self.is_cancelled = True
        self.on_stop()

    # --- output ---------------------------------------------------------------------------------------------------

    async def status(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> None:
        """Append a status."""
        if self._state is TaskState.UNKNOWN and state is TaskState.WORKING:
            return  # the task was given up: only its end matters
        await self._write(self._enter(state, message, metadata))
        if state in lifecycle.INTERRUPTED:  # the agent waits for input: notify the waiters
            await self.flush()
            self.result.settle(self.task)

    def _enter(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> StatusUpdate:
        """Change the state and return the status update."""
        lifecycle.check(self._state, state)
        self._state = state
        self.result.reopen()
        return self._update(state, message, metadata)

    async def say(self, message: Message) -> None:
        """Append a message of the agent to the history."""
        if self._state in lifecycle.TERMINAL and not self.is_closed:
            raise lifecycle.TaskEnded(f"Task {self.job.key} has ended")
        await self._write(MessageUpdate(task_id=self.job.key, context_id=self.context_id, message=message))

    async def artifact(self, artifact: Artifact, *, append: bool, last_chunk: bool) -> None:
        """Append a chunk. An artifact's first chunk in an execution replaces chunks of earlier executions."""
        if self._state in lifecycle.TERMINAL and not self.is_closed:
            raise lifecycle.TaskEnded(f"Task {self.job.key} has ended")
        id = artifact.artifact_id
        update = ArtifactUpdate(
            task_id=self.job.key,
            context_id=self.context_id,
            artifact=artifact,
            append=append and id in self._artifact_ids,
            last_chunk=last_chunk,
        )
        self._artifact_ids.add(id)
        await self._write(update)

    async def finish(self, artifact_id: str) -> None:
        """Mark an artifact as complete: on its last chunk if that is uncommitted, otherwise with an empty chunk."""
        for at, body in reversed(list(enumerate(self._buffer))):
            if isinstance(body, ArtifactUpdate) and body.artifact.artifact_id == artifact_id:
                self._buffer[at] = replace(body, last_chunk=True)
                return
        if artifact_id in self._artifact_ids and self._state not in lifecycle.TERMINAL:
            nothing = Artifact(artifact_id=artifact_id, parts=(lifecycle.NOTHING,))
            await self.artifact(nothing, append=True, last_chunk=True)

    def _update(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> StatusUpdate:
        self._status_ms = self.now_ms()
        status = TaskStatus(state=state, message=message, timestamp=timestamp_ms(self._status_ms))
        if self._account.used != NO_USAGE:
            metadata = {**(metadata or {}), USAGE: self._account.shown}
        return StatusUpdate(task_id=self.job.key, context_id=self.context_id, status=status, metadata=metadata)

    async def has_ended(self) -> bool:
        """Whether the task has ended, by this execution or otherwise."""
        head = await self.retry(lambda: self._store.read(tasks.read_head, self.tenant, self.job.key))
        return head is None or head.state in TERMINAL

    # --- journal entries ------------------------------------------------------------------------------------------

    def add_pending(self, entries: Mapping[str, str], statuses: Sequence[StatusEntry] = ()) -> None:
        """Keep entries and status updates until the next commit of the journal or the end."""
        self.steps.update(entries)
        self._pending_entries.update(entries)
        self._pending_statuses += [self._status_update(entry) for entry in statuses]

    async def commit_entries(
        self,
        entries: Mapping[str, str],
        calls: tuple[AcceptRequest, ...] = (),
        statuses: Sequence[StatusEntry] = (),
    ) -> list[Acceptance] | None:
        """Commit entries, child tasks and status updates with all earlier output, in one transaction.

        Returns None if the result is not known. The known steps are then those of the store.
        """
        pending, self._pending_entries = self._pending_entries, {}
        entries = {**pending, **entries}

        def around(last: Append) -> workflow_runs.JournalRequest:
            return workflow_runs.JournalRequest(last=last, entries=tuple(entries.items()), calls=calls)

        if self._state in lifecycle.TERMINAL:
            raise lifecycle.TaskEnded(f"Task {self.job.key} has ended")
        bodies, self._pending_statuses = self._pending_statuses, []
        bodies = bodies + [self._status_update(entry) for entry in statuses]
        accepted = await self.commit_with(workflow_runs.write_journal, around, bodies)
        if statuses and self._state in lifecycle.INTERRUPTED:
            self.result.settle(self.task)
        if accepted is None:
            await self.reload()
        else:
            self.steps.update(entries)
        return accepted

    def _status_update(self, entry: StatusEntry) -> StatusUpdate:
        content = entry.content
        if isinstance(content, str):
            content = as_message(content, self.message_id(), self.job.key, self.context_id)
        return self._enter(entry.state, content, entry.metadata)

    async def reload(self) -> None:
        """Load changes that others made to the task."""
        await self.catch_up()
        await self._reload_steps()

    async def _reload_steps(self) -> None:
        self.steps = await self.retry(lambda: self._store.read(steps.load_steps, self.tenant, self.job.key))

    # --- steps ----------------------------------------------------------------------------------------------------

    def recall(self, key: str) -> str | None:
        """Return the result of a step."""
        return self.steps.get(key)

    async def remember(self, key: str, output: str) -> None:
        """Commit the result of a step."""
        await self.persist(steps.commit_step, self._step(key, output))
        self.steps[key] = output

    def answered(self, key: str) -> Message | None:
        """Return the message that answered a question, or None."""
        at = self.steps.get(key)
        return None if at is None else self.log.message_at(int(at))

    async def take_answer(self, key: str) -> bool:
        """Answer a question with the caller's oldest unread message. Return false without a message."""
        at = self._unread.take(self.log.after(()).history)
        if at is None:
            return False
        await self.remember(key, str(at))
        return True

    async def limit_time(self, key: str, seconds: float, reason: str) -> None:
        """Set the timer that gives the task up as unknown, and commit it as a step."""
        delay = round(seconds * 1000)
        timer = task_endings.TaskTimer(task_id=self.job.key, kind=SLA, delay_ms=delay, arg=reason)
        step = self._step(key, str(self.now_ms() + delay))
        await self.persist(task_endings.set_timer_once, task_endings.TimerRequest(timer=timer, step=step))
        self.steps[key] = step.output
        self.node.alarm(delay)

    def _step(self, key: str, output: str) -> steps.StepResult:
        return steps.StepResult(task_id=self.job.key, epoch=self.job.epoch, key=key, output=output, at=self.now_ms())

    # --- usage ----------------------------------------------------------------------------------------------------

    @property
    def budget(self) -> Budget:
        """The budget of the task: the agent's budget per task, or less."""
        return budget_of(self._limit, self.task)

    @property
    def budget_left(self) -> Budget:
        """The remaining budget."""
        return self.budget.left(self._account.used)

    async def charge_usage(self, use: TokenUsage, model: str | None, step: str) -> str | None:
        """Count a usage once per step. Return the reason if it exceeded the budget and ended the task."""
        if use == NO_USAGE and self.budget == Budget():
            return None  # with a budget, parents and children have to see it
        await self.flush()  # before the task may end
        request = steps.UsageRequest(
            task_id=self.job.key,
            epoch=self.job.epoch,
            step=step,
            use=use,
            model=model,
            budget=self.budget,
            at=self.now_ms(),
        )
        charged = await self.persist(task_endings.charge_usage, request)
        assert charged is not None  # only commands with events can be found committed
        self._account = charged.account
        for counted, of in charged.counted:
            self.hooks.emit(
                UsageReported(tenant=self.tenant, task_id=self.job.key, agent=self.job.queue, use=counted, model=of)
            )
        self.hooks.emit_ended(charged.ended)
        if charged.over is not None:
            self.stop()
        return charged.over

    async def recount_usage(self) -> None:
        """Load the usage that children have added."""
        self._account = await self.retry(lambda: self._store.read(steps.read_account, self.tenant, self.job.key))

    # --- suspension and end ---------------------------------------------------------------------------------------

    async def suspend(
        self,
        state: TaskState | None = None,
        message: Message | None = None,
        *,
        delay_ms: int | None = None,
        awaited: str | None = None,
        child: str | None = None,
        watch: ChildWatch | None = None,
    ) -> None:
        """Suspend the task. Returns if the awaited event has already happened."""
        if self._pending_entries:
            await self.commit_entries({})
        catch_ups = self._catch_ups
        async with self._suspending:  # branches of an agent may suspend at the same time
            if self.is_closed:
                raise Suspended
            await self._quiesce()
            if self._catch_ups != catch_ups:
                return  # a commit found a message that arrived after the agent looked for one
            before = self._state
            if state is not None:
                lifecycle.check(self._state, state)
            bodies = self._take_buffer()
            if state is not None:
                bodies.append(self._update(state, message, None))
                self._state = state
            try:
                await self._settle(bodies, suspends=True, delay_ms=delay_ms, awaited=awaited, child=child, watch=watch)
            except (Behind, task_lifecycle.AlreadySignaled) as error:
                self._state, self.log.committing = before, ()
                self._buffer = bodies[: len(bodies) - (state is not None)]
                if isinstance(error, Behind):
                    await self._load_others()
                else:
                    await self._reload_steps()
                return
            self.is_closed = True
        if delay_ms is not None:
            self.node.alarm(delay_ms)
        raise Suspended

    async def _settle(self, bodies: list[EventBody], *, suspends: bool = False, **waits: Any) -> None:
        pending, self._pending_entries = self._pending_entries, {}
        while True:
            request = await self._request(bodies, suspends=suspends, ends=not suspends)
            notifies = not suspends or self._was_asking or request.state in lifecycle.INTERRUPTED
            settle = task_lifecycle.SettleRequest(
                last=request,
                job=self.job,
                entries=tuple(pending.items()),
                parks=suspends,
                parent_id=self.parent_id if notifies else None,
                **waits,
            )
            self.is_settling = True
            try:
                ended = await self.persist(task_lifecycle.settle_execution, settle, request.bodies)
            except Behind:
                if suspends:
                    raise  # a message arrived: it may be the awaited one
                await self._load_others()
                continue
            finally:
                self.is_settling = False
            self._committed(request, bodies)
            self.hooks.emit_ended(settle.ended if ended is None else ended)
            return

    def _fenced(self) -> None:
        self.stop()

    def _refused(self) -> None:
        self._state = self.task.status.state
