"""Large answers to real sockets: what is unread counts, and a client that stops reading is disconnected."""

import asyncio
import gzip
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import uvicorn

from accord.a2a import TaskEvents
from accord.auth.rate_limits import Quotas
from accord.errors import AccordError, AgentUnavailable, RateLimited
from accord.http import response_bodies
from accord.http.asgi import App, Receive, Scope, Send, respond
from accord.http.compression import Compression
from accord.http.connections import connection_class
from accord.http.response_bodies import ClientGone, ResponseBodies
from accord.http.sse import LargeEvent, SseWriter
from accord.model import Event
from tests.http.scripted import EVENTS

BOUND_SECONDS = 60
MB = 1024 * 1024
BODY = b"x" * (8 * MB)
"""More than the buffers of a connection on this machine hold."""

ASK = b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n"


class Client:
    """A connection that has asked for something, and reads only on demand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def status(self) -> int:
        """Read the head of an answer."""
        async with asyncio.timeout(BOUND_SECONDS):
            line = await self._reader.readline()
            while (await self._reader.readline()).strip():
                pass
            return int(line.split()[1])

    async def exactly(self, size: int) -> bytes:
        async with asyncio.timeout(BOUND_SECONDS):
            return await self._reader.readexactly(size)

    async def rest(self) -> bytes:
        """Read until the server hangs up."""
        found = bytearray()
        async with asyncio.timeout(BOUND_SECONDS):
            with suppress(ConnectionError):
                while piece := await self._reader.read(MB):
                    found += piece
        return bytes(found)

    def leave(self) -> None:
        self._writer.transport.abort()


Connecting = Callable[[str], Coroutine[Any, Any, Client]]


class Answers:
    """An application that answers each path, which is the name of a caller, with one large body or stream."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas, self.outgoing = quotas, ResponseBodies()
        self.streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        account = scope["path"].partition("-")[0]
        try:
            if scope["path"].endswith("stream"):
                self.streams += 1
                writer = SseWriter(send, _encode, _broke, account=account, quotas=self.quotas, outgoing=self.outgoing)
                await writer.run(TaskEvents(EVENTS[0], _quiet()), receive, [])
            else:
                await respond(send, 200, BODY, account=account, quotas=self.quotas, outgoing=self.outgoing)
        except ClientGone:
            return
        except AccordError as error:
            await respond(send, error.row.http, b"")


def _encode(event: Event) -> LargeEvent:
    return LargeEvent(b"data: ", bytes(bytearray(BODY)), b"\n\n")  # equal, and another object each time


def _broke(error: AccordError) -> bytes:
    return b"event: error\n\n"


async def _quiet() -> AsyncIterator[Event]:
    await asyncio.Event().wait()
    yield EVENTS[2]


@pytest.fixture
async def connecting() -> AsyncIterator[Callable[[App], Coroutine[Any, Any, Connecting]]]:
    """A function that serves an application and returns one that asks for a path; what comes is read only if asked."""
    async with AsyncExitStack() as stack:

        async def serve(app: App) -> Connecting:
            listening = socket.create_server(("127.0.0.1", 0))
            config = uvicorn.Config(app, http=connection_class(Quotas()), lifespan="off", log_config=None, ws="none")
            server = uvicorn.Server(config)
            work = asyncio.create_task(server.serve([listening]))

            async def stop() -> None:
                server.should_exit = server.force_exit = True
                await work

            stack.push_async_callback(stop)

            async def ask(path: str) -> Client:
                reader, writer = await asyncio.open_connection(*listening.getsockname(), limit=1000)
                client = Client(reader, writer)
                stack.callback(client.leave)
                writer.write(ASK % path.encode())
                return client

            return ask

        yield serve


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while not check():  # noqa: ASYNC110  # counts have no event
            await asyncio.sleep(0.01)


async def test_an_unread_answer_counts_until_it_is_read(connecting: Any) -> None:
    app = Answers(Quotas())
    ask = await connecting(app)
    reader = await ask("alice")
    assert await reader.status() == 200
    assert (app.outgoing.held, app.outgoing.held_by("/alice")) == (len(BODY), len(BODY))
    assert await reader.exactly(len(BODY)) == BODY
    await until(lambda: app.outgoing.held == 0)


async def test_a_caller_is_refused_beyond_its_limit_and_others_are_not(connecting: Any) -> None:
    app = Answers(Quotas(caller_answers=20 * MB, answers=30 * MB))
    ask = await connecting(app)
    assert [await (await ask("alice")).status() for _ in range(3)] == [200, 200, 429]
    assert [await (await ask("bob")).status() for _ in range(2)] == [200, 503]
    assert app.outgoing.held == 3 * len(BODY)


async def test_streams_of_one_snapshot_hold_its_bytes_once(connecting: Any) -> None:
    app = Answers(Quotas(caller_answers=20 * MB))
    ask = await connecting(app)
    readers = [await ask("alice-stream") for _ in range(10)]
    assert [await reader.status() for reader in readers] == [200] * 10
    assert (app.outgoing.held, app.outgoing.held_by("/alice")) == (len(BODY), len(BODY))
    assert (await readers[0].exactly(len(BODY))).count(b"x") > len(BODY) * 0.99, "but for the sizes of its pieces"
    for reader in readers[1:]:
        reader.leave()
    await until(lambda: app.outgoing.held == 0)


async def test_stalled_readers_free_response_memory(connecting: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Answers(Quotas(answers=20 * MB))
    ask = await connecting(app)
    stalled = [await ask("alice-stream"), await ask("alice")]
    assert [await reader.status() for reader in stalled] == [200, 200]
    assert await (await ask("bob")).status() == 503
    monkeypatch.setattr(response_bodies, "STALLED_SECONDS", 0.0)
    reader = await ask("bob")
    assert await reader.status() == 200
    assert await reader.exactly(len(BODY)) == BODY
    assert len(await stalled[0].rest()) < len(BODY), "the client that had stopped for longest was cut off"


async def test_an_answer_that_is_read_too_slowly_is_cut_off(connecting: Any) -> None:
    app = Answers(Quotas(unread_seconds=0.05, body_rate=100 * MB))
    ask = await connecting(app)
    assert await (await ask("alice")).status() == 200
    await until(lambda: app.outgoing.held == 0)


async def test_a_large_answer_is_compressed_as_it_is_written(connecting: Any) -> None:
    sent: list[Any] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 200, BODY, [(b"content-type", b"application/json")])

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"accept-encoding", b"gzip")]}
    await Compression(inner)(scope, receive, send)
    assert dict(sent[0]["headers"])[b"content-encoding"] == b"gzip"
    assert b"content-length" not in dict(sent[0]["headers"])
    assert len(sent) > len(BODY) / response_bodies.PIECE
    assert gzip.decompress(b"".join(message["body"] for message in sent[1:])) == BODY


async def test_one_answer_above_a_limit_is_written_alone() -> None:
    held, quotas = ResponseBodies(), Quotas(answers=MB, caller_answers=MB)
    with held.hold(BODY, "alice", quotas):
        with pytest.raises(RateLimited), held.hold(BODY, "alice", quotas):
            pass
        with pytest.raises(AgentUnavailable), held.hold(BODY, "bob", quotas):
            pass
    assert held.held == 0
