"""HTTP requests and replies, and the transport interface that sends them.

Each module below wraps one library as an `HttpTransport` and translates its exceptions: aiohttp, or httpx2 for
HTTP/2 and for clients that the caller created. `choose` imports only the requested library. A failure before a reply
is an `Unreachable`. An error that an agent returns never is.
"""

from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from typing import Any, Protocol

from msgspec import Struct

from accord.errors import InvalidAgentResponse

TIMEOUT_SECONDS = 60.0
"""Default timeout of an answer, in seconds: most blocking sends finish within it."""

MAX_BYTES = 64 * 1024 * 1024
"""Maximum size of a whole answer, in bytes after decompression: far above any sane task."""


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
    """A whole answer. Header names are case-insensitive."""

    status: int
    headers: Mapping[str, str]
    body: bytes

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
        """Store the reason, in readable form."""
        super().__init__(reason)
        self.reason = reason
        self.was_sent = was_sent


class TimedOut(Unreachable):
    """The connection or the answer timed out."""


class StreamBroken(Unreachable):
    """An answer began but is incomplete: the stream was cut."""

    def __init__(self, reason: str) -> None:
        """Store the reason, in readable form. The request counts as sent."""
        super().__init__(reason, was_sent=True)


class StreamEndedEarly(StreamBroken):
    """A stream ended properly, but without an event."""


def too_large(limit: int) -> InvalidAgentResponse:
    """Return the refusal of an answer above the size limit."""
    return InvalidAgentResponse(f"The answer has more than {limit} bytes")


def not_compressed() -> InvalidAgentResponse:
    """Return the refusal of an answer that cannot be decompressed."""
    return InvalidAgentResponse("The answer is not compressed in the way that it says")


TRANSPORTS = {
    "aiohttp": ("accord.client.transports.aiohttp", "AiohttpTransport"),
    "httpx2": ("accord.client.transports.httpx2", "Httpx2Transport"),
}


def choose(transport: str | HttpTransport, **options: Any) -> HttpTransport:
    """Return a new transport by its name and options. A transport object is returned unchanged."""
    if not isinstance(transport, str):
        return transport
    if transport not in TRANSPORTS:
        raise ValueError(f"There is no transport {transport!r}; there are {', '.join(TRANSPORTS)}")
    module, name = TRANSPORTS[transport]
    made: HttpTransport = getattr(import_module(module), name)(**options)
    return made
