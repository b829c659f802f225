"""The paths of one agent, and applications chosen by path, by method or on first use.

A site routes by the path below its mount, and `http` answers.
"""

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from accord.engine.agent import Agent
from accord.http.asgi import App, Receive, Scope, Send
from accord.http.cards import CARD_PATHS
from accord.http.openapi import ApiDocuments
from accord.protocol.negotiation import MOUNTS

RPC_PATHS = frozenset({"", *MOUNTS})
"""Paths of JSON-RPC, without a trailing slash."""


CardAndDocuments = tuple[App, App]
"""The applications that serve an agent's card and its documents."""


class AgentSite(Struct, frozen=True, kw_only=True):
    """One agent over HTTP."""

    card: App
    documents: App
    rpc: App
    rest: App

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        return self.at(path_below_mount(scope))(scope, receive, send)

    def at(self, path: str) -> App:
        """Return the application at a path."""
        if path in CARD_PATHS:
            return self.card
        if path.rstrip("/") in RPC_PATHS:
            return self.rpc
        return self.documents if ApiDocuments.serves(path) else self.rest


class RenewedSite:
    """The site of an agent whose profile may change, such as a remote one after it was reached."""

    def __init__(self, agent: Agent, site: AgentSite, describe: Callable[[], CardAndDocuments]) -> None:
        """Serve `site`, and rebuild its card and documents when the agent's profile changes."""
        self._agent = agent
        self._profile = agent.profile
        self._site = site
        self._describe = describe

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        if self._agent.profile is not self._profile:
            self._profile = self._agent.profile
            card, documents = self._describe()
            self._site = replace(self._site, card=card, documents=documents)
        return self._site(scope, receive, send)


def with_mounted_path(scope: Scope) -> Scope:
    """Return a request whose path begins with the mount, as ASGI requires.

    An application with a `root_path` behind a proxy that strips that prefix passes on paths without it. Applications
    that Starlette mounts in it get the prefix as `app_root_path`.
    """
    path, root = scope["path"], scope.get("root_path", "")
    if not root or path == root or path.startswith(root + "/"):
        return scope
    prefix = scope.get("app_root_path", root)
    raw = {"raw_path": prefix.encode() + scope["raw_path"]} if scope.get("raw_path") else {}
    return {**scope, "path": prefix + path, **raw}


def path_below_mount(scope: Scope) -> str:
    """Return the path below the mount."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


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
