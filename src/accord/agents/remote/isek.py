"""ISEK network: the agent type, over HTTP or through a peer-to-peer bridge.

A node with an address is an ordinary A2A 0.3 agent. A peer is named by its multiaddress, or by the ids that form one.
It is reached through a bridge on this machine. `POST /call_peer?p2p_address=...` passes one JSON-RPC request on to a
peer and returns its one answer. `GET /p2p_context` reports the bridge's state. A bridge has neither streams nor
webhooks nor cards, so the card is made here. ISEK's own package is not needed.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from accord.agents.remote import RemoteTerms, ReportMode
from accord.api import Agent, agent_types
from accord.api.agent_types import AgentArguments, AgentType, Options, Seconds
from accord.errors import UnsupportedOperation
from accord.model import AgentCapabilities, AgentCard, AgentInterface
from accord.outbound import HttpRequest, HttpTransport, OpenReply, Unreachable, open_transport
from accord.protocol.operations import DialectName

if TYPE_CHECKING:
    from accord.agents.remote.connection import RemotePeer


VERSION = "0.3"
"""A2A version of ISEK's nodes."""

CHECK_SECONDS = 5.0

HTTP_OK = 200
NO_STATE = frozenset({404, 405, 501})
"""HTTP statuses of a bridge that does not report its state."""

log = logging.getLogger("accord.remote")


class _Failure(Struct):
    """A bridge's error for a peer that it did not reach."""

    status: str = ""
    message: str = ""
    jsonrpc: str | None = None


async def check_bridge(transport: HttpTransport, bridge: str) -> None:
    """Read a bridge's state and log it; raises Unreachable if the bridge is missing or reports an error."""
    request = HttpRequest(method="GET", url=f"{bridge.rstrip('/')}/p2p_context", seconds=CHECK_SECONDS)
    try:
        opened = await transport.open(request)
        status, body = opened.status, await opened.read()
    except Unreachable as error:
        raise Unreachable(f"The bridge {bridge} is not there: {error.reason}", was_sent=False) from error
    if status in NO_STATE:
        return
    try:
        reply = msgspec.json.decode(body, type=dict[str, Any]) if status == HTTP_OK else None
    except msgspec.DecodeError:
        reply = None
    if reply is None:
        raise Unreachable(f"The bridge {bridge} is not well: HTTP {status}", was_sent=False)
    context = {name: value for name, value in reply.items() if isinstance(value, str | int | bool)}
    log.info("isek.ready", extra={"bridge": bridge, "context": context})


class BridgeTransport:
    """A transport that passes every request on to one peer."""

    def __init__(self, inner: HttpTransport, bridge: str, peer: str) -> None:
        """Use the bridge at the URL `bridge`, through `inner`, for the peer with this multiaddress."""
        self._inner = inner
        self._url = f"{bridge.rstrip('/')}/call_peer?p2p_address={quote(peer, safe='')}"

    async def open(self, request: HttpRequest) -> OpenReply:
        """Send a request and return the response's head."""
        if request.streams:
            raise UnsupportedOperation("A peer-to-peer bridge passes on one answer and no stream")
        return BridgeResponse(await self._inner.open(replace(request, method="POST", url=self._url)))

    async def close(self) -> None:
        """Close all connections."""
        await self._inner.close()


class BridgeResponse:
    """A response of a bridge; reading it raises Unreachable if the bridge did not reach the peer."""

    def __init__(self, opened: OpenReply) -> None:
        self._opened = opened
        self.status: int = opened.status
        self.headers: Mapping[str, str] = opened.headers

    async def read(self) -> bytes:
        """Read the whole body."""
        body = await self._opened.read()
        try:
            failure = msgspec.json.decode(body, type=_Failure)
        except msgspec.DecodeError:
            return body  # not the bridge's own reply; the caller reports its errors
        if failure.status == "error" and failure.jsonrpc is None:
            raise Unreachable(f"The bridge did not reach the peer: {failure.message}", was_sent=True)
        return body

    def pieces(self) -> AsyncIterator[bytes]:
        """Read the body as a stream."""
        return self._opened.pieces()

    async def close(self) -> None:
        """Close the response."""
        await self._opened.close()


