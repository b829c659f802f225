"""Child tasks of an execution: calls that it waits for, and spawned tasks.

The questions of a called task are passed on to the caller of its parent. A spawned task outlives the execution.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import Caller
from accord.engine.messages import parts_of
from accord.errors import TaskNotFound
from accord.model import AgentSkill, Message, Part, Role, SendRequest, Task, TaskState
from accord.model.metadata_keys import HOLD
from accord.protocol import lifecycle
from accord.storage.commands.tasks import Fenced, StoredTask

T = TypeVar("T")

CHILD_TASK = "childTask"
"""Metadata key of a question that was passed on: the ID of the child task that asks it."""


class CallingExecution(Protocol):
    """The execution that calls child tasks."""

    is_cancelled: bool
    on_lost: Callable[[], object]

    @property
    def task(self) -> Task:
        """The current task."""

    def recall(self, key: str) -> str | None:
        """Return the result of a step."""

    async def flush(self) -> None:
        """Wait until all output is committed."""

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Call a function, and retry it while the database is unavailable."""

    async def status(self, state: TaskState, message: Message | None, metadata: dict[str, Any] | None) -> None:
        """Append a status."""

    async def park(self, state: TaskState | None, message: Message | None, *, child: str | None) -> None:
        """Suspend the task. Returns if the awaited event has already happened."""


Send = Callable[[str, Message, str], Awaitable[str]]
"""Sends a message to an agent and returns the task ID. A new task is stored under a step of the execution."""

Settled = Callable[[str], Awaitable[Task]]
"""Waits until a task has ended or asks."""

Look = Callable[[str], Awaitable[tuple[object, Task] | None]]
"""Returns the current task, or None."""


class ChildCalls:
    """The calls of one execution."""

    def __init__(self, run: CallingExecution, send: Send, settled: Settled, look: Look) -> None:
        """Call for `run`."""
        self._run = run
        self._reach, self._settled, self._look = send, settled, look

    async def ended(self, agent: str, asked: Message, noted: str) -> Task:
        """Run an agent once as a child task and return the ended task.

        Questions of the child go to the caller of this execution, and the answers to the child.
        """
        run = self._run
        known = run.recall(noted)
        child = await self._send(agent, asked, noted) if known is None else msgspec.json.decode(known, type=str)
        while True:
            await self._withdraw(child)
            task = await run.patiently(lambda: self._settled(child))
            if task.status.state not in lifecycle.INTERRUPTED:
                return task
            question = self._passed_on(task)
            answer = answer_to(question, run.task.history)
            if answer is not None:
                reply = replace(answer, message_id=f"{question.message_id}/answer", task_id=child, context_id=None)
                await self._send(agent, reply, noted)
            elif self._asks(question):
                await run.park(None, None, child=child)
            else:
                await run.park(task.status.state, question, child=child)

    async def _send(self, agent: str, message: Message, noted: str) -> str:
        run = self._run
        await run.flush()
        try:
            return await run.patiently(lambda: self._reach(agent, message, noted))
        except Fenced:
            run.is_cancelled = True
            run.on_lost()  # an agent that catches every exception must not continue
            raise

    async def _withdraw(self, child: str) -> None:
        """Set the task to working if it asks a question that the child no longer asks.

        Another client may have answered the child or ended it.
        """
        asked = self._run.task.status
        if asked.state not in lifecycle.INTERRUPTED or asked.message is None or child_of(asked.message) != child:
            return
        found = await self._run.patiently(lambda: self._look(child))
        if found is None:
            raise TaskNotFound(metadata={"taskId": child})
        now = found[1]
        if now.status.state not in lifecycle.INTERRUPTED or not self._asks(self._passed_on(now)):
            await self._run.status(TaskState.WORKING, None, None)

    def _asks(self, question: Message) -> bool:
        """Whether the execution's task currently asks a question."""
        status = self._run.task.status
        asked = status.message.message_id if status.message else None
        return status.state in lifecycle.INTERRUPTED and asked == question.message_id

    def _passed_on(self, child: Task) -> Message:
        """Return a child's question as this execution asks it.

        Its message ID is unique among all questions of the child, even if the child repeats an ID.
        """
        waits_for = "credentials" if child.status.state is TaskState.AUTH_REQUIRED else "input"
        nothing = (Part(text=f"Task {child.id} waits for {waits_for}"),)
        asked = child.status.message or Message(message_id="", role=Role.AGENT, parts=nothing)
        turn = sum(said.role is Role.USER for said in child.history)
        return replace(
            asked,
            message_id=f"{child.id}/{turn}/{asked.message_id}",
            task_id=self._run.task.id,
            context_id=self._run.task.context_id,
            metadata={**(asked.metadata or {}), CHILD_TASK: child.id},
        )


