"""Clients of other implementations that call `accord serve`, and where each of them falls short: rows.

What is not among a row's shortfalls has to work. How a client is used is the matter of its script in `clients`.
"""

from types import MappingProxyType
from typing import NamedTuple

from interop.outcome import Operation, Outcome
from interop.processes import Peer, Servers, talk
from interop.rows import Shorts, absent, all_but, broken

BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")


class Caller(NamedTuple):
    """A client over one binding, in one version of A2A."""

    name: str
    distribution: str
    peer: Peer
    binding: str
    version: str
    kind: str = "everything"
    """Which of our servers it calls."""
    choices: tuple[str, ...] = ()
    """What its script is told beside the server: `binding`, `version`, and `locked`, one that asks for a key."""
    shorts: Shorts = MappingProxyType({})

    def __str__(self) -> str:
        return f"{self.name} {self.binding} {self.version}"

    @property
    def release(self) -> str:
        """Which release is installed."""
        return self.peer.version(self.distribution)

    async def outcomes(self, servers: Servers) -> dict[Operation, Outcome]:
        """Let it call a server of ours."""
        served = servers.ours(self.kind)
        chosen = {"binding": self.binding, "version": self.version}
        if "locked" in self.choices:
            chosen["locked"] = servers.ours("without gRPC").url
        arguments = {"url": served.url} | {name: chosen[name] for name in self.choices}
        return await talk(self.peer, arguments | ({"key": served.key} if served.key else {}))


NO_METHOD = absent("no such method")

SDK, SDK_03 = Peer("a2a_sdk"), Peer("a2a_sdk_03", "a2a-sdk-03")

CALLERS = (
    *(Caller("a2a-sdk", "a2a-sdk", SDK, binding, "1.0", choices=("binding", "version")) for binding in BINDINGS),
    Caller(
        "a2a-sdk",
        "a2a-sdk",
        SDK,
        "JSONRPC",
        "0.3",
        choices=("binding", "version"),
        shorts={Operation.LIST: absent("not supported in A2A v0.3")},
    ),
    Caller(
        "a2a-sdk",
        "a2a-sdk",
        SDK,
        "HTTP+JSON",
        "0.3",
        choices=("binding", "version"),
        shorts={
            Operation.LIST: absent("not supported in A2A v0.3"),
            Operation.PUSH_LISTING: absent("not supported in v0.3"),
        },
    ),
    *(
        Caller(
            "a2a-sdk 0.3",
            "a2a-sdk",
            SDK_03,
            binding,
            "0.3",
            choices=("binding",),
            shorts={Operation.LIST: NO_METHOD, Operation.PUSH_LISTING: NO_METHOD},
        )
        for binding in BINDINGS
    ),
    # It calls 0.3's methods and wants 1.0's shapes with 0.3's words back. It cannot read the card's security.
    Caller(
        "fasta2a",
        "fasta2a",
        Peer("fasta2a_client"),
        "JSONRPC",
        "0.3",
        kind="open",
        choices=("locked",),
        shorts=all_but(Operation.CARD, Operation.SEND, Operation.STREAM, Operation.GET, Operation.ERRORS)
        | {Operation.AUTH: broken("ValidationError")},
    ),
    Caller(
        "crewai",
        "crewai",
        Peer("crewai_client", "crewai"),
        "JSONRPC",
        "0.3",
        kind="without gRPC",
        shorts=all_but(
            Operation.CARD, Operation.SEND, Operation.STREAM, Operation.INPUT, Operation.ERRORS, Operation.AUTH
        ),
    ),
    # It refuses every card that lists an address which is no URL, as those of gRPC are.
    Caller(
        "google-adk",
        "google-adk",
        Peer("adk_client", "google-adk"),
        "JSONRPC",
        "1.0",
        kind="without gRPC",
        shorts=all_but(
            Operation.CARD,
            Operation.SEND,
            Operation.STREAM,
            Operation.INPUT,
            Operation.ERRORS,
            Operation.AUTH,
        ),
    ),
    Caller(
        "agentvault",
        "agentvault",
        Peer("agentvault_client", "agentvault"),
        "JSONRPC",
        "AgentVault 0.2",
        shorts=all_but(
            Operation.CARD,
            Operation.SEND,
            Operation.STREAM,
            Operation.RESUME,
            Operation.GET,
            Operation.CANCEL,
            Operation.INPUT,
            Operation.PUSH,
            Operation.ERRORS,
            Operation.AUTH,
        ),
    ),
)
