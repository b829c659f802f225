"""Tokens: asked for once, kept until shortly before their end, replaced when refused, shared by those who wait."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from accord.client.auth import AuthDriver, ClientCredentials, CombinedAuth, OpenIdConnect
from accord.client.auth.schemes import HmacAuth
from accord.errors import AuthenticationFailed
from accord.outbound import HttpReply, HttpRequest, HttpSession, Unreachable
from tests.auth.conftest import Clock
from tests.client.auth.conftest import Agent, TokenEndpoint, serving

REQUEST = HttpRequest(method="POST", url="http://agent.example/", body=b"{}")
LONG_AGO = 1_700_000_000
REFUSED = HttpReply(status=401, headers={}, body=b"")


@pytest.fixture
async def agent(endpoint: TokenEndpoint) -> AsyncIterator[Agent]:
    """An agent of our server that believes the endpoint's tokens."""
    async with serving(endpoint.scheme(jwks_url=f"{endpoint.url}/keys"), push={"allow_private": True}) as found:
        yield found


@pytest.fixture
async def transport() -> AsyncIterator[HttpSession]:
    found = HttpSession()
    yield found
    await found.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def client(endpoint: TokenEndpoint, clock: Clock | None = None, **more: object) -> ClientCredentials:
    return ClientCredentials(endpoint.token_url, *endpoint.client, clock=clock or Clock(), **more)  # type: ignore[arg-type]


def token_in(request: HttpRequest | None) -> str:
    assert request is not None
    return dict(request.headers)["Authorization"]


@pytest.mark.proves("2-10")
@pytest.mark.parametrize(("lasts", "used"), [(3600, 3540), ("120", 60), (61, 1), (60, 30), (10, 5), (0.5, 0.25)])
async def test_a_token_is_kept_until_a_minute_before_its_end(
    endpoint: TokenEndpoint, transport: HttpSession, clock: Clock, lasts: object, used: float
) -> None:
    endpoint.lasts = lasts
    driver = AuthDriver(client(endpoint, clock), transport)
    first = token_in(await driver.prepare(REQUEST))
    clock.at += used * 0.99
    assert token_in(await driver.prepare(REQUEST)) == first
    clock.at += used * 0.02
    assert token_in(await driver.prepare(REQUEST)) != first
    assert len(endpoint.asked) == 2


async def test_a_token_without_an_end_is_kept(endpoint: TokenEndpoint, transport: HttpSession, clock: Clock) -> None:
    endpoint.lasts = None
    driver = AuthDriver(client(endpoint, clock), transport)
    first = token_in(await driver.prepare(REQUEST))
    clock.at += 10**9
    assert token_in(await driver.prepare(REQUEST)) == first


@pytest.mark.proves("2-10")
async def test_a_token_that_our_server_finds_expired_is_replaced_once(endpoint: TokenEndpoint, agent: Agent) -> None:
    endpoint.ends = [LONG_AGO]  # however long it was said to last
    auth = client(endpoint)
    assert await agent.ask(auth) == 200
    assert len(endpoint.asked) == 2
    endpoint.ends = [LONG_AGO, LONG_AGO]
    assert await agent.ask(client(endpoint)) == 401
    assert len(endpoint.asked) == 4


@pytest.mark.proves("2-10")
async def test_refused_tokens_are_refreshed_once(endpoint: TokenEndpoint, transport: HttpSession) -> None:
    accepted: set[str] = set()
    seen: list[str] = []

    async def guarded(request: web.Request) -> web.Response:
        seen.append(request.headers["Authorization"])
        return web.Response(status=200 if seen[-1] in accepted else 401)

    runner = web.AppRunner(_app(guarded))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    other = Agent(f"http://127.0.0.1:{runner.addresses[0][1]}")
    driver = AuthDriver(client(endpoint), transport)
    accepted.add(token_in(await driver.prepare(REQUEST)))
    assert await other.ask(driver) == 200
    accepted.clear()  # all are revoked
    assert await other.ask(driver) == 401
    assert (len(seen), len(endpoint.asked)) == (3, 2)  # refused, asked for anew, refused again: that was all
    accepted.add(token_in(await driver.prepare(REQUEST)))
    assert await other.ask(driver) == 200
    assert len(endpoint.asked) == 2
    await other.transport.close()
    await runner.cleanup()


