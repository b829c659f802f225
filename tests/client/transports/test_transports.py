"""What every transport does with a request and its answer, and with everything that can happen instead."""

import asyncio
import gzip
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any, TypeAlias

import pytest

from accord.errors import InvalidAgentResponse
from accord.outbound import HttpRequest, OpenReply, StreamBroken, TimedOut, Unreachable, open_transport
from tests.client.transports.conftest import Making
from tests.outbound.conftest import Listening

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
Speaks = Callable[[Reader, Writer], Awaitable[None]]


def asking(port: int, **more: Any) -> HttpRequest:
    return HttpRequest(**{"method": "POST", "url": f"http://127.0.0.1:{port}/a?b=c", "body": b"hello"} | more)


def streaming(port: int, **more: Any) -> HttpRequest:
    return asking(port, streams=True, **more)


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def after_the_request(*said: bytes, until: asyncio.Event | None = None) -> Speaks:
    """Reads one request, says something, and then leaves, or waits."""

    async def speaks(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"hello")
        for piece in said:
            writer.write(piece)
            await writer.drain()
        if until is not None:
            await until.wait()

    return speaks


async def pieces(opened: OpenReply) -> list[bytes]:
    return [piece async for piece in opened.pieces()]


# --- answers --------------------------------------------------------------------------------------------------------


async def test_a_request_arrives_as_it_is_and_the_answer_comes_back(making: Making, listening: Listening) -> None:
    heard: list[bytes] = []

    async def speaks(reader: Reader, writer: Writer) -> None:
        heard.append(await reader.readuntil(b"hello"))
        writer.write(answer(b"world", "X-Mine: 1", status="418 Teapot"))

    port = (await listening(speaks)).port
    url = f"http://127.0.0.1:{port}/a%2Fb%3A?x=%2f+1"
    opened = await making().open(asking(port, url=url, headers=(("X-Test", "a"), ("X-Test", "b"))))
    assert (opened.status, opened.headers["x-mine"], opened.headers["X-MINE"]) == (418, "1", "1")
    assert await opened.read() == b"world"
    head = heard[0].decode()
    assert head.startswith("POST /a%2Fb%3A?x=%2f+1 HTTP/1.1\r\n"), "what is signed must not be written anew"
    assert [line.partition(": ")[2] for line in head.split("\r\n") if line.lower().startswith("x-test")] == ["a", "b"]
    assert "user-agent: accord/" in head.lower()


async def test_a_request_may_be_large(making: Making, listening: Listening) -> None:
    heard: list[int] = []

    async def speaks(reader: Reader, writer: Writer) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(line for line in head.split("\r\n") if line.startswith("content-length: "))
        heard.append(len(await reader.readexactly(int(length.partition(": ")[2]))))
        writer.write(answer(b"ok"))

    request = asking((await listening(speaks)).port, body=b"x" * 3_000_000)
    assert await (await making().open(request)).read() == b"ok"
    assert heard == [3_000_000]


@pytest.mark.proves("4-46")
async def test_connections_are_kept(making: Making, listening: Listening) -> None:
    listener = await listening(answer(b"ok"))
    transport = making()
    for _ in range(3):
        opened = await transport.open(asking(listener.port, method="GET", body=None))
        assert await opened.read() == b"ok"
    assert (listener.connections, len(listener.heads)) == (1, 3)


