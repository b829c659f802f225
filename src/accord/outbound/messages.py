"""Outgoing HTTP requests, their replies, and the interface that sends them.

A failure before a reply is an `Unreachable`. An error that a server returns never is.
"""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from typing import Protocol

from msgspec import Struct

from accord.errors import InvalidAgentResponse

USER_AGENT = f"accord/{version('accord')}"

UNCOMPRESSED = ("Accept-Encoding", "identity")
"""For streams, because compression delays chunks."""

TIMEOUT_SECONDS = 60.0
"""Default timeout of an answer, in seconds: most blocking sends finish within it."""

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a whole answer, in bytes after decompression: far above any sane task."""

CONNECT_SECONDS = 10.0
"""Connection timeout, in seconds: a reachable server accepts within one or two. A2A requires 10 to 30 seconds for a
webhook (4.3.3).
"""

SILENT_SECONDS = 300.0
"""Maximum silence of a stream, in seconds: many servers send a keep-alive every 15 seconds, others only events."""

IDLE_SECONDS = 4.0
"""How long an idle connection is kept, in seconds: most servers close theirs after five. A POST that meets the close
may or may not have arrived.
"""

MAX_RETRY_SECONDS = 24 * 60 * 60
"""Maximum accepted `Retry-After`, in seconds."""


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One HTTP request.

    `seconds` is the timeout for the head of the answer, and for its body unless the request `streams`. A streamed
    body has no total timeout, only one between its chunks.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    seconds: float | None = TIMEOUT_SECONDS
    streams: bool = False

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.url.partition('?')[0]})"  # all other fields may be secrets


class HttpReply(Struct, frozen=True, kw_only=True):
    """An answer with its body, of which a part may be missing. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True

    def __repr__(self) -> str:
        return f"HttpReply({self.status})"  # a token endpoint's body contains the token


class OpenReply(Protocol):
    """An answer whose body has not been read. Its owner must read all of it or close it."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers. Their names are case-insensitive."""

    async def read(self) -> bytes:
        """Read the whole body, decompressed and up to the size limit, and release the connection."""

    def pieces(self) -> AsyncIterator[bytes]:
        """Read the body as it arrives. An iterator that is left early must be closed."""

    async def close(self) -> None:
        """Release the connection. The unread body is discarded."""


class ReadReply:
    """An answer that has been read."""

    def __init__(self, reply: HttpReply) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self._body = reply.body

    async def read(self) -> bytes:
        """Return the body."""
        return self._body

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        yield self._body

    async def close(self) -> None:
        """Do nothing."""


class HttpTransport(Protocol):
    """Sends HTTP requests. It is independent of A2A, follows no redirect and retries nothing."""

    async def open(self, request: HttpRequest) -> OpenReply:
        """Send a request and return the answer's head, or raise `Unreachable`."""

    async def close(self) -> None:
        """Close all connections."""


class Unreachable(Exception):
    """No complete answer arrived.

    `was_sent` is False only if the request certainly was not sent (unknown name, refused connection, no TLS). Then
    it may be sent again without a duplicate effect.
    """

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.was_sent = was_sent


class TargetRefused(Unreachable):
    """The policy does not allow a request, for the reason in the message. A retry does not help."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, was_sent=False)


class TimedOut(Unreachable):
    """The connection or the answer timed out."""


class StreamBroken(Unreachable):
    """An answer began but is incomplete: the stream was cut."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, was_sent=True)


class StreamEndedEarly(StreamBroken):
    """A stream ended properly, but without an event."""


def too_large(limit: int) -> InvalidAgentResponse:
    """Return the refusal of an answer above the size limit."""
    return InvalidAgentResponse(f"The answer has more than {limit} bytes")


def not_compressed() -> InvalidAgentResponse:
    """Return the refusal of an answer that cannot be decompressed."""
    return InvalidAgentResponse("The answer is not compressed as its headers say")


def read_retry_after(headers: Mapping[str, str], now: float | None = None) -> int | None:
    """Return the seconds of a `Retry-After`, which is a number or a date (RFC 9110, 10.2.3).

    A date is compared with `now`, a time in seconds, or without it with the server's own clock if it states one.
    """
    stated = (headers.get("retry-after") or "").strip()
    if stated.isascii() and stated.isdigit():
        return min(int(stated[:10]), MAX_RETRY_SECONDS)
    until = _date(stated)
    if until is None:
        return None
    current = _date(headers.get("date") or "") or datetime.now(UTC) if now is None else datetime.fromtimestamp(now, UTC)
    return min(max(int((until - current).total_seconds()), 0), MAX_RETRY_SECONDS)


def _date(text: str) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError):
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