def _app(handler: object) -> web.Application:
    app = web.Application()
    app.router.add_post("/", handler)  # type: ignore[arg-type]
    return app


@pytest.mark.proves("2-10")
async def test_concurrent_callers_share_a_token_request(endpoint: TokenEndpoint, transport: HttpSession) -> None:
    endpoint.held = asyncio.Event()
    driver = AuthDriver(client(endpoint), transport)
    waiting = [asyncio.create_task(driver.prepare(REQUEST)) for _ in range(50)]
    await endpoint.arrived.wait()
    endpoint.held.set()
    tokens = {token_in(one) for one in await asyncio.gather(*waiting)}
    assert (len(tokens), len(endpoint.asked)) == (1, 1)
    # All of them are refused: one asks for the next token, the others take that.
    sent = await driver.prepare(REQUEST)
    again = await asyncio.gather(*(driver.retry(sent, REFUSED) for _ in range(50)))
    assert len({token_in(one) for one in again}) == 1
    assert len(endpoint.asked) == 2
    late = await driver.retry(sent, REFUSED)
    assert token_in(late) == token_in(again[0])
    assert len(endpoint.asked) == 2


async def test_shared_refusals_are_retried_later(endpoint: TokenEndpoint, transport: HttpSession) -> None:
    endpoint.held = asyncio.Event()
    endpoint.answers = [web.Response(status=503)]
    driver = AuthDriver(client(endpoint), transport)
    waiting = [asyncio.create_task(driver.prepare(REQUEST)) for _ in range(20)]
    await endpoint.arrived.wait()
    endpoint.held.set()
    failures = await asyncio.gather(*waiting, return_exceptions=True)
    assert len(endpoint.asked) == 1
    assert all(isinstance(one, Unreachable) and not one.was_sent for one in failures)
    assert token_in(await driver.prepare(REQUEST))


async def test_a_canceled_token_request_is_taken_over(endpoint: TokenEndpoint, transport: HttpSession) -> None:
    endpoint.held = asyncio.Event()
    driver = AuthDriver(client(endpoint), transport)
    first = asyncio.create_task(driver.prepare(REQUEST))
    await endpoint.arrived.wait()
    waiting = [asyncio.create_task(driver.prepare(REQUEST)) for _ in range(3)]
    await asyncio.sleep(0)
    waiting.pop().cancel()  # one who waits: nobody else is disturbed
    await asyncio.sleep(0)
    assert not first.done()
    first.cancel()
    endpoint.held.set()
    assert len({token_in(one) for one in await asyncio.gather(*waiting)}) == 1
    assert len(endpoint.asked) == 2


@pytest.mark.parametrize("wrong", [("an id:with+odd/chars", "not it"), ("nobody", "a secret & more=%41")])
async def test_wrong_credentials_are_reported_unquoted(
    endpoint: TokenEndpoint, agent: Agent, wrong: tuple[str, str]
) -> None:
    auth = ClientCredentials(endpoint.token_url, *wrong)
    with pytest.raises(AuthenticationFailed, match=r"gives no token: 401 \(invalid_client: who is that\?\)") as refused:
        await agent.ask(auth)
    assert wrong[1] not in str(refused.value)
    assert [one["way"] for one in endpoint.asked] == ["post", "basic"]


