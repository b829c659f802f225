"""The server as the console sees it: agents, services, visibility, feed and settings.

`server.console` creates it, and passes it to each section of the API.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from accord.a2a import Caller, HostedAgent
from accord.api import Agent, Host, Store
from accord.api.access import Quotas
from accord.api.directory import TrustedKeys
from accord.console import ConsoleSettings
from accord.console.feed import Feed
from accord.console.routing import ApiSection
from accord.console.views import TaskVisibility
from accord.http.asgi import App
from accord.model import AgentCard
from accord.outbound import HttpSession
from accord.protocol.operations import DialectName


class EndpointInfo(Struct, frozen=True, kw_only=True):
    """How a server serves its agents.

    `site_as` returns an agent's application, by the name in its path, for an authenticated caller. Requests to it are
    made as that caller, regardless of their credentials. `schemes` are the enforced security schemes, by their names in
    cards. With `is_open` the server has no authentication. `trust` verifies card signatures. `outbound` returns a
    client for a URL, if the server may be called.
    """

    dialects: frozenset[DialectName]
    site_as: Callable[[str, Caller], App]
    schemes: frozenset[str]
    is_open: bool
    trust: TrustedKeys
    outbound: Callable[[str], HttpSession]


class ServerContext(Struct, frozen=True, kw_only=True):
    """The server of a console: `agents` and their guarded `services`, by the names in their paths.

    `card_of` returns an agent's card by that name, and `served` describes how agents are served. `url` is the server's
    public address. `settings` returns the settings in effect without secrets, and `quotas` are the limits of callers.
    """

    host: Host
    agents: Mapping[str, Agent]
    services: Mapping[str, HostedAgent]
    card_of: Callable[[str], AgentCard]
    served: EndpointInfo
    visibility: TaskVisibility
    feed: Feed
    terms: ConsoleSettings
    url: str
    version: str
    now_ms: Callable[[], int]
    settings: Callable[[], dict[str, Any]]
    quotas: Quotas

    @property
    def store(self) -> Store:
        """The server's store."""
        return self.host.store


class ServerSection(ApiSection):
    """A section of the API that needs only the server."""

    def __init__(self, server: ServerContext) -> None:
        """Create the handlers for `server`."""
        self._server = server
