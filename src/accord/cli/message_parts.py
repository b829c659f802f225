"""Message parts from arguments, files and standard input, in their given order.

A URL is not fetched but passed to the agent.
"""

import mimetypes
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import typer

from accord.model import Part

STDIN = "-"

MAX_BYTES = 64 * 1024 * 1024
"""Maximum bytes of a part: it is in memory several times while it is sent, and few servers accept as much. Larger files
need a URL that the agent fetches."""


class GivenPart(NamedTuple):
    """A part from the command line: its flag, its value, and the media type given after it."""

    flag: str
    value: str
    media_type: str | None = None


def given_parts(order: Iterable[str], values: dict[str, list[str]]) -> list[GivenPart]:
    """Restore the order of the flags. A media type belongs to the part before it."""
    left = {flag: iter(found) for flag, found in values.items()}
    found: list[GivenPart] = []
    for flag in order:
        if flag not in left:
            continue
        value = next(left[flag])
        if flag != "media_type":
            found.append(GivenPart(flag, value))
        elif not found or found[-1].media_type is not None:
            raise typer.BadParameter("It belongs to the part before it, and there is none", param_hint="--media-type")
        else:
            found[-1] = found[-1]._replace(media_type=value)
    return found


def parts_of(text: str | None, given: Iterable[GivenPart]) -> tuple[Part, ...]:
    """Return the parts of a message, its text first. Empty texts are dropped."""
    said = "" if text is None else _said(text, "TEXT")
    parts = [Part(text=said)] if said else []
    parts += [part for one in given if (part := _READERS[one.flag](one)).text != ""]
    if not parts:
        raise typer.BadParameter("There is nothing to send: give a text, --file or --data", param_hint="TEXT")
    return tuple(parts)


def parse_object(text: str) -> dict[str, Any]:
    """Parse the metadata of a message."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise typer.BadParameter(f"It is not a JSON object: {error}", param_hint="--metadata") from None


def _text(given: GivenPart) -> Part:
    return Part(text=_said(given.value, "--text"), media_type=given.media_type)


def _line(given: GivenPart) -> Part:
    """Read a line of a chat. A dash is text here."""
    return Part(text=_sendable(given.value, "TEXT"))


def _file(given: GivenPart) -> Part:
    if given.value == STDIN:
        return Part(raw=_stdin("--file"), media_type=given.media_type or _ANY)
    is_address = given.value.startswith(("https://", "http://"))
    name = (given.value.partition("?")[0] if is_address else given.value).rpartition("/")[2]
    kind = given.media_type or mimetypes.guess_type(name)[0]
    if is_address:
        return Part(url=given.value, filename=name or None, media_type=kind)
    return Part(raw=_read(given.value, "--file"), filename=Path(given.value).name, media_type=kind or _ANY)


def _data(given: GivenPart) -> Part:
    """Parse JSON: the value itself, a file, or standard input."""
    text = given.value.strip()
    is_json = text[:1] in ("{", "[", '"')
    stated = _stdin("--data") if text == STDIN else text if is_json else _read(given.value, "--data")
    try:
        return Part(data=msgspec.json.decode(stated), media_type=given.media_type)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"It is not JSON: {error}", param_hint="--data") from None


_ANY = "application/octet-stream"
_READERS = {"texts": _text, "line": _line, "file": _file, "data": _data}


def _read(path: str, flag: str) -> bytes:
    """Read a regular file. A pipe or a device may never end."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise typer.BadParameter(f"{path} is no regular file; - is standard input", param_hint=flag)
        with Path(path).open("rb") as file:
            return _bounded(file.read(MAX_BYTES + 1), path, flag)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=flag) from None
    except ValueError as error:  # such as a name with a NUL in it
        raise typer.BadParameter(f"{path!r} cannot be read: {error}", param_hint=flag) from None


def _bounded(found: bytes, name: str, flag: str) -> bytes:
    if len(found) > MAX_BYTES:
        larger = f"{name} is larger than {MAX_BYTES >> 20} MiB; give the agent an https address to fetch it from"
        raise typer.BadParameter(larger, param_hint=flag)
    return found


def _said(text: str, flag: str) -> str:
    if text != STDIN:
        return _sendable(text, flag)
    try:
        return _stdin(flag).decode()
    except UnicodeDecodeError:
        raise _no_text(flag) from None


def _sendable(text: str, flag: str) -> str:
    """Return a text that can be encoded: invalid UTF-8 in arguments becomes lone surrogates, which cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _no_text(flag) from None
    return text


def _no_text(flag: str) -> typer.BadParameter:
    return typer.BadParameter("It is no text in UTF-8; --file sends anything", param_hint=flag)


def _stdin(flag: str) -> bytes:
    return _bounded(sys.stdin.buffer.read(MAX_BYTES + 1), "Standard input", flag)
