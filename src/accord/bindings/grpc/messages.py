"""An answer as protobuf, or the refusal of one that no client could read.

The conversion itself is `protocol.protobuf`, which has no log.
"""

import logging

from google.protobuf.message import Message

from accord.errors import InvalidAgentResponse
from accord.protocol import protobuf

log = logging.getLogger("accord.grpc")


def from_json(kind: type[Message], json: bytes) -> bytes:
    """Return an answer as protobuf."""
    try:
        return protobuf.from_json(kind, json)
    except protobuf.NoProtobuf as error:
        log.warning("an answer has no protobuf form", extra={"reason": str(error)[:500]})
        raise InvalidAgentResponse("The answer is nested too deeply for gRPC; JSON-RPC and HTTP+JSON have it") from None
