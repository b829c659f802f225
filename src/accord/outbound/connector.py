"""aiohttp connections to checked addresses only.

A name is resolved once, its addresses are checked, and the connection is made to them. A second lookup could
return another answer (DNS rebinding), so none is made. The first request imports it together with aiohttp.
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
        """Check the results of `resolve`. Trusted hosts may be on a private network."""
        self._resolve = resolve
        self._is_trusted = is_trusted

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name. Raises TargetRefused if any of them is not allowed."""
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
        """Do nothing: the caller owns the resolver function."""


IDLE_SECONDS = 4.0
"""How long an idle connection is kept, in seconds: most servers close theirs after five. A POST that meets the close
may or may not have arrived.
"""


def open_socket(info: AddressInfo) -> socket.socket:
    """Create a socket for an address."""
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
    """Return a connector to checked addresses only. Trusted hosts and others each have their own."""

    def checked(info: AddressInfo) -> socket.socket:
        """Open a socket. Checks the address again, in case it bypassed the resolver."""
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
