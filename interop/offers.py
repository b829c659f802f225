"""Other implementations' servers that our client calls, and where each of them falls short: rows.

It says nothing about how things are asked for, which is the matter of `calls`.
"""

import sys
from types import MappingProxyType
from typing import NamedTuple

from accord.protocol.operations import DialectName
from interop.calls import Way, called
from interop.outcome import Operation, Outcome
from interop.processes import Peer, Servers
from interop.rows import Shorts, absent, broken

V1, V03, VAULT = DialectName.V1, DialectName.V03, DialectName.VAULT
VERSIONS = {V1: "1.0", V03: "0.3", VAULT: "AgentVault 0.2"}


class Offer(NamedTuple):
    """A server over one of its bindings."""

    name: str
    distribution: str
    peer: Peer
    binding: str = "JSONRPC"
    dialect: DialectName = V1
    shorts: Shorts = MappingProxyType({})
    in_pieces: bool = True
    """Whether text arrives in the agent's pieces; elsewhere they are joined on the way."""
    asks: bool = True
    replies: bool = True
    """Whether the answer to a question belongs to the task that asked."""

    def __str__(self) -> str:
        return f"{self.name} {self.binding}"

    @property
    def release(self) -> str:
        """Which release is installed."""
        return self.peer.version(self.distribution)

    @property
    def version(self) -> str:
        """The version of A2A that is spoken."""
        return VERSIONS[self.dialect]

    @property
    def is_available(self) -> bool:
        """AgentVault's server has no release for Python 3.12."""
        return self.name != "agentvault" or sys.version_info < (3, 12)

    async def outcome(self, servers: Servers, operation: Operation) -> Outcome:
        """Call it."""
        return await called(Way(servers.theirs(self.peer), self.binding, str(self.dialect)), operation)

    async def outcomes(self, servers: Servers) -> dict[Operation, Outcome]:
        """Call it for everything."""
        return {operation: await self.outcome(servers, operation) for operation in Operation}


SDK, SDK_03 = Peer("a2a_sdk"), Peer("a2a_sdk_03", "a2a-sdk-03")

NO_AUTH = {Operation.AUTH: absent("the card asks for no credentials")}
NO_CARD = {Operation.EXTENDED_CARD: absent("ExtendedCardNotConfigured")}
NO_PUSH = {
    Operation.PUSH: absent("the card says that it sends nothing"),
    Operation.PUSH_SETTINGS: absent("PushNotSupported"),
    Operation.PUSH_LISTING: absent("PushNotSupported"),
}
NO_LIST = {Operation.LIST: absent("MethodNotFound")}
NO_CREDENTIALS = {Operation.PUSH: broken("without the credentials")}

OFFERS = (
    *(Offer("a2a-sdk", "a2a-sdk", SDK, binding, shorts=NO_AUTH) for binding in ("JSONRPC", "HTTP+JSON", "GRPC")),
    Offer("a2a-sdk 0.3", "a2a-sdk", SDK_03, "JSONRPC", V03, NO_AUTH | NO_LIST | NO_CREDENTIALS),
    Offer(
        "a2a-sdk 0.3",
        "a2a-sdk",
        SDK_03,
        "HTTP+JSON",
        V03,
        NO_AUTH
        | NO_CREDENTIALS
        | {Operation.LIST: broken("InternalError"), Operation.PUSH_LISTING: broken("InternalError")},
    ),
    Offer(
        "a2a-sdk 0.3",
        "a2a-sdk",
        SDK_03,
        "GRPC",
        V03,
        NO_AUTH
        | NO_CREDENTIALS
        | {Operation.LIST: absent("UnsupportedOperation"), Operation.PUSH_LISTING: absent("MethodNotFound")},
    ),
    Offer(
        "fasta2a",
        "fasta2a",
        Peer("fasta2a_server"),
        shorts=NO_AUTH
        | NO_CARD
        | NO_PUSH
        | {
            Operation.LIST: absent("UnsupportedOperation"),
            Operation.INPUT: absent("the answer begins another task"),
            Operation.ERRORS: broken("cancelling what has ended gives no error"),
        },
        replies=False,
    ),
    Offer(
        "a2a-adapter",
        "a2a-adapter",
        Peer("adapter_server"),
        shorts=NO_AUTH | NO_CARD | {Operation.INPUT: absent("completed without asking")},
        asks=False,
    ),
    Offer(
        "google-adk",
        "google-adk",
        Peer("adk_server", "google-adk"),
        shorts=NO_AUTH | NO_CARD | NO_PUSH,
        in_pieces=False,  # they are messages of a working task, as progress is; the answer comes whole
    ),
    Offer(
        "langgraph-api",
        "langgraph-api",
        Peer("langgraph_server", "langgraph-api"),
        shorts=NO_AUTH | NO_CARD | NO_PUSH,
        in_pieces=False,
    ),
    Offer(
        "agentvault",
        "agentvault-server-sdk",
        Peer("agentvault_server", "agentvault"),
        dialect=VAULT,
        shorts=NO_AUTH | NO_CARD | NO_PUSH | NO_LIST,
        in_pieces=False,  # following begins after sending, so the task is read at each event, perhaps at its end
    ),
)
