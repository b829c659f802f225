"""`X-Forwarded-*` headers of trusted proxies: scheme, host, port, prefix and caller's address.

They are ignored from other peers. Each is a list to which every proxy appends. The value that counts is that of the
trusted proxy nearest to the client. RFC 7239's `Forwarded` is ignored: every proxy that writes it can write these
headers as well.
"""

import re
from collections.abc import Sequence

from accord.http.asgi import App, Receive, Scope, Send, values_of
from accord.protocol import urls
from accord.protocol.urls import Network, is_in_networks

DEFAULT_PORTS = ("80", "443")
"""Ports that are omitted, even with the other scheme: a proxy that reports 80 for https is behind one that ends TLS."""

MAX_PORT = 65535

_PREFIX = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~!$&'()*+;=:@%-]+)+")
"""Segments of a path (RFC 3986, 3.3). `//evil.example` and, for browsers, `/\\evil.example` are hosts."""

_PORT = re.compile(r"[1-9][0-9]{0,4}")
_ENDS_WITH_PORT = re.compile(r":[0-9]*\Z")


class ProxyHeaders:
    """An ASGI application that restores requests as they reached the proxy in front of it."""

    def __init__(self, inner: App, trusted: Sequence[Network]) -> None:
        """Wrap `inner`; trust the headers of the proxies in `trusted`."""
        self._inner = inner
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        client = scope.get("client")
        if scope["type"] == "http" and client and is_in_networks(client[0], self._trusted):
            scope = self._restored(scope)
        await self._inner(scope, receive, send)

    def _restored(self, scope: Scope) -> Scope:
        found = dict(scope)
        caller, proxies = self._caller(scope)
        scheme = _trusted_member(scope, b"x-forwarded-proto", proxies)
        if scheme in ("http", "https"):
            found["scheme"] = scheme
        host = _trusted_member(scope, b"x-forwarded-host", proxies)
        if host:
            host += _port(host, _trusted_member(scope, b"x-forwarded-port", proxies))
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            found["headers"] = [*others, (b"host", host.encode("latin-1"))]
        prefix = _trusted_member(scope, b"x-forwarded-prefix", proxies).rstrip("/")
        if _PREFIX.fullmatch(prefix):
            root = prefix + scope.get("root_path", "")
            found |= {"root_path": root, "path": prefix + scope["path"]}
            if scope.get("raw_path"):
                found["raw_path"] = prefix.encode("latin-1") + scope["raw_path"]
        if caller:
            found |= {"client": (caller, 0), "accord.proxy": scope["client"][0]}
        return found

    def _caller(self, scope: Scope) -> tuple[str | None, int]:
        """Return the last address that is not a trusted proxy, and the number of trusted proxies that forwarded the
        request.

        The addresses before it may be invented. The peer is the last proxy, and is not in the chain.
        """
        chain = _header_members(scope, b"x-forwarded-for")
        for proxies, part in enumerate(reversed(chain), 1):
            address = urls.address_of(part) or urls.address_of(urls.host_of(part))  # some proxies add the port
            if address is None:
                return None, proxies
            if not is_in_networks(str(address), self._trusted):
                return str(address), proxies
        return None, max(1, len(chain))


def _port(host: str, port: str) -> str:
    """Return the port suffix for a host without a port."""
    is_needed = _PORT.fullmatch(port) and int(port) <= MAX_PORT and port not in DEFAULT_PORTS
    return f":{port}" if is_needed and not _ENDS_WITH_PORT.search(host) else ""


def _header_members(scope: Scope, name: bytes) -> list[str]:
    """Return the members of a list header, of all its lines (RFC 9110, 5.3)."""
    return [part.strip() for line in values_of(scope, name) for part in line.split(",")]


def _trusted_member(scope: Scope, name: bytes, proxies: int) -> str:
    """Return the member that the first of `proxies` proxies added. A proxy that replaces the list leaves fewer."""
    members = _header_members(scope, name)
    return members[-min(proxies, len(members))] if members else ""
