"""What the parts of the console have in common: the agents of a server, who sees what, and the feed that tells of news.

It holds and decides nothing. `app.console` fills it in; each part of the API is made with it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from accord.a2a import HostedAgent
from accord.auth.rate_limits import Quotas
from accord.console.feed import Feed
from accord.console.served import Served
from accord.console.sight import Sight
from accord.console.terms import Terms
from accord.engine.agent import Agent
from accord.model import AgentCard
from accord.service.host import Host
from accord.storage.store import Store


class House(Struct, frozen=True, kw_only=True):
    """A server as its console knows it: `agents` and `services`, which are guarded, by the names in their paths.

    `card_of` describes an agent by that name, `served` says how it is served; `url` is the address that callers use.
    `settings` are those in effect, as people may see them, and `quotas` are what callers may ask for and store.
    """

    host: Host
    agents: Mapping[str, Agent]
    services: Mapping[str, HostedAgent]
    card_of: Callable[[str], AgentCard]
    served: Served
    sight: Sight
    feed: Feed
    terms: Terms
    url: str
    version: str
    now_ms: Callable[[], int]
    settings: Callable[[], dict[str, Any]]
    quotas: Quotas

    @property
    def store(self) -> Store:
        """Where everything is kept."""
        return self.host.engine.store
