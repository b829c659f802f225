"""The context of an execution: everything that an agent reads and calls.

Every method writes through the execution to the event log or the steps. An execution that waits ends with `Suspended`
and restarts later. Steps that have a result are skipped.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

import msgspec

from accord.a2a import Caller
from accord.engine import tracing
from accord.engine.child_tasks import ChildTasks, SpawnedTasks
from accord.engine.execution import Execution
from accord.engine.journal import ConversationHistory, Journal
from accord.engine.messages import Approval, ArtifactIds, IncomingMessage, parts_of
from accord.engine.outcome import CallFailed, OverBudget
from accord.engine.threads import in_thread
from accord.engine.tracing import UNTRACED, StepSpan
from accord.model import Artifact, Message, Part, Role, Task, TaskState
from accord.protocol.budgets import TokenUsage, budget_metadata

T = TypeVar("T")

IN_MEMORY_SECONDS = 2.0
"""Sleeps up to this many seconds stay in memory. Longer ones suspend the task."""

INPUT_REQUIRED = TaskState.INPUT_REQUIRED
"""A constant because enum lookup is slow in Python 3.11 and every turn repeats all questions of its conversation."""

APPROVAL = "approval"
"""Metadata key of a question that expects yes or no."""

CONVERSATION_TASKS = 50
"""Default limit of a conversation: longer than most conversations, and as much as most models accept."""


class Context:
    """One turn of one task, for its agent."""

    def __init__(self, execution: Execution) -> None:
        """Write through `execution`."""
        self._execution = execution
        self._questions = self._sleeps = self._calls = self._time_limits = 0
        self._step_locks: dict[str, asyncio.Lock] = {}
        self._incoming = IncomingMessage(execution.message)
        self._turn = f"{execution.message.message_id}/"
        self._position: int | None = None
        self._artifact_ids = ArtifactIds()

    # --- input ----------------------------------------------------------------------------------------------------

    @property
    def message(self) -> Message:
        """The message that started this turn."""
        return self._incoming.message

    @property
    def text(self) -> str:
        """The text of the message."""
        return self._incoming.text

    @property
    def data(self) -> Any:
        """The value of the first data part of the message, or None."""
        return self._incoming.data

    @property
    def files(self) -> tuple[Part, ...]:
        """The parts of the message that contain or link to a file."""
        return self._incoming.files

    @property
    def task(self) -> Task:
        """The current task."""
        return self._execution.task

    @property
    def history(self) -> tuple[Message, ...]:
        """All messages of this task so far."""
        return self._execution.task.history

    async def conversation(self, limit: int = CONVERSATION_TASKS) -> tuple[Task, ...]:
        """Return the latest ended tasks of this conversation, oldest first, at most `limit`.

        They belong to the same caller and agent. Tasks of other callers under the same context ID are left out.
        """
        return await self._history.earlier(limit)

    @property
    def place(self) -> int:
        """The position of this turn's message in the history, from 1. It is the same in every execution of the turn."""
        if self._position is None:  # not `cached_property`, which takes a lock: every execution reads this
            self._position = self._execution.turn_position
        return self._position

    @cached_property
    def task_id(self) -> str:
        """The task's ID."""
        return self._execution.task.id

    @cached_property
    def context_id(self) -> str:
        """The context ID of the task's conversation."""
        return self._execution.task.context_id or ""

    @property
    def tenant(self) -> str:
        """The caller's tenant."""
        return self._execution.tenant

    @property
    def caller(self) -> Caller:
        """The caller of this turn."""
        return self._execution.caller

    @property
    def is_child(self) -> bool:
        """Whether another task here called this one for the same caller."""
        return self._execution.parent_id is not None

    @property
    def attempt(self) -> int:
        """The number of this execution: 1, or more if an earlier one was lost."""
        return self._execution.job.attempts

    @property
    def epoch(self) -> int:
        """The epoch of this execution's claim. Use it as a fencing token for stores other than the event log."""
        return self._execution.job.epoch

    @property
    def cancelled(self) -> bool:
        """Whether the execution must stop. Coroutines are canceled by asyncio. Code in a thread must check this."""
        return self._execution.is_cancelled

    async def has_ended(self) -> bool:
        """Whether the task has ended, by cancellation or at its deadline.

        An agent that is stopped then stops its remote work too. Otherwise another execution continues that work.
        """
        return await self._execution.has_ended()

    @property
    def deadline(self) -> float | None:
        """The task's deadline in seconds since the epoch."""
        return None if self._execution.deadline_at is None else self._execution.deadline_at / 1000

    # --- output ---------------------------------------------------------------------------------------------------

    async def status(self, text: Any = None, *, metadata: dict[str, Any] | None = None) -> None:
        """Report progress."""
        await self._execution.status(TaskState.WORKING, self._message(text), metadata)

    async def artifact(
        self,
        content: Any,
        *,
        id: str | None = None,
        name: str | None = None,
        description: str | None = None,
        metadata: dict[str, Any] | None = None,
        append: bool = False,
        last_chunk: bool = True,
    ) -> None:
        """Create an artifact, or replace or extend the one with this `id`. An `Artifact` is sent unchanged.

        Without `id`, each call of a turn creates another artifact. With `append` it extends the latest of them.
        """
        parts = (Part(text=content),) if type(content) is str else parts_of(content)  # quick for every streamed chunk
        if not parts:
            return
        if not isinstance(whole := content, Artifact):
            id = id or self._artifact_ids.choose(name or "result", append=append)
            whole = Artifact(artifact_id=id, parts=parts, name=name, description=description, metadata=metadata)
        self._artifact_ids.used.add(whole.artifact_id)
        await self._execution.artifact(whole, append=append, last_chunk=last_chunk)

    async def finish(self, id: str) -> None:
        """Mark an artifact as complete whose chunks were sent with `last_chunk=False`, if it has any."""
        await self._execution.finish(id)

    async def complete(self, message: Any = None) -> None:
        """Complete the task with a last message. Nothing can be written afterwards."""
        await self.enter(TaskState.COMPLETED, message)

    async def enter(self, state: TaskState, message: Any = None, *, metadata: dict[str, Any] | None = None) -> None:
        """Set the state of the task, for agents that keep their own state.

        Nothing can be written after a final state. Interrupted states do not wait for an answer: use `ask` and
        `require_auth` for that.
        """
        await self._execution.status(state, self._message(message), metadata)

    async def say(self, content: Any) -> None:
        """Append an agent message to the history without notifying subscribers."""
        if (message := self._message(content)) is not None:
            await self._execution.say(message)

    async def usage(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: float = 0.0,
        model: str | None = None,
        key: str | None = None,
    ) -> None:
        """Count the usage of a model call. Callers see the sum in the metadata of their task.

        With a `key` the usage counts once for all executions of a turn. Without one every call counts. Usage of child
        tasks counts here as well. Raises OverBudget if the budget is exceeded: the task and its child tasks have then
        ended.
        """
        use = TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens, cost=cost)
        name = self._key(f"usage:{key}") if key is not None else f"usage:{self._execution.message_id()}"
        over = await self._execution.charge_usage(use, model, name)
        if over is not None:
            raise OverBudget(over)

    async def flush(self) -> None:
        """Wait until all output so far is committed. Agents with their own checkpoints call it before each."""
        await self._execution.flush()

    # --- waiting --------------------------------------------------------------------------------------------------

    async def ask(
        self, question: Any, *, key: str | None = None, metadata: dict[str, Any] | None = None
    ) -> IncomingMessage:
        """Ask the caller and return the answer.

        The task is suspended meanwhile and holds no resources. The answer restarts the agent, and this call then
        returns it at once. Calls are identified by their order or by `key`. A signal under the key, as for `wait`,
        answers as well.
        """
        return await self._interrupt(INPUT_REQUIRED, question, key, metadata)

    async def require_auth(
        self, text: Any, *, key: str | None = None, metadata: dict[str, Any] | None = None
    ) -> IncomingMessage:
        """Ask the caller for credentials. Otherwise like `ask`: with a `key`, a signal can deliver them out of band."""
        return await self._interrupt(TaskState.AUTH_REQUIRED, text, key, metadata)

    async def approve(self, question: Any, *, key: str | None = None) -> Approval:
        """Ask a person for a yes or no: `{"approved": true, "comment": "..."}` as data, or a word."""
        return Approval.of(await self._interrupt(TaskState.INPUT_REQUIRED, question, key, {APPROVAL: True}))

    async def sleep(self, seconds: float) -> None:
        """Sleep. Longer sleeps than `IN_MEMORY_SECONDS` suspend the task."""
        self._sleeps += 1
        due = await self._once(f"sleep:{self._sleeps}", lambda: self._execution.now_ms() + round(seconds * 1000))
        while (left := due - self._execution.now_ms()) > IN_MEMORY_SECONDS * 1000:
            await self._execution.suspend(delay_ms=left)  # which returns if a message arrived meanwhile
        if left > 0:
            await asyncio.sleep(left / 1000)

    async def wait(self, key: str, timeout: float | None = None) -> Any:  # noqa: ASYNC109  # it outlives the process
        """Wait for a signal under `key` (from a webhook or another system) and return its value.

        The task is suspended meanwhile. Raises TimeoutError if no signal arrives in time.
        """
        name = wait_key(key)
        until = None
        if timeout is not None:
            until = await self._once(f"until:{key}", lambda: self._execution.now_ms() + round(timeout * 1000))
        while (found := self._execution.recall(name)) is None:
            left = None if until is None else until - self._execution.now_ms()
            if left is not None and left <= 0:
                raise TimeoutError(f"Nothing arrived for {key!r} in time")
            await self._execution.suspend(delay_ms=left, awaited=name)
        return msgspec.json.decode(found)

    async def pause(self, seconds: float | None = None, *, key: str | None = None) -> None:
        """Suspend the task. It restarts after `seconds`, or as soon as anything happens to it.

        Unlike `wait` it stores nothing, so it suits agents that track for themselves which events they await. With a
        `key`, a signal under it counts as well. Returns if something has already happened.
        """
        delay_ms = None if seconds is None else max(0, round(seconds * 1000))
        await self._execution.suspend(delay_ms=delay_ms, awaited=None if key is None else wait_key(key))

    def handed_in(self, key: str) -> Any:
        """Return the value of the signal under `key`, or None."""
        found = self._execution.recall(wait_key(key))
        return None if found is None else msgspec.json.decode(found)

    async def keep(self, key: str, value: str) -> str:
        """Store a value under `key` for all turns of the task. Return the first value stored there."""
        if (found := self.kept(key)) is not None:
            return found
        await self._execution.remember(f"kept:{key}", msgspec.json.encode(value).decode())
        return value

    def kept(self, key: str) -> str | None:
        """Return the value stored under `key`, or None."""
        found = self._execution.recall(f"kept:{key}")
        return None if found is None else msgspec.json.decode(found, type=str)

    async def recall_context(self, key: str) -> str | None:
        """Return the value that this agent stored under `key` in any task of the caller's conversation."""
        return await self._history.recall(key)

    async def remember_context(self, key: str, value: str | Callable[[str | None], str]) -> None:
        """Store a value under `key` for the caller's conversation, replacing the previous one.

        Later tasks of the same context can read it until the last of them is purged. If two executions write at the
        same time, the later value counts. Pass a function to compute the value from the stored one. It is called again
        after a conflict or an uncertain commit, so it must be able to detect its own earlier result.
        """
        await self._history.remember(key, value)

    async def sla(self, seconds: float, reason: str, *, key: str | None = None) -> None:
        """Set the task to `unknown` with this reason if it has not ended in time.

        The time starts with the first call and includes suspension: a restarted execution does not reset it. Another
        call, identified by its order or by `key`, replaces it. The latest counts.
        """
        self._time_limits += 1
        name = self._key(f"sla:{key or self._time_limits}")
        if self._execution.recall(name) is None:
            await self._execution.limit_time(name, seconds, reason)

    # --- steps ----------------------------------------------------------------------------------------------------

    @overload
    async def step(self, key: str, do: Callable[..., Awaitable[T]], *args: Any) -> T: ...
    @overload
    async def step(self, key: str, do: Callable[..., T], *args: Any) -> T: ...
    async def step(self, key: str, do: Callable[..., Any], *args: Any) -> Any:
        """Run a function once and commit its result under `key`. Later executions return the stored result.

        The value must be JSON-like. A crash before the commit repeats the step, so make its side effects idempotent.
        """
        name = self._key(f"step:{key}")
        async with self._step_locks.setdefault(name, asyncio.Lock()):
            found = self._execution.recall(name)
            if found is None:
                await self._execution.flush()
                tracer = tracing.tracer
                with UNTRACED if tracer is None else tracer.around(StepSpan(key=key, task_id=self.task_id)):
                    value = await _called(do, *args)
                found = msgspec.json.encode(value).decode()
                await self._execution.flush()  # output of the step: a completed step does not write it again
                await self._execution.remember(name, found)
        return msgspec.json.decode(found)

    async def call(self, agent: str, content: Any, *, key: str | None = None) -> IncomingMessage:
        """Run another agent, local or remote, as a child task, and return its answer.

        A restarted execution gets the same answer, or the same child if it has not answered. Questions of the child go
        to this task's caller, and the answers to the child. Like `ask`, that suspends the task. Raises CallFailed if
        the child does not complete. A child ends with this task at the latest.
        """
        self._calls += 1
        name, child_key = (self._key(f"{kind}:{key or self._calls}") for kind in ("call", "child"))
        found = self._execution.recall(name)
        if found is None:
            metadata = budget_metadata(self._execution.budget_left)
            message_id = f"{self.task_id}/{name}"
            message = Message(message_id=message_id, role=Role.USER, parts=parts_of(content), metadata=metadata)
            task = await ChildTasks(self._execution).run_to_end(agent, message, child_key)
            await self._execution.recount_usage()
            answer = _answer(task)
            found = msgspec.json.encode(answer).decode()
            await self._execution.remember(name, found)
        return IncomingMessage(msgspec.json.decode(found, type=Message))

    async def spawn(
        self, agent: str, content: Any, *, key: str, hold: bool = False, metadata: dict[str, Any] | None = None
    ) -> str:
        """Create a task of another agent for the same caller in the same conversation. Return its ID.

        The task is not a child: it outlives this task and uses none of its budget. With `hold` it starts only when it
        is executed, here (`spawning.execute`) or by its caller. A restarted execution gets the task that it created
        under `key`.
        """
        name = self._key(f"spawn:{key}")
        message = Message(
            message_id=f"{self.task_id}/{name}",
            role=Role.USER,
            parts=parts_of(content) or (Part(text=""),),
            context_id=self.context_id,
        )
        return await self.spawning.spawn(agent, message, name, hold=hold, metadata=metadata or {})

    @cached_property
    def spawning(self) -> SpawnedTasks:
        """Access to the tasks of this conversation and to the agents available for new ones."""
        return SpawnedTasks(self._execution)

    @cached_property
    def journal(self) -> Journal:
        """The journal, for an agent with many concurrent steps and child tasks."""
        return Journal(self._execution)

    @cached_property
    def _history(self) -> ConversationHistory:
        return ConversationHistory(self._execution)

    # --- internals ------------------------------------------------------------------------------------------------

    def _key(self, key: str) -> str:
        return self._turn + key

    async def _once(self, key: str, make: Callable[[], int]) -> int:
        found = self._execution.recall(self._key(key))
        if found is None:
            found = str(make())
            await self._execution.remember(self._key(key), found)
        return int(found)

    async def _interrupt(
        self, state: TaskState, question: Any, key: str | None, metadata: dict[str, Any] | None
    ) -> IncomingMessage:
        self._questions += 1
        name = f"{self._turn}ask:{key or self._questions}"
        awaited = None if key is None else wait_key(key)
        while (answer := self._execution.answered(name)) is None:
            if awaited is not None and (value := self._execution.recall(awaited)) is not None:
                return await self._signaled_answer(msgspec.json.decode(value), state)
            if not await self._execution.take_answer(name):
                await self._execution.suspend(state, self._message(question, metadata), awaited=awaited)
        return IncomingMessage(answer)

    async def _signaled_answer(self, value: Any, state: TaskState) -> IncomingMessage:
        """Return an answer that a signal delivered. The task is set to working again."""
        if self.task.status.state is state:
            await self._execution.status(TaskState.WORKING, None, None)
        parts = parts_of(value) or (Part(text=""),)
        return IncomingMessage(Message(message_id=self._execution.message_id(), role=Role.USER, parts=parts))

    def _message(self, content: Any, metadata: dict[str, Any] | None = None) -> Message | None:
        if isinstance(content, Message):
            return content
        parts: Sequence[Part] = parts_of(content)
        if not parts:
            return None
        return Message(
            message_id=self._execution.message_id(),
            role=Role.AGENT,
            parts=tuple(parts),
            task_id=self.task_id,
            context_id=self.context_id,
            metadata=metadata,
        )


def wait_key(key: str) -> str:
    """Return the step key of a signal."""
    return f"wait:{key}"


async def _called(do: Callable[..., Any], *args: Any) -> Any:
    if inspect.iscoroutinefunction(do):
        return await do(*args)
    value = await in_thread(do, *args) if _may_block(do) else do(*args)
    if inspect.isawaitable(value):
        return await value
    return value


def _may_block(do: Callable[..., object]) -> bool:
    """Whether a callable must run in a thread. A lambda is quick, and usually passes arguments to a coroutine."""
    return getattr(do, "__name__", "") != "<lambda>"


def _answer(task: Task) -> Message:
    """Return the answer of a completed child task. Raises CallFailed for any other state."""
    if task.status.state is not TaskState.COMPLETED:
        raise CallFailed(task)
    parts = tuple(part for artifact in task.artifacts for part in artifact.parts)
    said = task.status.message.parts if task.status.message else ()
    return Message(message_id=task.id, role=Role.AGENT, parts=parts or said or (Part(text=""),))
