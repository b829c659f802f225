"""ASGI helpers for the bindings: request headers, whole responses, conditional requests.

It is not a framework: no routing, no middleware, nothing that costs on the hot path.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, MutableMapping
from datetime import UTC, datetime
from email.utils import format_datetime, parsedate_to_datetime
from functools import lru_cache
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address
from itertools import chain
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qs

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.auth.rate_limits import Quotas
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    HeadersTooLarge,
    RequestTimeout,
)
from accord.http import timers
from accord.http.response_bodies import PIECE, RESPONSE_BODIES, ClientGone, ResponseBodies
from accord.protocol import urls
from accord.protocol.operations import Operation

LONG_OPERATIONS = frozenset({Operation.SEND})
"""Operations that may last as long as an execution, so that it matters whether the client is still connected."""


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

QUOTAS = Quotas()
"""Default limits."""

JSON: Headers = [(b"content-type", b"application/json")]

EXTENSIONS_HEADER, EXTENSIONS_HEADER_V03 = b"a2a-extensions", b"x-a2a-extensions"
IDEMPOTENCY_HEADER = b"idempotency-key"
_NONE: frozenset[str] = frozenset()

Admit = Callable[[Presented], Awaitable[Caller]]
"""Authenticates the caller of a request, or refuses it."""


RESPONSE_KEY = "accord.answer"
"""Scope key of the request's `TrackedSend`, set where only a stopping server cancels requests."""

SHUTDOWN_MESSAGE = "The server stops; ask again"

RETRY_SECONDS = 1
"""Seconds after which the client should retry: another node is available, or this one soon is again."""

DISCONNECT_SECONDS = 2.0
"""Seconds before a pending response is checked for a disconnected client. The check costs a task."""

T = TypeVar("T")


class TrackedSend:
    """A `send` that records whether the response has begun."""

    __slots__ = ("_send", "is_begun")

    def __init__(self, send: Send) -> None:
        """Forward all messages to `send`."""
        self._send = send
        self.is_begun = False

    def __call__(self, message: MutableMapping[str, Any]) -> Awaitable[None]:
        """Send one message."""
        self.is_begun = True
        return self._send(message)


def shutdown_refusal(scope: Scope) -> AgentUnavailable | None:
    """Return the error for a request that a server shutdown canceled before its response began, else None.

    A request that was canceled for another reason, or whose response has begun, gets no error.
    """
    answer: TrackedSend | None = scope.get(RESPONSE_KEY)
    return None if answer is None or answer.is_begun else AgentUnavailable(SHUTDOWN_MESSAGE, retry_after=RETRY_SECONDS)


def header(scope: Scope, name: bytes) -> str | None:
    """Return the first request header with a name, which must be lower-case."""
    value = headers_of(scope).get(name)
    return None if value is None else value.decode("latin-1")


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the first header of each name, cached: a dozen lookups are made per request, most without a result."""
    headers = scope["headers"]
    known: tuple[object, dict[bytes, bytes]] | None = scope.get("accord.headers")
    if known is None or known[0] is not headers:
        scope["accord.headers"] = known = headers, dict(reversed(headers))
    return known[1]


def query(scope: Scope, name: str) -> str | None:
    """Return the first value of a query parameter."""
    raw: bytes = scope.get("query_string", b"")
    if not raw:
        return None
    found = parse_qs(raw.decode("latin-1"), keep_blank_values=True).get(name)
    return found[0] if found else None


def presented(scope: Scope, body: bytes | None) -> Presented:
    """Return the data of a request that authenticates it; `body` None has not been read yet."""
    raw, asked = scope.get("raw_path") or scope["path"].encode(), scope.get("query_string", b"")
    peer = scope.get("client")
    return Presented(
        headers=scope["headers"],
        method=scope["method"],
        target=(raw + b"?" + asked if asked else raw).decode("latin-1"),
        body=body,
        peer=peer[0] if peer else "",
        proxy=scope.get("accord.proxy", ""),
        certificate=scope.get("state", {}).get("client_certificate"),
        secure=scope.get("scheme") == "https",
    )


def address_of(scope: Scope) -> str:
    """Return the client network whose requests are counted together."""
    peer = scope.get("client")
    return urls.network_of(peer[0]) if peer else ""


def declared_extensions(scope: Scope) -> frozenset[str]:
    """Return the extensions that a request declares; 0.3 prefixes the header with `X-`."""
    given = headers_of(scope)
    if EXTENSIONS_HEADER not in given and EXTENSIONS_HEADER_V03 not in given:
        return _NONE
    stated = values_of(scope, EXTENSIONS_HEADER) or values_of(scope, EXTENSIONS_HEADER_V03)
    return frozenset(uri.strip() for value in stated for uri in value.split(",") if uri.strip())


def idempotency_key(scope: Scope) -> str | None:
    """Return the request's idempotency key, if any."""
    found = headers_of(scope).get(IDEMPOTENCY_HEADER)
    return found.decode("latin-1") if found else None


