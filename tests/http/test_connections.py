"""Connections of a real server that do not behave: a head that never ends, endless heads, unread answers."""

import asyncio
import logging
import resource
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import uvicorn
from msgspec.structs import replace
from uvicorn.server import ServerState

from accord.a2a import TaskEvents
from accord.auth.rate_limits import Quotas
from accord.errors import AccordError
from accord.http import sse
from accord.http.asgi import App, Receive, Scope, Send, respond
from accord.http.connections import BatchedTransport, connection_class, turns_of
from accord.http.sse import SseWriter
from accord.model import Event
from accord.protocol.sse import KEEP_ALIVE
from accord.protocol.urls import parse_networks
from tests.http.scripted import EVENTS, read_body

BOUND_SECONDS = 60
LONG = Quotas(head_seconds=60, unread_seconds=60)
SHORT = Quotas(head_seconds=1, unread_seconds=60)
"""Enough for what is sent at once to arrive on a busy machine."""

SILENT = Quotas(head_seconds=0.05, unread_seconds=60)
"""For those who say nothing."""

Connecting = Callable[..., Coroutine[Any, Any, "Client"]]


async def echoing(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 200, await read_body(receive))


class Client:
    """A raw connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def pour(self, data: bytes) -> None:
        """Say the same until the server has hung up."""
        with suppress(ConnectionError):
            async with asyncio.timeout(BOUND_SECONDS):
                while not self.reader.at_eof():
                    await self.say(data)
                    await asyncio.sleep(0.001)

    async def answer(self) -> bytes:
        """Read one whole answer."""
        async with asyncio.timeout(BOUND_SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            return head + await self.reader.readexactly(size)

    async def ends(self) -> bytes:
        """Read until the server hangs up."""
        async with asyncio.timeout(BOUND_SECONDS):
            return await self.reader.read()

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()


@pytest.fixture
async def connecting() -> AsyncIterator[Connecting]:
    """A function that serves an application and connects to it."""
    async with AsyncExitStack() as stack:

        async def connect(app: App, quotas: Quotas, *, trusted: tuple[str, ...] = (), **limits: Any) -> Client:
            listening = socket.create_server(("127.0.0.1", 0))
            kept = connection_class(quotas, parse_networks(trusted))
            config = uvicorn.Config(app, http=kept, lifespan="off", log_config=None, ws="none")
            server = uvicorn.Server(config)
            work = asyncio.create_task(server.serve([listening]))

            async def stop() -> None:
                server.should_exit = server.force_exit = True
                await work

            stack.push_async_callback(stop)
            client = Client(*await asyncio.open_connection(*listening.getsockname(), **limits))
            stack.push_async_callback(client.close)
            return client

        yield connect


POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}"


async def test_requests_work_sequentially_and_pipelined(connecting: Connecting) -> None:
    client = await connecting(echoing, LONG)
    for _ in range(3):
        await client.say(POST)
        assert (await client.answer()).startswith(b"HTTP/1.1 200")
    await client.say(POST + POST[:20])
    assert (await client.answer()).endswith(b"{}")
    await client.say(POST[20:] + POST)
    for _ in range(2):
        assert (await client.answer()).endswith(b"{}")


async def another(client: Client) -> Client:
    """A connection to the same server."""
    return Client(*await asyncio.open_connection(*client.writer.get_extra_info("peername")))


async def test_one_address_has_so_many_connections(connecting: Connecting, caplog: pytest.LogCaptureFixture) -> None:
    first = await connecting(echoing, replace(LONG, connections=2))
    second = await another(first)
    for _ in range(3):
        refused = await another(first)
        assert (await refused.ends()).startswith(b"HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\n")
        await refused.close()
    for client in (first, second):
        await client.say(POST)
        assert (await client.answer()).endswith(b"{}")
    await first.close()
    told = [record.__dict__["open"] for record in caplog.records if record.message == "connection.refused"]
    assert told == [2], "once a minute"
    async with asyncio.timeout(BOUND_SECONDS):
        while True:  # until the server has seen that it is closed
            third = await another(second)
            await third.say(POST)
            if (await third.answer()).startswith(b"HTTP/1.1 200"):
                break
            await third.close()
    for client in (second, third):
        await client.close()


async def test_one_address_has_at_most_half_of_the_files(
    connecting: Connecting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3, 9))
    first = await connecting(echoing, LONG)
    refused = await another(first)
    assert (await refused.ends()).startswith(b"HTTP/1.1 429 ")
    await refused.close()
    await first.say(POST)
    assert (await first.answer()).endswith(b"{}")


@pytest.mark.parametrize(("limit", "trusted"), [(0, ()), (1, ("127.0.0.0/8",))])
async def test_proxies_that_are_trusted_have_as_many_as_they_need(
    connecting: Connecting, limit: int, trusted: tuple[str, ...]
) -> None:
    first = await connecting(echoing, replace(LONG, connections=limit), trusted=trusted)
    for client in [first, *[await another(first) for _ in range(5)]]:
        await client.say(POST)
        assert (await client.answer()).endswith(b"{}")
        await client.close()


async def test_a_head_in_many_pieces_is_a_head(connecting: Connecting) -> None:
    client = await connecting(echoing, LONG)
    for at in range(len(POST)):
        await client.say(POST[at : at + 1])
    assert (await client.answer()).endswith(b"{}")


@pytest.mark.parametrize(
    ("quotas", "sent", "answered"),
    [
        (SILENT, b"", b""),
        (SHORT, b"\r\n\r\n", b""),
        (SHORT, b"POST / HT", b"HTTP/1.1 408 Request Timeout\r\n"),
        (SHORT, b"POST / HTTP/1.1\r\nhost: x\r\nx-slow: a", b"HTTP/1.1 408 Request Timeout\r\n"),
    ],
)
async def test_unfinished_heads_are_disconnected(
    connecting: Connecting, quotas: Quotas, sent: bytes, answered: bytes
) -> None:
    client = await connecting(echoing, quotas)
    await client.say(sent)
    said = await client.ends()
    assert said.startswith(answered)
    assert bool(said) is bool(answered)


async def test_bytes_do_not_buy_a_head_more_time(connecting: Connecting) -> None:
    client = await connecting(echoing, SHORT)
    await client.say(b"GET / HTTP/1.1\r\n")

    async def trickle() -> None:
        while True:
            await client.say(b"x: y\r\n")
            await asyncio.sleep(0.005)

    trickling = asyncio.create_task(trickle())
    with suppress(ConnectionResetError):  # it hangs up on what it has not read
        await client.ends()
    trickling.cancel()
    await asyncio.gather(trickling, return_exceptions=True)


async def test_a_second_head_has_no_more_time_than_the_first(connecting: Connecting) -> None:
    client = await connecting(echoing, SHORT)
    await client.say(POST)
    await client.answer()
    for part in (b"\r\n", b"POST / HTTP/1.1\r\n"):
        await client.say(part)
    assert (await client.ends()).startswith(b"HTTP/1.1 408")


async def test_an_answer_may_take_longer_than_a_head(connecting: Connecting) -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(SHORT.head_seconds * 1.5)
        await respond(send, 200, b"done")

    client = await connecting(slow, SHORT)
    await client.say(POST)
    assert (await client.answer()).endswith(b"done")


@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\r\nx-long: ", b"GET /"], ids=["header", "address"])
async def test_a_head_without_end_is_hung_up_on(connecting: Connecting, begun: bytes) -> None:
    client = await connecting(echoing, Quotas(head=10_000, head_seconds=60))
    await client.say(begun)
    await client.pour(b"x" * 1000)


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.is_closed = False

    @property
    def written(self) -> bytes:
        return b"".join(self.writes)

    def write(self, data: Any) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


@pytest.mark.parametrize("begun", [b"GET / HTTP/1.1\r\nx-long: ", b"GET /"], ids=["header", "address"])
async def test_a_head_that_is_too_large_is_431(begun: bytes) -> None:
    config = uvicorn.Config(echoing, log_config=None, lifespan="off")
    wire, connection = Wire(), connection_class(Quotas(head=10_000))(config, ServerState(), {})
    connection.connection_made(wire)
    connection.data_received(begun)
    for _ in range(10):
        connection.data_received(b"x" * 1000)
    assert not wire.is_closed
    connection.data_received(b"x")
    assert wire.is_closed
    assert wire.written.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
    connection.connection_lost(None)
    assert connection._late is None, "no timer is left"


async def test_stream_writes_are_batched_per_loop_turn() -> None:
    wire = Wire()
    joined = BatchedTransport(wire, turns_of(asyncio.get_running_loop()))
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    joined.write(head)
    assert wire.writes == [], "it waits for an event"
    joined.write(b"first")
    assert wire.writes == [head + b"first"], "which waits for nobody"
    joined.write(b"second")
    joined.write(b"third")
    await asyncio.sleep(0)
    assert wire.writes[1:] == [b"secondthird"]
    joined.write(head)
    await asyncio.sleep(0)
    assert wire.writes[2:] == [head], "nor does it wait for longer than a turn"


async def test_whole_answers_go_out_when_the_turn_ends_each_in_one_piece() -> None:
    wires = [Wire(), Wire(), Wire()]
    answers = [BatchedTransport(wire, turns_of(asyncio.get_running_loop())) for wire in wires]
    for answer in answers:
        answer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        answer.write(b"body")
    assert [wire.writes for wire in wires] == [[], [], []]
    wires[1].is_closed = True  # its client has gone: the others get theirs all the same
    await asyncio.sleep(0)
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbody"
    assert [wire.writes for wire in wires] == [[whole], [], [whole]]


async def test_long_bodies_are_not_long_heads(connecting: Connecting) -> None:
    client = await connecting(echoing, Quotas(head=2000, head_seconds=60))
    body = b"x" * 500_000
    head = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
    for _ in range(2):
        await client.say(head + body)
        assert (await client.answer()).endswith(body)


async def test_the_rest_of_a_refused_body_is_not_waited_for(connecting: Connecting) -> None:
    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await respond(send, 413, b"no")

    client = await connecting(refusing, SHORT)
    await client.say(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\nxx")
    assert (await client.answer()).endswith(b"no")
    await client.pour(b"x" * 10)


async def test_unread_answers_end_their_connection(connecting: Connecting) -> None:
    gone = asyncio.Event()

    async def pouring(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            while (await _now(receive)) is None:
                await send({"type": "http.response.body", "body": b"x" * 100_000, "more_body": True})
        finally:
            gone.set()

    client = await connecting(pouring, Quotas(unread_seconds=0.05), limit=1000)  # the rest stays in the socket
    await client.say(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    async with asyncio.timeout(BOUND_SECONDS):
        await gone.wait()


async def _now(receive: Receive) -> Any:
    """What has come and is no body, if something has."""
    task = asyncio.ensure_future(receive())
    await asyncio.wait({task}, timeout=0.001)
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None
    return task.result() if task.result()["type"] == "http.disconnect" else None


# --- streams whose reader stopped reading -----------------------------------------------------------------------------


def _encode(event: Event) -> bytes:
    return b"data: %d\n\n" % event.seq


def _broke(error: AccordError) -> bytes:
    return b"event: error\n\n"


async def _events(count: int) -> AsyncIterator[Event]:
    for seq in range(1, count + 1):
        yield Event(seq=seq, body=EVENTS[2].body)


async def _waits() -> dict[str, Any]:
    await asyncio.Event().wait()
    return {}


async def test_a_stream_ends_when_its_reader_reads_nothing_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.001)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == 4:  # the buffers are full from now on
            await asyncio.Event().wait()

    closed = asyncio.Event()

    async def events() -> AsyncIterator[Event]:
        try:
            async for event in _events(100):
                yield event
        finally:
            closed.set()

    with caplog.at_level(logging.INFO, "accord.stream"):
        async with asyncio.timeout(BOUND_SECONDS):
            await SseWriter(send, _encode, _broke).run(TaskEvents(EVENTS[0], events()), _waits, [])
    assert caplog.messages == ["stream.not_read"]
    assert closed.is_set(), "what it followed is let go"
    assert len(sent) == 4


async def test_slow_readers_are_not_stalled_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.001)
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(0.002)
        sent.append(message.get("body", b""))

    async with asyncio.timeout(BOUND_SECONDS):
        await SseWriter(send, _encode, _broke).run(TaskEvents(EVENTS[0], _events(20)), _waits, [])
    assert [frame for frame in sent if frame.startswith(b"data")] == [b"data: %d\n\n" % seq for seq in range(21)]


async def test_a_stream_without_news_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_SECONDS", 0.001)
    alive = asyncio.Event()
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if sent.count(KEEP_ALIVE) >= sse.MAX_STUCK_INTERVALS * 2:
            alive.set()

    async def quiet() -> AsyncIterator[Event]:
        await alive.wait()
        yield EVENTS[2]

    async with asyncio.timeout(BOUND_SECONDS):
        await SseWriter(send, _encode, _broke).run(TaskEvents(EVENTS[0], quiet()), _waits, [])
    assert sent[-2:] == [b"data: 2\n\n", b""]
