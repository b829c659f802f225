"""Agents together in one process: a node that runs them, and a service for each.

It only joins what the other modules of `core` do; opening the store is for whoever composes the process.
"""

from collections.abc import Sequence

from accord.core.agent import Agent
from accord.core.archive import Archive
from accord.core.context import Failed
from accord.core.engine import Engine, Limits
from accord.core.follow import Hub
from accord.core.hooks import Hooks
from accord.core.push import Pusher, Sender
from accord.core.run import Run
from accord.core.service import Offers, Service
from accord.core.upkeep import Upkeep
from accord.model import Message


class Host:
    """Several agents over one store; the first is the default."""

    def __init__(  # what a process is made of
        self,
        archive: Archive,
        hub: Hub,
        agents: Sequence[Agent],
        *,
        limits: Limits | None = None,
        hooks: Hooks | None = None,
        sender: Sender | None = None,
        offers: Offers | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        """Host `agents`; with a `sender` webhooks are delivered, with `upkeep` old tasks are removed."""
        known = {agent.profile.name: agent for agent in agents}
        if len(known) != len(agents):
            raise ValueError("Two agents have the same name")
        self.engine = Engine(archive, hub, known, limits=limits, hooks=hooks)
        self.engine.reach = self._call
        check_push = None if sender is None else sender.check
        self.services = {name: Service(self.engine, name, check_push=check_push, offers=offers) for name in known}
        self.pusher = None if sender is None else Pusher(self.engine, sender)
        self._upkeep = upkeep
        self.default = self.services[agents[0].profile.name]

    async def start(self) -> None:
        """Begin to work."""
        await self.engine.start()
        if self.pusher is not None:
            self.pusher.start()
        if self._upkeep is not None:
            self._upkeep.start()

    async def stop(self, grace_seconds: float = 10.0) -> None:
        """Finish what runs, or hand it over."""
        if self._upkeep is not None:
            await self._upkeep.stop()
        if self.pusher is not None:
            await self.pusher.stop()
        await self.engine.stop(grace_seconds)

    async def _call(self, run: Run, agent: str, message: Message, step: str) -> str:
        service = self.services.get(agent)
        if service is None:
            raise Failed(f"There is no agent called {agent!r} here")
        return await service.call(run, message, step)
