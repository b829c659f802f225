"""ASGI applications in process: requests with streamed responses, and a transport for clients."""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

from accord.http.asgi import App, Scope
from accord.outbound import TIMEOUT_SECONDS, HttpRequest, StreamBroken, TimedOut
from accord.protocol.sse import Decoder, Frame

BOUND_SECONDS = 10.0
"""Timeout for the next chunk of an answer, in seconds: a hanging test gives no information."""

PIECE = 65_536
"""Size of the chunks of a request body, in bytes, as from a network."""

ASGI = {"version": "3.0", "spec_version": "2.4"}

Body = bytes | dict[str, Any] | list[Any]


class Response:
    """An answer with the chunks received so far."""

    def __init__(self, bound: float) -> None:
        """Wait at most `bound` seconds for each chunk."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self._bound = bound
        self._pieces: list[bytes] = []
        self._more = asyncio.Event()
        self._is_whole = False
        self._error: Exception | None = None

    @property
    def body(self) -> bytes:
        """The bytes received so far."""
        return b"".join(self._pieces)

    def json(self) -> Any:
        """Decode the bytes received so far."""
        return json.loads(self.body)

    def frames(self) -> list[Frame]:
        """Return the server-sent events received so far."""
        return Decoder().feed(self.body)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body from its start, chunk by chunk, as it arrives."""
        read = 0
        while True:
            while read < len(self._pieces):
                yield self._pieces[read]
                read += 1
            if self._is_whole:
                return
            await self._changes()

    async def events(self) -> AsyncGenerator[Frame, None]:
        """Yield the server-sent events from the first, as they arrive."""
        decoder = Decoder()
        async for piece in self.pieces():
            for frame in decoder.feed(piece):
                yield frame

    async def read(self) -> bytes:
        """Wait for the end and return the body."""
        while not self._is_whole:
            await self._changes()
        return self.body

    async def _changes(self) -> None:
        """Wait for the next chunk, or raise the application's error."""
        if self._error is not None:
            raise self._error
        self._more.clear()
        async with asyncio.timeout(self._bound):
            await self._more.wait()

    def _receive(self, message: Mapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            for name, value in message.get("headers", ()):
                known = self.headers.get(name.decode())
                self.headers[name.decode()] = value.decode() if known is None else f"{known}, {value.decode()}"
        elif message["type"] == "http.response.body":
            if piece := message.get("body", b""):
                self._pieces.append(bytes(piece))
            self._is_whole = not message.get("more_body", False)
        self._more.set()

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._more.set()


@asynccontextmanager
async def stream(
    app: App,
    body: Body = b"",
    *,
    method: str = "POST",
    path: str = "/",
    query: str = "",
    headers: Mapping[str, str] | None = None,
    bound: float = BOUND_SECONDS,
    scheme: str = "http",
) -> AsyncIterator[Response]:
    """Send one request and yield its answer as soon as it starts. Leaving the block closes the connection.

    The path is sent unchanged. A body other than bytes is sent as JSON. The content type is JSON unless stated, and
    a header without a value is omitted.
    """
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    incoming = deque(sent[at : at + PIECE] for at in range(0, len(sent) or 1, PIECE))
    response, left = Response(bound), asyncio.Event()

    async def receive() -> dict[str, Any]:
        if incoming:
            piece = incoming.popleft()
            return {"type": "http.request", "body": piece, "more_body": bool(incoming)}
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Mapping[str, Any]) -> None:
        if not left.is_set():  # after that there is no reader; a server does not report it either
            response._receive(message)

    async def run() -> None:
        try:
            await app(_scope(method, path, query, headers or {}, scheme), receive, send)
        except Exception as error:  # the reader of the answer gets it
            response._fail(error)
        else:
            if not response._is_whole and not left.is_set():
                response._fail(RuntimeError("The application returned before its answer was whole"))

    work = asyncio.create_task(run(), name=f"{method} {path}")
    try:
        while not response.status:
            await response._changes()
        yield response
    finally:
        left.set()
        await _ends(work, bound)
    if response._error is not None:
        raise response._error


