"""Connections to checked addresses only, for whoever speaks HTTP over them.

It knows no URLs and sends nothing: `session` and the client's transport do, and load this with aiohttp when they do.
"""

import socket
import ssl
from collections.abc import Callable

import aiohttp

from accord.outbound.addresses import objection
from accord.outbound.checked import CheckedNames
from accord.outbound.names import AddressInfo, Resolve

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
        if what := objection(info[4][0], is_trusted=is_trusted):
            raise PermissionError(f"not a public address: {what}")
        return (open_socket if opens is None else opens)(info)

    return aiohttp.TCPConnector(
        resolver=CheckedNames(resolve, is_trusted=is_trusted),
        use_dns_cache=False,
        ssl=tls or True,
        keepalive_timeout=IDLE_SECONDS,
        socket_factory=checked,
        limit=limit,
    )
