"""The addresses of one agent: its cards, its documents, and a binding for everything else.

It only decides by the path, which is the part below where the agent is mounted; what is at an address is in `bindings`.
"""

from collections.abc import Awaitable, Callable

from msgspec import Struct
from msgspec.structs import replace

from accord.bindings.http import App, Receive, Scope, Send
from accord.bindings.openapi import Documents
from accord.bindings.wellknown import CARD_PATHS
from accord.engine.agent import Agent
from accord.protocol.negotiation import MOUNTS

RPC_PATHS = frozenset({"", *MOUNTS})
"""Where JSON-RPC is answered, without a slash at the end."""


Described = tuple[App, App]
"""What serves an agent's card, and its documents."""


class Site(Struct, frozen=True, kw_only=True):
    """One agent over HTTP."""

    card: App
    documents: App
    rpc: App
    rest: App

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        return self.at(below(scope))(scope, receive, send)

    def at(self, path: str) -> App:
        """Return what answers at a path."""
        if path in CARD_PATHS:
            return self.card
        if path.rstrip("/") in RPC_PATHS:
            return self.rpc
        return self.documents if Documents.serves(path) else self.rest


class Renewed:
    """The site of an agent that may come to be described otherwise: one elsewhere, once it was reached."""

    def __init__(self, agent: Agent, site: Site, describe: Callable[[], Described]) -> None:
        """Answer with `site`, whose card and documents are made anew when the agent's profile is another."""
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


def placed(scope: Scope) -> Scope:
    """Return a request whose path begins with the mount, as ASGI asks for.

    An application that is told where a proxy has it, and is asked without that prefix, passes on paths without it; what
    Starlette mounts in it is told the prefix as `app_root_path`.
    """
    path, root = scope["path"], scope.get("root_path", "")
    if not root or path == root or path.startswith(root + "/"):
        return scope
    prefix = scope.get("app_root_path", root)
    raw = {"raw_path": prefix.encode() + scope["raw_path"]} if scope.get("raw_path") else {}
    return {**scope, "path": prefix + path, **raw}


def below(scope: Scope) -> str:
    """Return the path below the mount."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))
