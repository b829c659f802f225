"""Access of an execution to its child tasks, through the services of its node.

An execution that waits for children occupies no slot.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from accord.engine.child_tasks import ServedAgent
from accord.engine.execution import Execution
from accord.engine.journal import ChildCall, PreparedChild
from accord.engine.losses import Losses
from accord.engine.subscriptions import Hub, at_turn_end
from accord.engine.task_store import TaskStore
from accord.errors import TaskNotFound
from accord.model import Event, Message, SendRequest, Task, TaskState
from accord.storage.commands.tasks import StoredTask


class NodeServices(Protocol):
    """The services of a node for its executions."""

    async def call(self, run: Execution, agent: str, message: Message, step: str) -> str:
        """Send a message to an agent for an execution and return the task ID. A new task is stored under a step."""

    async def child(self, run: Execution, call: ChildCall, places: ExitStack) -> PreparedChild:
        """Prepare a child task of an execution."""

    async def cancel(self, run: Execution, agent: str, task_id: str) -> None:
        """Cancel a task for an execution."""

    def known(self) -> Mapping[str, ServedAgent]:
        """Return the agents that callers can reach, by name."""

    async def spawn(self, run: Execution, agent: str, request: SendRequest, step: str) -> str:
        """Create a task for the caller of an execution, stored under a step."""

    async def execute(self, run: Execution, agent: str, task_id: str) -> None:
        """Start a held task for an execution."""

    async def conclude(
        self, run: Execution, agent: str, task_id: str, state: TaskState, result: Message | None
    ) -> None:
        """End a held task for an execution."""


class ChildWaits(Protocol):
    """The node of an execution."""

    hub: Hub
    archive: TaskStore
    losses: Losses

    async def settled_for(self, run: Execution, task_id: str) -> Task:
        """Wait for a child task of an execution."""

    def calls_others(self, run: Execution) -> AbstractContextManager[None]:
        """Release the slot of an execution while it waits for others."""


class ChildAccess:
    """The child tasks of one execution."""

    def __init__(self, run: Execution, node: ChildWaits, services: NodeServices) -> None:
        """Access child tasks for `run`."""
        self._run = run
        self._node = node
        self._services = services

    async def prepare(self, call: ChildCall, places: ExitStack) -> PreparedChild:
        """Prepare a child task. Its slots are reserved until the stack exits."""
        return await self._services.child(self._run, call, places)

    async def settled(self, task_id: str) -> Task:
        """Wait until a task has ended or asks, and return it."""
        return await self._run.patiently(lambda: self._node.settled_for(self._run, task_id))

    async def read(self, task_id: str) -> Task | None:
        """Return the current task, or None."""
        found = await self._run.patiently(lambda: self._node.archive.read(self._run.tenant, task_id))
        return None if found is None else found[1]

    async def follow(self, task_id: str) -> AsyncGenerator[Event, None]:
        """Yield all events of a task until it has ended or asks."""
        with self._node.calls_others(self._run):
            async with self._node.hub.follow(self._run.tenant, task_id, 0) as follower:
                try:
                    async for event in follower.events(at_turn_end):
                        yield event
                except TaskNotFound:
                    await self._node.losses.drop_without(self._run)
                    raise

    async def tell(self, agent: str, message: Message, key: str) -> str:
        """Send a message to an agent's task, which is stored under a key."""
        with self._node.calls_others(self._run):
            return await self._run.patiently(lambda: self._services.call(self._run, agent, message, key))

    async def cancel(self, agent: str, task_id: str) -> None:
        """Cancel an agent's task."""
        await self._run.patiently(lambda: self._services.cancel(self._run, agent, task_id))


class SpawnedAccess:
    """The tasks that an execution spawns."""

    def __init__(self, run: Execution, archive: TaskStore, services: NodeServices) -> None:
        """Start tasks for the caller of `run`."""
        self._run = run
        self._archive = archive
        self._services = services

    def known(self) -> Mapping[str, ServedAgent]:
        """Return the agents that callers can reach, by name."""
        return self._services.known()

    async def spawn(self, agent: str, request: SendRequest, step: str) -> str:
        """Create a task, stored under a step, and return its ID."""
        return await self._services.spawn(self._run, agent, request, step)

    async def read(self, task_id: str) -> tuple[StoredTask, Task] | None:
        """Return the current task, or None."""
        return await self._archive.read(self._run.tenant, task_id)

    async def execute(self, agent: str, task_id: str) -> None:
        """Start a held task."""
        await self._services.execute(self._run, agent, task_id)

    async def cancel(self, agent: str, task_id: str) -> None:
        """Cancel a task. A task that has ended is left unchanged."""
        await self._services.cancel(self._run, agent, task_id)

    async def conclude(self, agent: str, task_id: str, state: TaskState, result: Message | None) -> None:
        """End a held task that was completed outside the server."""
        await self._services.conclude(self._run, agent, task_id, state, result)
