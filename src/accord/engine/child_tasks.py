"""Child tasks of an execution: calls that it waits for, and spawned tasks.

The questions of a called task are passed on to the caller of its parent. A spawned task outlives the execution. An
execution that waits for children occupies no slot.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.engine.execution import Execution
from accord.engine.messages import CHILD_TASK, answer_to, child_of, parts_of
from accord.engine.node_port import PreparedChild, ServedAgent
from accord.engine.subscriptions import at_turn_end
from accord.errors import TaskNotCancelable, TaskNotFound
from accord.model import CancelRequest, Event, Message, Part, Role, SendRequest, Task, TaskState
from accord.model.metadata_keys import HOLD
from accord.protocol import lifecycle
from accord.protocol.extensions import route_of
from accord.storage.commands.steps import ParentExecution
from accord.storage.commands.tasks import Fenced, StoredTask

T = TypeVar("T")


class ChildCall(Struct, frozen=True, kw_only=True):
    """A call of another agent as a child task, which is stored under a key."""

    agent: str
    message: Message
    key: str
    timeout_ms: int | None = None


class ChildTasks:
    """The child tasks of one execution."""

    def __init__(self, execution: Execution) -> None:
        """Access the child tasks of `execution`."""
        self._execution = execution
        self._node = execution.node

    async def run_to_end(self, agent: str, message: Message, key: str) -> Task:
        """Run an agent once as a child task, stored under a key, and return the ended task.

        Questions of the child go to the caller of this execution, and the answers to the child.
        """
        execution = self._execution
        execution.has_called = True
        stored_id = execution.recall(key)
        child = await self.send(agent, message, key) if stored_id is None else msgspec.json.decode(stored_id, type=str)
        while True:
            await self._withdraw_question(child)
            task = await self.settled(child)
            if task.status.state not in lifecycle.INTERRUPTED:
                return task
            question = self._passed_on(task)
            answer = answer_to(question, execution.task.history)
            if answer is not None:
                reply = replace(answer, message_id=f"{question.message_id}/answer", task_id=child, context_id=None)
                await self.send(agent, reply, key)
            elif self._is_asking(question):
                await execution.suspend(child=child)
            else:
                await execution.suspend(task.status.state, question, child=child)

    async def prepare(self, call: ChildCall, places: ExitStack) -> PreparedChild:
        """Prepare a child task. Its slot is reserved until the stack exits."""
        execution, service = self._execution, self._node.service(call.agent)
        parent = _parent(execution, call.key)
        return await service.prepare_child(
            _routed(execution, call.message), call.timeout_ms, execution.caller, parent, places
        )

    async def send(self, agent: str, message: Message, key: str) -> str:
        """Send a message to an agent and return the task ID. A new task is stored under a key."""
        execution, node = self._execution, self._node
        await execution.flush()

        async def call() -> str:
            return await node.service(agent).call(
                _routed(execution, message), execution.caller, _parent(execution, key)
            )

        with node.without_slot(execution):
            return await _unless_fenced(execution, call)

    async def settled(self, task_id: str) -> Task:
        """Wait until a task has ended or asks, and return it. The wait is canceled when the execution ends."""
        return await self._execution.retry(lambda: self._settled(task_id))

    async def _settled(self, task_id: str) -> Task:
        execution, node = self._execution, self._node
        with node.without_slot(execution):
            wait = asyncio.create_task(node.settled(execution.tenant, task_id), name=f"wait {task_id}")
            execution.result.at_end(wait.cancel)
            try:
                return await wait
            except TaskNotFound:
                await node.drop_if_rewound(execution.tenant, execution.job.key)
                raise
            finally:
                execution.result.not_at_end(wait.cancel)
                wait.cancel()

    async def read(self, task_id: str) -> Task | None:
        """Return the current task, or None."""
        execution = self._execution
        found = await execution.retry(lambda: execution.task_store.read(execution.tenant, task_id))
        return None if found is None else found[1]

    async def follow(self, task_id: str) -> AsyncGenerator[Event, None]:
        """Yield all events of a task until it has ended or asks."""
        execution, node = self._execution, self._node
        with node.without_slot(execution):
            async with node.hub.follow(execution.tenant, task_id, 0) as follower:
                try:
                    async for event in follower.events(at_turn_end):
                        yield event
                except TaskNotFound:
                    await node.drop_if_rewound(execution.tenant, execution.job.key)
                    raise

    async def cancel(self, agent: str, task_id: str) -> None:
        """Cancel an agent's task. A task that has ended is left unchanged."""
        await _cancel(self._execution, agent, task_id)

    async def _withdraw_question(self, child: str) -> None:
        """Set the task to working if it asks a question that the child no longer asks.

        Another client may have answered the child or ended it.
        """
        status = self._execution.task.status
        if status.state not in lifecycle.INTERRUPTED or status.message is None or child_of(status.message) != child:
            return
        task = await self.read(child)
        if task is None:
            raise TaskNotFound(metadata={"taskId": child})
        if task.status.state not in lifecycle.INTERRUPTED or not self._is_asking(self._passed_on(task)):
            await self._execution.status(TaskState.WORKING, None, None)

    def _is_asking(self, question: Message) -> bool:
        """Whether the execution's task currently asks a question."""
        status = self._execution.task.status
        message_id = status.message.message_id if status.message else None
        return status.state in lifecycle.INTERRUPTED and message_id == question.message_id

    def _passed_on(self, child: Task) -> Message:
        """Return a child's question as this execution asks it.

        Its message ID is unique among all questions of the child, even if the child repeats an ID.
        """
        waits_for = "credentials" if child.status.state is TaskState.AUTH_REQUIRED else "input"
        default = (Part(text=f"Task {child.id} waits for {waits_for}"),)
        question = child.status.message or Message(message_id="", role=Role.AGENT, parts=default)
        turn = sum(message.role is Role.USER for message in child.history)
        return replace(
            question,
            message_id=f"{child.id}/{turn}/{question.message_id}",
            task_id=self._execution.task.id,
            context_id=self._execution.task.context_id,
            metadata={**(question.metadata or {}), CHILD_TASK: child.id},
        )


