"""The agents of one process: a node that executes them, and a service for each."""

from collections.abc import Sequence

from accord.engine.agent import Agent
from accord.engine.clock import SYSTEM, Clock
from accord.engine.hooks import Hooks
from accord.engine.node import Limits, Node
from accord.engine.retention import RetentionLoop
from accord.engine.subscriptions import Hub
from accord.engine.task_store import TaskStore
from accord.engine.webhook_delivery import WebhookDispatcher, WebhookSender
from accord.service.service import Offers, Service


class Host:
    """Several agents over one store; the first is the default."""

    def __init__(  # noqa: PLR0913  # one for each component
        self,
        task_store: TaskStore,
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
        self.tasks, self.store, self.hub = task_store, task_store.store, hub
        self.node = Node(task_store, hub, known, limits=limits, hooks=hooks, now_ms=clock.now_ms)
        check_push = None if sender is None else sender.check
        self.services = {name: Service(self.node, name, check_push=check_push, offers=offers) for name in known}
        self.node.services = self.services
        self.pusher = None if sender is None else WebhookDispatcher(self.node, sender)
        self._upkeep = upkeep
        self.default = self.services[agents[0].profile.name]

    async def start(self) -> None:
        """Start the node, the webhook delivery and the retention loop."""
        await self.node.start()
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
        await self.node.stop(grace_seconds)
