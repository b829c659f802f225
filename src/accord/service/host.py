"""The agents of one process: a node that executes them, and a service for each."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from msgspec.structs import replace

from accord.engine.agent import Agent, AgentWithMembers
from accord.engine.child_tasks import ServedAgent
from accord.engine.clock import SYSTEM, Clock
from accord.engine.context import Failed
from accord.engine.execution import Execution
from accord.engine.hooks import Hooks
from accord.engine.journal import ChildCall, PreparedChild
from accord.engine.node import Engine, Limits
from accord.engine.retention import RetentionLoop
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.engine.webhook_delivery import WebhookDispatcher, WebhookSender
from accord.errors import TaskNotCancelable
from accord.model import CancelRequest, Message, SendRequest, TaskState
from accord.service.service import Offers, Service


class Host:
    """Several agents over one store; the first is the default."""

    def __init__(  # noqa: PLR0913  # one for each component
        self,
        archive: TaskStore,
        hub: Hub,
        agents: Sequence[Agent],
        *,
        limits: Limits | None = None,
        hooks: Hooks | None = None,
        sender: WebhookSender | None = None,
        offers: Offers | None = None,
        upkeep: RetentionLoop | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        """Host `agents`. With a `sender` webhooks are delivered, with `upkeep` old tasks are removed."""
        known = {agent.profile.name: agent for agent in agents}
        if len(known) != len(agents):
            raise ValueError("Two agents have the same name")
        self.engine = Engine(archive, hub, known, limits=limits, hooks=hooks, now_ms=clock.now_ms)
        self.engine.services = self
        check_push = None if sender is None else sender.check
        self.services = {name: Service(self.engine, name, check_push=check_push, offers=offers) for name in known}
        self.pusher = None if sender is None else WebhookDispatcher(self.engine, sender)
        self._upkeep = upkeep
        self.default = self.services[agents[0].profile.name]

    async def start(self) -> None:
        """Start the engine, the webhook delivery and the retention loop."""
        await self.engine.start()
        if self.pusher is not None:
            self.pusher.start()
        if self._upkeep is not None:
            self._upkeep.start()

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Finish the running executions, or release them to other nodes."""
        if self._upkeep is not None:
            await self._upkeep.stop()
        if self.pusher is not None:
            await self.pusher.stop()
        await self.engine.stop(grace_seconds)

    # --- for executions -------------------------------------------------------------------------------------------

    async def call(self, run: Execution, agent: str, message: Message, step: str) -> str:
        """Send a message to an agent for an execution, and return the task id. A new task is recorded under a step."""
        return await self._known(agent).call(run, message, step)

    async def child(self, run: Execution, call: ChildCall, places: ExitStack) -> PreparedChild:
        """Return a child task that is prepared, but not yet created."""
        return await self._known(call.agent).child(run, call, places)

    async def cancel(self, run: Execution, agent: str, task_id: str) -> None:
        """Cancel a task for an execution. An ended task is ignored."""
        caller = replace(run.caller, tenant=run.tenant)
        with suppress(TaskNotCancelable):
            await self._known(agent).cancel(CancelRequest(id=task_id), caller)

    def known(self) -> Mapping[str, ServedAgent]:
        """Return the agents that callers can reach, by name."""
        agents = self.engine.agents.values()
        members = {
            one.profile.name
            for agent in agents
            if isinstance(agent, AgentWithMembers)
            for one in agent.members.values()
        }
        profiles = [agent.profile for agent in agents if agent.profile.name not in members]
        return {
            one.name: ServedAgent(name=one.name, description=one.description, skills=one.skills) for one in profiles
        }

    async def spawn(self, run: Execution, agent: str, request: SendRequest, step: str) -> str:
        """Create an independent task for an execution's caller, recorded under a step."""
        return await self._known(agent).spawn(run, request, step)

    async def execute(self, run: Execution, agent: str, task_id: str) -> None:
        """Start a held task for an execution."""
        await self._known(agent).execute(task_id, replace(run.caller, tenant=run.tenant))

    async def conclude(
        self, run: Execution, agent: str, task_id: str, state: TaskState, result: Message | None
    ) -> None:
        """End a held task for an execution."""
        await self._known(agent).conclude(task_id, state, result, replace(run.caller, tenant=run.tenant))

    def _known(self, agent: str) -> Service:
        service = self.services.get(agent)
        if service is None:
            raise Failed(f"There is no agent called {agent!r} here")
        return service
