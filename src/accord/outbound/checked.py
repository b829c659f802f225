"""The addresses of a name, asked for once and checked before anybody connects to one.

The checked addresses are what the connection is made to: there is no second look at the name, whose answer could be
another (DNS rebinding). It knows no URLs; `connector` connects.
"""

import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from accord.outbound.addresses import objection
from accord.outbound.names import Resolve
from accord.outbound.policy import Refused


class CheckedNames(AbstractResolver):
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
            if what := objection(address, is_trusted=self._is_trusted):
                raise Refused(f"{host} has an address that is not public: {what}")
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
