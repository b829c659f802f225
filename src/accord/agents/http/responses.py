"""Responses of a flow: JSON, events, text or a file.

Each reader takes chunks of bytes, split at any place, and returns the responses that they complete. A JSON value
contains text, files, other data, a question or a failure. It may be a whole answer, one event of a stream or a list of
n8n's items.
"""

import base64
import codecs
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from accord.agents.messages import OCTETS, LineBuffer
from accord.model import Part
from accord.protocol.sse import Decoder, Frame

TEXTS = ("output", "result", "message", "text", "response", "content")
"""Keys of a flow's text, in order of precedence."""

REASONS = ("error", "message", "detail", "reason", "text", "output")
"""Keys of a flow's error message."""

SILENT_EVENTS = frozenset({"begin", "start", "end", "done", "ping"})
"""Types of events without content, which only start, keep alive or end a stream.

n8n's are begin, item, end and error.
"""

MAX_DEPTH = 4
"""Maximum depth of a wrapped text; n8n's items in a list, in `json`, in `output`, have three levels."""

MAX_REASON = 300
"""Maximum length of a reason for callers, in characters."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")


class FlowResponse(Struct, frozen=True, kw_only=True):
    """The content of a value; at most one of `question`, `failure` and `progress` is set."""

    parts: tuple[Part, ...] = ()
    question: str | None = None
    failure: str | None = None
    progress: str | None = None
    usage: Mapping[str, Any] | None = None


def parse_response(value: Any) -> FlowResponse:
    """Return the content of a whole answer; members beside the text become data."""
    value = unwrap_items(value)
    if not isinstance(value, dict):
        return FlowResponse(parts=_value_parts(value))
    usage = value.get("usage")
    usage_only = FlowResponse(usage=usage if isinstance(usage, dict) else None)
    members = {name: part for name, part in value.items() if name != "usage" or usage_only.usage is None}
    text, key = _find_text(members)
    match value.get("status"):
        case "failed":
            return FlowResponse(failure=failure_reason(value) or "The flow failed", usage=usage_only.usage)
        case "input-required":
            return FlowResponse(question=text or "The flow needs an answer", usage=usage_only.usage)
        case "completed":
            members.pop("status")
    files = file_list(members.get("files"))
    for name in (key, "files" if files else None):
        members.pop(name or "", None)
    parts = (*_value_parts(text), *files)
    if members:
        data = members["data"] if set(members) == {"data"} else members
        parts = (*parts, Part(data=data, media_type="application/json"))
    return FlowResponse(parts=parts, usage=usage_only.usage)


def parse_event(value: Any) -> FlowResponse:
    """Return the content of one event of a stream, usually a piece of the text."""
    value = unwrap_items(value)
    if not isinstance(value, dict):
        return FlowResponse(parts=_value_parts(value))
    usage = value.get("usage")
    used = usage if isinstance(usage, dict) else None
    kind, state = value.get("type"), value.get("status")
    if kind == "error" or state == "failed":
        return FlowResponse(failure=failure_reason(value) or _first_text(value, TEXTS) or "The flow failed", usage=used)
    text, _ = _find_text(value)
    if state == "input-required":
        return FlowResponse(question=text or "The flow needs an answer", usage=used)
    if state == "working":
        return FlowResponse(progress=text, usage=used)
    if isinstance(value.get("delta"), str):
        text = value["delta"]
    if text is not None:
        return FlowResponse(parts=(*_value_parts(text), *file_list(value.get("files"))), usage=used)
    if kind in SILENT_EVENTS or set(value) == {"usage"}:
        return FlowResponse(usage=used)
    return FlowResponse(parts=file_list(value.get("files")) or _value_parts(value), usage=used)


def failure_reason(value: Any) -> str | None:
    """Return a value's error message in one line that callers may see, or None."""
    value = unwrap_items(value)
    if isinstance(value, str):
        return one_line(value) or None
    if not isinstance(value, dict):
        return None
    for name in REASONS:
        member = value.get(name)
        if member and (reason := failure_reason(member) if isinstance(member, str | dict) else None):
            return reason
    return None