class SpawnedTasks:
    """The tasks of a conversation that its executions spawn."""

    def __init__(self, execution: Execution) -> None:
        """Spawn tasks for the caller of `execution`."""
        self._execution = execution
        self._node = execution.node

    @property
    def agents(self) -> Mapping[str, ServedAgent]:
        """The agents of this server by name. Members of other agents are left out."""
        return self._node.served_agents()

    async def spawn(self, agent: str, message: Message, key: str, *, hold: bool, metadata: dict[str, Any]) -> str:
        """Create a task once, stored under a key, and return its ID."""
        execution = self._execution
        if (stored_id := execution.recall(key)) is not None:
            return msgspec.json.decode(stored_id, type=str)
        await execution.flush()
        metadata = {**metadata, HOLD: True} if hold else metadata
        request = SendRequest(message=_routed(execution, message), metadata=metadata or None)
        parent = ParentExecution(task_id=execution.job.key, epoch=execution.job.epoch, step=key, owns=False)

        async def spawn() -> str:
            return await self._node.service(agent).spawn(request, execution.caller, parent)

        return await _unless_fenced(execution, spawn)

    async def read(self, task_id: str) -> Task:
        """Return a task of this conversation. Raises TaskNotFound for any other task."""
        return (await self._find(task_id))[1]

    async def execute(self, task_id: str) -> Task:
        """Start a held task of this conversation and return it. A task that has started is returned unchanged."""
        execution = self._execution
        stored, _ = await self._find(task_id)
        await execution.retry(lambda: self._node.service(stored.agent).start_held_task(task_id, execution.caller))
        return await self.read(task_id)

    async def cancel(self, task_id: str) -> Task:
        """Cancel a task of this conversation, unless it has ended, and return it."""
        stored, _ = await self._find(task_id)
        await _cancel(self._execution, stored.agent, task_id)
        return await self.read(task_id)

    async def conclude(self, task_id: str, state: TaskState, result: Any = None) -> Task:
        """End a held task of this conversation that was completed outside the server, and return it."""
        execution = self._execution
        stored, task = await self._find(task_id)
        message = None
        if result is not None:
            message = Message(
                message_id=f"{task_id}/result",
                role=Role.AGENT,
                parts=parts_of(result) or (Part(text=""),),
                task_id=task_id,
                context_id=task.context_id,
            )
        await execution.retry(
            lambda: self._node.service(stored.agent).conclude(task_id, state, message, execution.caller)
        )
        return await self.read(task_id)

    async def _find(self, task_id: str) -> tuple[StoredTask, Task]:
        execution = self._execution
        found = await execution.retry(lambda: execution.task_store.read(execution.tenant, task_id))
        if (
            found is None
            or found[0].owner != execution.caller.owner
            or found[1].context_id != execution.task.context_id
        ):
            raise TaskNotFound(metadata={"taskId": task_id})
        return found


async def _unless_fenced(execution: Execution, do: Callable[[], Awaitable[T]]) -> T:
    """Call a function that writes under the claim of an execution. Stop the execution if the claim is lost."""
    try:
        return await execution.retry(do)
    except Fenced:
        execution.stop()
        raise


async def _cancel(execution: Execution, agent: str, task_id: str) -> None:
    with suppress(TaskNotCancelable):
        await execution.retry(lambda: execution.node.service(agent).cancel(CancelRequest(id=task_id), execution.caller))


def _parent(execution: Execution, step: str) -> ParentExecution:
    return ParentExecution(
        task_id=execution.job.key,
        epoch=execution.job.epoch,
        step=step,
        budget=execution.budget,
        deadline_at=execution.deadline_at,
    )


def _routed(execution: Execution, message: Message) -> Message:
    """Return a message of an execution with the route of its own task."""
    route = route_of(execution.task.history)
    if route is None or message.task_id is not None:
        return message
    return replace(message, metadata=route.added_to(message.metadata))
