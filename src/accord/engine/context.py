"""The context of an execution: everything that an agent sees and may do.

Every method writes through the execution to the event log or the steps. An execution that waits ends with `Suspended`
and restarts later; steps that have a result are skipped.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

import msgspec

from accord.a2a import Caller
from accord.engine import tracing
from accord.engine.child_tasks import Spawning
from accord.engine.execution_port import ExecutionPort
from accord.engine.journal import Journal
from accord.engine.messages import Approval, ArtifactIds, IncomingMessage, parts_of, text_of
from accord.engine.threads import in_thread
from accord.engine.tracing import UNTRACED, StepSpan
from accord.model import Artifact, Message, Part, Role, Task, TaskState
from accord.protocol.budgets import TokenUsage, budget_metadata

T = TypeVar("T")

IN_MEMORY_SECONDS = 2.0
"""A shorter sleep is slept; a longer one parks the run."""

INPUT_REQUIRED = TaskState.INPUT_REQUIRED
"""Python 3.11 takes long to look a member up, and all questions of a long talk are asked again with every turn."""

APPROVAL = "approval"
"""Metadata key of a question that wants yes or no."""

CONVERSATION_TASKS = 50
"""Of a conversation: more than most have, and as much as most models take."""


class Suspended(BaseException):
    """The execution is suspended. Not an `Exception`: an agent that catches everything must not catch this."""


class Rejected(Exception):
    """The agent will not do this; the caller sees the text."""


class Failed(Exception):
    """The agent could not do this; the caller sees the text, unlike that of any other exception."""


class OverBudget(Failed):
    """The task has used more than it may, and has ended."""


class CallFailed(Exception):
    """An agent that was called did not complete its task."""

    def __init__(self, task: Task) -> None:
        """Keep the task, whose status says why."""
        said = text_of(task.status.message.parts) if task.status.message else ""
        super().__init__(f"The task is {task.status.state.name}{': ' + said if said else ''}")
        self.task = task


class Context:
    """One turn of one task, as its agent sees it."""

    def __init__(self, run: ExecutionPort) -> None:
        """Write through `run`."""
        self._run = run
        self._asked = self._slept = self._called = self._limited = 0
        self._doing: dict[str, asyncio.Lock] = {}
        self._said = IncomingMessage(run.message)
        self._turn = f"{run.message.message_id}/"
        self._place: int | None = None
        self._artifact_ids = ArtifactIds()

    # --- what is asked --------------------------------------------------------------------------------------------

    @property
    def message(self) -> Message:
        """The message that began this turn."""
        return self._said.message

    @property
    def text(self) -> str:
        """Its text."""
        return self._said.text

    @property
    def data(self) -> Any:
        """The value of its first data part, or None."""
        return self._said.data

    @property
    def files(self) -> tuple[Part, ...]:
        """Its parts that carry or link to a file."""
        return self._said.files

    @property
    def task(self) -> Task:
        """The task as it is now."""
        return self._run.task

    @property
    def history(self) -> tuple[Message, ...]:
        """Everything said in this task so far."""
        return self._run.task.history

    async def conversation(self, limit: int = CONVERSATION_TASKS) -> tuple[Task, ...]:
        """Return the tasks that ended earlier in this conversation, oldest first, the latest of them if they are many.

        They are the same caller's, with this agent: what others said under the same context id is theirs.
        """
        return await self._run.conversation.earlier(limit)

    @property
    def place(self) -> int:
        """The place of this turn's message among them, from 1: the same in every run of the turn."""
        if self._place is None:  # by hand: `cached_property` takes a lock, and every run looks here
            self._place = self._run.place
        return self._place

    @cached_property
    def task_id(self) -> str:
        """The task's id."""
        return self._run.task.id

    @cached_property
    def context_id(self) -> str:
        """The conversation that the task belongs to."""
        return self._run.task.context_id or ""

    @property
    def tenant(self) -> str:
        """The tenant."""
        return self._run.tenant

    @property
    def caller(self) -> Caller:
        """Who asked."""
        return self._run.caller

    @property
    def is_child(self) -> bool:
        """Whether another run here has called, for the same caller."""
        return self._run.is_child

    @property
    def attempt(self) -> int:
        """1, or more if an earlier run was lost."""
        return self._run.attempt

    @property
    def epoch(self) -> int:
        """The number of this run's claim on its task: a store beside the log refuses what older claims write."""
        return self._run.epoch

    @property
    def cancelled(self) -> bool:
        """Whether the run is to stop. Coroutines are cancelled by themselves; code in a thread should look here."""
        return self._run.is_cancelled

    async def has_ended(self) -> bool:
        """Whether the task has ended, for whoever is stopped and holds work elsewhere.

        It is then to be stopped too: the task was cancelled, or its time is over. Otherwise another run goes on with
        it.
        """
        return await self._run.has_ended()

    @property
    def deadline(self) -> float | None:
        """When the task must be done, in seconds since the epoch."""
        return None if self._run.deadline_at is None else self._run.deadline_at / 1000

    # --- what is said ---------------------------------------------------------------------------------------------

    async def status(self, text: Any = None, *, metadata: dict[str, Any] | None = None) -> None:
        """Report progress."""
        await self._run.status(TaskState.WORKING, self._message(text), metadata)

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
        """Create an artifact, replace or extend the one with this `id`; an `Artifact` is taken as it is.

        Without `id` each call of a turn creates another one, and with `append` extends the last of these.
        """
        parts = parts_of(content)
        if not parts:
            return
        if not isinstance(whole := content, Artifact):
            id = id or self._artifact_ids.choose(name or "result", append=append)
            whole = Artifact(artifact_id=id, parts=parts, name=name, description=description, metadata=metadata)
        self._artifact_ids.used.add(whole.artifact_id)
        await self._run.artifact(whole, append=append, last_chunk=last_chunk)

    async def finish(self, id: str) -> None:
        """Say that an artifact is whole whose chunks were given with `last_chunk=False`, if there were any."""
        await self._run.finish(id)

    async def complete(self, message: Any = None) -> None:
        """End the task well, with a last word; nothing can be said after it."""
        await self.enter(TaskState.COMPLETED, message)

    async def enter(self, state: TaskState, message: Any = None, *, metadata: dict[str, Any] | None = None) -> None:
        """Say that the task is in a state, for agents that keep their own account of it.

        Nothing can be said after one that ends it. One in which the caller is asked does not wait for an answer: `ask`
        and `require_auth` do.
        """
        await self._run.status(state, self._message(message), metadata)

    async def say(self, content: Any) -> None:
        """Add a message of the agent to the history; those who follow the task are not told."""
        if (message := self._message(content)) is not None:
            await self._run.say(message)

    async def usage(
        self,
        *,
        input_tokens: int = 0,
        output_tokens: int = 0,
        cost: float = 0.0,
        model: str | None = None,
        key: str | None = None,
    ) -> None:
        """Count what a call of a model has used; callers see the sum in the metadata of their task.

        With a `key` it counts once, however often a turn is run; without one every call counts. What the tasks that
        this one calls use counts here as well. Raises OverBudget if that is more than the task may use: it has failed
        then, and all that it has called has ended with it.
        """
        use = TokenUsage(input_tokens=input_tokens, output_tokens=output_tokens, cost=cost)
        name = self._key(f"usage:{key}") if key is not None else f"usage:{self._run.message_id()}"
        over = await self._run.spending.count(use, model, name)
        if over is not None:
            raise OverBudget(over)

    async def flush(self) -> None:
        """Wait until everything said so far is committed; whoever keeps checkpoints of their own does so before one."""
        await self._run.flush()

    # --- what is waited for ---------------------------------------------------------------------------------------

    async def ask(
        self, question: Any, *, key: str | None = None, metadata: dict[str, Any] | None = None
    ) -> IncomingMessage:
        """Ask the caller, and return the answer.

        Nothing is held meanwhile: the run ends, and when the answer is there the agent is run again from its start.
        This call then returns the answer at once. Calls are told apart by their order, or by `key`. What is handed in
        under a key from elsewhere, as for `wait`, answers as well.
        """
        return await self._interrupt(INPUT_REQUIRED, question, key, metadata)

    async def require_auth(
        self, text: Any, *, key: str | None = None, metadata: dict[str, Any] | None = None
    ) -> IncomingMessage:
        """Ask the caller for credentials; otherwise like `ask`. With a `key` they may be handed in out of band."""
        return await self._interrupt(TaskState.AUTH_REQUIRED, text, key, metadata)

    async def approve(self, question: Any, *, key: str | None = None) -> Approval:
        """Ask a person for a yes or no: `{"approved": true, "comment": "..."}` as data, or a word."""
        return Approval.of(await self._interrupt(TaskState.INPUT_REQUIRED, question, key, {APPROVAL: True}))

    async def sleep(self, seconds: float) -> None:
        """Wait; for longer than a moment, without holding anything."""
        self._slept += 1
        due = await self._once(f"sleep:{self._slept}", lambda: self._run.now_ms() + round(seconds * 1000))
        while (left := due - self._run.now_ms()) > IN_MEMORY_SECONDS * 1000:
            await self._run.park(None, None, delay_ms=left)  # which returns if somebody said something meanwhile
        if left > 0:
            await asyncio.sleep(left / 1000)

    async def wait(self, key: str, timeout: float | None = None) -> Any:  # noqa: ASYNC109  # it outlives the process
        """Wait for what somebody hands in under `key` (a webhook, another system), without holding anything.

        Raises TimeoutError if it does not come in time.
        """
        name = wait_key(key)
        until = None
        if timeout is not None:
            until = await self._once(f"until:{key}", lambda: self._run.now_ms() + round(timeout * 1000))
        while (found := self._run.recall(name)) is None:
            left = None if until is None else until - self._run.now_ms()
            if left is not None and left <= 0:
                raise TimeoutError(f"Nothing arrived for {key!r} in time")
            await self._run.park(None, None, delay_ms=left, awaited=name)
        return msgspec.json.decode(found)

    async def pause(self, seconds: float | None = None, *, key: str | None = None) -> None:
        """End this run; the agent is run again from its start after a while, or when anything happens to the task.

        Unlike `wait` it remembers nothing, so it suits an agent that keeps its own account of what it waits for. With a
        `key`, what is handed in under it counts as well. Returns if something has happened already.
        """
        delay_ms = None if seconds is None else max(0, round(seconds * 1000))
        await self._run.park(None, None, delay_ms=delay_ms, awaited=None if key is None else wait_key(key))

    def handed_in(self, key: str) -> Any:
        """Return what was handed in under `key`, or None."""
        found = self._run.recall(wait_key(key))
        return None if found is None else msgspec.json.decode(found)

    async def keep(self, key: str, value: str) -> str:
        """Keep a value under `key` for the whole task, whatever its turn, and return the first that was kept."""
        if (found := self.kept(key)) is not None:
            return found
        await self._run.remember(f"kept:{key}", msgspec.json.encode(value).decode())
        return value

    def kept(self, key: str) -> str | None:
        """Return what is kept under `key`."""
        found = self._run.recall(f"kept:{key}")
        return None if found is None else msgspec.json.decode(found, type=str)

    async def recall_context(self, key: str) -> str | None:
        """Return what this agent keeps of the caller's conversation under `key`, whichever task it was kept by."""
        return await self._run.conversation.recall(key)

    async def remember_context(self, key: str, value: str | Callable[[str | None], str]) -> None:
        """Keep a value of the caller's conversation under `key`, in place of the one before.

        Later tasks of the same context find it, until the last of them is purged. Of two that run at the same time the
        later to write counts; a function makes the value of what is kept by then, so both do. It is asked again if
        another was faster, or if nobody knows whether what it made was committed: it must be able to tell.
        """
        await self._run.conversation.remember(key, value)

    async def sla(self, seconds: float, reason: str, *, key: str | None = None) -> None:
        """Let the task become `unknown`, with this reason, if it has not ended after a while.

        The time begins when a run first comes here and goes on while the task waits: a run that comes here again leaves
        it as it is. Another call, told apart by its order or by `key`, sets it anew: the latest counts.
        """
        self._limited += 1
        name = self._key(f"sla:{key or self._limited}")
        if self._run.recall(name) is None:
            await self._run.limit(name, seconds, reason)

    # --- what is done once ----------------------------------------------------------------------------------------

    @overload
    async def step(self, key: str, do: Callable[..., Awaitable[T]], *args: Any) -> T: ...
    @overload
    async def step(self, key: str, do: Callable[..., T], *args: Any) -> T: ...
    async def step(self, key: str, do: Callable[..., Any], *args: Any) -> Any:
        """Do something once: what it gave is committed under `key`, and a run that comes here again gets just that.

        The value must be JSON-like. A crash between doing and committing repeats the step, so it should be idempotent
        towards others.
        """
        name = self._key(f"step:{key}")
        async with self._doing.setdefault(name, asyncio.Lock()):
            found = self._run.recall(name)
            if found is None:
                await self._run.flush()
                tracer = tracing.tracer
                with UNTRACED if tracer is None else tracer.around(StepSpan(key=key, task_id=self.task_id)):
                    value = await _called(do, *args)
                found = msgspec.json.encode(value).decode()
                await self._run.flush()  # what the step said: a step that is done does not say it again
                await self._run.remember(name, found)
        return msgspec.json.decode(found)

    async def call(self, agent: str, content: Any, *, key: str | None = None) -> IncomingMessage:
        """Run another agent, local or remote, as a child task, and return its answer.

        A run that comes here again gets the same answer, or finds the same child if there is none yet. What the child
        asks is asked of this task's caller and the answer passed on; like `ask`, that holds nothing meanwhile. Raises
        CallFailed if the child does not complete. A child ends at the latest when this task does, however that is.
        """
        self._called += 1
        name, noted = (self._key(f"{kind}:{key or self._called}") for kind in ("call", "child"))
        found = self._run.recall(name)
        if found is None:
            metadata = budget_metadata(self._run.spending.left)
            message_id = f"{self.task_id}/{name}"
            asked = Message(message_id=message_id, role=Role.USER, parts=parts_of(content), metadata=metadata)
            ended = await self._run.calls.ended(agent, asked, noted)
            await self._run.spending.recount()
            answer = _answer(ended)
            found = msgspec.json.encode(answer).decode()
            await self._run.remember(name, found)
        return IncomingMessage(msgspec.json.decode(found, type=Message))

    async def spawn(
        self, agent: str, content: Any, *, key: str, hold: bool = False, metadata: dict[str, Any] | None = None
    ) -> str:
        """Make a task of another agent for the same caller, in the same conversation, and return its id.

        It is no child: it goes on by itself, outlives this task and uses nothing of its budget. With `hold` nobody
        works on it until it is executed, here (`spawning.execute`) or by its caller. A run that comes here again gets
        the task that it made under `key`.
        """
        name = self._key(f"spawn:{key}")
        asked = Message(
            message_id=f"{self.task_id}/{name}",
            role=Role.USER,
            parts=parts_of(content) or (Part(text=""),),
            context_id=self.context_id,
        )
        return await self._run.spawning.spawn(agent, asked, name, hold=hold, metadata=metadata or {})

    @cached_property
    def spawning(self) -> Spawning:
        """The tasks of this conversation, to be read, executed and ended, and the agents that there are for more."""
        return self._run.spawning

    @cached_property
    def journal(self) -> Journal:
        """For an agent that does many things at once: what it writes down of them, begins and waits for together."""
        return self._run.journal

    # --- inside ---------------------------------------------------------------------------------------------------

    def _key(self, key: str) -> str:
        return self._turn + key

    async def _once(self, key: str, make: Callable[[], int]) -> int:
        found = self._run.recall(self._key(key))
        if found is None:
            found = str(make())
            await self._run.remember(self._key(key), found)
        return int(found)

    async def _interrupt(
        self, state: TaskState, question: Any, key: str | None, metadata: dict[str, Any] | None
    ) -> IncomingMessage:
        self._asked += 1
        name = f"{self._turn}ask:{key or self._asked}"
        awaited = None if key is None else wait_key(key)
        while (answer := self._run.answered(name)) is None:
            if awaited is not None and (value := self._run.recall(awaited)) is not None:
                return await self._from_elsewhere(msgspec.json.decode(value), state)
            if not await self._run.take(name):
                await self._run.park(state, self._message(question, metadata), awaited=awaited)
        return IncomingMessage(answer)

    async def _from_elsewhere(self, value: Any, asked: TaskState) -> IncomingMessage:
        """Return what somebody else than the caller answered; the task works again."""
        if self.task.status.state is asked:
            await self._run.status(TaskState.WORKING, None, None)
        parts = parts_of(value) or (Part(text=""),)
        return IncomingMessage(Message(message_id=self._run.message_id(), role=Role.USER, parts=parts))

    def _message(self, content: Any, metadata: dict[str, Any] | None = None) -> Message | None:
        if isinstance(content, Message):
            return content
        parts: Sequence[Part] = parts_of(content)
        if not parts:
            return None
        return Message(
            message_id=self._run.message_id(),
            role=Role.AGENT,
            parts=tuple(parts),
            task_id=self.task_id,
            context_id=self.context_id,
            metadata=metadata,
        )


def wait_key(key: str) -> str:
    """Return the name under which a task waits for something from outside."""
    return f"wait:{key}"


async def _called(do: Callable[..., Any], *args: Any) -> Any:
    if inspect.iscoroutinefunction(do):
        return await do(*args)
    value = await in_thread(do, *args) if _may_block(do) else do(*args)
    if inspect.isawaitable(value):
        return await value
    return value


def _may_block(do: Callable[..., object]) -> bool:
    """Whether a callable belongs into a thread; a lambda is quick, and is how a coroutine is given its arguments."""
    return getattr(do, "__name__", "") != "<lambda>"


def _answer(task: Task) -> Message:
    """Return what a child answered, or raise what became of it."""
    if task.status.state is not TaskState.COMPLETED:
        raise CallFailed(task)
    parts = tuple(part for artifact in task.artifacts for part in artifact.parts)
    said = task.status.message.parts if task.status.message else ()
    return Message(message_id=task.id, role=Role.AGENT, parts=parts or said or (Part(text=""),))
