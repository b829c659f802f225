"""Every way to authenticate against our own server, over sockets, as its card describes it."""

from typing import Any

import pytest

from accord.auth.api_keys import new_key
from accord.client.auth import (
    Anonymous,
    ApiKey,
    BasicAuth,
    Bearer,
    ClientCredentials,
    CustomHeader,
    HmacAuth,
    NoCredentials,
    OpenIdConnect,
    choose_auth,
)
from accord.client.credentials import KeyManager
from accord.storage import schema
from accord.storage.commands import authentication
from accord.storage.commands.authentication import NewApiKey
from accord.storage.sqlite.driver import SqliteStore
from tests.client.auth.conftest import IN_A_CENTURY, TokenEndpoint, serving
from tests.passwords import cheap_hash

SECRET, OTHER = "a shared secret of the tests", "another secret of the tests"
HEADER = {"type": "header", "name": "X-Secret", "secrets": [{"owner": "alice", "secret": SECRET}]}
HMAC = {"type": "hmac", "keys": {"partner": {"owner": "p", "secret": SECRET}}}
HASH = cheap_hash("pass:word ü")
BASIC = {"type": "basic", "users": {"alice": {"password": HASH}}}


def keys(**env: str) -> KeyManager:
    """Only what these variables say."""
    return KeyManager(env=env)


@pytest.mark.proves("2-06", "2-07")
async def test_open_agents_get_no_credentials() -> None:
    async with serving() as agent:
        auth = choose_auth(await agent.card(), keys(ACCORD_KEY_LOCALHOST="k"))
        assert isinstance(auth, Anonymous)
        assert await agent.ask(auth) == 200


@pytest.mark.proves("2-06", "2-08", "2-11")
@pytest.mark.parametrize("dialect", ["v1", "v03", "vault"])
async def test_a_key_gets_in_and_a_wrong_or_a_revoked_one_does_not(tmp_path: Any, dialect: str) -> None:
    made, store = new_key(), SqliteStore(tmp_path / "accord.db")
    await schema.upgrade_schema(store)
    await store.do(authentication.create_api_key, NewApiKey(id=made.id, hash=made.hash, name="", owner="alice"))
    settings = {"store": f"sqlite:///{tmp_path}/accord.db"}
    async with serving({"type": "api-keys", "remember_seconds": 0}, **settings) as agent:
        card = await agent.card(dialect)
        auth = choose_auth(card, keys(**{"AGENTVAULT_KEY_127_0_0_1": made.key}))
        assert isinstance(auth, ApiKey)
        assert await agent.ask(auth) == 200
        wrong = choose_auth(card, keys(AGENTVAULT_KEY_SVC=new_key().key), service="SVC")
        assert await agent.ask(wrong) == 401
        assert await agent.ask(None) == 401
        await store.do(authentication.revoke_api_key, made.id)
        assert await agent.ask(auth) == 401
    await store.close()


@pytest.mark.proves("2-06", "2-08")
async def test_a_secret_in_the_header_that_the_card_names() -> None:
    async with serving(HEADER) as agent:
        auth = choose_auth(await agent.card(), keys(ACCORD_KEY_127_0_0_1=SECRET))
        assert repr(auth) == "ApiKey(location='header', name='X-Secret')"
        assert await agent.ask(auth) == 200
        assert await agent.ask(CustomHeader({"X-Secret": SECRET})) == 200
        assert await agent.ask(CustomHeader({"X-Secret": OTHER})) == 401


async def test_a_name_and_a_password() -> None:
    async with serving(BASIC) as agent:
        auth = choose_auth(await agent.card(), keys(ACCORD_BASIC_127_0_0_1="alice:pass:word ü"))
        assert isinstance(auth, BasicAuth)
        assert await agent.ask(auth) == 200
        assert await agent.ask(BasicAuth("alice", "password")) == 401


