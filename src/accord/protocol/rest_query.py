"""The parameters of REST requests: what body, query and path say, put together as one object and taken apart again.

A query and a path hold nothing but text; here it becomes the numbers and booleans that the dialects' ordinary readers
expect, in every version alike. What the parameters mean is theirs; splitting a URL is the binding's work.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from msgspec import Raw
from msgspec.json import Decoder

from accord.model import Request
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.operations import ROWS, Operation, RestRoute

WITHOUT_BODY = frozenset(
    row.operation for row in ROWS.values() if any(route.verb in ("GET", "DELETE") for route in row.rest + row.rest_v03)
)
"""The operations whose parameters are in the query and the path."""

_NUMBERS = frozenset({"historyLength", "pageSize"})
_BOOLEANS = frozenset({"includeArtifacts"})
_TRUTH = {"true": True, "1": True, "false": False, "0": False}
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_OBJECT = Decoder(dict[str, Any])
_MEMBERS = Decoder(dict[str, Raw])
_NAMED_IN_PATH = {
    "id": frozenset({"taskId", "task_id", "name", "parent", "pushNotificationConfigId"}),
    "taskId": frozenset({"task_id", "name", "parent"}),
}
"""For each value of a path, the other names that a task or a webhook goes by: beside it they say nothing."""


def from_body(body: bytes, values: Mapping[str, str]) -> bytes:
    """Return a body with the path's values; no body is an empty object."""
    codec.check_form(body)
    if not values:
        return body or b"{}"
    stated = codec.decode(body, _MEMBERS) if body else {}
    return _with_path(stated, values)


def from_query(query: Iterable[tuple[str, str]], values: Mapping[str, str]) -> bytes:
    """Return a query with the path's values; a name that is repeated has a list (11.5)."""
    stated: dict[str, Any] = {}
    for name, value in query:
        stated.setdefault(name, []).append(value)
    return _with_path({name: found[0] if len(found) == 1 else found for name, found in stated.items()}, values)


def _with_path(stated: Mapping[str, Any], values: Mapping[str, str]) -> bytes:
    """Put the path's values in the place of whatever else says the same: the address is what is asked."""
    if not stated:
        return codec.encode(values)
    other = {alias for name in values for alias in _NAMED_IN_PATH.get(name, ())}
    return codec.encode({name: value for name, value in stated.items() if name not in other} | dict(values))


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


# --- the other way: parameters to addresses -----------------------------------------------------------------------

_VALUE = re.compile(r"\{(\w+)\}")
_ATTRIBUTES = {"id": "id", "taskId": "task_id"}


def path_of(route: RestRoute, request: Request) -> str:
    """Return the path of a route with a request's values in it."""

    def value(found: re.Match[str]) -> str:
        stated = getattr(request, _ATTRIBUTES[found[1]])
        if not stated:
            raise invalid_field(found[1], "Required field is missing")
        return quote(stated, safe="")

    return _VALUE.sub(value, route.path)


def to_query(route: RestRoute, params: bytes) -> list[tuple[str, str]]:
    """Return the query for what the path of a route does not say; the tenant is a prefix of the path."""
    named = _VALUE.findall(route.path)
    said = {"tenant", *named, *(alias for name in named for alias in _NAMED_IN_PATH[name])}
    stated = codec.decode(params, _OBJECT)
    return [(name, _written(value)) for name, value in stated.items() if name not in said and value is not None]


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
