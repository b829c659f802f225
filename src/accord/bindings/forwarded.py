"""What a trusted proxy says about the request that it passes on: scheme, host, port, prefix and the caller's address.

From anybody else these headers are lies and are not read. RFC 7239's `Forwarded` is left to proxies that can also write
the `X-Forwarded-` headers, which all of them can.
"""

import re
from collections.abc import Sequence

from accord.bindings.http import App, Receive, Scope, Send, header
from accord.core.proxies import Network, is_trusted
from accord.protocol import hosts

USUAL = ("80", "443")
"""Ports that need not be said. Neither is of the other scheme: who says 80 of https stands behind who ends TLS."""

MAX_PORT = 65535

_PORT = re.compile(r"[1-9][0-9]{0,4}")
_ENDS_WITH_PORT = re.compile(r":[0-9]*\Z")


class Forwarded:
    """An ASGI application that sees requests as they reached the proxy in front of it."""

    def __init__(self, inner: App, trusted: Sequence[Network]) -> None:
        """Wrap `inner`; believe what comes from `trusted`."""
        self._inner = inner
        self._trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        client = scope.get("client")
        if scope["type"] == "http" and client and is_trusted(client[0], self._trusted):
            scope = self._restored(scope)
        await self._inner(scope, receive, send)

    def _restored(self, scope: Scope) -> Scope:
        found = dict(scope)
        scheme = _last(header(scope, b"x-forwarded-proto"))
        if scheme in ("http", "https"):
            found["scheme"] = scheme
        host = _last(header(scope, b"x-forwarded-host"))
        if host:
            host += _port(host, _last(header(scope, b"x-forwarded-port")))
            others = [(name, value) for name, value in scope["headers"] if name != b"host"]
            found["headers"] = [*others, (b"host", host.encode("latin-1"))]
        prefix = _last(header(scope, b"x-forwarded-prefix")).rstrip("/")
        if prefix.startswith("/") and not prefix.startswith("//"):
            root = prefix + scope.get("root_path", "")
            found |= {"root_path": root, "path": prefix + scope["path"]}
            if scope.get("raw_path"):
                found["raw_path"] = prefix.encode("latin-1") + scope["raw_path"]
        caller = self._caller(header(scope, b"x-forwarded-for"))
        if caller:
            found |= {"client": (caller, 0), "accord.proxy": scope["client"][0]}
        return found

    def _caller(self, chain: str | None) -> str | None:
        """Return the last address of the chain that is no trusted proxy itself: what came before it may be invented."""
        for part in reversed((chain or "").split(",")):
            address = hosts.address(part.strip())
            if address is None:
                return None
            if not is_trusted(str(address), self._trusted):
                return str(address)
        return None


def _port(host: str, port: str) -> str:
    """Return what a port adds to a host that has none of its own."""
    is_needed = _PORT.fullmatch(port) and int(port) <= MAX_PORT and port not in USUAL
    return f":{port}" if is_needed and not _ENDS_WITH_PORT.search(host) else ""


def _last(value: str | None) -> str:
    """Return what the nearest proxy said, where several did."""
    return (value or "").rpartition(",")[2].strip()
