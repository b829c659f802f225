"""The dispatcher of a server: applications by path, by method, or created on first use."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from accord.console import PREFIXES
from accord.engine.agent import Agent
from accord.http.asgi import App, Receive, Scope, Send
from accord.http.cards import CARD_PATHS
from accord.http.files import FILES_PATH
from accord.http.openapi import ApiDocuments
from accord.protocol.negotiation import MOUNTS
from accord.remote.tasks import RemoteAgentPort

RPC_PATHS = frozenset({"", *MOUNTS})
"""Paths of JSON-RPC, without a trailing slash."""

PAGE_PREFIXES = (*PREFIXES, FILES_PATH)
"""Path prefixes of pages, the more specific ones first."""


CardAndDocuments = tuple[App, App]
"""The applications that serve an agent's card and its documents."""


class AgentSite(Struct, frozen=True, kw_only=True):
    """One agent over HTTP: the applications below its path."""

    card: App
    documents: App
    rpc: App
    rest: App

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        return self.at(scope["path"].removeprefix(scope.get("root_path", "")))(scope, receive, send)

    def at(self, path: str) -> App:
        """Return the application at a path below the agent's."""
        if path in ("/", ""):  # almost every request
            return self.rpc
        if path in CARD_PATHS:
            return self.card
        if path.rstrip("/") in RPC_PATHS:
            return self.rpc
        return self.documents if ApiDocuments.serves(path) else self.rest


class RenewedCard:
    """The card and documents of an agent whose profile may change, such as a remote one after it was reached."""

    def __init__(self, agent: Agent, describe: Callable[[], CardAndDocuments]) -> None:
        """Serve what `describe` returns, again when the agent's profile changes."""
        self._agent = agent
        self._describe = describe
        self._profile, self._described = agent.profile, describe()

    def card(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request for the card."""
        return self._current()[0](scope, receive, send)

    def documents(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer a request for the documents."""
        return self._current()[1](scope, receive, send)

    def _current(self) -> CardAndDocuments:
        if self._agent.profile is not self._profile:
            self._profile, self._described = self._agent.profile, self._describe()
        return self._described


def card_and_documents(agent: Agent, describe: Callable[[], CardAndDocuments]) -> CardAndDocuments:
    """Return the card and documents of an agent. Those of a remote agent are renewed with its profile."""
    if not isinstance(agent, RemoteAgentPort):
        return describe()
    renewed = RenewedCard(agent, describe)
    return renewed.card, renewed.documents


class Router(Struct, kw_only=True):
    """The applications of a server by path: pages of the host, agents by name, the first agent everywhere else.

    `browsed` answers visits of the root path. A page at a prefix answers below it.
    """

    sites: Mapping[str, AgentSite]
    default: AgentSite
    pages: dict[str, App]
    browsed: App | None = None

    def find(self, method: str, path: str) -> App:
        """Return the application for a request below the mount."""
        if path == "/" and self.browsed is not None and method != "POST":
            return self.browsed
        page = self.pages.get(path)
        if page is None and path.startswith(PAGE_PREFIXES):
            below_it = (self.pages.get(prefix) for prefix in PAGE_PREFIXES if path.startswith(prefix))
            page = next(filter(None, below_it), None)
        return self.default.at(path) if page is None else page


def with_mounted_path(scope: Scope, root: str) -> Scope:
    """Return a request whose path begins with the mount, as ASGI requires.

    An application with a `root_path` behind a proxy that strips that prefix passes on paths without it. Applications
    that Starlette mounts in it get the prefix as `app_root_path`.
    """
    path = scope["path"]
    if path == root or path.startswith(root + "/"):
        return scope
    prefix = scope.get("app_root_path", root)
    raw = {"raw_path": prefix.encode() + scope["raw_path"]} if scope.get("raw_path") else {}
    return {**scope, "path": prefix + path, **raw}


class LazyApplication:
    """An application that is created on first use."""

    def __init__(self, make: Callable[[], Awaitable[App]]) -> None:
        """Create it with `make`, once. A failure fails the request, and the next one retries."""
        self._make = make
        self._making = asyncio.Lock()
        self._made: App | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await (self._made or await self._ready())(scope, receive, send)

    async def _ready(self) -> App:
        async with self._making:
            if self._made is None:
                self._made = await self._make()
            return self._made


def choose_by_method(*, rest: App, **apps: App) -> App:
    """Return an application that chooses by the method of a request."""

    def chosen(scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        return apps.get(scope["method"], rest)(scope, receive, send)

    return chosen
