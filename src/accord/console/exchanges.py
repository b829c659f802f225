"""HTTP exchanges with an application in this process or with another server.

They carry requests and time the pieces of responses. Callers decide which requests are allowed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from accord.api.directory import AskPort, ServerAnswer
from accord.http.asgi import App, Receive, Scope
from accord.outbound import HttpRequest, HttpSession, Unreachable

AHEAD = 16
"""Response pieces that may wait for the reader before the sender blocks."""

log = logging.getLogger("accord.console")


class ResponseHead(NamedTuple):
    """Status and headers of a response."""

    status: int
    headers: list[tuple[str, str]]


class ExchangeEnd(NamedTuple):
    """End of a response. `problem` is the reason of a failure."""

    problem: str | None = None


class TimedPiece(NamedTuple):
    """A piece of a response, and its time on the loop's clock."""

    at: float
    what: ResponseHead | bytes | ExchangeEnd


SendPiece = Callable[[ResponseHead | bytes], Awaitable[None]]
RunExchange = Callable[[SendPiece], Awaitable[None]]
"""Sends a request and passes on the pieces of its response."""


async def exchange_in_process(app: App, scope: Scope, body: bytes, send_piece: SendPiece) -> None:
    """Send a request to an application of this process."""

    async def send(message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            await send_piece(ResponseHead(message["status"], _texts(message.get("headers", ()))))
        elif piece := message.get("body", b""):
            await send_piece(bytes(piece))

    await app(scope, _receiving(body), send)


async def exchange_with_server(outbound: HttpSession, request: HttpRequest, send_piece: SendPiece) -> None:
    """Send a request to another server."""
    async with await outbound.open(request) as answer:
        headers = [(name.lower(), value) for name, value in answer.headers.items()]
        await send_piece(ResponseHead(answer.status, headers))
        async with aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                await send_piece(piece)


@asynccontextmanager
async def run_exchange(exchange: RunExchange) -> AsyncIterator["asyncio.Queue[TimedPiece]"]:
    """Run an exchange during the block, and yield a queue of its pieces. The last is an `ExchangeEnd`."""
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[TimedPiece] = asyncio.Queue(AHEAD)

    async def put(what: ResponseHead | bytes | ExchangeEnd) -> None:
        await pieces.put(TimedPiece(loop.time(), what))

    async def run() -> None:
        problem = None
        try:
            await exchange(put)
        except Unreachable as error:
            problem = str(error)
        except Exception:  # the reader gets the end, and the log the exception
            log.exception("console.inspection_failed")
            problem = "The server failed to answer; its log says why"
        await put(ExchangeEnd(problem))

    task = asyncio.create_task(run(), name="inspected request")
    try:
        yield pieces
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def scope_of(method: str, target: str, headers: Iterable[tuple[str, str]], origin: Scope) -> Scope:
    """Return the ASGI scope of a request to `target`, a path with its query, from the client of `origin`."""
    path, _, query = target.partition("?")
    own = [(name, value) for name, value in origin["headers"] if name == b"host"]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": origin.get("scheme", "http"),
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [*own, *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers)],
        "client": origin.get("client"),
        "server": origin.get("server"),
        "accord.mount": origin.get("accord.mount", ""),
    }


async def fetch_in_process(
    app: App, method: str, target: str, origin: Scope, headers: Iterable[tuple[str, str]] = (), body: bytes = b""
) -> ServerAnswer:
    """Return the whole response of an application to a request from the client of `origin`."""
    heads: list[ResponseHead] = []
    pieces: list[bytes] = []

    async def send(piece: ResponseHead | bytes) -> None:
        if isinstance(piece, ResponseHead):
            heads.append(piece)
        else:
            pieces.append(piece)

    await exchange_in_process(app, scope_of(method, target, headers, origin), body, send)
    return ServerAnswer(status=heads[0].status, body=b"".join(pieces))


def _receiving(body: bytes) -> Receive:
    """Return a receive function that sends a body once and then waits: clients leave by ending the exchange."""
    is_sent = False

    async def receive() -> dict[str, Any]:
        nonlocal is_sent
        if is_sent:
            await asyncio.get_running_loop().create_future()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def ask_in_process(app: App) -> AskPort:
    """Return a function that sends requests to an application. Only path and query of a URL count."""

    async def ask(method: str, url: str, body: bytes | None = None) -> ServerAnswer:
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        headers = [] if body is None else [("content-type", "application/json")]
        return await fetch_in_process(app, method, target, {"headers": []}, headers, body or b"")

    return ask
