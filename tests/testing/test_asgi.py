"""The bridge to ASGI applications: answers as they come, leaving half way, lifespans, and what goes wrong."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest

from accord.agents.echo import echo
from accord.testing import call, lifespan, stream
from accord.testing.inprocess import application

SHORT = 0.2
"""A bound for what never comes."""


def start(status: int = 200, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def piece(body: bytes, *, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}


async def mirror(scope: Any, receive: Any, send: Any) -> None:
    """Answers with what it was sent, and says in headers how that came."""
    body, count = b"", 0
    while True:
        message = await receive()
        body, count = body + message["body"], count + 1
        if not message["more_body"]:
            break
    stated = dict(scope["headers"])
    await send(
        start(
            201,
            (b"x-what", f"{scope['method']} {scope['path']}?{scope['query_string'].decode()}".encode()),
            (b"x-type", stated.get(b"content-type", b"none")),
            (b"x-pieces", str(count).encode()),
            (b"x-many", b"a"),
            (b"x-many", b"b"),
        )
    )
    await send(piece(body, is_last=True))


@pytest.mark.parametrize(("body", "sent"), [(b"raw", b"raw"), ({"a": 1}, b'{"a": 1}'), ([1], b"[1]"), (b"", b"")])
async def test_a_request_arrives_as_it_was_meant(body: Any, sent: bytes) -> None:
    answer = await call(mirror, body, method="PUT", path="/a%20b", query="c=d")
    assert (answer.status, answer.body) == (201, sent)
    assert answer.headers["x-what"] == "PUT /a b?c=d"
    assert (answer.headers["x-type"], answer.headers["x-pieces"]) == ("application/json", "1")
    assert answer.headers["x-many"] == "a, b"


async def test_headers_are_stated_and_left_out() -> None:
    assert (await call(mirror, headers={"Content-Type": "text/plain"})).headers["x-type"] == "text/plain"
    assert (await call(mirror, headers={"Content-Type": ""})).headers["x-type"] == "none"


async def test_a_large_body_comes_in_pieces() -> None:
    answer = await call(mirror, b"x" * 200_000)
    assert (len(answer.body), answer.headers["x-pieces"]) == (200_000, "4")


class Feed:
    """An application that sends an event whenever it is told to, until its client is gone."""

    def __init__(self) -> None:
        self.go = asyncio.Queue[bytes]()
        self.is_left = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(start(200, (b"content-type", b"text/event-stream")))
        gone = asyncio.create_task(receive())
        while not gone.done():
            more = asyncio.create_task(self.go.get())
            await asyncio.wait({more, gone}, return_when=asyncio.FIRST_COMPLETED)
            if more.done():
                await send(piece(more.result()))
            else:
                more.cancel()
        self.is_left = gone.result()["type"] == "http.disconnect"


async def test_events_are_there_as_they_come_and_leaving_is_noticed() -> None:
    feed = Feed()
    async with stream(feed) as answer, aclosing(answer.events()) as events:
        assert (answer.status, answer.body) == (200, b"")
        for number in range(3):  # each is read before the next one exists
            feed.go.put_nowait(b"id: %d\ndata: e%d\n\n" % (number, number))
            frame = await anext(events)
            assert (frame.id, frame.data) == (str(number), b"e%d" % number)
        feed.go.put_nowait(b"data: ha")
        feed.go.put_nowait(b"lf\n\n")
        assert (await anext(events)).data == b"half"
        assert not feed.is_left
    assert feed.is_left
    assert [frame.data for frame in answer.frames()] == [b"e0", b"e1", b"e2", b"half"]


async def test_a_body_can_be_read_piece_by_piece_and_again() -> None:
    feed = Feed()
    async with stream(feed) as answer, aclosing(answer.pieces()) as first:
        feed.go.put_nowait(b"a")
        assert await anext(first) == b"a"
        feed.go.put_nowait(b"b")
        async with aclosing(answer.pieces()) as second:
            assert [await anext(second), await anext(second)] == [b"a", b"b"]
        assert await anext(first) == b"b"


async def test_nothing_is_waited_for_without_end() -> None:
    with pytest.raises(TimeoutError):
        await call(Feed(), bound=SHORT)


# --- what goes wrong ----------------------------------------------------------------------------------------------


def breaking(*messages: dict[str, Any]) -> Callable[..., Any]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)
        raise ValueError("broken")

    return app


@pytest.mark.parametrize("messages", [(), (start(),), (start(), piece(b"a")), (start(), piece(b"a", is_last=True))])
async def test_application_errors_reach_the_test(messages: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(ValueError, match="broken"):
        await call(breaking(*messages))


@pytest.mark.parametrize("messages", [(), (start(), piece(b"a"))])
async def test_half_an_answer_is_an_error(messages: tuple[dict[str, Any], ...]) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)

    with pytest.raises(RuntimeError, match="before its answer was whole"):
        await call(app)


async def test_applications_ignoring_a_disconnect_are_stopped() -> None:
    stopped = []

    async def deaf(scope: Any, receive: Any, send: Any) -> None:
        await send(start())
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    with pytest.raises(TimeoutError, match="after its client disconnected"):
        async with stream(deaf, bound=SHORT):
            pass
    assert stopped


async def test_sends_after_a_disconnect_are_ignored() -> None:
    async def late(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(start())
        assert (await receive())["type"] == "http.disconnect"
        await send(piece(b"late", is_last=True))

    async with stream(late) as answer:
        pass
    assert answer.body == b""


# --- lifespan -----------------------------------------------------------------------------------------------------


class Living:
    """An application with a life, which can fail at either end."""

    def __init__(self, fails: str = "", leaves: str = "", breaks: str = "") -> None:
        self.said: list[str] = []
        self._fails, self._leaves, self._breaks = fails, leaves, breaks

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "lifespan"
        for phase in ("startup", "shutdown"):
            message = await receive()
            self.said.append(message["type"])
            if self._breaks == phase:
                raise ValueError("broken")
            if self._leaves == phase:
                return
            if self._fails == phase:
                await send({"type": f"lifespan.{phase}.failed", "message": "no store"})
                return
            await send({"type": f"lifespan.{phase}.complete"})


async def test_an_application_is_started_and_stopped() -> None:
    app = Living()
    async with lifespan(app):
        assert app.said == ["lifespan.startup"]
    assert app.said == ["lifespan.startup", "lifespan.shutdown"]


async def test_ours_is_started_and_stopped() -> None:
    app, card = application([echo]), "/.well-known/agent-card.json"
    with pytest.raises(RuntimeError, match="not been started"):
        _ = app.host
    async with lifespan(app):
        assert list(app.host.services) == ["Echo"]
        assert (await call(app, method="GET", path=card)).json()["name"] == "Echo"
    with pytest.raises(RuntimeError, match="not been started"):
        _ = app.host


async def test_it_is_stopped_when_the_test_fails() -> None:
    app = Living()
    with pytest.raises(KeyError):
        async with lifespan(app):
            raise KeyError
    assert app.said == ["lifespan.startup", "lifespan.shutdown"]


@pytest.mark.parametrize("phase", ["startup", "shutdown"])
async def test_failed_lifespans_report_the_reason(phase: str) -> None:
    for app, error, why in (
        (Living(fails=phase), RuntimeError, f"lifespan.{phase}.failed: no store"),
        (Living(leaves=phase), RuntimeError, f"lifespan.{phase} was not answered"),
        (Living(breaks=phase), ValueError, "broken"),
    ):
        with pytest.raises(error, match=why):
            async with lifespan(app):
                pass


async def test_a_life_that_never_begins_is_given_up() -> None:
    async def waits(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="startup was not answered"):
        async with lifespan(waits, bound=SHORT):
            pass
