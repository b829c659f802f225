"""Drives an ASGI application in process: one request in, status, headers and body chunks out."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

from accord.bindings.http import App
from accord.protocol.sse import Decoder, Frame

BOUND_SECONDS = 10


@dataclass
class Response:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)

    def frames(self) -> list[Frame]:
        return Decoder().feed(self.body)


async def call(
    app: App,
    body: bytes | dict | list = b"",
    *,
    method: str = "POST",
    path: str = "/",
    query: str = "",
    headers: dict[str, str] | None = None,
) -> Response:
    """Send one request and return the whole answer; a stream is read to its end."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = Response()
    chunks = [sent[i : i + 65536] for i in range(0, len(sent), 65536)] or [b""]
    incoming = [
        {"type": "http.request", "body": chunk, "more_body": position < len(chunks) - 1}
        for position, chunk in enumerate(chunks)
    ]
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop(0)
        await never.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            response.status = message["status"]
            response.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            response.chunks.append(message.get("body", b""))

    stated = {"content-type": "application/json"} | {name.lower(): value for name, value in (headers or {}).items()}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in stated.items() if value],
    }
    async with asyncio.timeout(BOUND_SECONDS):
        await app(scope, receive, send)
    return response
