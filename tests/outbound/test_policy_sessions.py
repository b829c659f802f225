"""Sessions with a policy about the addresses that requests may reach."""

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from accord.outbound import HttpRequest, HttpSession, Policy, Unreachable
from tests.client.transports.test_transports import answer
from tests.outbound.conftest import Listening


@pytest.fixture
async def making() -> AsyncIterator[Callable[..., HttpSession]]:
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> HttpSession:
            found = HttpSession(**options)
            stack.push_async_callback(found.close)
            return found

        yield make


def getting(url: str) -> HttpRequest:
    return HttpRequest(method="GET", url=url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://example.com/", "Only https"),
        ("https://127.0.0.1/", "not a public address"),
        ("https://169.254.169.254/", "not a public address"),
        ("https://localhost/", "localhost is not a public address"),
        ("https://user:secret@example.com/", "contains a user name"),
    ],
)
async def test_the_policy_restricts_targets(making: Callable[..., HttpSession], url: str, reason: str) -> None:
    with pytest.raises(Unreachable, match=reason) as raised:
        await making(policy=Policy()).open(getting(url))
    assert raised.value.was_sent is False


async def test_a_name_may_not_turn_out_to_be_private(making: Callable[..., HttpSession], listening: Listening) -> None:
    listener = await listening(answer(b"ok"))
    looked: list[str] = []

    async def resolve(name: str) -> list[str]:
        looked.append(name)
        return ["127.0.0.1"]

    with pytest.raises(Unreachable, match="has an address that is not public: loopback"):
        await making(policy=Policy(), resolve=resolve).open(getting(f"https://agent.example:{listener.port}/"))
    assert (looked, listener.connections) == (["agent.example"], 0)


async def test_a_trusted_host_may_be_private_and_keeps_its_name(
    making: Callable[..., HttpSession], listening: Listening, certified: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    listener = await listening(answer(b"ok"), tls=certified[0])

    async def resolve(name: str) -> list[str]:
        return ["127.0.0.1"]

    transport = making(policy=Policy(allow_hosts=frozenset({"hooks.test"})), resolve=resolve, tls=certified[1])
    opened = await transport.open(getting(f"https://HOOKS.test.:{listener.port}/a%2Fb"))
    assert await opened.read() == b"ok"
    assert listener.heads[0].startswith("GET /a%2Fb HTTP/1.1\r\nHost: hooks.test:")


async def test_with_a_policy_names_are_looked_up_as_the_system_does(
    making: Callable[..., HttpSession], listening: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = await listening(answer(b"ok"))
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: real("127.0.0.1", *rest, **more))
    opened = await making(policy=Policy(allow_private=True)).open(getting(f"http://agent.example:{listener.port}/"))
    assert await opened.read() == b"ok"


async def test_a_transport_that_was_closed_may_be_used_again(
    making: Callable[..., HttpSession], listening: Listening
) -> None:
    """Its connections belong to a loop; a script may have several, one after the other."""
    listener = await listening(answer(b"ok"))
    transport = making(policy=Policy(allow_private=True))
    for _ in range(2):
        assert await (await transport.open(getting(f"http://127.0.0.1:{listener.port}/"))).read() == b"ok"
        await transport.close()
    assert listener.connections == 2
