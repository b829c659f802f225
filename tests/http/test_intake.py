"""What taking in a body costs before anybody is known, and how long and how much bodies that do not end may hold."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from accord.a2a import Caller
from accord.auth.authentication import BodyNeeded, Presented
from accord.auth.rate_limits import Quotas
from accord.errors import AgentUnavailable, AuthenticationFailed, RateLimited, RequestTimeout, RequestTooLarge
from accord.http import request_bodies, timers
from accord.http.asgi import App, Receive, Scope, Send
from accord.http.compression import PIECE, Compression
from accord.http.jsonrpc import JsonRpcBinding
from accord.http.request_bodies import (
    MAX_INFLATION,
    RECEIVED_KEY,
    SMALL_BODY,
    ReceivedBodies,
    identify_nobody,
    read_request,
)
from accord.http.rest import RestBinding
from accord.protocol import codec, jsonrpc
from accord.testing.asgi import call
from tests.http.scripted import Scripted, read_body
from tests.http.test_limits import GET, Slow, each_dialect, rpc, said

LONG = "x" * SMALL_BODY


class Door:
    """Lets in whoever it is told to, and counts who comes."""

    def __init__(self, *, is_open: bool) -> None:
        self.is_open = is_open
        self.came = 0

    async def admit(self, presented: Presented) -> Caller:
        self.came += 1
        if not self.is_open:
            raise AuthenticationFailed
        return Caller(owner="alice")


# --- who is not known is not listened to for long ---------------------------------------------------------------------


@pytest.mark.proves("B-17")
@each_dialect
async def test_a_large_body_of_a_stranger_is_not_read(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    decode = jsonrpc.decode

    def noted(body: bytes) -> jsonrpc.Entry | jsonrpc.Batch:
        read.append(len(body))
        return decode(body)

    monkeypatch.setattr(jsonrpc, "decode", noted)
    app = JsonRpcBinding(Scripted(), admit=Door(is_open=False).admit)
    large = await call(app, rpc(*GET[dialect]) | {"padding": LONG}, headers=said(dialect))
    assert (large.status, large.headers["x-a2a-dialect"], large.json()["id"]) == (401, dialect, None)
    assert read == []
    short = await call(app, rpc(*GET[dialect]), headers=said(dialect))
    assert (short.status, short.headers["x-a2a-dialect"], short.json()["id"]) == (401, dialect, 1)
    assert large.json()["error"] == short.json()["error"]


@pytest.mark.parametrize("padding", ["", LONG])
async def test_large_bodies_authenticate_once(padding: str) -> None:
    door, service = Door(is_open=True), Scripted()
    app = JsonRpcBinding(service, admit=door.admit)
    one = rpc(*GET["v1"]) | {"padding": padding}
    assert "result" in (await call(app, one, headers=said("v1"))).json()
    assert door.came == 1
    answers = (await call(app, [one, one, one], headers=said("v1"))).json()
    assert (len(answers), door.came) == (3, 2)
    assert {asked.caller.owner for asked in service.calls} == {"alice"}


MANY = codec.MAX_VALUES // 2
FULL = {
    "parts": b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[%b{"text":"x"}]}}' % (b"{}," * MANY),
    "data": b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":[%b0]}]}}' % (b"0," * 2 * MANY),
    "unknown members": b'{%b"b":0}' % (b'"a":"",' * 2 * MANY),
}


@pytest.mark.parametrize("name", FULL)
@pytest.mark.parametrize("binding", [JsonRpcBinding, RestBinding])
async def test_excessive_json_values_are_refused_before_decoding(binding: type[Any], name: str) -> None:
    app: App = binding(Scripted(), admit=Door(is_open=True).admit)
    body = FULL[name]
    if binding is JsonRpcBinding:
        body = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":%b}' % body
    answer = await call(
        app, body, path="/message:send" if binding is RestBinding else "/", headers={"A2A-Version": "1.0"}
    )
    assert answer.status == 413
    assert "more than 500000 values" in answer.json()["error"]["message"]


async def test_a_batch_without_end_is_refused_before_it_is_taken_apart() -> None:
    app = JsonRpcBinding(Scripted(), admit=Door(is_open=True).admit)
    assert (await call(app, b"[" + b"0," * codec.MAX_VALUES + b"0]")).status == 413


# --- bodies that do not end -------------------------------------------------------------------------------------------

STALLED = Quotas(body_seconds=0.01, body_rate=1)  # a byte buys a second


def packed(size: int) -> bytes:
    """Return a few bytes of gzip that are many, and are not at their end."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(b" " * size) + packer.flush(zlib.Z_SYNC_FLUSH)


