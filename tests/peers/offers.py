"""Other implementations' servers, and what each of them lacks: rows, which the tests loop over.

A lack names the error that our client raises where one is due, and always the reason; what is not in a row's lacks has
to work. It says nothing about how things are asked for, which is the tests' matter.
"""

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import pytest

from accord.errors import (
    AccordError,
    ExtendedCardNotConfigured,
    InternalError,
    MethodNotFound,
    PushNotSupported,
    UnsupportedOperation,
)
from accord.model.base import Choice
from accord.protocol.operations import DialectName
from tests.peers.conftest import Peer

V1, V03, VAULT = DialectName.V1, DialectName.V03, DialectName.VAULT


class Feature(Choice):
    """What may be missing."""

    PIECES = "text in pieces"
    ASK = "ask"
    REPLY = "reply"
    LIST = "list"
    REFUSE_CANCEL = "refuse to cancel what has ended"
    EXTENDED_CARD = "extended card"
    PUSH = "push"
    PUSH_CREDENTIALS = "push: credentials"
    PUSH_LIST = "push: list"
    PUSH_DELETE = "push: delete"


class Lack(NamedTuple):
    """Why something is missing, and how that is said."""

    reason: str
    error: type[AccordError] | None = None


Lacks = Mapping[Feature, Lack]


class Offer(NamedTuple):
    """A server over one of its bindings."""

    name: str
    server: Peer
    binding: str = "JSONRPC"
    dialect: DialectName = V1
    lacks: Lacks = MappingProxyType({})

    def __str__(self) -> str:
        return f"{self.name} {self.binding}"


SDK, SDK_03 = Peer("a2a_sdk"), Peer("a2a_sdk_03", "a2a-sdk-03")
NO_CREDENTIALS = Lack("It sends the token, and leaves the credentials out")
NO_CARD = Lack("The card says that there is none", ExtendedCardNotConfigured)
NO_PUSH = Lack("The card says that it sends nothing", PushNotSupported)

OFFERS = [
    *(Offer("a2a-sdk", SDK, binding) for binding in ("JSONRPC", "HTTP+JSON", "GRPC")),
    Offer(
        "a2a-sdk 0.3",
        SDK_03,
        "JSONRPC",
        V03,
        {Feature.LIST: Lack("It has no such method", MethodNotFound), Feature.PUSH_CREDENTIALS: NO_CREDENTIALS},
    ),
    Offer(
        "a2a-sdk 0.3",
        SDK_03,
        "HTTP+JSON",
        V03,
        {
            Feature.LIST: Lack("The route is there and fails", InternalError),
            Feature.PUSH_CREDENTIALS: NO_CREDENTIALS,
            Feature.PUSH_LIST: Lack("The route is there and fails", InternalError),
            Feature.PUSH_DELETE: Lack("There is no route", MethodNotFound),
        },
    ),
    Offer(
        "a2a-sdk 0.3",
        SDK_03,
        "GRPC",
        V03,
        {
            Feature.LIST: Lack("There is no such method", UnsupportedOperation),
            Feature.PUSH_CREDENTIALS: NO_CREDENTIALS,
            Feature.PUSH_LIST: Lack("The method is not implemented", MethodNotFound),
            Feature.PUSH_DELETE: Lack("The method is not implemented", MethodNotFound),
        },
    ),
    Offer(
        "fasta2a",
        Peer("fasta2a_server"),
        lacks={
            Feature.LIST: Lack("It says so", UnsupportedOperation),
            Feature.REPLY: Lack("Every message begins a task, whichever it names"),
            Feature.REFUSE_CANCEL: Lack("It answers with the task as it is"),
            Feature.EXTENDED_CARD: NO_CARD,
            Feature.PUSH: NO_PUSH,
        },
    ),
    Offer(
        "a2a-adapter",
        Peer("adapter_server"),
        lacks={
            Feature.ASK: Lack("A function returns text; the adapter completes the task with it"),
            Feature.EXTENDED_CARD: NO_CARD,
        },
    ),
    Offer(
        "google-adk",
        Peer("adk_server", "google-adk"),
        lacks={
            Feature.PIECES: Lack("Its pieces are messages of a working task, as progress is; the answer comes whole"),
            Feature.EXTENDED_CARD: NO_CARD,
            Feature.PUSH: NO_PUSH,
        },
    ),
    Offer(
        "agentvault",
        Peer("agentvault_server", "agentvault"),
        dialect=VAULT,
        lacks={
            Feature.PIECES: Lack(
                "Following begins after sending, so the task is read at each event, perhaps at its end"
            ),
            Feature.LIST: Lack("It has no such method", MethodNotFound),
            Feature.EXTENDED_CARD: NO_CARD,
            Feature.PUSH: NO_PUSH,
        },
    ),
]

_OLD_PYTHON = pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="AgentVault's server has no release for Python 3.12"
)


def parameters() -> list[object]:
    """The rows as a test's parameters."""
    return [
        pytest.param(offer, id=str(offer), marks=[_OLD_PYTHON] if offer.name == "agentvault" else [])
        for offer in OFFERS
    ]