@pytest.mark.proves("2-09", "C-14")
async def test_a_bearer_token(endpoint: TokenEndpoint) -> None:
    scheme = endpoint.scheme(jwks_url=f"{endpoint.url}/keys")
    async with serving(scheme, push={"allow_private": True}) as agent:
        claims = {"iss": endpoint.url, "iat": None, "nbf": None, "exp": IN_A_CENTURY}
        good, expired = endpoint.issuer.token(claims), endpoint.issuer.token(claims | {"exp": 1_700_000_000})
        card = await agent.card()
        auth = choose_auth(card, keys(ACCORD_TOKEN_127_0_0_1=good))
        assert isinstance(auth, Bearer)
        assert await agent.ask(auth) == 200
        assert await agent.ask(choose_auth(card, keys(AGENTVAULT_TOKEN_127_0_0_1=expired))) == 401
        endpoint.issuer.keys.clear()
        vault = await agent.card("vault")
        assert isinstance(choose_auth(vault, keys(ACCORD_TOKEN_127_0_0_1=good)), Bearer)


async def test_signed_requests_also_where_the_path_has_a_query() -> None:
    async with serving(HMAC) as agent:
        card = await agent.card()
        assert list(card.security_schemes) == ["signature"]
        with pytest.raises(NoCredentials, match="ACCORD_HMAC_127_0_0_1"):
            choose_auth(card, keys(ACCORD_KEY_127_0_0_1=SECRET))  # which is not sent as it is
        assert isinstance(
            choose_auth(await agent.card("vault"), keys(ACCORD_HMAC_127_0_0_1=f"partner:{SECRET}")), HmacAuth
        )
        auth = choose_auth(card, keys(ACCORD_HMAC_127_0_0_1=f"partner:{SECRET}"))
        assert isinstance(auth, HmacAuth)
        for path in ("/", "/", "/?dialect=v1&x=a%20b+c%2Fd", "/?"):
            assert await agent.ask(auth, path) == 200, path
        assert await agent.ask(HmacAuth(OTHER, key_id="partner")) == 401
        assert await agent.ask(HmacAuth(SECRET, key_id="partner", now=lambda: 1_700_000_000)) == 401


@pytest.mark.proves("2-06", "2-10", "2-11")
@pytest.mark.parametrize("dialect", ["v1", "v03", "vault"])
async def test_client_credentials(endpoint: TokenEndpoint, dialect: str) -> None:
    scheme = endpoint.scheme(jwks_url=f"{endpoint.url}/keys", token_url=endpoint.token_url, scopes={"chat": "to talk"})
    async with serving(scheme, push={"allow_private": True}) as agent:
        id, secret = endpoint.client
        held = keys(ACCORD_OAUTH_127_0_0_1_CLIENT_ID=id, ACCORD_OAUTH_127_0_0_1_CLIENT_SECRET=secret)
        auth = choose_auth(await agent.card(dialect), held)
        assert isinstance(auth, ClientCredentials)
        assert [await agent.ask(auth) for _ in range(3)] == [200, 200, 200]
        scope = {"scope": "chat"} if dialect == "vault" else {}  # only there the card requires what it describes
        assert endpoint.asked == [{"grant_type": "client_credentials", "way": "post"} | scope]


async def test_openid_connect(endpoint: TokenEndpoint) -> None:
    async with serving(endpoint.scheme(), push={"allow_private": True}) as agent:
        id, secret = endpoint.client
        held = keys(AGENTVAULT_OAUTH_127_0_0_1_CLIENT_ID=id, AGENTVAULT_OAUTH_127_0_0_1_CLIENT_SECRET=secret)
        auth = choose_auth(await agent.card(), held)
        assert isinstance(auth, OpenIdConnect)
        assert [await agent.ask(auth) for _ in range(2)] == [200, 200]
        assert len(endpoint.asked) == 1


@pytest.mark.proves("2-06")
async def test_the_scheme_with_credentials_is_chosen() -> None:
    async with serving(BASIC, HEADER) as agent:
        card = await agent.card()
        for held in ({"ACCORD_KEY_SVC": SECRET}, {"ACCORD_BASIC_SVC": "alice:pass:word ü"}):
            assert await agent.ask(choose_auth(card, keys(**held), service="svc")) == 200
        with pytest.raises(NoCredentials) as refused:
            choose_auth(card, keys(ACCORD_KEY_OTHER=SECRET))
        told = str(refused.value)
        assert "an API key in the header X-Secret" in told
        assert "a name and a password" in told
        assert "ACCORD_KEY_127_0_0_1_" in told
        assert SECRET not in told