def one_line(text: str) -> str:
    """Return the first line of a text, shortened; stack traces start below it."""
    lines = text.strip().splitlines()
    return _CONTROL.sub(" ", lines[0]).strip()[:MAX_REASON] if lines else ""


def unwrap_items(value: Any) -> Any:
    """Return the content of a single-item list or an n8n item (its `json`)."""
    for _ in range(MAX_DEPTH):
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        elif isinstance(value, dict) and "json" in value and set(value) <= {"json", "binary", "pairedItem", "index"}:
            value = value["json"]
        else:
            break
    if isinstance(value, list):
        return [unwrap_items(item) if isinstance(item, dict) else item for item in value]
    return value


def file_list(value: Any) -> tuple[Part, ...]:
    """Return the files in a JSON list; a list with any other entry contains no files."""
    files = tuple(_file_part(entry) for entry in value) if isinstance(value, list) else ()
    return tuple(part for part in files if part is not None) if all(files) else ()


def _file_part(entry: Any) -> Part | None:
    """Return a file: with its bytes in base64 as `data` or `bytes`, or with a `uri` or `url`."""
    if not isinstance(entry, dict):
        return None
    name = _first_text(entry, ("name", "filename", "fileName"))
    kind = _first_text(entry, ("mime_type", "mimeType", "mediaType"))
    inside, at = _first_text(entry, ("data", "bytes")), _first_text(entry, ("uri", "url"))
    try:
        if inside is not None:
            return Part(raw=base64.b64decode(inside, validate=True), filename=name, media_type=kind or OCTETS)
    except ValueError:  # not base64, or not even ASCII
        return None
    return None if at is None else Part(url=at, filename=name, media_type=kind)


def _find_text(value: Mapping[str, Any], depth: int = 0) -> tuple[str | None, str | None]:
    """Return the text of an object and its key."""
    for name in TEXTS:
        member = unwrap_items(value.get(name))
        if isinstance(member, str):
            return member, name
        if isinstance(member, dict) and depth < MAX_DEPTH and len(member) == 1:
            text, _ = _find_text(member, depth + 1)
            if text is not None:
                return text, name
    return None, None


def _first_text(value: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((text for name in names if isinstance(text := value.get(name), str)), None)


def _value_parts(value: Any) -> tuple[Part, ...]:
    if value is None or value == "":
        return ()
    return (Part(text=value),) if isinstance(value, str) else (Part(data=value, media_type="application/json"),)


LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})

_FILENAME = re.compile(r"filename\*?=(?:UTF-8'[^']*')?\"?([^\";]+)", re.IGNORECASE)


class UnreadableResponse(Exception):
    """A response does not match its media type."""


def response_reader(media_type: str, disposition: str = "") -> "ResponseReader":
    """Return the reader for a media type."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return _EventReader()
    if kind in LINES:
        return _JsonLinesReader()
    if kind == "application/json" or kind.endswith("+json"):
        return _JsonReader()
    if not kind:
        return _WholeReader(_untyped)
    if kind.startswith("text/") and "attachment" not in disposition:
        return _TextReader(_charset(media_type))
    return _WholeReader(lambda content: _file(content, kind, disposition))


class _JsonReader:
    """One value, or several lines, which n8n streams as application/json as well."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._looked = 0
        self._first_ends: int | None = None
        self._is_one = False
        self._lines: _JsonLinesReader | None = None

    def feed(self, piece: bytes) -> Iterable[FlowResponse]:
        if self._lines is not None:
            yield from self._lines.feed(piece)
            return
        self._held += piece
        if not self._is_one and self._has_lines():
            self._lines = _JsonLinesReader()
            yield from self._lines.feed(bytes(self._held))

    def _has_lines(self) -> bool:
        """Whether more text follows a first line that is a whole object."""
        if self._first_ends is None:
            at = self._held.find(b"\n", self._looked)
            self._looked = len(self._held)
            if at < 0:
                return False
            self._first_ends = at
            self._is_one = not isinstance(json_value(bytes(self._held[:at])), dict)
        return not self._is_one and bool(self._held[self._first_ends :].strip())

    def end(self) -> Iterable[FlowResponse]:
        if self._lines is not None:
            yield from self._lines.end()
        elif self._held.strip():
            value = json_value(bytes(self._held))
            if value is msgspec.NODEFAULT:
                raise UnreadableResponse("its media type is JSON, but its body is not")
            yield parse_response(value)


