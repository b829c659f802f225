"""JSON encoding and decoding, with every failure turned into an `AccordError`.

It is independent of A2A except for its timestamps. All code that reads untrusted bytes uses it, so that no input can
raise anything but `AccordError`.
"""

import json
import re
from math import isinf
from typing import Any, TypeVar

import msgspec

from accord.errors import InvalidParams, InvalidRequest, ParseError, RequestTooLarge, Violation
from accord.model.base import timestamp

T = TypeVar("T")

_AT = re.compile(r"^(?P<reason>.*?)(?: - at `(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_NAMED = re.compile(r"`(?P<name>\w+)`: (?P<reason>.*)", re.DOTALL)
_STEP = re.compile(r"(\w+)|\[(\d+)\]|\[\.\.\.\]")
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_BUT_VALUES = bytes(set(range(256)) - set(b',[{"'))

MAX_DEPTH = 100
"""Maximum nesting of untrusted JSON: as in protobuf, and well below the recursion limit."""

MAX_VALUES = 500_000
"""Maximum values in one untrusted body: millions would take seconds to read, and thirty times the body's own memory.

It leaves eight bytes for each value of the largest data part, which is the average of numbers and member names.
"""

MAX_REREAD = 1024 * 1024
"""Maximum bytes that are read a second time to name a field. That is ten times slower, so it must not take long."""

encode = msgspec.json.Encoder().encode
"""Encode a model value, or plain data, as compact JSON."""


def decode(data: bytes | msgspec.Raw, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode and validate JSON.

    Raises `ParseError` for invalid JSON and `InvalidParams`, naming the field, for the wrong shape.
    """
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _with_names(invalid(error), bytes(data)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ParseError(f"The body is not valid JSON: {plain(error)}") from None
    except RecursionError:
        raise InvalidParams("The JSON is nested too deeply") from None


def check_utf8(data: bytes) -> None:
    """Refuse bytes that are not UTF-8, as JSON requires; the decoder checks only the strings that it keeps.

    Call it once, where a body arrives. `decode` does not check strings that do not change the result.
    """
    try:
        if not data.isascii():
            data.decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"The body is not valid JSON: {plain(error)}") from None


def check_form(data: bytes) -> None:
    """Refuse JSON that has too many values or is nested too deeply, before any object is created from it."""
    if has_too_many(data):
        raise RequestTooLarge(f"The JSON has more than {MAX_VALUES} values")
    if is_too_deep(data):
        raise too_deep()


def too_deep() -> InvalidRequest:
    """Return the error for a body that is nested too deeply."""
    return InvalidRequest(f"The JSON is nested too deeply; at most {MAX_DEPTH} levels are accepted")


def has_too_many(data: bytes, limit: int = MAX_VALUES) -> bool:
    """Whether JSON has more values than `limit`, counted by commas and brackets. Invalid JSON may get either result."""
    if len(data) <= limit or sum(map(data.count, b",[]{}")) <= limit:
        return False
    plain = _without_escapes(data)
    if plain.count(b'"') > 4 * limit:  # a value has two texts at most, itself and its name
        return True
    return len(_outside_strings(plain, _BUT_VALUES)) > limit


def is_too_deep(data: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether JSON is nested more deeply than `limit`. Invalid JSON may get either result."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    brackets = _outside_strings(_without_escapes(data), _BUT_BRACKETS).translate(_ONE_KIND)
    if 2 * brackets.count(b"]") > len(brackets):
        return False  # more are closed than opened; the decoder's error is more precise
    for _ in range(limit):
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")  # the innermost level, and only that
    return bool(brackets)


def _without_escapes(data: bytes) -> bytes:
    """Remove escaped quotes, so that every quote begins or ends a string."""
    return data.replace(b"\\\\", b"").replace(b'\\"', b"")


def _outside_strings(data: bytes, unwanted: bytes) -> bytes:
    """Return the bytes outside of strings, without the `unwanted` ones.

    Two quotes with only unwanted bytes between them cancel out. A regular expression would take a step for each string,
    of which there may be too many.
    """
    return b"".join(data.translate(None, unwanted).replace(b'""', b"").split(b'"')[::2])


def convert(value: Any, to: type[T], *, strict: bool = True) -> T:
    """Validate plain data as `to`; `strict=False` also reads numbers and booleans from text, as queries need."""
    try:
        return msgspec.convert(value, to, strict=strict)
    except msgspec.ValidationError as error:
        raise invalid(error) from None
    except RecursionError:
        raise InvalidParams("The JSON is nested too deeply") from None


def invalid(error: msgspec.ValidationError) -> InvalidParams:
    """Convert a validation failure to InvalidParams, with the field's path and the reason."""
    match = _AT.match(str(error))
    reason, path = (match["reason"], match["path"]) if match else (str(error), None)
    field = (path or "$").removeprefix("$").removeprefix(".")
    if match_of_name := _MISSING.fullmatch(reason) or _NAMED.fullmatch(reason):
        field = f"{field}.{match_of_name['name']}" if field else match_of_name["name"]
        reason = match_of_name.groupdict().get("reason") or "Required field is missing"
    return invalid_field(field, reason)


def _with_names(refused: InvalidParams, data: bytes) -> InvalidParams:
    """Put the names of free members, which the decoder shows as `[...]`, into the path of a number out of range.

    Free data can have no other error. The body is read again, at the cost of refused requests only.
    """
    ((field, reason),) = refused.violations
    if "[...]" not in field or len(data) > MAX_REREAD:
        return refused
    try:
        # Numbers too large for the decoder become infinite; pairs keep repeated members.
        value = json.loads(data, parse_int=float, object_pairs_hook=tuple)
        path = _infinite(value, _STEP.findall(field)) or field
    except (ValueError, RecursionError):
        return refused
    return invalid_field(path.removeprefix("."), reason)


def _infinite(value: Any, steps: list[tuple[str, str]], path: str = "") -> str | None:
    """Return the path of the first infinite number that matches the steps: a name, a position or any name each."""
    if not steps:
        return path if isinstance(value, float) and isinf(value) else None
    (name, at), *rest = steps
    if at:
        inside = isinstance(value, list) and int(at) < len(value)
        return _infinite(value[int(at)], rest, f"{path}[{at}]") if inside else None
    members = value if isinstance(value, tuple) else ()
    found = (_infinite(item, rest, f"{path}.{key[:40]}") for key, item in members if name in ("", key))
    return next(filter(None, found), None)


def invalid_field(field: str, reason: str) -> InvalidParams:
    """Return the error for one invalid field."""
    named = f"`{field}`: {reason}" if field else reason
    return InvalidParams(f"Invalid parameters: {named}", violations=(Violation(field, reason),))


def read_time(text: str | None, where: str) -> str | None:
    """Return a time in the model's form, or None for no time."""
    try:
        return None if text is None else timestamp(text)
    except ValueError as error:
        raise invalid_field(where, str(error)) from None


def plain(error: Exception) -> str:
    """Describe the error in bytes that are not JSON, without quoting them."""
    return (
        "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error).removeprefix("JSON is malformed: ")
    )
