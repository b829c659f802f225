"""Only for this machine: requests that name another host are refused, and so is what pages from elsewhere would change.

A server that is open to everybody on its own machine is open to its browsers too. A page from elsewhere may have its
own name resolve to this machine (DNS rebinding): what it asks then still names its own host. Or it sends something that
browsers send without asking first: they say then which page it was.
"""

from collections.abc import Awaitable, Set
from functools import lru_cache

from accord.bindings.http import (
    MAX_REMEMBERED,
    App,
    Headers,
    Receive,
    Scope,
    Send,
    authority,
    header,
    headers_of,
    presented,
    respond,
)
from accord.bindings.sites import SAFE, is_ours
from accord.protocol import urls

_TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8")]


class Local:
    """An ASGI application that answers to local names, and to those it is given."""

    def __init__(self, inner: App, names: Set[str] = frozenset()) -> None:
        """Wrap `inner`."""
        self._inner = inner
        self._names = names
        self._is_known = lru_cache(MAX_REMEMBERED)(self._is_local)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        if scope["type"] == "http":
            if not self._is_known(authority(scope)) and header(scope, b"host") is not None:
                return respond(send, 421, b"This server answers only to local names: it has no authentication\n", _TEXT)
            if scope["method"] not in SAFE and _is_from_elsewhere(scope):
                return respond(send, 403, b"This comes from a page of another origin\n", _TEXT)
        return self._inner(scope, receive, send)

    def _is_local(self, asked: str | None) -> bool:
        name = urls.host_of(asked or "")
        return name in self._names or urls.is_loopback(name)


def _is_from_elsewhere(scope: Scope) -> bool:
    """Whether a page of another origin sends this; most requests are a program's, which says nothing of pages."""
    given = headers_of(scope)
    says = b"origin" in given or b"sec-fetch-site" in given
    return says and is_ours(presented(scope, b"")) is False
