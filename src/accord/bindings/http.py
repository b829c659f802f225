"""The little HTTP that the bindings share: reading a bounded body, writing a whole answer, over plain ASGI.

It is not a framework: no routing, no middleware, nothing that costs on the hot path.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
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


async def respond(send: Send, status: int, body: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Write a whole answer."""
    length = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": body})
