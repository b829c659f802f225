"""The one canonical form of JSON (RFC 8785, JCS): what a signature over a document is made of.

It writes and does not read. Numbers are IEEE doubles in ECMAScript's spelling, names are in the order of their UTF-16
code units, text is UTF-8 with as few escapes as JSON allows. `card_signatures` is above.
"""

import json
from decimal import Decimal
from math import isfinite
from typing import Any

MAX_DEPTH = 100
"""As deep as JSON from a stranger may be nested anywhere else here."""


class NotCanonical(ValueError):
    """The value has no canonical form."""


def encode(value: Any) -> bytes:
    """Return the canonical form of plain data, as JSON decoders give it."""
    try:
        return _write(value, 1).encode()
    except UnicodeEncodeError:
        raise NotCanonical("Text with half a surrogate pair") from None


def _write(value: Any, depth: int) -> str:
    if depth > MAX_DEPTH:
        raise NotCanonical("Nested too deeply")
    match value:
        case dict():
            return "{" + ",".join(f"{_text(name)}:{_write(value[name], depth + 1)}" for name in _sorted(value)) + "}"
        case list():
            return "[" + ",".join(_write(item, depth + 1) for item in value) + "]"
        case str():
            return _text(value)
        case None | bool():
            return json.dumps(value)
        case int():
            return _integer(value)
        case float() if isfinite(value):
            return number(value)
    raise NotCanonical(f"No canonical form for {type(value).__name__}")


def _sorted(names: dict[Any, Any]) -> list[str]:
    if not all(isinstance(name, str) for name in names):
        raise NotCanonical("A name is not text")
    return sorted(names, key=lambda name: name.encode("utf-16-be"))


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # escapes quotes, backslashes and control characters as 3.2.2.2 says


def _integer(value: int) -> str:
    """Write an integer that is the same to readers who have only doubles: others would be signed as a neighbour."""
    if abs(value) >= 10**21 or (abs(value) >= 2**53 and number(float(value)) != str(value)):
        raise NotCanonical("An integer that is no double")
    return str(value)


def number(value: float) -> str:
    """Write a double as ECMAScript does (Number::toString), from the shortest digits that mean it.

    Python's `repr` finds the same digits; only where it puts the point and when it writes an exponent differs.
    """
    if value == 0:
        return "0"  # minus zero as well
    sign, places, exponent = Decimal(repr(value)).normalize().as_tuple()
    digits, point = "".join(map(str, places)), len(places) + int(exponent)
    return "-" * sign + _placed(digits, point)


def _placed(digits: str, point: int) -> str:
    """Return 0.DIGITS times ten to the power of `point`."""
    if len(digits) <= point <= 21:
        return digits.ljust(point, "0")
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