@pytest.mark.parametrize("status", [400, 401])
async def test_an_endpoint_that_wants_the_secret_in_a_header_gets_it_there(
    endpoint: TokenEndpoint, transport: HttpSession, clock: Clock, status: int
) -> None:
    endpoint.answers = [web.json_response({"error": "invalid_client"}, status=status)]
    endpoint.lasts = 100
    driver = AuthDriver(client(endpoint, clock), transport)
    await driver.prepare(REQUEST)
    clock.at += 1000
    await driver.prepare(REQUEST)
    assert [one["way"] for one in endpoint.asked] == ["post", "basic", "basic"]


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b'{"token": "s3cret"}',
        b'{"access_token": 5}',
        b'{"access_token": "s3cret\\nX: y"}',
        b'{"access_token": ""}',
        b'{"access_token": "s3cret", "expires_in": "soon"}',
    ],
)
async def test_invalid_token_answers_are_reported(
    endpoint: TokenEndpoint, transport: HttpSession, answer: bytes
) -> None:
    endpoint.answers = [web.Response(body=answer, content_type="application/json")]
    with pytest.raises(AuthenticationFailed, match="returned a") as refused:
        await AuthDriver(client(endpoint), transport).prepare(REQUEST)
    assert "s3cret" not in str(refused.value)


async def test_an_endpoint_that_is_away_means_that_nothing_was_sent(transport: HttpSession) -> None:
    auth = ClientCredentials("http://127.0.0.1:1/token", "id", "secret")
    with pytest.raises(Unreachable, match="No credentials are available") as away:
        await AuthDriver(auth, transport).prepare(REQUEST)
    assert not away.value.was_sent


@pytest.mark.parametrize(("takes", "way"), [({"post", "basic"}, "post"), ({"basic"}, "basic")])
async def test_discovery_chooses_the_client_authentication(
    endpoint: TokenEndpoint, transport: HttpSession, takes: set[str], way: str
) -> None:
    endpoint.takes = takes
    driver = AuthDriver(OpenIdConnect(endpoint.discovery_url, *endpoint.client, scopes=("a", "b")), transport)
    sent = await driver.prepare(REQUEST)
    assert token_in(sent) == token_in(await driver.prepare(REQUEST))
    assert token_in(await driver.retry(sent, REFUSED)) != token_in(sent)
    assert endpoint.asked == [{"grant_type": "client_credentials", "scope": "a b", "way": way}] * 2
    assert endpoint.discovered == 1


async def test_invalid_discovery_documents_are_reported(endpoint: TokenEndpoint, transport: HttpSession) -> None:
    driver = AuthDriver(OpenIdConnect(f"{endpoint.url}/keys", "id", "secret"), transport)
    with pytest.raises(AuthenticationFailed, match="is not a valid OpenID Connect discovery"):
        await driver.prepare(REQUEST)
    gone = AuthDriver(OpenIdConnect(f"{endpoint.url}/nowhere", "id", "secret"), transport)
    with pytest.raises(AuthenticationFailed, match="gives no token: 404"):
        await gone.prepare(REQUEST)


def test_https_discovery_cannot_redirect_secrets_to_http() -> None:
    flow = OpenIdConnect("https://id.example/oidc", "id", "secret").prepare(REQUEST)
    next(flow)
    answer = HttpReply(status=200, headers={}, body=b'{"token_endpoint": "http://id.example/token"}')
    with pytest.raises(AuthenticationFailed, match="not https"):
        flow.send(answer)


async def test_a_signature_beside_a_token_is_made_last_and_again(
    endpoint: TokenEndpoint, transport: HttpSession
) -> None:
    driver = AuthDriver(CombinedAuth([HmacAuth("a secret"), client(endpoint)]), transport)
    sent = await driver.prepare(REQUEST)
    again = await driver.retry(sent, REFUSED)
    assert again is not None
    assert (
        [name for name, _ in sent.headers]
        == [name for name, _ in again.headers]
        == ["Authorization", "X-A2A-Signature"]
    )
    assert all(one != other for one, other in zip(sent.headers, again.headers, strict=True))
    assert await AuthDriver(CombinedAuth([HmacAuth("a secret")]), transport).retry(sent, REFUSED) is None
