"""Only for this machine: requests that name another host are refused.

A server that is open to everybody on its own machine is open to its browsers too, and a page from elsewhere may have
its own name resolve to this machine (DNS rebinding). What it asks then still names its own host.
"""

from collections.abc import Awaitable, Set
from functools import lru_cache

from accord.bindings.http import MAX_REMEMBERED, App, Receive, Scope, Send, authority, header, respond
from accord.protocol import hosts


class Local:
    """An ASGI application that answers to local names, and to those it is given."""

    def __init__(self, inner: App, names: Set[str] = frozenset()) -> None:
        """Wrap `inner`."""
        self._inner = inner
        self._names = names
        self._is_known = lru_cache(MAX_REMEMBERED)(self._is_local)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        if scope["type"] == "http" and not self._is_known(authority(scope)) and header(scope, b"host") is not None:
            text = b"This server answers only to local names: it has no authentication\n"
            return respond(send, 421, text, [(b"content-type", b"text/plain; charset=utf-8")])
        return self._inner(scope, receive, send)

    def _is_local(self, asked: str | None) -> bool:
        name = hosts.host_of(asked or "")
        return name in self._names or hosts.is_loopback(name)