def bridge_card(name: str, bridge: str) -> AgentCard:
    """Return the card of a peer behind a bridge, which cannot be asked for one."""
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


async def open_bridge(name: str, bridge: str, peer: str) -> tuple[AgentCard, BridgeTransport]:
    """Return a peer's card and its transport, once the bridge has reported that it is ready."""
    transport = open_transport("aiohttp")
    try:
        await check_bridge(transport, bridge)
    except BaseException:
        await transport.close()
        raise
    return bridge_card(name, bridge), BridgeTransport(transport, bridge, peer)


BRIDGE = "http://localhost:9001"
"""Default URL of a node's bridge."""

RELAY_PORT = 9090
"""Port of ISEK's relays."""

PARTS = ("peer_id", "relay_ip", "relay_peer_id")


class IsekOptions(Options, frozen=True, kw_only=True):
    """Options of a node: its `url`, or a peer behind the bridge at that URL.

    A peer is named by `p2p_address`, or by its `peer_id`, the relay's address and the relay's own id. Its id changes
    whenever it starts.
    """

    url: str = BRIDGE
    p2p_address: str | None = None
    peer_id: str | None = None
    relay_ip: str | None = None
    relay_peer_id: str | None = None
    relay_port: Annotated[int, Meta(ge=1, le=65535)] = RELAY_PORT
    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    dialect: DialectName | None = None
    sla_seconds: Seconds = RemoteTerms().sla_seconds
    answer_seconds: Seconds = 60.0
    """Maximum time for an answer, in seconds; a bridge itself gives up after a minute."""

    @property
    def address(self) -> str | None:
        """The multiaddress of a peer, or None for a node with its own URL."""
        named = {name: getattr(self, name) for name in PARTS}
        if not any(named.values()):
            return self.p2p_address
        missing = [name for name, value in named.items() if not value]
        if missing or self.p2p_address:
            option = missing[0] if missing else "p2p_address"
            raise ValueError(f"{option}: A peer is named by its p2p_address, or by {', '.join(PARTS)} together")
        return f"/ip4/{self.relay_ip}/tcp/{self.relay_port}/ws/p2p/{self.relay_peer_id}/p2p-circuit/p2p/{self.peer_id}"

    def __repr__(self) -> str:
        return f"IsekOptions(url={self.url!r})"  # the rest may be secret


def make(given: AgentArguments) -> Agent:
    """Make an agent from its options."""
    from accord.agents.remote.agent import RemoteAgent

    options: IsekOptions = given.options
    peer = options.address
    terms = RemoteTerms(
        # A bridge passes on one answer and no stream, and reports of a node could not reach this server.
        mode=ReportMode.AUTO if peer is None else ReportMode.POLL,
        sla_seconds=options.sla_seconds,
        answer_seconds=options.answer_seconds,
    )
    name = given.name or "isek"
    return RemoteAgent(
        options.url,
        name=name,
        terms=terms,
        connect=_connecting(name, options, peer),
        states=lambda profile: agent_types.with_options(profile, given),
    )


def _connecting(
    name: str, options: IsekOptions, peer: str | None
) -> Callable[[], AbstractAsyncContextManager["RemotePeer"]]:
    @asynccontextmanager
    async def connect() -> AsyncIterator["RemotePeer"]:
        from accord.client.auth import Bearer
        from accord.client.client import Client

        target: Any = options.url
        client_options: dict[str, Any] = {"dialect": options.dialect}
        if peer is not None:
            target, client_options["transport"] = await open_bridge(name, options.url, peer)
        auth = Bearer(options.token) if options.token else None
        async with Client.connect(
            target, auth=auth, headers=options.headers, timeout=options.answer_seconds, **client_options
        ) as client:
            yield client

    return connect


AGENT_TYPE = AgentType(name="isek", options=IsekOptions, make=make)
