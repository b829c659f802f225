"""ISEK network: the agent type, over HTTP or through a peer-to-peer bridge.

A node with an address is A2A 0.3 like any other. A peer is named by its multiaddress, or by the ids that one is made
of, and is reached through a bridge on this machine: `POST /call_peer?p2p_address=...` passes one JSON-RPC request on to
a peer and returns its one answer, and `GET /p2p_context` reports the bridge's state. There is no stream, no webhook and
no card, so the card is made here. No package of ISEK's is needed.
"""

import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from accord.agents import agent_types
from accord.agents.agent_types import Given, Kind, Options, Seconds
from accord.agents.remote import RemoteTerms, ReportMode
from accord.client import transports
from accord.client.transports import HttpRequest, HttpTransport, OpenReply, Unreachable
from accord.engine.agent import Agent
from accord.errors import UnsupportedOperation
from accord.model import AgentCapabilities, AgentCard, AgentInterface
from accord.protocol.operations import DialectName

if TYPE_CHECKING:
    from accord.agents.remote.connection import RemotePeer


VERSION = "0.3"
"""What ISEK's nodes speak."""

CHECK_SECONDS = 5.0

HTTP_OK = 200
NO_STATE = frozenset({404, 405, 501})
"""Answers of a bridge that does not say how it stands."""

log = logging.getLogger("accord.remote")


class _Failure(Struct):
    """What a bridge says instead of a peer that it did not reach."""

    status: str = ""
    message: str = ""
    jsonrpc: str | None = None


async def check_bridge(transport: HttpTransport, bridge: str) -> None:
    """Ask a bridge how it stands, and say so in the log; one that is not there, or not well, is `Unreachable`."""
    asked = HttpRequest(method="GET", url=f"{bridge.rstrip('/')}/p2p_context", seconds=CHECK_SECONDS)
    try:
        opened = await transport.open(asked)
        status, body = opened.status, await opened.read()
    except Unreachable as error:
        raise Unreachable(f"The bridge {bridge} is not there: {error.reason}", was_sent=False) from error
    if status in NO_STATE:
        return
    try:
        found = msgspec.json.decode(body, type=dict[str, Any]) if status == HTTP_OK else None
    except msgspec.DecodeError:
        found = None
    if found is None:
        raise Unreachable(f"The bridge {bridge} is not well: HTTP {status}", was_sent=False)
    told = {name: value for name, value in found.items() if isinstance(value, str | int | bool)}
    log.info("bridge is ready", extra={"bridge": bridge, "context": told})


class BridgeTransport:
    """A transport that passes every request on to one peer."""

    def __init__(self, inner: HttpTransport, bridge: str, peer: str) -> None:
        """Ask the bridge at the URL `bridge`, through `inner`, for the peer with this multiaddress."""
        self._inner = inner
        self._url = f"{bridge.rstrip('/')}/call_peer?p2p_address={quote(peer, safe='')}"

    async def open(self, request: HttpRequest) -> OpenReply:
        """Send a request and return the answer's head."""
        if request.streams:
            raise UnsupportedOperation("A peer-to-peer bridge passes on one answer and no stream")
        return BridgeResponse(await self._inner.open(replace(request, method="POST", url=self._url)))

    async def close(self) -> None:
        """Close all connections."""
        await self._inner.close()


class BridgeResponse:
    """An answer of a bridge, in which a peer that was not reached is one that was not reached."""

    def __init__(self, opened: OpenReply) -> None:
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


def bridge_card(name: str, bridge: str) -> AgentCard:
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


async def open_bridge(name: str, bridge: str, peer: str) -> tuple[AgentCard, BridgeTransport]:
    """Return the card of a peer behind a bridge and the way to it, once the bridge has said that it is well."""
    transport = transports.choose("aiohttp")
    try:
        await check_bridge(transport, bridge)
    except BaseException:
        await transport.close()
        raise
    return bridge_card(name, bridge), BridgeTransport(transport, bridge, peer)


BRIDGE = "http://localhost:9001"
"""Where a node's bridge listens if nothing else is said."""

RELAY_PORT = 9090
"""Where ISEK's relays listen."""

PARTS = ("peer_id", "relay_ip", "relay_peer_id")


class IsekOptions(Options, frozen=True, kw_only=True):
    """A node: at its `url`, or a peer behind the bridge there.

    A peer is named by `p2p_address`, or by its `peer_id`, the relay's address and the relay's own id. It changes its id
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
    """How long it may take to answer; a bridge gives up after a minute itself."""

    @property
    def address(self) -> str | None:
        """The multiaddress of a peer, or None for a node with an address of its own."""
        given = {name: getattr(self, name) for name in PARTS}
        if not any(given.values()):
            return self.p2p_address
        missing = [name for name, value in given.items() if not value]
        if missing or self.p2p_address:
            wrong = missing[0] if missing else "p2p_address"
            raise ValueError(f"{wrong}: A peer is named by its p2p_address, or by {', '.join(PARTS)} together")
        return f"/ip4/{self.relay_ip}/tcp/{self.relay_port}/ws/p2p/{self.relay_peer_id}/p2p-circuit/p2p/{self.peer_id}"

    def __repr__(self) -> str:
        return f"IsekOptions(url={self.url!r})"  # the rest may be secret


def make(given: Given) -> Agent:
    """Make an agent as its options say."""
    from accord.agents.remote.agent import RemoteAgent

    options: IsekOptions = given.options
    peer = options.address
    terms = RemoteTerms(
        # A bridge passes on one answer and no stream, and what a node reports would not find the way back.
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
        more: dict[str, Any] = {"dialect": options.dialect}
        if peer is not None:
            target, more["transport"] = await open_bridge(name, options.url, peer)
        auth = Bearer(options.token) if options.token else None
        async with Client.connect(
            target, auth=auth, headers=options.headers, timeout=options.answer_seconds, **more
        ) as client:
            yield client

    return connect


KIND = Kind(name="isek", options=IsekOptions, make=make)
