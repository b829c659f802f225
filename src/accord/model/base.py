"""The base struct of the model, shared constraints, and the timestamp format.

It contains only definitions that the other model modules need for their fields.
"""

import re
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Annotated, Any, dataclass_transform

from msgspec import Meta, Struct, field

NonEmpty = Annotated[str, Meta(min_length=1)]
"""A required string of A2A. ProtoJSON cannot distinguish an empty string from a missing one, so empty is refused."""

Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
"""A non-negative int32 of the A2A protobuf definition."""

Timestamp = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A time as text, which structs normalize with `named_timestamp`."""

Metadata = dict[str, Any]
"""Free key-value data (a protobuf Struct)."""


class Choice(Enum):
    """An enumeration whose members hash by identity.

    Members are singletons, so this equals Enum's own hash, which is computed in Python from the name. That computation
    costs more than the table lookup that it serves.
    """

    __hash__ = object.__hash__


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class A2AModel(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of every model type: frozen, keyword-only to type checkers, and encoded as A2A 1.0 JSON without defaults."""


@lru_cache(256)  # a status, its event and its task contain the same time, and many tasks share one
def timestamp(text: str) -> str:
    """Return an ISO 8601 time in the one form that A2A 1.0 allows: `YYYY-MM-DDTHH:mm:ss.sssZ`.

    A time without a zone is taken as UTC: at least one public server sends such times. Digits beyond the
    millisecond are dropped.
    """
    try:
        moment = datetime.fromisoformat(text)
        if _EXACT.fullmatch(text):
            return text
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"Not an ISO 8601 timestamp: {text[:40]!r}") from None
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def named_timestamp(field: str, text: str) -> str:
    """Normalize a timestamp as `timestamp` does, with the field's name at the start of the error.

    A struct's validation cannot add the name.
    """
    try:
        return timestamp(text)
    except ValueError as error:
        raise ValueError(f"`{field}`: {error}") from None


@lru_cache(64)
def timestamp_ms(milliseconds: int) -> str:
    """Return the A2A form of a Unix time in milliseconds."""
    seconds, millis = divmod(milliseconds, 1000)
    return f"{_second(seconds)}.{millis:03d}Z"


@lru_cache(8)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"


_EXACT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z")
