"""Compression of bodies (gzip, deflate) in both directions; event streams pass unchanged.

A response is compressed when its client accepts that and it is long enough. A compressed request is inflated while it
is read, so the limit on its size counts inflated bytes.
"""

import asyncio
import zlib
from collections.abc import Awaitable, MutableMapping
from typing import Any

from accord.http.asgi import App, Headers, Receive, Scope, Send, headers_of, respond
from accord.http.request_bodies import RECEIVED_KEY

MIN_COMPRESSED_BYTES = 1_400
"""Minimum size of a compressed response: below about one network packet nothing is gained."""

LEVEL = 1
"""The fastest level: responses are written once and read once."""

PIECE = 64 * 1024
"""Bytes inflated at a time."""

_GZIP, _ZLIB = 31, 15  # zlib's names for its formats
FORMATS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


class Compression:
    """An ASGI application whose bodies may be compressed."""

    def __init__(self, inner: App) -> None:
        """Wrap `inner`."""
        self._inner = inner

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Answer one request."""
        if scope["type"] != "http":
            return self._inner(scope, receive, send)
        given = headers_of(scope)
        stated = given.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
        if stated not in ("", "identity"):
            if stated not in FORMATS:
                return respond(send, 415, b"", [(b"accept-encoding", b"gzip, deflate")])
            receive = _Inflating(receive, FORMATS[stated])
        accepted = given.get(b"accept-encoding")
        best = None if accepted is None else choose_encoding(accepted.decode("latin-1"))
        return self._inner(scope, receive, _Deflating(send, best) if best else send)


def choose_encoding(accepted: str, offered: tuple[str, ...] = ("gzip", "deflate")) -> str | None:
    """Return the caller's preferred format among those offered, or None."""
    if not accepted:
        return None
    best, weight = None, 0.0
    for choice in accepted.lower().split(","):
        name, _, parameters = choice.partition(";")
        if name.strip() in offered and (given := _weight(parameters)) > weight:
            best, weight = name.strip(), given
    return best


def _weight(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


class _Deflating:
    """A `send` that compresses whole responses, at once or piece by piece, but not streams."""

    def __init__(self, send: Send, name: str) -> None:
        self._send = send
        self._name = name
        self._start: MutableMapping[str, Any] | None = None
        self._packer: Any = None

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._start = message  # held until the first body message shows whether to compress
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        start, self._start = self._start, None
        if start is not None:
            if more and _is_whole_text(start["headers"]) and _is_compressible(start["headers"]):
                self._packer = self._new_packer()
                start = {**start, "headers": _headers(start["headers"], self._name, None)}
            elif not more and len(body) >= MIN_COMPRESSED_BYTES and _is_compressible(start["headers"]):
                packer = self._new_packer()
                message = {**message, "body": packer.compress(body) + packer.flush()}
                start = {**start, "headers": _headers(start["headers"], self._name, len(message["body"]))}
            await self._send(start)
        if self._packer is not None:
            packed = self._packer.compress(body)
            message = {**message, "body": packed if more else packed + self._packer.flush()}
        await self._send(message)

    def _new_packer(self) -> Any:
        return zlib.compressobj(LEVEL, zlib.DEFLATED, FORMATS[self._name])


def _is_compressible(headers: Headers) -> bool:
    return not any(name == b"content-encoding" for name, _ in headers)


def _is_whole_text(headers: Headers) -> bool:
    """Whether the pieces belong to a response with a stated length, and not to an already compressed file."""
    stated = dict(headers)
    kind = stated.get(b"content-type", b"")
    return b"content-length" in stated and (kind.startswith(b"text/") or b"json" in kind)


def _headers(headers: Headers, name: str, length: int | None) -> Headers:
    kept = [(key, b"W/" + value if key == b"etag" and not value.startswith(b"W/") else value) for key, value in headers]
    return [
        *((key, value) for key, value in kept if key != b"content-length"),
        (b"content-encoding", name.encode()),
        (b"vary", b"Accept-Encoding"),
        *([] if length is None else [(b"content-length", b"%d" % length)]),
    ]


class _Inflating:
    """A `receive` that inflates a body piece by piece; a body not in the stated format passes unchanged.

    Each piece reports the compressed bytes received for it, under `RECEIVED_KEY`.
    """

    def __init__(self, receive: Receive, form: int) -> None:
        self._receive = receive
        self._unpacker = zlib.decompressobj(form)
        self._waiting = b""
        self._has_more = True
        self._is_plain = False

    async def __call__(self) -> MutableMapping[str, Any]:
        sent = 0
        if not self._waiting:
            message = await self._receive()
            if message["type"] != "http.request" or not self._has_more:  # after the body only a disconnect is expected
                return message
            self._waiting = message.get("body", b"")
            self._has_more = message.get("more_body", False)
            sent = len(self._waiting)
        else:
            await asyncio.sleep(0)  # yield to other tasks: a few bytes can be a long body
        body = self._inflated()
        more = bool(self._waiting) or self._has_more
        return {"type": "http.request", "body": body, "more_body": more, RECEIVED_KEY: sent}

    def _inflated(self) -> bytes:
        if self._is_plain or self._unpacker.eof:  # trailing data is counted too, and does not parse as JSON
            body, self._waiting = self._waiting, b""
            return body
        try:
            body = self._unpacker.decompress(self._waiting, PIECE)
        except zlib.error:
            self._is_plain = True
            return self._inflated()
        self._waiting = self._unpacker.unconsumed_tail or self._unpacker.unused_data
        return body