class Clock(timers.CoarseTimers):
    """Alarms that are noted, and ring only when the test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.waits: list[float] = []
        self.ring: timers.TimerCallback | None = None

    def set(self, seconds: float, ring: timers.TimerCallback) -> int:
        self.waits.append(seconds)
        self.ring = ring
        return len(self.waits)

    def clear(self, number: int) -> None:
        self.ring = None


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock(asyncio.get_running_loop())
    monkeypatch.setattr(timers, "timers_of", lambda loop: found)
    return found


async def give_up(clock: Clock, client: Slow, app: App, headers: list[tuple[bytes, bytes]]) -> None:
    """Let a client stop, and the time pass that it then has."""
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}

    async def send(_message: Any) -> None:
        raise AssertionError("nothing is answered")

    reading = asyncio.ensure_future(app(scope, client.receive, send))
    await client.stopped.wait()
    assert clock.ring is not None
    clock.ring()
    await reading


@pytest.mark.parametrize("coding", [b"gzip", b"identity"])
async def test_compressed_bytes_extend_the_read_timeout(coding: bytes, clock: Clock) -> None:
    quotas = Quotas(body_seconds=20.0, body_rate=100)

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await read_body(receive, quotas)

    piece = packed(4_000_000) if coding == b"gzip" else b" " * 4_000
    with pytest.raises(RequestTimeout):
        await give_up(clock, Slow([piece]), Compression(app), [(b"content-encoding", coding)])
    assert max(clock.waits) <= 20.0, "and however much was sent, a pause is no longer than that"


async def test_every_byte_that_is_sent_is_counted_once() -> None:
    sent, seen = gzip.compress(b" " * 1_000_000), list[int]()

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        more = True
        while more:
            message = await receive()
            seen.append(message[RECEIVED_KEY])
            more = message["more_body"]

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-encoding", b"gzip")]}
    await Compression(app)(scope, Slow([sent[:500], sent[500:]], ends=True).receive, lambda _: asyncio.sleep(0))
    assert len(seen) > 10
    assert sum(seen) == len(sent)


async def test_others_have_their_turns_while_a_few_bytes_become_many() -> None:
    turns = 0

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await read_body(receive)
        others.cancel()

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(take_turns())
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-encoding", b"gzip")]}
    body = gzip.compress(b" " * 10 * PIECE)
    await Compression(app)(scope, Slow([body], ends=True).receive, lambda _: asyncio.sleep(0))
    assert turns >= 9


async def test_a_compressed_body_that_stops_is_given_up() -> None:
    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await read_body(receive, STALLED)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-encoding", b"gzip")]}
    async with asyncio.timeout(10):
        with pytest.raises(RequestTimeout):
            await Compression(app)(scope, Slow([packed(1_000_000)]).receive, lambda _: asyncio.sleep(0))


async def test_compressed_and_inflated_bytes_are_limited() -> None:
    """A block of gzip may hold nothing: such bytes must not buy time for ever."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    nothing = packer.compress(b" ") + b"".join(packer.flush(zlib.Z_FULL_FLUSH) for _ in range(3))
    block = b"\x00\x00\x00\xff\xff"

    async def app(_scope: Scope, receive: Receive, _send: Send) -> None:
        await read_body(receive, Quotas(body=1_000))

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-encoding", b"gzip")]}
    client = Slow([nothing, *[block * 100] * 10])
    async with asyncio.timeout(10):
        with pytest.raises(RequestTooLarge):
            await Compression(app)(scope, client.receive, lambda _: asyncio.sleep(0))


# --- what bodies that are being received hold together ----------------------------------------------------------------

ROOM = Quotas(bodies=100_000)
MANY_ADDRESSES = [("192.0.2.1", 1), ("198.51.100.1", 1), ("203.0.113.1", 1)]


@pytest.fixture(autouse=True)
def intake(monkeypatch: pytest.MonkeyPatch) -> ReceivedBodies:
    monkeypatch.setattr(request_bodies, "RECEIVED_BODIES", ReceivedBodies())
    return request_bodies.RECEIVED_BODIES


@asynccontextmanager
async def receiving(size: int, read: Callable[[Receive], Awaitable[Any]]) -> AsyncIterator[None]:
    """Have a body that has come so far, and does not go on."""
    client = Slow([b"x" * (SMALL_BODY + size)])
    reading = asyncio.ensure_future(read(client.receive))
    await client.stopped.wait()
    try:
        yield
    finally:
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_all_that_come_at_once_hold_no_more_than_a_limit(intake: ReceivedBodies) -> None:
    async with receiving(60_000, partial(read_body, quotas=ROOM)):
        assert intake.held == 60_000
        with pytest.raises(AgentUnavailable) as refused:
            await read_body(Slow([b"x" * SMALL_BODY, b"x" * 40_001]).receive, ROOM)
        assert refused.value.retry_after == 1
        assert intake.held == 60_000, "a refused body gives back what it had"
        for pieces in ([b"x" * SMALL_BODY, b""], [b"x" * (SMALL_BODY + 40_000), b""], [b"x" * 1_000_000]):
            assert await read_body(Slow(pieces, ends=True).receive, ROOM) == b"".join(pieces)
    assert intake.held == 0


