"""aiohttp connections to checked addresses only.

A name is resolved once, its addresses are checked, and the connection is made to them. There is no second look-up whose
answer could differ (DNS rebinding). It is loaded with aiohttp by the first request.
"""

import socket
import ssl
from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from accord.outbound import AddressInfo, Resolve
from accord.outbound.policy import TargetRefused, check_address


class CheckedResolver(AbstractResolver):
    """A resolver that answers only with addresses that may be connected to."""

    def __init__(self, resolve: Resolve, *, is_trusted: bool) -> None:
        """Check what `resolve` finds; trusted hosts may be on a private network."""
        self._resolve = resolve
        self._is_trusted = is_trusted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name; one that may not be connected to speaks against all of them."""
        addresses = await self._resolve(host)
        for address in addresses:
            if what := check_address(address, is_trusted=self._is_trusted):
                raise TargetRefused(f"{host} has an address that is not public: {what}")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Leave what looks names up to whoever made it."""


IDLE_SECONDS = 4.0
"""How long a connection is kept for the next request: most servers close theirs after five, and nobody can tell
whether a POST that crosses that end has arrived."""


def open_socket(info: AddressInfo) -> socket.socket:
    """Make a socket for an address."""
    family, kind, protocol, _, _ = info
    return socket.socket(family, kind, protocol)


def checked_connector(
    resolve: Resolve,
    *,
    is_trusted: bool,
    tls: ssl.SSLContext | None = None,
    opens: Callable[[AddressInfo], socket.socket] | None = None,
    limit: int = 100,
) -> aiohttp.TCPConnector:
    """Return what connects to checked addresses only; trusted hosts and others each have their own."""

    def checked(info: AddressInfo) -> socket.socket:
        """Open a socket, unless an address came here some other way than through the checks before."""
        if what := check_address(info[4][0], is_trusted=is_trusted):
            raise PermissionError(f"not a public address: {what}")
        return (open_socket if opens is None else opens)(info)

    return aiohttp.TCPConnector(
        resolver=CheckedResolver(resolve, is_trusted=is_trusted),
        use_dns_cache=False,
        ssl=tls or True,
        keepalive_timeout=IDLE_SECONDS,
        socket_factory=checked,
        limit=limit,
    )
