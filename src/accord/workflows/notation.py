"""Notation of values in workflow files: durations, scalars, and the base of all structs."""

import re
from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

UNITS = {"d": Decimal(86_400), "h": Decimal(3_600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
DURATION_PATTERN = r"^\s*(\d+(\.\d+)?(ms|[dhms])\s*)+$"
"""A valid duration, as a regular expression that any engine reads."""

MAX_SECONDS = 10 * 366 * 86_400
"""Ten years. A longer time is a mistake and would overflow in some places."""


def parse_duration(text: str) -> float:
    """Return a duration in seconds; raises ValueError if it is not valid."""
    if re.fullmatch(DURATION_PATTERN[1:-1], text, re.ASCII) is None:
        raise ValueError(text)
    return float(sum((Decimal(number) * UNITS[unit] for number, unit in _PART.findall(text)), Decimal(0)))


def format_duration(time: float) -> str:
    """Return a duration in the form of a file; the inverse of `parse_duration`."""
    left = Decimal(repr(time))
    if left % UNITS["ms"]:
        return f"{left:f}s"
    words = []
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        words += [f"{count:f}{unit}"] if count else []
    return "".join(words) or "0s"


Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS, extra_json_schema={"notation": "duration"})]
"""A duration of at most ten years. Files write `10m`, or `timeoutMs` for `timeout`."""

Text = Annotated[str, Meta(extra_json_schema={"notation": "scalar"})]
"""A scalar that is always a string, also if it is written as a number or boolean without quotes."""

Argv = Annotated[tuple[Text, ...], Meta(min_length=1)]
"""A program and its arguments, run without a shell."""

Count = Annotated[int, Meta(ge=1)]
Tally = Annotated[int, Meta(ge=0)]


class DocumentPart(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of all structs of a file. Durations are in seconds, in any notation of the file."""