def child_of(question: Message) -> str | None:
    """Return the child task whose question a message passes on, or None."""
    found = (question.metadata or {}).get(CHILD_TASK)
    return found if question.role is Role.AGENT and isinstance(found, str) else None


def answer_to(question: Message, history: Sequence[Message]) -> Message | None:
    """Return the caller's next message after a question, or None."""
    said = pairwise(history)
    found = (new for before, new in said if before.message_id == question.message_id and new.role is Role.USER)
    return next(found, None)


class ServedAgent(Struct, frozen=True, kw_only=True):
    """The public description of an agent that tasks can be created for."""

    name: str
    description: str = ""
    skills: tuple[AgentSkill, ...] = ()


class SpawningExecution(Protocol):
    """The execution that spawns tasks."""

    caller: Caller
    is_cancelled: bool
    on_lost: Callable[[], object]

    @property
    def task(self) -> Task:
        """The current task."""

    def recall(self, key: str) -> str | None:
        """Return the result of a step."""

    async def flush(self) -> None:
        """Wait until all output is committed."""

    async def patiently(self, do: Callable[[], Awaitable[T]]) -> T:
        """Call a function, and retry it while the database is unavailable."""


class SpawnPort(Protocol):
    """The node's functions for spawned tasks."""

    def known(self) -> Mapping[str, ServedAgent]:
        """Return the agents that callers can reach, by name."""

    async def spawn(self, agent: str, request: SendRequest, step: str) -> str:
        """Create a task, stored under a step, and return its ID."""

    async def read(self, task_id: str) -> tuple[StoredTask, Task] | None:
        """Return the current task, or None."""

    async def execute(self, agent: str, task_id: str) -> None:
        """Start a held task."""

    async def cancel(self, agent: str, task_id: str) -> None:
        """Cancel a task. A task that has ended is left unchanged."""

    async def conclude(self, agent: str, task_id: str, state: TaskState, result: Message | None) -> None:
        """End a held task that was completed outside the server."""


class Spawning:
    """The tasks of a conversation that its executions spawn."""

    def __init__(self, run: SpawningExecution, means: SpawnPort) -> None:
        """Spawn tasks for `run`."""
        self._run = run
        self._means = means

    @property
    def agents(self) -> Mapping[str, ServedAgent]:
        """The agents of this server by name. Members of other agents are left out."""
        return self._means.known()

    async def spawn(self, agent: str, asked: Message, noted: str, *, hold: bool, metadata: dict[str, Any]) -> str:
        """Create a task once and return its ID."""
        run = self._run
        if (known := run.recall(noted)) is not None:
            return msgspec.json.decode(known, type=str)
        await run.flush()
        request = SendRequest(message=asked, metadata={**metadata, HOLD: True} if hold else metadata or None)
        try:
            return await run.patiently(lambda: self._means.spawn(agent, request, noted))
        except Fenced:
            run.is_cancelled = True
            run.on_lost()  # an agent that catches every exception must not continue
            raise

    async def read(self, task_id: str) -> Task:
        """Return a task of this conversation. Raises TaskNotFound for any other task."""
        return (await self._found(task_id))[1]

    async def execute(self, task_id: str) -> Task:
        """Start a held task of this conversation and return it. A task that has started is returned unchanged."""
        stored, _ = await self._found(task_id)
        await self._run.patiently(lambda: self._means.execute(stored.agent, task_id))
        return await self.read(task_id)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task of this conversation, unless it has ended, and return it."""
        stored, _ = await self._found(task_id)
        await self._run.patiently(lambda: self._means.cancel(stored.agent, task_id))
        return await self.read(task_id)

    async def conclude(self, task_id: str, state: TaskState, result: Any = None) -> Task:
        """End a held task of this conversation that was completed outside the server, and return it."""
        stored, task = await self._found(task_id)
        said = Message(
            message_id=f"{task_id}/result",
            role=Role.AGENT,
            parts=parts_of(result) or (Part(text=""),),
            task_id=task_id,
            context_id=task.context_id,
        )
        told = None if result is None else said
        await self._run.patiently(lambda: self._means.conclude(stored.agent, task_id, state, told))
        return await self.read(task_id)

    async def _found(self, task_id: str) -> tuple[StoredTask, Task]:
        run = self._run
        found = await run.patiently(lambda: self._means.read(task_id))
        if found is None or found[0].owner != run.caller.owner or found[1].context_id != run.task.context_id:
            raise TaskNotFound(metadata={"taskId": task_id})
        return found
