"""Agents of the ISEK network that are reached through a peer-to-peer bridge.

A bridge is a process on this machine: `POST /call_peer?p2p_address=...` passes one JSON-RPC request on to a peer and
returns its one answer, and `GET /p2p_context` says how it stands itself. There is no stream, no webhook and no card, so
the card is made here. An ISEK agent with an address of its own is A2A 0.3 like any other and needs nothing of this.
"""

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.client import transports
from accord.client.wire import Opened, Outgoing, Transport, Unreachable
from accord.errors import UnsupportedOperation
from accord.model import AgentCapabilities, AgentCard, AgentInterface

VERSION = "0.3"
"""What ISEK's nodes speak."""

CHECK_SECONDS = 5.0

HTTP_OK = 200
NOT_SAID = frozenset({404, 405, 501})
"""Answers of a bridge that does not say how it stands."""

log = logging.getLogger("accord.remote")


class _Failure(Struct):
    """What a bridge says instead of a peer that it did not reach."""

    status: str = ""
    message: str = ""
    jsonrpc: str | None = None


async def check(transport: Transport, bridge: str) -> None:
    """Ask a bridge how it stands, and say so in the log; one that is not there, or not well, is `Unreachable`."""
    asked = Outgoing(method="GET", url=f"{bridge.rstrip('/')}/p2p_context", seconds=CHECK_SECONDS)
    try:
        opened = await transport.open(asked)
        status, body = opened.status, await opened.read()
    except Unreachable as error:
        raise Unreachable(f"The bridge {bridge} is not there: {error.reason}", was_sent=False) from error
    if status in NOT_SAID:
        return
    try:
        found = msgspec.json.decode(body, type=dict[str, Any]) if status == HTTP_OK else None
    except msgspec.DecodeError:
        found = None
    if found is None:
        raise Unreachable(f"The bridge {bridge} is not well: HTTP {status}", was_sent=False)
    told = {name: value for name, value in found.items() if isinstance(value, str | int | bool)}
    log.info("bridge is ready", extra={"bridge": bridge, "context": told})


class Bridged:
    """A transport that passes every request on to one peer."""

    def __init__(self, inner: Transport, bridge: str, peer: str) -> None:
        """Ask the bridge at the URL `bridge`, through `inner`, for the peer with this multiaddress."""
        self._inner = inner
        self._url = f"{bridge.rstrip('/')}/call_peer?p2p_address={quote(peer, safe='')}"

    async def open(self, request: Outgoing) -> Opened:
        """Send a request and return the answer's head."""
        if request.streams:
            raise UnsupportedOperation("A peer-to-peer bridge passes on one answer and no stream")
        return Answered(await self._inner.open(replace(request, method="POST", url=self._url)))

    async def close(self) -> None:
        """Close all connections."""
        await self._inner.close()


class Answered:
    """An answer of a bridge, in which a peer that was not reached is one that was not reached."""

    def __init__(self, opened: Opened) -> None:
        """Read `opened`."""
        self._opened = opened
        self.status: int = opened.status
        self.headers: Mapping[str, str] = opened.headers

    async def read(self) -> bytes:
        """Read the whole body."""
        body = await self._opened.read()
        try:
            found = msgspec.json.decode(body, type=_Failure)
        except msgspec.DecodeError:
            return body  # no answer of a bridge's own; whoever asked says what is wrong with it
        if found.status == "error" and found.jsonrpc is None:
            raise Unreachable(f"The bridge did not reach the peer: {found.message}", was_sent=True)
        return body

    def pieces(self) -> AsyncIterator[bytes]:
        """Read the body as it comes."""
        return self._opened.pieces()

    async def close(self) -> None:
        """Let the connection go."""
        await self._opened.close()


def bridged_card(name: str, bridge: str) -> AgentCard:
    """Return the card of a peer behind a bridge: it cannot be asked for one."""
    return AgentCard(
        name=name,
        description=f"An ISEK agent behind the bridge {bridge}",
        version="0",
        supported_interfaces=(AgentInterface(url=bridge, protocol_binding="JSONRPC", protocol_version=VERSION),),
        capabilities=AgentCapabilities(streaming=False, push_notifications=False),
        default_input_modes=("text/plain",),
        default_output_modes=("text/plain",),
        skills=(),
    )


async def bridged(name: str, bridge: str, peer: str) -> tuple[AgentCard, Bridged]:
    """Return the card of a peer behind a bridge and the way to it, once the bridge has said that it is well."""
    transport = transports.choose("aiohttp")
    try:
        await check(transport, bridge)
    except BaseException:
        await transport.close()
        raise
    return bridged_card(name, bridge), Bridged(transport, bridge, peer)
