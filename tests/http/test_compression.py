"""Bodies in gzip and deflate, both ways."""

import gzip
import zlib
from collections.abc import Callable

import pytest

from accord.auth.rate_limits import Quotas
from accord.errors import RequestTooLarge
from accord.http.asgi import Receive, Scope, Send, respond
from accord.http.compression import MIN_COMPRESSED_BYTES, PIECE, Compression
from accord.testing import call
from tests.cases import each
from tests.http.scripted import read_body

LONG = b"the same again " * 500
STREAM = [(b"content-type", b"text/event-stream")]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Say what was said, with its own length and a tag."""
    body = await read_body(receive, Quotas(body=1_000_000))
    await respond(send, 200, body, [(b"content-type", b"text/plain"), (b"etag", b'"a"')])


async def long(scope: Scope, receive: Receive, send: Send) -> None:
    await respond(send, 200, LONG, [(b"etag", b'"a"')])


async def streaming(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": STREAM})
    await send({"type": "http.response.body", "body": LONG, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


@pytest.mark.proves("4-47")
@each(
    ("accepted", "used"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("gzip, deflate, br", "gzip"),
        ("gzip;q=0.2, deflate;q=0.9", "deflate"),
        ("br", None),
        ("gzip;q=0", None),
        ("gzip;q=much", None),
        (None, None),
    ],
)
async def test_a_long_answer_comes_in_the_format_that_is_wanted(accepted: str | None, used: str | None) -> None:
    headers = {} if accepted is None else {"accept-encoding": accepted}
    answer = await call(Compression(long), b"", headers=headers)

    assert answer.headers.get("content-encoding") == used
    unpack: dict[str | None, Callable[[bytes], bytes]] = {
        "gzip": gzip.decompress,
        "deflate": zlib.decompress,
        None: bytes,
    }
    assert unpack[used](answer.body) == LONG
    assert int(answer.headers["content-length"]) == len(answer.body)
    if used:
        assert len(answer.body) < len(LONG) / 10
        assert answer.headers["etag"] == 'W/"a"'  # other bytes: only weakly the same
        assert "Accept-Encoding" in answer.headers["vary"]


async def test_a_short_answer_is_left_alone() -> None:
    answer = await call(Compression(echo), b"x" * (MIN_COMPRESSED_BYTES - 1), headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers
    assert answer.headers["etag"] == '"a"'


@pytest.mark.proves("4-47")
async def test_a_stream_is_left_alone() -> None:
    answer = await call(Compression(streaming), b"", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in answer.headers
    assert answer.body == LONG


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_compressed_request_is_read(name: str, pack) -> None:
    answer = await call(Compression(echo), pack(LONG * 30), headers={"content-encoding": name})
    assert answer.body == LONG * 30


async def test_inflated_bytes_count_against_the_limit() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < 100_000
    with pytest.raises(RequestTooLarge):
        await call(Compression(echo), bomb, headers={"content-encoding": "gzip"})


async def test_wrongly_declared_bodies_pass_unchanged() -> None:
    answer = await call(Compression(echo), b"not gzip", headers={"content-encoding": "gzip"})
    assert answer.body == b"not gzip"


async def test_an_unknown_format_is_refused() -> None:
    answer = await call(Compression(echo), b"x", headers={"content-encoding": "br"})
    assert (answer.status, answer.headers["accept-encoding"]) == (415, "gzip, deflate")


async def test_a_bomb_is_inflated_piece_by_piece() -> None:
    packed, sizes = gzip.compress(bytes(5_000_000)), list[int]()

    async def measuring(scope: Scope, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            sizes.append(len(message["body"]))
            if not message["more_body"]:
                return

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": packed, "more_body": False}

    async def send(_: object) -> None:
        raise AssertionError("Nothing is answered")

    scope = {"type": "http", "headers": [(b"content-encoding", b"gzip")]}
    await Compression(measuring)(scope, receive, send)
    assert (sum(sizes), max(sizes) <= PIECE) == (5_000_000, True)
