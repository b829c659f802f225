"""The agents of a server as chats offer them, where others offer language models.

It only lists; talking is `console.conversations.api`.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal

from accord.console.house import House
from accord.console.routing import Asked, Reply, Route
from accord.console.views import Model
from accord.engine.agent import Agent
from accord.protocol.operations import Operation
from accord.remote.tasks import ContactPort, RemoteAgentPort

EXAMPLES = 4
"""How many things to say are shown of an agent."""


class ModelsApi:
    """The handlers."""

    def __init__(self, house: House) -> None:
        """Offer the agents of `house`."""
        self._house = house

    def routes(self) -> tuple[Route, ...]:
        """Return what is answered where."""
        return (Route("GET", "/api/models", self.listed, gives=list[Model]),)

    async def listed(self, asked: Asked) -> Reply:
        """List the agents that whoever asks may talk to."""
        house, caller = self._house, asked.known
        return Reply(
            body=[
                self._model(slug)
                for slug, agent in self.offered.items()
                if house.sight.may(caller, agent.profile.name, Operation.SEND)
            ]
        )

    @cached_property
    def offered(self) -> Mapping[str, Agent]:
        """The agents that chats offer, the default one first: without A2A those of this server alone."""
        agents = self._house.agents
        if self._house.terms.a2a:
            return agents
        return {slug: agent for slug, agent in agents.items() if not isinstance(agent, ContactPort)}

    def mode(self, slug: str) -> Literal["stream", "task"]:
        """Return how an agent answers unless somebody wants it otherwise: one elsewhere takes on a task."""
        stated = self._house.terms.task_mode
        is_task = isinstance(self._house.agents[slug], RemoteAgentPort) if stated is None else stated
        return "task" if is_task else "stream"

    def _model(self, slug: str) -> Model:
        profile = self._house.agents[slug].profile
        examples = [example for skill in profile.skills for example in skill.examples]
        return Model(
            id=slug,
            name=profile.name,
            description=profile.description,
            mode=self.mode(slug),
            is_default=slug == next(iter(self.offered)),
            examples=examples[:EXAMPLES],
        )