@pytest.mark.parametrize(
    ("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)], ids=["gzip", "deflate"]
)
async def test_compressed_answers_are_read(
    making: Making, listening: Listening, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    listener = await listening(answer(compress(b"x" * 100_000), f"Content-Encoding: {encoding}"))
    opened = await making().open(asking(listener.port, method="GET", body=None))
    assert await opened.read() == b"x" * 100_000
    (asked,) = [line.lower() for line in listener.heads[0].split("\r\n") if line.lower().startswith("accept-encoding")]
    assert encoding in asked


async def test_streams_are_requested_uncompressed(making: Making, listening: Listening) -> None:
    listener = await listening(answer(b"ok"))
    await pieces(await making().open(streaming(listener.port, method="GET", body=None)))
    stated = [line.lower() for line in listener.heads[0].split("\r\n") if line.lower().startswith("accept-encoding")]
    assert stated == ["accept-encoding: identity"]


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_an_answer_that_is_too_large_is_not_read(
    making: Making, listening: Listening, is_compressed: bool
) -> None:
    body = b"x" * 1_000_000
    said = answer(gzip.compress(body), "Content-Encoding: gzip") if is_compressed else answer(body)
    transport = making(max_bytes=999_999)
    listener = await listening(said)
    opened = await transport.open(asking(listener.port, method="GET", body=None))
    with pytest.raises(InvalidAgentResponse, match="more than 999999 bytes"):
        await opened.read()
    opened = await making(max_bytes=1_000_000).open(asking(listener.port, method="GET", body=None))
    assert len(await opened.read()) == 1_000_000


async def test_a_redirect_is_an_answer_like_any_other(making: Making, listening: Listening) -> None:
    listener = await listening(answer(b"", "Location: /elsewhere", status="307 Moved"))
    opened = await making().open(asking(listener.port, method="GET", body=None))
    await opened.close()
    assert (opened.status, opened.headers["location"]) == (307, "/elsewhere")


async def test_a_stream_comes_as_it_is_made(making: Making, listening: Listening) -> None:
    go = asyncio.Event()

    async def speaks(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"hello")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await go.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
        await writer.drain()

    found = []
    opened = await making().open(streaming((await listening(speaks)).port))
    async for piece in opened.pieces():
        found.append(piece)
        go.set()
    assert b"".join(found) == b"onetwo"


async def test_leaving_a_stream_closes_its_connection(making: Making, listening: Listening) -> None:
    left = asyncio.Event()

    async def speaks(reader: Reader, writer: Writer) -> None:
        await reader.readuntil(b"hello")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await reader.read()
        left.set()

    opened = await making().open(streaming((await listening(speaks)).port))
    reading: Any = opened.pieces()
    assert await anext(reading) == b"one"
    await reading.aclose()
    await left.wait()


# --- no answer ------------------------------------------------------------------------------------------------------


async def refused(transport: Any, request: HttpRequest) -> Unreachable:
    with pytest.raises(Unreachable) as raised:
        await transport.open(request)
    return raised.value


async def test_a_name_without_an_address(making: Making, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nothing)
    error = await refused(making(), asking(0, url="http://agent.invalid/"))
    assert (error.was_sent, "agent.invalid" in error.reason) == (False, True)


async def test_a_closed_port_is_unreachable(making: Making) -> None:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        error = await refused(making(), asking(probe.getsockname()[1]))
    assert (type(error), error.was_sent, "127.0.0.1" in error.reason) == (Unreachable, False, True)


async def test_a_host_that_takes_no_connection(making: Making) -> None:
    with closing(socket.socket()) as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(deaf.getsockname())
            error = await refused(making(connect_seconds=0.1), asking(deaf.getsockname()[1]))
        finally:
            for one in waiting:
                one.close()
    assert (type(error), error.was_sent) == (TimedOut, False)


@pytest.mark.proves("AUTH-SERVER-001")
async def test_an_untrusted_certificate_is_refused(
    making: Making, listening: Listening, certified: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    port = (await listening(answer(b"ok"), tls=certified[0])).port
    error = await refused(making(), asking(port, url=f"https://127.0.0.1:{port}/"))
    assert (error.was_sent, "certificate" in error.reason.lower()) == (False, True)


@pytest.mark.proves("4-23", "AUTH-SERVER-001")
async def test_a_certificate_of_another_host(
    making: Making, listening: Listening, certified: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    port = (await listening(answer(b"ok"), tls=certified[0])).port
    error = await refused(making(tls=certified[1]), asking(port, url=f"https://127.0.0.1:{port}/"))
    assert (error.was_sent, "certificate" in error.reason.lower()) == (False, True)


async def test_a_certificate_that_is_vouched_for(
    making: Making,
    listening: Listening,
    certified: tuple[ssl.SSLContext, ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    port = (await listening(answer(b"ok"), tls=certified[0])).port
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: real("127.0.0.1", *rest, **more))
    request = asking(port, url=f"https://hooks.test:{port}/", method="GET", body=None)
    assert await (await making(tls=certified[1]).open(request)).read() == b"ok"


async def test_a_host_that_does_not_speak_tls(making: Making, listening: Listening) -> None:
    async def speaks(reader: Reader, writer: Writer) -> None:
        await reader.read(1)
        writer.write(answer(b"This is not TLS", status="400 Bad Request"))
        await writer.drain()

    port = (await listening(speaks)).port
    error = await refused(making(), asking(port, url=f"https://127.0.0.1:{port}/"))
    assert error.was_sent is False


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200", b"SSH-2.0-OpenSSH_9\r\n\r\n"], ids=["nothing", "half", "other"])
async def test_a_connection_that_breaks_off_or_makes_no_sense(
    making: Making, listening: Listening, said: bytes
) -> None:
    error = await refused(making(), asking((await listening(after_the_request(said))).port))
    assert error.was_sent is True, "nobody can tell whether it arrived"


@pytest.mark.proves("4-49")
@pytest.mark.parametrize("streams", [False, True])
async def test_an_answer_that_does_not_come(making: Making, listening: Listening, streams: bool) -> None:
    never = asyncio.Event()
    port = (await listening(after_the_request(until=never))).port
    error = await refused(making(), asking(port, seconds=0.1, streams=streams))
    assert (type(error), error.was_sent) == (TimedOut, True)


@pytest.mark.parametrize("streams", [False, True])
async def test_a_body_that_does_not_come(making: Making, listening: Listening, streams: bool) -> None:
    """A stream that turns out to be an error is read whole as well."""
    never = asyncio.Event()
    port = (await listening(after_the_request(answer(b"12345")[:-3], until=never))).port
    opened = await making().open(asking(port, seconds=0.3, streams=streams))
    with pytest.raises(TimedOut) as raised:
        await opened.read()
    assert raised.value.was_sent is True


async def test_a_body_that_is_cut(making: Making, listening: Listening) -> None:
    opened = await making().open(asking((await listening(after_the_request(answer(b"12345")[:-3]))).port))
    with pytest.raises(StreamBroken) as raised:
        await opened.read()
    assert raised.value.was_sent is True


async def test_wrongly_declared_compression_is_an_error(making: Making, listening: Listening) -> None:
    """Whoever reads it cannot go on, but there is no use in asking again: it is the agent's fault."""
    port = (await listening(answer(b"not gzip at all", "Content-Encoding: gzip"))).port
    request = asking(port, method="GET", body=None)
    with pytest.raises(InvalidAgentResponse, match="compressed"):
        await (await making().open(request)).read()


async def test_a_stream_that_is_cut(making: Making, listening: Listening) -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
    opened = await making().open(streaming((await listening(after_the_request(said))).port))
    reading: Any = opened.pieces()
    assert await anext(reading) == b"one"
    with pytest.raises(StreamBroken):
        await anext(reading)


async def test_a_stream_that_falls_silent(making: Making, listening: Listening) -> None:
    never = asyncio.Event()
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"
    port = (await listening(after_the_request(said, until=never))).port
    opened = await making(silent_seconds=0.2).open(streaming(port, seconds=None))
    reading: Any = opened.pieces()
    assert await anext(reading) == b"one"
    with pytest.raises(TimedOut):
        await anext(reading)


@pytest.mark.parametrize(
    "wrong",
    [{"url": "ftp://127.0.0.1/"}, {"url": "http://"}, {"headers": (("X-Test", "a\r\nX-Forged: b"),)}],
    ids=["scheme", "host", "header"],
)
async def test_a_request_that_cannot_be_sent(making: Making, listening: Listening, wrong: dict[str, Any]) -> None:
    listener = await listening(answer(b"ok"))
    error = await refused(making(), asking(listener.port, **wrong))
    assert (error.was_sent, listener.heads) == (False, [])


# --- by name --------------------------------------------------------------------------------------------------------


async def test_a_transport_that_is_there_is_taken_as_it_is() -> None:
    class Mine:
        async def open(self, request: HttpRequest) -> OpenReply:
            raise AssertionError

        async def close(self) -> None:
            pass

    mine = Mine()
    assert open_transport(mine) is mine
    with pytest.raises(ValueError, match="no transport 'curl'; there are aiohttp, httpx2"):
        open_transport("curl")
