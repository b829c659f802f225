"""HTTP requests and replies, and the transport interface that sends them.

Each module below is one library behind `HttpTransport` and translates its exceptions: aiohttp, or httpx2 for HTTP/2 and
for clients that the caller made. `choose` loads only the library that is asked for. A failure before there was a reply
is an `Unreachable`; an error that an agent returns never is.
"""

from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from typing import Any, Protocol

from msgspec import Struct

from accord.errors import InvalidAgentResponse

TIMEOUT_SECONDS = 60.0
"""How long an answer may take: agents think, and most blocking sends are over by then."""

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of a whole answer, decompressed: far above any sane task, below what hurts a host."""


class HttpRequest(Struct, frozen=True, kw_only=True):
    """One HTTP request.

    `seconds` is for the head of the answer, and for its body unless the request `streams`: then the body has as long as
    it wants, provided that something comes now and then.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    seconds: float | None = TIMEOUT_SECONDS
    streams: bool = False

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.url.partition('?')[0]})"  # everything else may be a secret


class HttpReply(Struct, frozen=True, kw_only=True):
    """A whole answer; the case of header names does not matter."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def __repr__(self) -> str:
        return f"HttpReply({self.status})"  # a token endpoint's has the token in it


class OpenReply(Protocol):
    """An answer whose body has not been read; whoever has it reads all of it, or closes it."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; the case of their names does not matter."""

    async def read(self) -> bytes:
        """Read the whole body, which is decompressed and bounded, and let the connection go."""

    def pieces(self) -> AsyncIterator[bytes]:
        """Read the body as it comes; an iterator that is left early has to be closed."""

    async def close(self) -> None:
        """Let the connection go; what has not been read is not wanted."""


class HttpTransport(Protocol):
    """What sends requests; it knows nothing of A2A, follows no redirect and repeats nothing."""

    async def open(self, request: HttpRequest) -> OpenReply:
        """Send a request and return the answer's head, or raise `Unreachable`."""

    async def close(self) -> None:
        """Close all connections."""


class Unreachable(Exception):
    """There was no whole answer.

    `was_sent` is False only if the request certainly never left (no such name, refused, no TLS): then it may be sent
    again without doing anything twice.
    """

    def __init__(self, reason: str, *, was_sent: bool) -> None:
        """Say why, for a person."""
        super().__init__(reason)
        self.reason = reason
        self.was_sent = was_sent


class TimedOut(Unreachable):
    """The answer, or the connection, took too long."""


class StreamBroken(Unreachable):
    """An answer began and did not reach its end: a stream was cut."""

    def __init__(self, reason: str) -> None:
        """Say why, for a person; what is cut was sent."""
        super().__init__(reason, was_sent=True)


class StreamEndedEarly(StreamBroken):
    """A stream ended in good order, and without an event."""


def too_large(limit: int) -> InvalidAgentResponse:
    """Return the refusal of an answer that has more bytes than are read."""
    return InvalidAgentResponse(f"The answer has more than {limit} bytes")


def not_compressed() -> InvalidAgentResponse:
    """Return the refusal of an answer that cannot be decompressed."""
    return InvalidAgentResponse("The answer is not compressed in the way that it says")


TRANSPORTS = {
    "aiohttp": ("accord.client.transports.aiohttp", "AiohttpTransport"),
    "httpx2": ("accord.client.transports.httpx2", "Httpx2Transport"),
}


def choose(transport: str | HttpTransport, **options: Any) -> HttpTransport:
    """Return a transport by its name, made with these options, or the one that was given."""
    if not isinstance(transport, str):
        return transport
    if transport not in TRANSPORTS:
        raise ValueError(f"There is no transport {transport!r}; there are {', '.join(TRANSPORTS)}")
    module, name = TRANSPORTS[transport]
    made: HttpTransport = getattr(import_module(module), name)(**options)
    return made
