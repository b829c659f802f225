"""An agent at one of its places: at the root, or by its name, where its extended card says what the public one does.

The service behind it is the same wherever it is asked, and so cannot know the addresses to name. Everything else is
passed on as it is; which places there are is `app.composition`'s.
"""

from msgspec.structs import replace

from accord.a2a import A2A, Caller
from accord.model import AgentCard, AgentInterface, CardRequest


class Placed:
    """An `A2A` whose cards name the interfaces of one place."""

    def __init__(self, agent: A2A, interfaces: tuple[AgentInterface, ...]) -> None:
        """Pass on to `agent` what is asked where `interfaces` are."""
        self._agent = agent
        self._interfaces = interfaces
        self.send, self.stream = agent.send, agent.stream
        self.get, self.list, self.cancel, self.subscribe = agent.get, agent.list, agent.cancel, agent.subscribe
        self.push_set, self.push_get = agent.push_set, agent.push_get
        self.push_list, self.push_delete = agent.push_list, agent.push_delete

    async def extended_card(self, request: CardRequest, caller: Caller) -> AgentCard:
        """Read the card for authenticated callers."""
        card = await self._agent.extended_card(request, caller)
        return replace(card, supported_interfaces=self._interfaces)
