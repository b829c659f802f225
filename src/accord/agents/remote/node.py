"""The kind `isek`: a node of the ISEK network as an agent here, over HTTP or through its peer-to-peer bridge.

A node with an address is A2A 0.3 like any other and needs nothing but its address; a peer is named by its multiaddress,
or by the ids that one is made of, and is reached through a bridge on this machine (`isek`). Both are remote agents
(`agent`), with all that these do. No package of ISEK's is needed.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, field

from accord.agents import kinds
from accord.agents.kinds import Given, Kind, Options, Seconds
from accord.agents.remote.terms import Mode, Terms
from accord.engine.agent import Agent
from accord.protocol.operations import DialectName

if TYPE_CHECKING:
    from accord.agents.remote.means import Peer

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
    sla_seconds: Seconds = Terms().sla_seconds
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
    terms = Terms(
        # A bridge passes on one answer and no stream, and what a node reports would not find the way back.
        mode=Mode.AUTO if peer is None else Mode.POLL,
        sla_seconds=options.sla_seconds,
        answer_seconds=options.answer_seconds,
    )
    name = given.name or "isek"
    return RemoteAgent(
        options.url,
        name=name,
        terms=terms,
        connect=_connecting(name, options, peer),
        states=lambda profile: kinds.restated(profile, given),
    )


def _connecting(name: str, options: IsekOptions, peer: str | None) -> Callable[[], AbstractAsyncContextManager["Peer"]]:
    @asynccontextmanager
    async def connect() -> AsyncIterator["Peer"]:
        from accord.agents.remote.isek import bridged
        from accord.client.auth import Bearer
        from accord.client.client import Client

        target: Any = options.url
        more: dict[str, Any] = {"dialect": options.dialect}
        if peer is not None:
            target, more["transport"] = await bridged(name, options.url, peer)
        auth = Bearer(options.token) if options.token else None
        async with Client.connect(
            target, auth=auth, headers=options.headers, timeout=options.answer_seconds, **more
        ) as client:
            yield client

    return connect


KIND = Kind(name="isek", options=IsekOptions, make=make)
