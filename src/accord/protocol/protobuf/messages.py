"""Protobuf messages as the JSON that the dialects read and write, and back.

It goes through JSON so that every rule about what is valid stands once, in the dialects; that costs some 30
microseconds for a request and 70 for an answer, which is less than gRPC itself takes. Which message belongs to which
call is `methods`.
"""

from typing import Any

import msgspec
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from accord.errors import InvalidParams, ParseError
from accord.protocol import codec

EXACT = 2**53
"""Below this, a whole number that protobuf carries as a float is still the one that was sent."""


class NoProtobuf(ValueError):
    """JSON that has no protobuf form which others can read: it is nested too deeply."""


def to_json(kind: type[Message], body: bytes) -> bytes:
    """Return a message as JSON."""
    try:
        plain = json_format.MessageToDict(kind.FromString(body))
    except DecodeError:
        raise ParseError("It is not a valid protobuf message") from None
    except (json_format.Error, ValueError):
        raise InvalidParams("There is a number or a time in it that JSON cannot express") from None
    return codec.encode(_whole(plain))


def from_json(kind: type[Message], json: bytes) -> bytes:
    """Return JSON as a message, or raise NoProtobuf."""
    try:
        body: bytes = json_format.ParseDict(msgspec.json.decode(json), kind()).SerializeToString()
        kind.FromString(body)  # protobuf writes more levels than it reads: the reader must not be who finds out
    except (json_format.ParseError, DecodeError) as error:
        raise NoProtobuf(str(error)) from None
    return body


def _whole(value: Any) -> Any:
    """Return JSON whose whole numbers are integers: protobuf's free data knows floats only."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < EXACT else value
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value
