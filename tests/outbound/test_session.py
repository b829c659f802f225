"""Requests as they leave: to the address that was checked and to no other, within bounds, with nothing of ours."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest

from accord.outbound import HttpSession, Policy, TargetRefused, Unreachable, connector, messages, session
from accord.outbound.policy import check_address
from accord.outbound.session import NO_ADDRESS, SystemResolver
from tests.outbound.conftest import Listening

DEVELOPMENT = Policy(allow_private=True)
PUBLIC = "93.184.216.34"


class Names:
    """Answers for names, one list of addresses after the other, and keeps who asked."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, name: str) -> list[str]:
        self.asked.append(name)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


class Dialled(list[str]):
    """The addresses that a socket was opened for; none is connected to."""

    def __call__(self, info: tuple[Any, ...]) -> socket.socket:
        self.append(info[4][0])
        raise OSError("This test opens nothing")


async def asked(url: str, policy: Policy | None = None, **options: Any) -> Any:
    """The answer of one request."""
    async with HttpSession.strict(policy, **options) as outbound:
        return await outbound.request("GET", url)


# --- where it may go ----------------------------------------------------------------------------------------------


@pytest.mark.proves("B-18")
@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:127.0.0.1"],
        ["64:ff9b::a00:1"],
        ["fe80::1%2"],
        [PUBLIC, "127.0.0.1"],
        ["2606:4700::1111", "192.168.0.1"],
        ["0.0.0.0"],
        ["nonsense"],
    ],
)
async def test_private_names_are_refused_before_connecting(
    addresses: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    dialled = Dialled()
    with pytest.raises(Unreachable, match=f"^{NO_ADDRESS}$"):
        await asked("https://inside.example/", resolve=Names(addresses), opens=dialled)
    assert dialled == []
    assert "inside.example" in vars(caplog.records[0])["reason"]


@pytest.mark.proves("B-18")
async def test_the_checked_address_is_used(listening: Listening) -> None:
    listener = await listening()
    names, dialled = Names([PUBLIC], ["127.0.0.1"]), Dialled()
    url = f"https://rebinding.example:{listener.port}/"
    async with HttpSession.strict(resolve=names, opens=dialled) as outbound:
        with pytest.raises(Unreachable):
            await outbound.request("POST", url, body=b"x")
        assert (names.asked, dialled) == (["rebinding.example"], [PUBLIC])
        with pytest.raises(Unreachable, match=NO_ADDRESS):
            await outbound.request("POST", url, body=b"x")
    assert dialled == [PUBLIC]
    assert listener.connections == 0


async def test_every_address_of_a_name_may_be_tried() -> None:
    dialled, addresses = Dialled(), [PUBLIC, "2606:4700:4700::1111", "1.1.1.1"]
    with pytest.raises(Unreachable):
        await asked("https://many.example/", resolve=Names(addresses), opens=dialled)
    assert set(dialled) == set(addresses)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1", "127.0.0.1.", "localhost"])
async def test_addresses_in_the_url_need_no_name_to_be_refused(host: str, listening: Listening) -> None:
    listener, names = await listening(), Names(["127.0.0.1"])
    with pytest.raises(TargetRefused):
        await asked(f"https://{host}:{listener.port}/", resolve=names)
    assert (names.asked, listener.connections) == ([], 0)


async def test_even_an_address_that_slipped_through_is_not_connected_to(
    listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = await listening()
    assert check_address("127.0.0.1")
    answers = iter([None])  # the resolver's check passes it, the socket's does not
    monkeypatch.setattr(connector, "check_address", lambda *_, **__: next(answers, "loopback"))
    with pytest.raises(Unreachable):
        await asked(f"https://a.example:{listener.port}/", resolve=Names(["127.0.0.1"]))
    assert listener.connections == 0


async def test_trust_in_a_host_does_not_extend_to_its_address(listening: Listening) -> None:
    listener = await listening()
    policy = Policy(allow_hosts=frozenset({"hooks.internal"}))
    async with HttpSession.strict(policy, resolve=Names(["127.0.0.1"])) as outbound:
        assert (await outbound.request("GET", f"http://hooks.internal:{listener.port}/")).status == 200
        with pytest.raises(Unreachable, match=NO_ADDRESS):
            await outbound.request("GET", f"https://other.internal:{listener.port}/")
    assert listener.connections == 1


@pytest.mark.proves("B-18")
async def test_no_redirect_is_followed(listening: Listening) -> None:
    inside = await listening()
    location = f"http://127.0.0.1:{inside.port}/secret"
    said = f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    outside = await listening(said.encode())
    answer = await asked(f"http://127.0.0.1:{outside.port}/", DEVELOPMENT)
    assert (answer.status, answer.headers["location"]) == (302, location)
    assert inside.connections == 0


async def test_the_environment_names_no_proxy(listening: Listening, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, listener = await listening(), await listening()
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    monkeypatch.delenv("no_proxy", raising=False)
    await asked(f"http://127.0.0.1:{listener.port}/", DEVELOPMENT)
    assert (proxy.connections, listener.connections) == (0, 1)


# --- certificates -------------------------------------------------------------------------------------------------

Certified = tuple[ssl.SSLContext, ssl.SSLContext]
TRUSTING = Policy(allow_hosts=frozenset({"hooks.test", "other.test"}))


async def test_a_certificate_is_verified_against_the_name_not_the_address(
    listening: Listening, certified: Certified
) -> None:
    server, believes = certified
    listener = await listening(tls=server)
    async with HttpSession.strict(TRUSTING, resolve=Names(["127.0.0.1"]), tls=believes) as outbound:
        assert (await outbound.request("GET", f"https://hooks.test:{listener.port}/")).body == b"ok"
        with pytest.raises(Unreachable, match="certificate"):
            await outbound.request("GET", f"https://other.test:{listener.port}/")
    assert len(listener.heads) == 1


async def test_an_unknown_certificate_is_not_accepted(listening: Listening, certified: Certified) -> None:
    listener = await listening(tls=certified[0])
    with pytest.raises(Unreachable, match="certificate"):
        await asked(f"https://hooks.test:{listener.port}/", TRUSTING, resolve=Names(["127.0.0.1"]))
    assert listener.heads == []


async def test_servers_without_tls_are_unreachable(listening: Listening) -> None:
    async def gibberish(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(OTHER_PROTOCOL)

    listener = await listening(gibberish)
    with pytest.raises(Unreachable, match="TLS"):
        await asked(f"https://127.0.0.1:{listener.port}/", DEVELOPMENT)


OTHER_PROTOCOL = b"220 mail.example ESMTP\r\n"

# --- what is sent -------------------------------------------------------------------------------------------------


async def test_requests_have_a_user_agent_and_no_cookies(listening: Listening) -> None:
    listener = await listening(
        b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nX-Thing: 1\r\nContent-Length: 2\r\n\r\nok"
    )
    url = f"http://127.0.0.1:{listener.port}/p%20q?r=s"
    async with HttpSession.strict(DEVELOPMENT) as outbound:
        await outbound.request("POST", url, headers={"X-Mine": "1"}, body=b"")
        answer = await outbound.request("POST", url, headers={"X-Mine": "1"}, body=b"")
    assert (answer.status, answer.body, answer.is_whole, answer.headers["x-thing"]) == (200, b"ok", True, "1")
    first, second = listener.heads
    assert first == second
    lines = first.split("\r\n")
    assert lines[0] == "POST /p%20q?r=s HTTP/1.1"
    fields = dict(line.split(": ", 1) for line in lines[1:] if line)
    assert fields["User-Agent"].startswith("accord/")
    assert fields["X-Mine"] == "1"
    assert fields["Accept-Encoding"] == "identity"
    assert not {"Cookie", "Authorization"} & set(fields)
    assert listener.connections == 1


# --- bounds -------------------------------------------------------------------------------------------------------


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer with a body that never ends."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say nothing, for ever."""
    await asyncio.Event().wait()


async def begun(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Begin an answer with a body that does not come."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
    await asyncio.Event().wait()


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send headers a byte at a time, without an end, as fast as somebody reads them."""
    writer.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        writer.write(b"y")
        await writer.drain()
        await asyncio.sleep(0)


async def test_of_a_long_body_only_the_beginning_is_read(listening: Listening) -> None:
    listener = await listening(endless)
    async with HttpSession.strict(DEVELOPMENT) as outbound:
        answer = await outbound.request("GET", f"http://127.0.0.1:{listener.port}/", max_bytes=1000)
    assert (answer.status, answer.body, answer.is_whole) == (200, b"x" * 1000, False)


async def test_a_body_as_long_as_allowed_is_whole(listening: Listening) -> None:
    listener = await listening()
    async with HttpSession.strict(DEVELOPMENT) as outbound:
        for limit, body, is_whole in ((1, b"o", False), (2, b"ok", True), (3, b"ok", True)):
            answer = await outbound.request("GET", f"http://127.0.0.1:{listener.port}/", max_bytes=limit)
            assert (answer.body, answer.is_whole) == (body, is_whole)


async def test_unwanted_bodies_are_not_awaited(listening: Listening) -> None:
    listener = await listening(begun)
    async with HttpSession.strict(DEVELOPMENT, total_seconds=3600) as outbound:
        answer = await outbound.request("GET", f"http://127.0.0.1:{listener.port}/", max_bytes=0)
    assert (answer.status, answer.body, answer.is_whole) == (200, b"", False)


@pytest.mark.parametrize("speaks", [silent, begun])
async def test_an_answer_that_does_not_come_is_given_up(speaks: Any, listening: Listening) -> None:
    listener = await listening(speaks)
    with pytest.raises(Unreachable, match="in time"):
        await asked(f"http://127.0.0.1:{listener.port}/", DEVELOPMENT, total_seconds=0.1)
    assert listener.connections == 1


async def test_a_name_that_is_never_answered_is_given_up() -> None:
    async def never(_: str) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(Unreachable, match="in time"):
        await asked("https://slow.example/", resolve=never, total_seconds=0.1)


@pytest.mark.parametrize(
    "speaks",
    [
        dripping,
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % number for number in range(10_000)) + b"\r\n",
        b"HTTP/1.1 200 " + b"OK" * 10_000 + b"\r\n\r\n",
        OTHER_PROTOCOL,
    ],
    ids=["a header without end", "too many headers", "a long reason", "another protocol"],
)
async def test_invalid_answers_are_unreachable(speaks: Any, listening: Listening) -> None:
    listener = await listening(speaks)
    with pytest.raises(Unreachable, match="not HTTP"):
        await asked(f"http://127.0.0.1:{listener.port}/", DEVELOPMENT)


async def test_a_server_that_hangs_up_is_unreachable(listening: Listening) -> None:
    async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    listener = await listening(hangs_up)
    async with HttpSession.strict(DEVELOPMENT) as outbound:
        with pytest.raises(Unreachable, match="broke off"):
            await outbound.request("POST", f"http://127.0.0.1:{listener.port}/", body=b"x")
    assert listener.connections == 1


async def test_unreachable_errors_name_no_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(Unreachable) as found:
        await asked(f"http://localhost:{port}/", DEVELOPMENT, resolve=Names(["127.0.0.1"]))
    assert "127.0.0.1" not in str(found.value)
    assert "No connection" in str(found.value)


@pytest.mark.parametrize("error", [socket.gaierror("no such name"), OSError("no network")])
async def test_a_name_without_address_is_unreachable(error: OSError) -> None:
    async def fails(_: str) -> list[str]:
        raise error

    with pytest.raises(Unreachable, match=f"^{NO_ADDRESS}$"):  # as for one with an address inside
        await asked("https://missing.example/", resolve=fails)


# --- names --------------------------------------------------------------------------------------------------------


@pytest.fixture
async def system() -> AsyncIterator[SystemResolver]:
    found = SystemResolver()
    yield found
    found.close()


async def test_names_are_resolved_by_the_system(system: SystemResolver) -> None:
    found = await system("localhost")
    assert set(found) <= {"127.0.0.1", "::1"}
    assert len(found) == len(set(found)) >= 1


async def test_numeric_host_forms_are_checked(system: SystemResolver) -> None:
    assert await system("0x7f.1") == ["127.0.0.1"]
    with pytest.raises(TargetRefused):
        await connector.CheckedResolver(system, is_trusted=False).resolve("0x7f.1", 443)


async def test_slow_names_take_no_thread_that_agents_need(
    system: SystemResolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, hangs, begun_looking = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    released = asyncio.run_coroutine_threadsafe

    def slow(*_: Any, **__: Any) -> Any:
        loop.call_soon_threadsafe(begun_looking.set)
        released(hangs.wait(), loop).result(timeout=20)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    looks = [asyncio.create_task(system(f"{number}.example")) for number in range(100)]
    await begun_looking.wait()
    assert await asyncio.to_thread(lambda: "an agent's work") == "an agent's work"
    hangs.set()
    found = await asyncio.gather(*looks, return_exceptions=True)
    assert {type(error) for error in found} == {socket.gaierror}


def test_requests_have_the_webhook_timeout() -> None:
    assert 10 <= messages.CONNECT_SECONDS <= session.TOTAL_SECONDS <= 30
