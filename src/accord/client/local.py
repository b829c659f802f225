"""The client's twin without a wire: the same texts and handles over an agent of this process.

Anything that implements `core.interface.A2A` will do, the service of a hosted agent above all, so what is written for a
remote agent is tried out on a local one. Nothing is encoded, sent or authenticated.
"""

from collections.abc import AsyncIterator
from typing import cast

from accord.a2a import A2A, Caller, streaming_operations, unary_operations
from accord.client.client import Client
from accord.client.discovery import Discovered
from accord.client.links import Link
from accord.client.peer import Peer
from accord.client.selection import JSONRPC, Way
from accord.client.wire import SECONDS
from accord.model import AgentCapabilities, AgentCard, AgentExtension, Event, Request, Result
from accord.protocol.extensions import IDEMPOTENT_SEND, NUMBERED_EVENTS
from accord.protocol.operations import DialectName, Operation

HERE = "local:"
"""The address of what has none."""


class LocalLink:
    """Calls an agent of this process, as one caller."""

    dialect = DialectName.V1
    binding = "LOCAL"
    resumable = True

    def __init__(self, agent: A2A, caller: Caller) -> None:
        """Call `agent`."""
        self._caller = caller
        self._answering, self._streaming = unary_operations(agent), streaming_operations(agent)

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Call the agent; what it takes its time for is not cut short."""
        return cast("Result", await self._answering[operation](request, self._caller))

    def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Call the agent and yield its events."""
        return self._streaming[operation](request, self._caller, after)

    async def close(self) -> None:
        """Do nothing: the agent is somebody else's."""


def in_process(agent: A2A, *, caller: Caller | None = None, card: AgentCard | None = None) -> Client:
    """Return a client of an agent of this process; without its card, it is taken to offer everything."""
    link: Link = LocalLink(agent, caller or Caller())
    stated = card or _CARD
    way = Way(binding=JSONRPC, dialect=DialectName.V1, url=HERE)
    peer = Peer(stated, (way,), lambda _: link)
    return Client(peer, Discovered(card=stated, url=HERE, document=b""), timeout=SECONDS)


_CARD = AgentCard(
    name="local",
    description="An agent of this process",
    version="",
    supported_interfaces=(),
    capabilities=AgentCapabilities(
        streaming=True,
        push_notifications=True,
        extended_agent_card=True,
        extensions=(AgentExtension(uri=IDEMPOTENT_SEND), AgentExtension(uri=NUMBERED_EVENTS)),
    ),
    default_input_modes=(),
    default_output_modes=(),
    skills=(),
)
