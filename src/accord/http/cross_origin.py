"""Cross-origin requests of web pages, and their refusal by open local servers.

Browsers send cookies, certificates and remembered passwords for any page, and reach servers on this machine for it.
They send the origin of the page; programs do not. A page whose own name resolves to this machine (DNS rebinding) still
sends its own host name.
"""

from collections.abc import Awaitable, Set
from functools import lru_cache

from accord.auth.authentication import Presented
from accord.http.asgi import (
    MAX_HOST_NAMES,
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
from accord.protocol import urls

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
OWN_SITES = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site` for pages of this origin and for addresses that a user typed."""

_PORTS = {"http": ":80", "https": ":443"}


def is_same_origin(presented: Presented) -> bool | None:
    """Whether a page of this origin, or a user's typed address, caused a request; None if no header states it."""
    origin = presented.header("origin")
    if origin is not None:
        return is_origin_of_host(origin, presented)
    site = presented.header("sec-fetch-site")
    return None if site is None else site in OWN_SITES


def is_origin_of_host(origin: str, presented: Presented) -> bool:
    """Whether an `Origin` is that of the requested host.

    The scheme is compared only where this server can see that TLS was used. It cannot behind a proxy that is not
    configured as trusted.
    """
    parts = urls.split_url(origin)
    if parts.scheme not in _PORTS or (presented.secure and parts.scheme != "https"):
        return False
    port = _PORTS[parts.scheme]
    asked = (presented.header("host") or "").lower()
    return bool(asked) and parts.netloc.lower().removesuffix(port) == asked.removesuffix(port)


def origin_of(url: str) -> str | None:
    """Return the origin of a URL as browsers write it, or None if it is not a web address."""
    parts = urls.split_url(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        return None
    name = parts.netloc.rpartition("@")[2].lower()
    return f"{parts.scheme}://{name.removesuffix(_PORTS[parts.scheme])}"


_TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8")]


class LocalOnly:
    """An ASGI application that answers only to local and configured host names."""

    def __init__(self, inner: App, names: Set[str] = frozenset(), url: str | None = None) -> None:
        """Wrap `inner`; requests from pages at `url` are not cross-origin, even if a proxy uses another host name."""
        self._inner = inner
        self._names = names
        self._origin = origin_of(url or "")
        self._is_known = lru_cache(MAX_HOST_NAMES)(self._is_local)

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        if scope["type"] == "http":
            if not self._is_known(authority(scope)) and header(scope, b"host") is not None:
                return respond(send, 421, b"This server answers only to local names: it has no authentication\n", _TEXT)
            if scope["method"] not in SAFE_METHODS and self._is_cross_origin(scope):
                return respond(send, 403, b"This comes from a page of another origin\n", _TEXT)
        return self._inner(scope, receive, send)

    def _is_local(self, asked: str | None) -> bool:
        name = urls.host_of(asked or "")
        return name in self._names or urls.is_loopback(name)

    def _is_cross_origin(self, scope: Scope) -> bool:
        """Whether a page of another origin sent this; most requests are from programs, which send neither header."""
        given = headers_of(scope)
        if b"origin" not in given and b"sec-fetch-site" not in given:
            return False
        is_of_url = self._origin is not None and self._origin == origin_of(header(scope, b"origin") or "")
        return not is_of_url and is_same_origin(presented(scope, b"")) is False