async def call(
    app: App,
    body: Body = b"",
    *,
    method: str = "POST",
    path: str = "/",
    query: str = "",
    headers: Mapping[str, str] | None = None,
    bound: float = BOUND_SECONDS,
) -> Response:
    """Send one request and return the whole answer. A stream is read to its end."""
    async with stream(app, body, method=method, path=path, query=query, headers=headers, bound=bound) as response:
        await response.read()
    return response


@asynccontextmanager
async def lifespan(app: App, *, bound: float = BOUND_SECONDS) -> AsyncIterator[None]:
    """Start an application, and stop it at the end of the block."""
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    outgoing: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()

    async def live() -> None:
        await app({"type": "lifespan", "asgi": ASGI}, incoming.get, outgoing.put)

    work = asyncio.create_task(live(), name="lifespan")

    async def passes(phase: str) -> None:
        incoming.put_nowait({"type": f"lifespan.{phase}"})
        answer = asyncio.create_task(outgoing.get())
        await asyncio.wait({answer, work}, timeout=bound, return_when=asyncio.FIRST_COMPLETED)
        said = answer.result() if answer.done() else {"type": f"lifespan.{phase} was not answered"}
        if said["type"] != f"lifespan.{phase}.complete":
            answer.cancel()
            await _stopped(work)
            raise RuntimeError(": ".join(filter(None, (said["type"], said.get("message")))))

    await passes("startup")
    try:
        yield
    finally:
        await passes("shutdown")
        await _ends(work, bound)


def _scope(method: str, path: str, query: str, headers: Mapping[str, str], scheme: str) -> Scope:
    stated = {"content-type": "application/json"} | {name.lower(): value for name, value in headers.items()}
    return {
        "type": "http",
        "asgi": ASGI,
        "http_version": "1.1",
        "scheme": scheme,
        "method": method,
        "path": unquote(path),
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in stated.items() if value],
        "client": ("127.0.0.1", 50000),
        "server": ("localhost", 80),
    }


async def _ends(work: asyncio.Task[None], bound: float) -> None:
    """Wait for the application to return. Raises TimeoutError if it does not."""
    await asyncio.wait({work}, timeout=bound)
    if not work.done():
        await _stopped(work)
        raise TimeoutError("The application continues after its client disconnected")
    work.result()


async def _stopped(work: asyncio.Task[None]) -> None:
    """Stop the application, and raise its exception."""
    work.cancel()
    await asyncio.wait({work})
    if not work.cancelled():
        work.result()


class AsgiTransport:
    """A transport that sends all requests to one application, regardless of the host."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: set[AsgiAnswer] = set()

    async def open(self, request: HttpRequest) -> "AsgiAnswer":
        """Send a request and return the answer's head. The application's exceptions are raised here."""
        parts = urlsplit(request.url)
        stack = AsyncExitStack()
        entering = stream(
            self._app,
            request.body or b"",
            method=request.method,
            path=parts.path or "/",
            query=parts.query,
            headers={"host": parts.netloc, **{name.lower(): value for name, value in request.headers}},
            bound=request.seconds or TIMEOUT_SECONDS,
            scheme=parts.scheme,
        )
        try:
            response = await stack.enter_async_context(entering)
        except TimeoutError:
            raise TimedOut("No answer in time", was_sent=True) from None
        answer = AsgiAnswer(response, stack, self._open)
        self._open.add(answer)
        return answer

    async def close(self) -> None:
        """Close all connections."""
        for answer in list(self._open):
            await answer.close()


class AsgiAnswer:
    """An answer whose body has not been read."""

    def __init__(self, response: Response, stack: AsyncExitStack, among: "set[AsgiAnswer]") -> None:
        """Read `response`; leaving `stack` closes its connection."""
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._stack = stack
        self._among = among

    async def read(self) -> bytes:
        """Read the whole body and release the connection."""
        try:
            return await self._response.read()
        except TimeoutError:
            raise TimedOut("The answer stopped coming", was_sent=True) from None
        finally:
            await self.close()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Read the body as it arrives."""
        try:
            async for piece in self._response.pieces():
                yield piece
        except TimeoutError:
            raise StreamBroken("The answer stopped coming") from None
        finally:
            await self.close()

    async def close(self) -> None:
        """Release the connection."""
        self._among.discard(self)
        await self._stack.aclose()
