"""The parameters of REST requests that have no body: a query and a path hold nothing but text.

Here text becomes the numbers and booleans that the dialects' ordinary readers expect, in every version alike; what the
parameters mean is theirs. Splitting a URL is the binding's work.
"""

import re
from typing import Any

from msgspec.json import Decoder

from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.operations import TABLE, Operation

WITHOUT_BODY = frozenset(
    row.operation for row in TABLE if any(route.verb in ("GET", "DELETE") for route in row.rest + row.rest_v03)
)
"""The operations whose parameters are in the query and the path."""

_NUMBERS = frozenset({"historyLength", "pageSize"})
_BOOLEANS = frozenset({"includeArtifacts"})
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_OBJECT = Decoder(dict[str, Any])


def typed(operation: Operation, params: bytes) -> bytes:
    """Return the parameters, all in one object, with numbers and booleans in place of the texts that stand for them.

    An empty text is left out: protobuf, which A2A 1.0's queries follow, cannot tell it from a parameter not given.
    """
    codec.check_utf8(params)
    if operation not in WITHOUT_BODY:
        return params
    stated = codec.decode(params, _OBJECT)
    return codec.encode({name: read for name, value in stated.items() if (read := _read(name, value)) != ""})


def _read(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if name in _NUMBERS:
        if not _INTEGER.fullmatch(value):
            raise invalid_field(name, f"Expected an integer, got {value[:40]!r}")
        return int(value)
    if name in _BOOLEANS:
        if value.lower() not in _TRUTH:
            raise invalid_field(name, f"Expected true or false, got {value[:40]!r}")
        return _TRUTH[value.lower()]
    return value
