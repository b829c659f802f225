"""An HTTP exchange as it happens, piece by piece: with an application in this process, or with a server elsewhere.

It carries requests and times what comes back; what may be asked, by whom, and what is shown of it is decided above, in
`inspector`. Whole answers of an application, for those who wait for nothing else, are `whole`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote

from accord.bindings.http import App, Receive, Scope
from accord.outbound import HostUnreachable, Outbound, TargetRefused
from accord.registry.availability import ServerAnswer

AHEAD = 16
"""Pieces that wait for whoever reads them; then whoever says them waits."""

log = logging.getLogger("accord.console")


class Head(NamedTuple):
    """How an answer begins."""

    status: int
    headers: list[tuple[str, str]]


class End(NamedTuple):
    """That an answer is over; `problem` is why it came to no good end."""

    problem: str | None = None


class Said(NamedTuple):
    """What came, and when on the loop's clock."""

    at: float
    what: Head | bytes | End


Tell = Callable[[Head | bytes], Awaitable[None]]
Exchange = Callable[[Tell], Awaitable[None]]
"""Sends a request and tells of its answer as that comes."""


def inside(app: App, scope: Scope, body: bytes) -> Exchange:
    """Return an exchange with an application of this process."""

    async def run(tell: Tell) -> None:
        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                await tell(Head(message["status"], _texts(message.get("headers", ()))))
            elif piece := message.get("body", b""):
                await tell(bytes(piece))

        await app(scope, _receiving(body), send)

    return run


def outside(outbound: Outbound, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Exchange:
    """Return an exchange with a server elsewhere."""

    async def run(tell: Tell) -> None:
        async with outbound.open(method, url, headers=headers, body=body) as answer:
            await tell(Head(answer.status, [(name.lower(), value) for name, value in answer.headers.items()]))
            async with aclosing(answer.pieces()) as pieces:
                async for piece in pieces:
                    await tell(piece)

    return run


@asynccontextmanager
async def happening(exchange: Exchange) -> AsyncIterator["asyncio.Queue[Said]"]:
    """Let an exchange happen while the block runs, and give what is said, the last of which is an `End`."""
    loop = asyncio.get_running_loop()
    said: asyncio.Queue[Said] = asyncio.Queue(AHEAD)

    async def tell(what: Head | bytes | End) -> None:
        await said.put(Said(loop.time(), what))

    async def run() -> None:
        problem = None
        try:
            await exchange(tell)
        except (TargetRefused, HostUnreachable) as error:
            problem = str(error)
        except Exception:  # who looks on is told that there is no more, and the log what it was
            log.exception("an inspected request failed")
            problem = "The server failed to answer; its log says why"
        await tell(End(problem))

    task = asyncio.create_task(run(), name="inspected request")
    try:
        yield said
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def scope_of(method: str, target: str, headers: Iterable[tuple[str, str]], asked: Scope) -> Scope:
    """Return the request of an address, which is a path with its query, as whoever sent the request `asked` would."""
    path, _, query = target.partition("?")
    own = [(name, value) for name, value in asked["headers"] if name == b"host"]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": asked.get("scheme", "http"),
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [*own, *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers)],
        "client": asked.get("client"),
        "server": asked.get("server"),
        "accord.mount": asked.get("accord.mount", ""),
    }


async def whole(app: App, method: str, target: str, asked: Scope) -> ServerAnswer:
    """Return the whole answer of an application to a request without a body."""
    heads: list[Head] = []
    pieces: list[bytes] = []

    async def tell(what: Head | bytes) -> None:
        if isinstance(what, Head):
            heads.append(what)
        else:
            pieces.append(what)

    await inside(app, scope_of(method, target, (), asked), b"")(tell)
    return ServerAnswer(status=heads[0].status, body=b"".join(pieces))


def _receiving(body: bytes) -> Receive:
    """Return what gives a body, and then nothing: whoever looks on leaves by ending the exchange."""
    given = False

    async def receive() -> dict[str, Any]:
        nonlocal given
        if given:
            await asyncio.get_running_loop().create_future()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _texts(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
