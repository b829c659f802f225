"""One request and its answer: credentials, one more try after a 401, and redirects that stay where they are."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest

from accord.client.exchange import MAX_REDIRECTS, AuthDriver, AuthFlow, HttpExchange, with_header
from accord.outbound import HttpReply, HttpRequest
from tests.cases import each

Answering = Callable[[HttpRequest], tuple[int, Mapping[str, str]]]
URL = "http://agent.example/a2a"
POST = HttpRequest(method="POST", url=URL, body=b"hello")
GET = HttpRequest(method="GET", url=URL)


class Opened:
    """An answer, and whether somebody let it go."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status, self.headers = status, headers
        self.is_over = False

    async def read(self) -> bytes:
        self.is_over = True
        return b"body %d" % self.status

    async def pieces(self) -> AsyncIterator[bytes]:
        yield await self.read()

    async def close(self) -> None:
        self.is_over = True


class Scripted:
    """A transport that answers what it is told to, and remembers what it was asked."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering
        self.asked: list[HttpRequest] = []
        self.opened: list[Opened] = []

    async def open(self, request: HttpRequest) -> Opened:
        self.asked.append(request)
        self.opened.append(Opened(*self._answering(request)))
        return self.opened[-1]

    async def close(self) -> None:
        pass


class Token:
    """Brings a token; `renews` if it knows another one."""

    def __init__(self, *, renews: bool = True) -> None:
        self._renews = renews

    def prepare(self, request: HttpRequest) -> AuthFlow:
        return with_header(request, "Authorization", "old")
        yield

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow | None:
        return self._renewed(request) if self._renews else None

    def _renewed(self, request: HttpRequest) -> AuthFlow:
        return with_header(request, "Authorization", "new")
        yield


def tokens(transport: Scripted) -> list[Any]:
    return [dict(request.headers).get("Authorization") for request in transport.asked]


def wanting(token: str) -> Answering:
    return lambda request: (200 if dict(request.headers).get("Authorization") == token else 401, {})


async def test_without_credentials_a_request_goes_as_it_is() -> None:
    transport = Scripted(lambda _: (200, {}))
    reply = await HttpExchange(transport).fetch(POST)
    assert (reply.status, reply.body, transport.asked) == (200, b"body 200", [POST])


@pytest.mark.parametrize("shares", [False, True])
async def test_credentials_are_added(shares: bool) -> None:
    transport = Scripted(wanting("old"))
    auth = AuthDriver(Token(), transport) if shares else Token()
    assert (await HttpExchange(transport, auth).fetch(POST)).status == 200
    assert tokens(transport) == ["old"]


async def test_a_401_is_tried_once_more() -> None:
    transport = Scripted(wanting("new"))
    assert (await HttpExchange(transport, Token()).fetch(POST)).status == 200
    assert tokens(transport) == ["old", "new"]
    assert all(opened.is_over for opened in transport.opened)


@pytest.mark.parametrize(("renews", "sent"), [(True, ["old", "new"]), (False, ["old"])])
async def test_a_401_that_stays_is_the_answer(renews: bool, sent: list[str]) -> None:
    transport = Scripted(wanting("other"))
    exchange = HttpExchange(transport, Token(renews=renews))
    assert await exchange.fetch(POST) == HttpReply(status=401, headers={}, body=b"body 401")
    assert tokens(transport) == sent
    pieces = [piece async for piece in (await exchange.open(POST)).pieces()]
    assert pieces == [b"body 401"]


# --- redirects ------------------------------------------------------------------------------------------------------


def moving(status: int, target: str) -> Answering:
    return lambda request: (status, {"location": target}) if request.url == URL else (200, {})


@each("target", ["/a2a/", "a2a/", "http://agent.example/a2a/", "http://AGENT.example:80/a2a/"])
@each("status", [307, 308])
async def test_a_request_follows_its_server(status: int, target: str) -> None:
    transport = Scripted(moving(status, target))
    assert (await HttpExchange(transport, Token()).fetch(POST)).status == 200
    first, second = transport.asked
    assert (first.url, second.url.lower().replace(":80", "")) == (URL, f"{URL}/")
    assert (second.method, second.body, tokens(transport)) == ("POST", b"hello", ["old", "old"])
    assert transport.opened[0].is_over


async def test_a_request_may_move_to_https() -> None:
    transport = Scripted(moving(308, "https://agent.example/a2a"))
    assert (await HttpExchange(transport).fetch(POST)).status == 200


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/a2a",
        "//evil.example/a2a",
        "http://agent.example:8080/a2a",
        "https://agent.example:8443/a2a",
        "http://agent.example:x/",
        "http://[::1/",
        "",
    ],
)
async def test_credentials_are_not_carried_to_another_server(target: str) -> None:
    transport = Scripted(moving(307, target))
    assert (await HttpExchange(transport, Token()).fetch(POST)).status == 307
    assert len(transport.asked) == 1


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_redirects_of_posts_that_become_gets_are_refused(status: int) -> None:
    transport = Scripted(moving(status, "/card"))
    assert (await HttpExchange(transport).fetch(POST)).status == status
    assert (await HttpExchange(transport).fetch(GET)).status == 200


async def test_redirect_loops_are_refused() -> None:
    transport = Scripted(lambda request: (307, {"location": request.url + "x"}))
    assert (await HttpExchange(transport).fetch(POST)).status == 307
    assert len(transport.asked) == 1 + MAX_REDIRECTS
