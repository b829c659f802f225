"""The server as the console sees it: agents, services, visibility, feed and settings.

`server.console` fills it in; each part of the API is made with it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from accord.a2a import Caller, HostedAgent
from accord.auth.rate_limits import Quotas
from accord.console import ConsoleSettings
from accord.console.feed import Feed
from accord.console.task_rows import TaskVisibility
from accord.engine.agent import Agent
from accord.http.asgi import App
from accord.model import AgentCard
from accord.outbound import Outbound
from accord.protocol.operations import DialectName
from accord.registry.trust import TrustedKeys
from accord.service.host import Host
from accord.storage.store import Store


class EndpointInfo(Struct, frozen=True, kw_only=True):
    """What a server does for all of its agents.

    `site_as` gives an agent's own addresses, by the name in its path, to a caller who has been let in already: what is
    asked there is asked by that caller, whatever it brings. `schemes` are the ways in that are enforced, by the names
    that a card has for them; one that `is_open` asks nobody who they are. `trust` judges signatures of cards, and what
    `outbound` returns for a URL asks that server, if it may be asked.
    """

    dialects: frozenset[DialectName]
    site_as: Callable[[str, Caller], App]
    schemes: frozenset[str]
    is_open: bool
    trust: TrustedKeys
    outbound: Callable[[str], Outbound]


class ServerContext(Struct, frozen=True, kw_only=True):
    """A server as its console knows it: `agents` and `services`, which are guarded, by the names in their paths.

    `card_of` describes an agent by that name, `served` says how it is served; `url` is the address that callers use.
    `settings` are those in effect, as people may see them, and `quotas` are what callers may ask for and store.
    """

    host: Host
    agents: Mapping[str, Agent]
    services: Mapping[str, HostedAgent]
    card_of: Callable[[str], AgentCard]
    served: EndpointInfo
    sight: TaskVisibility
    feed: Feed
    terms: ConsoleSettings
    url: str
    version: str
    now_ms: Callable[[], int]
    settings: Callable[[], dict[str, Any]]
    quotas: Quotas

    @property
    def store(self) -> Store:
        """Where everything is kept."""
        return self.host.engine.store