def activated_extensions(scope: Scope, used: frozenset[str]) -> Headers:
    """Return the response header that lists the extensions in use, under the name that the request declared them."""
    if not used:
        return []
    name = EXTENSIONS_HEADER if values_of(scope, EXTENSIONS_HEADER) else EXTENSIONS_HEADER_V03
    return [(name, ", ".join(sorted(used)).encode("latin-1", "replace"))]


def error_headers(error: AccordError) -> Headers:
    """Return the headers of an error: `Retry-After`, `WWW-Authenticate`, and `Connection: close` after a timeout."""
    found: Headers = []
    if isinstance(error, RequestTimeout):
        found.append((b"connection", b"close"))
    if error.retry_after is not None:
        found.append((b"retry-after", b"%d" % error.retry_after))
    if isinstance(error, AuthenticationFailed):
        found += [(b"www-authenticate", challenge.encode("latin-1")) for challenge in error.challenges]
    return found


def check_head(scope: Scope, quotas: Quotas = QUOTAS) -> None:
    """Refuse a request whose address and headers are too large, as not every server limits them.

    Each header costs 32 bytes in addition, as in HTTP/2 (RFC 9113, 6.5.2). Otherwise a request could have very many.
    """
    headers = scope["headers"]
    size = len(scope.get("raw_path") or scope["path"]) + len(scope.get("query_string", b""))
    size += sum(map(len, chain.from_iterable(headers))) + 32 * len(headers)
    if size > quotas.head:
        raise HeadersTooLarge(f"The address and the headers are larger than {quotas.head} bytes")


