"""Server-Sent Events as bytes: one encoder and one incremental decoder of event streams.

It is not a connection: it never reconnects or waits, and does not interpret the data of events. The bindings above
write streams with it and the client above reads them. Below it there is only msgspec.

Rules: WHATWG HTML, section 9.2 "Server-sent events" (parsing and interpreting an event stream).
"""

import re
from typing import Final

import msgspec
from msgspec.structs import replace

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes that a `Decoder` buffers for one event: above any sane task snapshot, below a burden on a host."""

MAX_RETRY: Final = 10**15 - 1
"""Longest reconnection time in milliseconds, some 31,000 years; more digits are noise or an attack."""

_RETRY: Final = re.compile(rb"[0-9]{1,15}")
_BOM: Final = b"\xef\xbb\xbf"


class FrameTooLarge(ValueError):
    """An event is larger than the decoder may buffer.

    `limit` is the maximum in bytes; `frames` are the events that the same chunk completed before this one.
    """

    def __init__(self, limit: int, frames: list["Frame"]) -> None:
        super().__init__(f"an event of the stream exceeds the limit of {limit} bytes")
        self.limit = limit
        self.frames = frames


# gc=False: strings and integers cannot form cycles, and a stream creates many frames.
class Frame(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One event of a stream; `event` None means the default type, `message`.

    In decoded frames `id` is the last event id in force, which an earlier event may have set.
    """

    data: bytes = b""
    event: str | None = None
    id: str | None = None
    retry: int | None = None


def encode(frame: Frame) -> bytes:
    """Return the bytes of one event; every kind of line break in the data becomes LF."""
    data = frame.data
    if b"\n" in data or b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
    if frame.event is None and frame.retry is None:
        # The hot path: every streamed chunk is one line of JSON with its sequence number as id.
        if frame.id is None:
            return b"data: %b\n\n" % data
        return b"id: %b\ndata: %b\n\n" % (_one_line("id", frame.id), data)
    return b"%bdata: %b\n\n" % (_head(frame), data)


def around(frame: Frame) -> tuple[bytes, bytes]:
    """Return the bytes of an event before and after its data, to avoid copying data that is one line."""
    whole = encode(replace(frame, data=b""))
    return whole[:-2], whole[-2:]


def comment(text: str) -> bytes:
    """Return a line that every reader ignores, to keep an idle connection open."""
    return b": %b\n\n" % _one_line("comment", text)


def _head(frame: Frame) -> bytes:
    lines = b""
    if frame.id is not None:
        lines += b"id: %b\n" % _one_line("id", frame.id)
    if frame.event is not None:
        lines += b"event: %b\n" % _one_line("event", frame.event)
    if frame.retry is not None:
        if not 0 <= frame.retry <= MAX_RETRY:
            raise ValueError(f"retry must be from 0 to {MAX_RETRY} milliseconds, not {frame.retry}")
        lines += b"retry: %d\n" % frame.retry
    return lines


def _one_line(field: str, value: str) -> bytes:
    # A line break would let the value forge further fields, and readers drop an id with NUL.
    # Printable text has neither, and that test is one call on the hot path.
    if not value.isprintable() and any(char in value for char in "\r\n\0"):
        raise ValueError(f"{field} must not contain CR, LF or NUL: {value!r}")
    return value.encode()


KEEP_ALIVE: Final = comment("keep-alive")
"""The comment that servers send on idle streams."""


class Decoder:
    """Decodes the chunks of one event stream into frames, at any chunk boundaries.

    A client reconnects with `last_event_id`, the id that the last finished event left in force, and `retry`, the
    reconnection time that the server requested. Both are None until the stream sets them. An event that the end of the
    stream cuts off is never returned, so there is nothing to close.
    """

    def __init__(self, *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self.last_event_id: str | None = None
        self.retry: int | None = None
        self._max_bytes = max_bytes
        self._start: bytes | None = b""
        self._after_cr = False
        self._failed = False
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._id: str | None = None
        self._event = ""
        self._frame_retry: int | None = None

    def feed(self, chunk: bytes) -> list[Frame]:
        """Return the frames that this chunk completes.

        Raises `FrameTooLarge` if an event exceeds the limit. The decoder then refuses every further chunk.
        """
        frames: list[Frame] = []
        if self._failed:
            raise FrameTooLarge(self._max_bytes, frames)
        lines = self._split(chunk)
        rest = lines.pop()
        for line in lines:
            if len(line) + self._size > self._max_bytes:
                raise self._too_large(frames)
            if not line:
                self._dispatch(frames)
            elif line.startswith(b"data: "):  # as do nearly all lines of most streams
                self._add(line[6:])
            else:
                self._field(line)
        self._line += rest
        if len(self._line) + self._size > self._max_bytes:
            raise self._too_large(frames)
        return frames

    def _split(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk ends, the first with its buffered start, and the start of the next line."""
        if self._start is not None:
            chunk = self._without_bom(self._start + chunk)
        lines = self._with_lf(chunk).split(b"\n")
        if self._line and len(lines) > 1:
            lines[0] = bytes(self._line) + lines[0]
            self._line.clear()
        return lines

    def _without_bom(self, start: bytes) -> bytes:
        """Return the start of the stream without its byte order mark, or nothing while it may still become one."""
        if len(start) < len(_BOM) and _BOM.startswith(start):
            self._start = start
            return b""
        self._start = None
        return start.removeprefix(_BOM)

    def _with_lf(self, chunk: bytes) -> bytes:
        """Return the chunk with LF line ends; a CR ends its line at once, and an LF after it is dropped."""
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if b"\r" not in chunk:
            return chunk
        self._after_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _too_large(self, frames: list[Frame]) -> FrameTooLarge:
        self._failed = True
        self._line.clear()
        self._data.clear()
        return FrameTooLarge(self._max_bytes, frames)

    def _add(self, data: bytes) -> None:
        self._data.append(data)
        self._size += len(data) + 1  # with the LF that joins it to the next

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._add(value)
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode(errors="replace")
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"retry" and _RETRY.fullmatch(value):
            self.retry = self._frame_retry = int(value)

    def _dispatch(self, frames: list[Frame]) -> None:
        self.last_event_id = self._id
        if self._data:
            data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
            if not data.isascii():
                data = data.decode(errors="replace").encode()
            frames.append(Frame(data=data, event=self._event or None, id=self._id, retry=self._frame_retry))
            self._data.clear()
            self._size = 0
        self._event = ""
        self._frame_retry = None
