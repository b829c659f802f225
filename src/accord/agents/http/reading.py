"""Bytes of a flow's answer, as they come, to what it says: JSON, JSON lines, server-sent events, text or a file.

Each reader is fed with pieces, wherever they were cut, and gives what they complete. None of them does I/O or knows how
large an answer may be: that is `flow`'s. What a value means is `hearing`'s.
"""

import codecs
import re
from collections.abc import Iterable
from typing import Any, Protocol
from urllib.parse import unquote

import msgspec

from accord.agents.content import OCTETS
from accord.agents.http.hearing import Heard, heard, overheard
from accord.model import Part
from accord.protocol.sse import Decoder, Frame

LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})

_FILENAME = re.compile(r"filename\*?=(?:UTF-8'[^']*')?\"?([^\";]+)", re.IGNORECASE)


class NotReadable(Exception):
    """An answer is not what it says to be."""


class Reader(Protocol):
    """Makes sense of one answer."""

    def feed(self, piece: bytes) -> Iterable[Heard]:
        """Return what some bytes complete."""

    def end(self) -> Iterable[Heard]:
        """Return what is left when nothing more comes."""


def reader(media_type: str, disposition: str = "") -> Reader:
    """Return what reads an answer of a media type."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return _Events()
    if kind in LINES:
        return _Lines()
    if kind == "application/json" or kind.endswith("+json"):
        return _Json()
    if not kind:
        return _Unlabelled()
    if kind.startswith("text/") and "attachment" not in disposition:
        return _Text(_charset(media_type))
    return _File(kind, disposition)


class _Json:
    """One value; or several lines, as n8n streams: it calls them application/json as well."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._looked = 0
        self._first_ends: int | None = None
        self._is_one = False
        self._lines: _Lines | None = None

    def feed(self, piece: bytes) -> Iterable[Heard]:
        if self._lines is not None:
            yield from self._lines.feed(piece)
            return
        self._held += piece
        if not self._is_one and self._has_lines():
            self._lines = _Lines()
            yield from self._lines.feed(bytes(self._held))

    def _has_lines(self) -> bool:
        """Whether something follows after a line that is an object by itself."""
        if self._first_ends is None:
            at = self._held.find(b"\n", self._looked)
            self._looked = len(self._held)
            if at < 0:
                return False
            self._first_ends = at
            self._is_one = not isinstance(_value(bytes(self._held[:at])), dict)
        return not self._is_one and bool(self._held[self._first_ends :].strip())

    def end(self) -> Iterable[Heard]:
        if self._lines is not None:
            yield from self._lines.end()
        elif self._held.strip():
            value = _value(bytes(self._held))
            if value is msgspec.NODEFAULT:
                raise NotReadable("it says that it is JSON, and is not")
            yield heard(value)


class _Lines:
    """A value in each line."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterable[Heard]:
        self._held += piece
        if b"\n" not in piece:
            return
        *lines, rest = bytes(self._held).split(b"\n")
        self._held = bytearray(rest)
        for line in lines:
            yield from self._line(line)

    def end(self) -> Iterable[Heard]:
        yield from self._line(bytes(self._held))

    def _line(self, line: bytes) -> Iterable[Heard]:
        if not line.strip():
            return
        value = _value(line)
        if value is msgspec.NODEFAULT:
            raise NotReadable("a line of it is not JSON")
        yield overheard(value)


class _Events:
    """Server-sent events; their data is JSON, or text as it is."""

    def __init__(self) -> None:
        self._decoder = Decoder()

    def feed(self, piece: bytes) -> Iterable[Heard]:
        for frame in self._decoder.feed(piece):
            yield from _event(frame)

    def end(self) -> Iterable[Heard]:
        yield from self.feed(b"\n\n")  # many a flow forgets the blank line after its last event


def _event(frame: Frame) -> Iterable[Heard]:
    if not frame.data or frame.data == b"[DONE]":
        return
    value = _value(frame.data)
    if value is msgspec.NODEFAULT:
        value = frame.data.decode("utf-8", "replace")
    if frame.event == "error":
        value = {"type": "error", **(value if isinstance(value, dict) else {"message": value})}
    yield overheard(value)


class _Text:
    """Text, as it comes."""

    def __init__(self, charset: str = "utf-8") -> None:
        self._decoder = codecs.getincrementaldecoder(charset)("replace")

    def feed(self, piece: bytes) -> Iterable[Heard]:
        yield from _text(self._decoder.decode(piece))

    def end(self) -> Iterable[Heard]:
        yield from _text(self._decoder.decode(b"", final=True))


class _File:
    """A file."""

    def __init__(self, media_type: str, disposition: str = "") -> None:
        self._held = bytearray()
        self._media_type = media_type
        found = _FILENAME.search(disposition)
        self._name = unquote(found[1]).rpartition("/")[2].strip() if found else None

    def feed(self, piece: bytes) -> Iterable[Heard]:
        self._held += piece
        return ()

    def end(self) -> Iterable[Heard]:
        if self._held:
            yield Heard(parts=(Part(raw=bytes(self._held), filename=self._name, media_type=self._media_type),))


class _Unlabelled:
    """An answer that does not say what it is: JSON if it is that, else text if it is that, else a file."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, piece: bytes) -> Iterable[Heard]:
        self._held += piece
        return ()

    def end(self) -> Iterable[Heard]:
        if not self._held.strip():
            return
        value = _value(bytes(self._held))
        if value is not msgspec.NODEFAULT:
            yield heard(value)
            return
        try:
            yield from _text(bytes(self._held).decode())
        except UnicodeDecodeError:
            yield Heard(parts=(Part(raw=bytes(self._held), media_type=OCTETS),))


def _value(text: bytes) -> Any:
    """Return the JSON value that some bytes are, or NODEFAULT if they are none."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.NODEFAULT


def _text(text: str) -> Iterable[Heard]:
    if text:
        yield Heard(parts=(Part(text=text),))


def _charset(media_type: str) -> str:
    for parameter in media_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            try:
                return codecs.lookup(value.strip().strip('"')).name
            except LookupError:
                break
    return "utf-8"