class _JsonLinesReader:
    """A JSON value in each line."""

    def __init__(self) -> None:
        self._lines = LineBuffer()

    def feed(self, piece: bytes) -> Iterable[FlowResponse]:
        for line in self._lines.feed(piece):
            yield from self._line(line)

    def end(self) -> Iterable[FlowResponse]:
        yield from self._line(bytes(self._lines.rest))

    def _line(self, line: bytes) -> Iterable[FlowResponse]:
        if not line.strip():
            return
        value = json_value(line)
        if value is msgspec.NODEFAULT:
            raise UnreadableResponse("a line of it is not JSON")
        yield parse_event(value)


class _EventReader:
    """Server-sent events, whose data is JSON or plain text."""

    def __init__(self) -> None:
        self._decoder = Decoder()

    def feed(self, piece: bytes) -> Iterable[FlowResponse]:
        for frame in self._decoder.feed(piece):
            yield from _event(frame)

    def end(self) -> Iterable[FlowResponse]:
        yield from self.feed(b"\n\n")  # many flows omit the blank line after their last event


def _event(frame: Frame) -> Iterable[FlowResponse]:
    if not frame.data or frame.data == b"[DONE]":
        return
    value = json_value(frame.data)
    if value is msgspec.NODEFAULT:
        value = frame.data.decode("utf-8", "replace")
    if frame.event == "error":
        value = {"type": "error", **(value if isinstance(value, dict) else {"message": value})}
    yield parse_event(value)


class _TextReader:
    """Text, streamed."""

    def __init__(self, charset: str = "utf-8") -> None:
        self._decoder = codecs.getincrementaldecoder(charset)("replace")

    def feed(self, piece: bytes) -> Iterable[FlowResponse]:
        yield from _text_response(self._decoder.decode(piece))

    def end(self) -> Iterable[FlowResponse]:
        yield from _text_response(self._decoder.decode(b"", final=True))


class _WholeReader:
    """A response that is parsed at its end."""

    def __init__(self, parse: Callable[[bytes], Iterable[FlowResponse]]) -> None:
        self._held = bytearray()
        self._parse = parse

    def feed(self, piece: bytes) -> Iterable[FlowResponse]:
        self._held += piece
        return ()

    def end(self) -> Iterable[FlowResponse]:
        return self._parse(bytes(self._held))


ResponseReader = _JsonReader | _JsonLinesReader | _EventReader | _TextReader | _WholeReader
"""Parser for one response: `feed` returns what a chunk completes, and `end` the rest."""


def _file(content: bytes, media_type: str, disposition: str = "") -> Iterable[FlowResponse]:
    match = _FILENAME.search(disposition)
    name = unquote(match[1]).rpartition("/")[2].strip() if match else None
    if content:
        yield FlowResponse(parts=(Part(raw=content, filename=name, media_type=media_type),))


def _untyped(content: bytes) -> Iterable[FlowResponse]:
    """Yield the content without a media type: JSON if it parses, else text if it decodes, else a file."""
    if not content.strip():
        return
    value = json_value(content)
    if value is not msgspec.NODEFAULT:
        yield parse_response(value)
        return
    try:
        yield from _text_response(content.decode())
    except UnicodeDecodeError:
        yield from _file(content, OCTETS)


def json_value(text: bytes) -> Any:
    """Return the JSON value of some bytes, or NODEFAULT if they are not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.NODEFAULT


def _text_response(text: str) -> Iterable[FlowResponse]:
    if text:
        yield FlowResponse(parts=(Part(text=text),))


def _charset(media_type: str) -> str:
    for parameter in media_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            try:
                return codecs.lookup(value.strip().strip('"')).name
            except LookupError:
                break
    return "utf-8"