async def test_one_caller_holds_no_more_than_half(intake: ReceivedBodies) -> None:
    async with receiving(50_000, partial(read_body, quotas=ROOM, owner="alice")):
        with pytest.raises(RateLimited) as refused:
            await read_body(Slow([b"x" * (SMALL_BODY + 1)]).receive, ROOM, owner="alice")
        assert (refused.value.retry_after, refused.value.metadata) == (1, {"limit": "bodies"})
        async with receiving(50_000, partial(read_body, quotas=ROOM, owner="bob")):
            assert intake.held == 100_000


async def of_stranger(receive: Receive, client: tuple[str, int], quotas: Quotas = ROOM) -> bytes:
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "client": client}
    return (await read_request(scope, receive, identify_nobody, quotas))[1]


async def test_anonymous_bodies_use_at_most_half_the_memory(intake: ReceivedBodies) -> None:
    async with AsyncExitStack() as stack:
        for client in MANY_ADDRESSES[:2]:
            await stack.enter_async_context(receiving(25_000, partial(of_stranger, client=client)))
            with pytest.raises(RateLimited):  # a quarter is for one address
                await of_stranger(Slow([b"x" * (SMALL_BODY + 1)]).receive, client)
        with pytest.raises(AgentUnavailable):  # half is for all of them
            await of_stranger(Slow([b"x" * (SMALL_BODY + 1)]).receive, MANY_ADDRESSES[2])
        await stack.enter_async_context(receiving(50_000, partial(read_body, quotas=ROOM, owner="alice")))
        assert (intake.strangers, intake.held) == (50_000, 100_000)
    assert (intake.strangers, intake.held) == (0, 0)


async def test_signed_bodies_are_anonymous_until_complete(intake: ReceivedBodies) -> None:
    async def needs_body(presented: Presented) -> Caller:
        assert presented.body is None
        raise BodyNeeded

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "client": MANY_ADDRESSES[0]}
    async with receiving(20_000, lambda receive: read_request(scope, receive, needs_body, ROOM)):
        assert (intake.strangers, intake.held) == (20_000, 20_000)
    client = Slow([b"x" * SMALL_BODY, b"x" * 9], ends=True)
    caller, body = await read_request(scope, client.receive, needs_body, ROOM)
    assert (caller, len(body)) == (None, SMALL_BODY + 9)


@pytest.mark.parametrize("binding", [JsonRpcBinding, RestBinding])
async def test_no_more_is_read_of_a_stranger_than_a_short_body(binding: type[Any], intake: ReceivedBodies) -> None:
    """Wrong headers are refused before more is read; callers who sign the body are authenticated once it is there."""
    client, sent = Slow([b"x" * SMALL_BODY, b"x", b"x"], ends=True), list[Any]()
    scope = {"type": "http", "method": "POST", "path": "/message:send", "headers": [(b"a2a-version", b"1.0")]}
    if binding is JsonRpcBinding:
        scope["headers"] = [(b"x-a2a-dialect", b"v1")]

    async def send(message: Any) -> None:
        sent.append(message)

    await binding(Scripted(), admit=Door(is_open=False).admit)(scope, client.receive, send)
    assert sent[0]["status"] == 401
    assert client.left == 1


async def test_waiting_for_authentication_takes_none_of_the_time_of_a_body(clock: Clock) -> None:
    async def slow(_presented: Presented) -> Caller:
        assert clock.ring is None
        return Caller()

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    client = Slow([b"x" * SMALL_BODY, b"x" * 9, b""], ends=True)
    assert len((await read_request(scope, client.receive, slow))[1]) == SMALL_BODY + 9


async def test_a_stranger_holds_no_more_than_it_has_sent_many_times() -> None:
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"content-encoding", b"gzip")]}
    sent = packed(10_000_000)

    async def app(scope: Scope, receive: Receive, _send: Send) -> None:
        await read_request(scope, receive, identify_nobody)

    with pytest.raises(RequestTooLarge, match=f"{MAX_INFLATION} times"):
        await Compression(app)(scope, Slow([sent], ends=True).receive, lambda _: asyncio.sleep(0))

    async def known(_scope: Scope, receive: Receive, _send: Send) -> None:
        assert len(await read_body(receive)) == 10_000_000

    await Compression(known)(scope, Slow([sent], ends=True).receive, lambda _: asyncio.sleep(0))


@each_dialect
async def test_body_memory_limits_answer_retry_after(dialect: str, intake: ReceivedBodies) -> None:
    intake.held = Quotas().bodies
    app = JsonRpcBinding(Scripted(), admit=Door(is_open=True).admit)
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"x-a2a-dialect", dialect.encode())]}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, Slow([b"x" * SMALL_BODY, b"x", b""], ends=True).receive, send)
    assert (sent[0]["status"], dict(sent[0]["headers"])[b"retry-after"]) == (503, b"1")
    short = await call(Compression(app), gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"})
    assert short.status == 200
