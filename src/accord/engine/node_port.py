"""The interface of a node to its executions, and of its services to executions that create tasks."""

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple, Protocol

from msgspec import Struct

from accord.a2a import Caller
from accord.engine.hooks import Hooks
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.model import AgentSkill, CancelRequest, Message, SendRequest, Task, TaskState
from accord.storage.commands.steps import ParentExecution
from accord.storage.commands.task_lifecycle import Acceptance, AcceptRequest


class ServedAgent(Struct, frozen=True, kw_only=True):
    """The public description of an agent that tasks can be created for."""

    name: str
    description: str = ""
    skills: tuple[AgentSkill, ...] = ()


class PreparedChild(NamedTuple):
    """A prepared child task, and the function that starts it once it is committed."""

    accept: AcceptRequest
    begin: Callable[[Acceptance], None]


class AgentService(Protocol):
    """The A2A service of an agent, for executions of other agents."""

    async def call(self, message: Message, caller: Caller, parent: ParentExecution) -> str:
        """Send a message for an execution and return the task ID. A new task is stored under a step."""

    async def prepare_child(
        self, message: Message, timeout_ms: int | None, caller: Caller, parent: ParentExecution, places: ExitStack
    ) -> PreparedChild:
        """Prepare a child task. Its slot is reserved until the stack exits."""

    async def spawn(self, request: SendRequest, caller: Caller, parent: ParentExecution) -> str:
        """Create an independent task for the caller of an execution, stored under a step, and return its ID."""

    async def cancel(self, request: CancelRequest, caller: Caller) -> Task:
        """Cancel a task."""

    async def start_held_task(self, task_id: str, caller: Caller) -> Task:
        """Start a held task."""

    async def conclude(self, task_id: str, state: TaskState, result: Message | None, caller: Caller) -> None:
        """End a held task that was completed outside the server."""


class ExecutionNode(Protocol):
    """The node of an execution."""

    task_store: TaskStore
    hub: Hub
    hooks: Hooks
    now_ms: Callable[[], int]
    make_id: Callable[[], str]

    def alarm(self, delay_ms: int) -> None:
        """Look for due jobs after a delay."""

    def service(self, agent: str) -> AgentService:
        """Return the service of an agent. Raises Failed for an unknown one."""

    def served_agents(self) -> Mapping[str, ServedAgent]:
        """Return the agents that callers can reach, by name."""

    def without_slot(self, execution: Hashable) -> AbstractContextManager[None]:
        """Release the slot of an execution while it waits, because its child tasks need slots."""

    async def settled(self, tenant: str, task_id: str) -> Task:
        """Wait until nothing more happens to a task without its caller, and return it."""

    async def drop_if_rewound(self, tenant: str, task_id: str) -> None:
        """Drop the execution of a task whose child is missing, if the store may have lost the child."""
