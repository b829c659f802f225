"""Field names as protobuf writes them: A2A 1.0 is ProtoJSON, whose readers accept `history_length` for `historyLength`.

Only names of A2A's own are read so; what callers put into metadata, data and the like is theirs and is left alone.
Nothing is written under these names. The dialect of 1.0 is above; 0.3 has a table of its own, as its names are fewer.
"""

import re
from typing import Any

from msgspec.json import Decoder

from accord.errors import InvalidParams
from accord.protocol import codec

_SNAKE = re.compile(rb'"[a-z]+(?:_[a-z0-9]+)+"\s*:')
_SNAKE_END = re.compile(rb'_[a-z0-9]+"\s*:')
"""How every `_SNAKE` ends, which is several times as fast to look for: JSON is full of quotes, not of underscores."""

_FREE = frozenset({"metadata", "data", "params", "header"})
_ANY = Decoder(dict[str, Any])


def json_names(params: bytes) -> bytes:
    """Return the parameters with JSON names in place of proto names; where both are there, the JSON name wins."""
    only = params.find(b"_")
    if only == params.rfind(b"_") and params[only + 1 : only + 2].isupper():
        return params  # most messages: the one underscore is in `ROLE_USER`, and in no name a capital follows it
    if not _SNAKE_END.search(params) or not _SNAKE.search(params):
        return params
    if codec.is_too_deep(params):
        raise InvalidParams("The JSON is nested too deeply")
    return codec.encode(_renamed(codec.decode(params, _ANY)))


def _renamed(value: Any) -> Any:
    if isinstance(value, list):
        return [_renamed(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {_camel(name): part if name in _FREE else _renamed(part) for name, part in value.items() if "_" in name}
    return found | {name: part if name in _FREE else _renamed(part) for name, part in value.items() if "_" not in name}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
