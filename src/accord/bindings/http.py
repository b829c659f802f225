"""The little HTTP that the bindings share: reading headers and a bounded body, writing a whole answer, over plain ASGI.

It is not a framework: no routing, no middleware, nothing that costs on the hot path.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import IPv4Address, IPv6Address
from typing import Any
from urllib.parse import parse_qs

from accord.errors import RequestTooLarge

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MAX_BODY = 16 * 1024 * 1024
"""The largest body that is read into memory; a file of 12 MB still fits as base64."""

JSON: Headers = [(b"content-type", b"application/json")]


class ClientGone(Exception):
    """The client closed the connection before its request was read."""


def header(scope: Scope, name: bytes) -> str | None:
    """Return a request header; names are lower-case."""
    for key, value in scope["headers"]:
        if key == name:
            text: str = value.decode("latin-1")
            return text
    return None


def query(scope: Scope, name: str) -> str | None:
    """Return the first value of a query parameter."""
    raw: bytes = scope.get("query_string", b"")
    if not raw:
        return None
    found = parse_qs(raw.decode("latin-1"), keep_blank_values=True).get(name)
    return found[0] if found else None


async def read_body(receive: Receive, limit: int = MAX_BODY) -> bytes:
    """Read the whole body, or refuse it once it is too large."""
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise RequestTooLarge(f"The body is larger than {limit} bytes")
        if not message.get("more_body"):
            return b"".join([*chunks, chunk]) if chunks else chunk
        chunks.append(chunk)


async def respond(
    send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = (), *, head: bool = False
) -> None:
    """Write a whole answer; `head` leaves out the body, but not its length."""
    length = [] if status in (204, 304) else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b"" if head else body})


# --- conditional requests and the address that was asked ----------------------------------------------------------


_ENTITY_TAG = re.compile(r'"[^"]*"')
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_MAX_HOSTNAME = 253


def not_modified(scope: Scope, etag: str, modified: datetime) -> bool:
    """Whether the caller already has what it asks for (RFC 9110, 13.2.2).

    Tags are compared weakly, that is without their `W/`; a date counts only where no tag is given.
    """
    tags = _all(scope, b"if-none-match")
    if tags:
        return any(tag.strip() == "*" or etag in _ENTITY_TAG.findall(tag) for tag in tags)
    try:
        since = parsedate_to_datetime(header(scope, b"if-modified-since") or "")
    except (ValueError, OverflowError):
        return False  # what is no date is ignored (13.1.3)
    return modified.replace(microsecond=0) <= (since if since.tzinfo else since.replace(tzinfo=UTC))


def authority(scope: Scope) -> str | None:
    """Return the `hostname[:port]` that was asked, or None for a `Host` that is missing, doubled or no such thing."""
    stated = _all(scope, b"host")
    found = _AUTHORITY.fullmatch(stated[0]) if len(stated) == 1 else None
    if found is None or not _is_host(found[1]) or not 1 <= int(found[2] or 80) <= 65535:
        return None
    return found[0].lower()


def _all(scope: Scope, name: bytes) -> list[str]:
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
