"""The client's transport into an application: whatever the client does over HTTP it does here."""

import asyncio
from contextlib import aclosing

import pytest

from accord.client import TimedOut
from accord.client.auth import ApiKey
from accord.client.remote_task import message_of
from accord.errors import AuthenticationFailed
from accord.http.asgi import Receive, Scope, Send
from accord.model import SendRequest, Task
from accord.outbound import HttpRequest
from accord.testing import AsgiTransport, assert_task, running, scripted
from accord.testing.scripts import artifact, ask, hang, say, stream

SECRET = "a secret of sixteen characters"


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("dialect", ["v1", "v03"])
async def test_every_dialect_over_every_binding(dialect: str, binding: str) -> None:
    clerk = scripted(ask("Which year?"), stream("19", "84"))
    async with running(clerk) as a2a, a2a.client(dialect=dialect, binding=binding) as client:
        asked = await client.send_text("a book")
        pieces = [piece async for piece in client.stream_text("1984", task_id=asked.task_id)]
        assert (asked.text, pieces) == ("Which year?", ["19", "84"])


@pytest.mark.parametrize("dialect", ["vault", "gen", "relay"])
async def test_the_other_dialects(dialect: str) -> None:
    async with running(scripted(artifact("sunny"))) as a2a, a2a.client(dialect=dialect) as client:
        assert (await client.send_text("now")).text == "sunny"


async def test_an_agent_by_its_path_and_one_server_for_many_clients() -> None:
    agents = [scripted(artifact(name), name=name) for name in ("one", "two")]
    async with running(*agents) as a2a, a2a.client() as first, a2a.client("two") as second:
        assert ((await first.send_text("x")).text, (await second.send_text("x")).text) == ("one", "two")


async def test_servers_of_one_test_are_not_taken_for_each_other() -> None:
    async with (
        running(scripted(name="one")) as a2a,
        running(scripted(name="two")) as other,
        a2a.client() as first,
        other.client() as second,
    ):
        assert (first.card.name, second.card.name) == ("one", "two")


async def test_credentials_are_the_client_s_own() -> None:
    schemes = [{"type": "header", "name": "X-Key", "secrets": [{"secret": SECRET, "owner": "alice"}]}]
    async with running(scripted(artifact("x")), auth={"schemes": schemes}) as a2a:
        async with a2a.client(auth=ApiKey(SECRET, name="X-Key")) as client:
            assert (await client.send_text("go")).text == "x"
        async with a2a.client() as client:
            with pytest.raises(AuthenticationFailed):
                await client.send_text("go")


async def test_a_stream_that_is_left_is_closed() -> None:
    async with running(scripted(say("soon"), hang())) as a2a, a2a.client() as client:
        async with aclosing(client.stream(SendRequest(message=message_of("go")))) as events:
            first = await anext(events)
        assert isinstance(first.body, Task)
        assert_task(await a2a.cancel(first.body), state="canceled")


async def test_an_answer_that_does_not_come_is_late() -> None:
    async def silent(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        while (await receive())["type"] != "http.disconnect":
            pass

    transport = AsgiTransport(silent)
    with pytest.raises(TimedOut, match="No answer in time"):
        await transport.open(HttpRequest(method="GET", url="https://x.test/", seconds=0.05))


async def test_application_errors_are_raised() -> None:
    async def broken(_scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        await AsgiTransport(broken).open(HttpRequest(method="GET", url="https://x.test/"))


async def test_closing_releases_open_streams() -> None:
    left = asyncio.Event()

    async def streaming(_scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"1")]})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    transport = AsgiTransport(streaming)
    answer = await transport.open(HttpRequest(method="POST", url="https://x.test/a?b=c", streams=True))
    pieces = answer.pieces()
    assert (answer.status, answer.headers["x-a"], await anext(pieces)) == (200, "1", b"first")
    await transport.close()
    assert left.is_set()


async def test_a_server_has_the_address_that_it_is_given() -> None:
    async with running(scripted(artifact("x")), server={"url": "https://shop.example"}) as a2a, a2a.client() as client:
        assert client.card.supported_interfaces[0].url == "https://shop.example/"
        assert (await client.send_text("go")).text == "x"