async def await_unless_gone(receive: Receive, answer: Awaitable[T]) -> T:
    """Await a response, or raise ClientGone if the client disconnects first.

    For requests whose body has been read. Some responses take as long as a task.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.current_task(loop)
    check: asyncio.Task[None] | None = None

    def check_client() -> None:
        nonlocal check
        check = loop.create_task(cancel_when_gone(receive, task))

    alarm = timers.timers_of(loop)
    long = alarm.set(DISCONNECT_SECONDS, check_client)
    try:
        return await answer
    except asyncio.CancelledError:
        if check is not None and check.done() and task is not None and not task.uncancel():
            raise ClientGone from None
        raise
    finally:
        alarm.clear(long)
        if check is not None:
            check.cancel()


async def cancel_when_gone(receive: Receive, task: asyncio.Task[Any] | None) -> None:
    """Wait until the client disconnects, and cancel the task that serves it."""
    while (await receive())["type"] != "http.disconnect":
        pass
    if task is not None:
        task.cancel()


async def respond(
    send: Send,
    status: int,
    body: bytes,
    headers: Iterable[tuple[bytes, bytes]] = (),
    *,
    head: bool = False,
    account: Hashable = None,
    quotas: Quotas = QUOTAS,
    outgoing: ResponseBodies = RESPONSE_BODIES,
) -> None:
    """Write a whole response; `head` leaves out the body, but not its length.

    A large response counts against the limits of `account` until the client has read it. Beyond them it is refused with
    AgentUnavailable or RateLimited before anything is sent.
    """
    length = [] if status in (204, 304) else [(b"content-length", b"%d" % len(body))]
    start = {"type": "http.response.start", "status": status, "headers": [*headers, *length]}
    if len(body) > PIECE and not head:
        with outgoing.hold(body, account, quotas) as pending:
            await send(start)
            await outgoing.write(send, pending)
        return
    await send(start)
    await send({"type": "http.response.body", "body": b"" if head else body})


# --- conditional requests and the requested host -------------------------------------------------------------------


_ENTITY_TAG = re.compile(r'"[^"]*"')
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MAX_HOSTNAME = 253


MAX_HOST_NAMES = 256
"""Host names that are cached: a server has few, but callers invent more."""

MAX_AGE_SECONDS = 60
"""Seconds for which a document may be used without revalidation. It changes only when the server restarts, and the
change soon matters.
"""


class CachedDocument(NamedTuple):
    """A document with its `modified` time and the entity tag of exactly these bytes.

    The response headers are precomputed: `around` for the whole document, `known` for 304 responses.
    """

    body: bytes
    etag: str
    modified: datetime
    around: Headers
    known: Headers

    @classmethod
    def of(
        cls, body: bytes, modified: datetime, more: Headers, media_type: str = "application/json"
    ) -> "CachedDocument":
        """Return a document with its tag, to be served with `more` headers."""
        etag = f'"{sha256(body).hexdigest()[:32]}"'
        caching = [(b"cache-control", b"public, max-age=%d" % MAX_AGE_SECONDS), (b"etag", etag.encode())]
        last = (b"last-modified", format_datetime(modified, usegmt=True).encode())
        said = [(b"content-type", media_type.encode()), *caching, last]
        return cls(body, etag, modified, [*said, *more, (b"content-length", b"%d" % len(body))], [*caching, *more])


async def respond_with_document(scope: Scope, send: Send, document: CachedDocument) -> None:
    """Answer GET or HEAD with a document, unless the caller has it."""
    is_known = not_modified(scope, document.etag, document.modified)
    status, headers = (304, document.known) if is_known else (200, document.around)
    body = b"" if is_known or scope["method"] == "HEAD" else document.body
    # The headers are a copy: applications that mount this may change them in place.
    await send({"type": "http.response.start", "status": status, "headers": [*headers]})
    await send({"type": "http.response.body", "body": body})


def not_modified(scope: Scope, etag: str, modified: datetime) -> bool:
    """Whether the client's copy is current (RFC 9110, 13.2.2).

    Tags are compared weakly, that is without their `W/`. A date counts only where no tag is given.
    """
    tags = values_of(scope, b"if-none-match")
    if tags:
        return any(tag.strip() == "*" or etag in _ENTITY_TAG.findall(tag) for tag in tags)
    dated = header(scope, b"if-modified-since")
    if dated is None:
        return False
    try:
        since = parsedate_to_datetime(dated)
    except (ValueError, OverflowError):
        return False  # an invalid date is ignored (13.1.3)
    return modified.replace(microsecond=0) <= (since if since.tzinfo else since.replace(tzinfo=UTC))


def authority(scope: Scope) -> str | None:
    """Return the requested `hostname[:port]`, or None for a missing, repeated or invalid `Host`."""
    stated = values_of(scope, b"host")
    return _authority(stated[0]) if len(stated) == 1 else None


@lru_cache(MAX_HOST_NAMES)
def _authority(stated: str) -> str | None:
    found = _AUTHORITY.fullmatch(stated)
    if found is None or not _is_host(found[1]) or not 1 <= int(found[2] or 80) <= 65535:
        return None
    return found[0].lower()


def values_of(scope: Scope, name: bytes) -> list[str]:
    """Return the values of all request headers of a name, which is lower-case."""
    first = headers_of(scope)
    if name not in first:
        return []
    if len(first) == len(scope["headers"]):  # no name comes twice
        return [first[name].decode("latin-1")]
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _is_host(text: str) -> bool:
    labels = text.split(".")
    try:
        if text.startswith("["):
            return bool(IPv6Address(text[1:-1]))
        if labels[-1].isdigit():
            return bool(IPv4Address(text))
    except ValueError:
        return False
    return len(text) <= _MAX_HOSTNAME and all(_LABEL.fullmatch(label) for label in labels)
