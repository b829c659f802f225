"""Signing in at an issuer: a real one on this machine, which checks what clients have to do, and may lie."""

import base64
import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from joserfc.jwk import ECKey

from accord.console.sign_in import console_page
from accord.protocol import jose
from accord.server.application import Application
from accord.server.settings_loader import BadSettings
from accord.testing import Response
from tests.cases import each
from tests.console.browsers import HOST, Browser
from tests.server.conftest import echo, serving

CLIENT, SECRET = "the-console", "the client's own secret: ü/:"
BACK = f"http://{HOST}/api/session/oidc/corp/callback"


class Issuer:
    """An identity provider where alice is signed in already."""

    def __init__(self) -> None:
        self.key = ECKey.generate_key("P-256", {"kid": "k-1"})
        self.url = ""
        self.claims: dict[str, Any] = {}
        self.described: dict[str, Any] = {}
        self.methods = ["client_secret_basic", "client_secret_post"]
        self.signer = self.key
        self.is_away = False
        self._codes: dict[str, dict[str, str]] = {}

    def authorize(self, url: str) -> dict[str, str]:
        """What a browser is sent back with that opens the address it was led to."""
        assert url.startswith(f"{self.url}/authorize?")
        asked = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT
        assert asked["redirect_uri"] == BACK
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        assert min(len(asked[name]) for name in ("state", "nonce", "code_challenge")) >= 43
        code = f"code-{len(self._codes)}"
        self._codes[code] = asked
        return {"code": code, "state": asked["state"]}

    async def token(self, request: web.Request) -> web.Response:
        """Redeem a code, once, for whom it was given to."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        asked = self._codes.pop(form.get("code", ""), None)
        if asked is None or not self._is_client(request, form) or form["grant_type"] != "authorization_code":
            return web.json_response({"error": "invalid_grant"}, status=400)
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        )
        if challenge != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return web.json_response({"error": "invalid_grant"}, status=400)
        now = int(time.time())
        fine = {"iss": self.url, "aud": CLIENT, "sub": "alice", "iat": now, "exp": now + 60, "nonce": asked["nonce"]}
        claims = {name: value for name, value in (fine | self.claims).items() if value is not None}
        token = jose.sign_payload(json.dumps(claims).encode(), {"alg": "ES256", "kid": "k-1"}, self.signer)
        return web.json_response({"id_token": token, "access_token": "x", "token_type": "Bearer"})

    def _is_client(self, request: web.Request, form: dict[str, str]) -> bool:
        if "client_secret_basic" in self.methods:
            pair = "the-console:the%20client%27s%20own%20secret%3A%20%C3%BC%2F%3A"
            return request.headers.get("Authorization") == "Basic " + base64.b64encode(pair.encode()).decode()
        return (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)

    async def discovery(self, _request: web.Request) -> web.Response:
        if self.is_away:
            return web.Response(status=503)
        own = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "token_endpoint_auth_methods_supported": self.methods,
        }
        return web.json_response(own | self.described)

    async def keys(self, _request: web.Request) -> web.Response:
        return web.json_response({"keys": [self.key.as_dict(private=False)]})


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    found = Issuer()
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", found.discovery)
    app.router.add_get("/keys", found.keys)
    app.router.add_post("/token", found.token)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield found
    await runner.cleanup()


def scheme(issuer: Issuer, **sign_in: Any) -> dict[str, Any]:
    client = {"client_id": CLIENT, "client_secret": SECRET, "name": "corp", "label": "Corp"}
    return {
        "type": "jwt",
        "issuer": issuer.url,
        "audience": ["the agents"],
        "tenant": "acme",
        "role_claims": ["roles"],
        "owner_prefix": "corp:",
        "sign_in": client | sign_in,
    }


@asynccontextmanager
async def corp(issuer: Issuer, **settings: Any) -> AsyncIterator[Application]:
    async with serving(echo, auth={"schemes": [scheme(issuer)]}, **settings) as app:
        yield app


async def leave(browser: Browser, query: str = "") -> str:
    """Where a browser is led that wants to sign in."""
    answer = await browser("GET", "/api/session/oidc/corp", query=query, **{"Sec-Fetch-Mode": "navigate"})
    assert answer.status == 303, answer.body
    return answer.headers["location"]


async def come_back(browser: Browser, given: dict[str, str]) -> Response:
    return await browser.visit("/api/session/oidc/corp/callback", "&".join(f"{k}={v}" for k, v in given.items()))


async def test_one_comes_back_signed_in_to_the_page_one_came_from(issuer: Issuer) -> None:
    issuer.claims = {"roles": ["admin"]}
    async with corp(issuer) as app:
        browser = Browser(app)
        [way] = (await browser("GET", "/api/session")).json()["ways"]
        assert way == {"kind": "oidc", "label": "Corp", "url": "/api/session/oidc/corp"}
        url = await leave(browser, "next=/tasks/1?x%3Dy")
        pending = browser.flags["accord_signin"]
        assert {"HttpOnly", "SameSite=Lax", "Max-Age=600"} <= {*pending.split("; ")}
        answer = await come_back(browser, issuer.authorize(url))
        assert (answer.status, answer.headers["location"]) == (303, "/console/tasks/1?x=y")
        assert set(browser.cookies) == {"accord_session"}
        assert "SameSite=Strict" in browser.flags["accord_session"]
        found = (await browser("GET", "/api/session")).json()
        assert (found["name"], found["tenant"], found["roles"]) == ("corp:alice", "acme", ["admin"])
        assert (await browser("GET", "/api/tasks")).status == 200


@pytest.mark.parametrize("methods", [["client_secret_basic"], ["client_secret_post"]])
async def test_the_client_authenticates_as_the_issuer_wants_it(issuer: Issuer, methods: list[str]) -> None:
    issuer.methods = methods
    async with corp(issuer) as app:
        browser = Browser(app)
        await come_back(browser, issuer.authorize(await leave(browser)))
        assert await browser.who() == "corp:alice"


async def test_any_node_completes_a_sign_in(issuer: Issuer, tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/a.db"
    async with corp(issuer, store=store) as one:
        first = Browser(one)
        given = issuer.authorize(await leave(first))
    async with corp(issuer, store=store) as other:
        second = Browser(other)
        second.cookies, second.flags = first.cookies, first.flags
        await come_back(second, given)
        assert await second.who() == "corp:alice"


@pytest.mark.parametrize(
    "claims",
    [
        {"nonce": "another"},
        {"nonce": None},
        {"aud": "another client"},
        {"aud": "the agents"},
        {"azp": "another client"},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"sub": None},
    ],
)
async def test_a_token_that_is_not_for_this_sign_in_is_refused(issuer: Issuer, claims: dict[str, Any]) -> None:
    issuer.claims = claims
    async with corp(issuer) as app:
        browser = Browser(app)
        answer = await come_back(browser, issuer.authorize(await leave(browser)))
        assert (answer.status, answer.headers["location"]) == (303, "/console/signin?error=failed")
        assert browser.cookies == {}


async def test_tokens_signed_by_others_are_refused(issuer: Issuer) -> None:
    issuer.signer = ECKey.generate_key("P-256", {"kid": "k-1"})
    async with corp(issuer) as app:
        browser = Browser(app)
        answer = await come_back(browser, issuer.authorize(await leave(browser)))
        assert answer.headers["location"] == "/console/signin?error=failed"
        assert await browser.who() is None


async def test_unsolicited_callbacks_are_refused(issuer: Issuer) -> None:
    """Login CSRF: somebody else's code in this browser, and one's own in somebody else's."""
    async with corp(issuer) as app:
        victim, attacker = Browser(app), Browser(app)
        theirs = issuer.authorize(await leave(attacker))
        assert (await come_back(victim, theirs)).headers["location"] == "/console/signin?error=expired"
        await leave(victim)
        assert (await come_back(victim, theirs)).headers["location"] == "/console/signin?error=expired"
        own = issuer.authorize(await leave(victim))
        mixed = {"state": own["state"], "code": theirs["code"]}
        assert (await come_back(victim, mixed)).headers["location"] == "/console/signin?error=failed", "PKCE"
        assert victim.cookies == {}


async def test_a_code_is_good_once(issuer: Issuer) -> None:
    async with corp(issuer) as app:
        browser = Browser(app)
        given = issuer.authorize(await leave(browser))
        pending = dict(browser.cookies)
        await come_back(browser, given)
        thief = Browser(app)
        thief.cookies, thief.flags = pending, browser.flags
        assert (await come_back(thief, given)).headers["location"] == "/console/signin?error=failed"


async def test_declined_sign_ins_are_reported(issuer: Issuer) -> None:
    async with corp(issuer) as app:
        browser = Browser(app)
        state = issuer.authorize(await leave(browser))["state"]
        answer = await come_back(browser, {"state": state, "error": "access_denied"})
        assert answer.headers["location"] == "/console/signin?error=denied"


async def test_an_answer_of_another_issuer_is_refused(issuer: Issuer) -> None:
    async with corp(issuer) as app:
        browser = Browser(app)
        given = issuer.authorize(await leave(browser)) | {"iss": "https://evil.example"}
        assert (await come_back(browser, given)).headers["location"] == "/console/signin?error=failed"


@pytest.mark.parametrize(
    "described",
    [{"issuer": "https://evil.example"}, {"authorization_endpoint": "javascript:alert(1)"}, {"token_endpoint": None}],
)
async def test_an_issuer_that_describes_itself_wrongly_leads_nowhere(issuer: Issuer, described: dict[str, Any]) -> None:
    issuer.described = described
    async with corp(issuer) as app:
        assert await leave(Browser(app)) == "/console/signin?error=failed"


async def test_issuer_outages_are_retried_on_the_next_sign_in(issuer: Issuer) -> None:
    issuer.is_away = True
    async with corp(issuer) as app:
        browser = Browser(app)
        assert await leave(browser) == "/console/signin?error=failed"
        issuer.is_away = False
        await come_back(browser, issuer.authorize(await leave(browser)))
        assert await browser.who() == "corp:alice"


async def test_sessions_end_with_their_client_registration(issuer: Issuer, tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path}/a.db"
    async with corp(issuer, store=store) as app:
        browser = Browser(app)
        await come_back(browser, issuer.authorize(await leave(browser)))
        assert await browser.who() == "corp:alice"
    changed = {"schemes": [scheme(issuer, client_id="another")]}
    async with serving(echo, store=store, auth=changed) as app:
        later = Browser(app)
        later.cookies = browser.cookies
        assert await later.who() is None


@each(
    "hostile",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/%0d%0aSet-Cookie: x=y",
        "/a\r\nSet-Cookie: x=y",
        "/../../evil",
        "/a//evil.example",
        "javascript:alert(1)",
        "evil",
        "",
        "/tasks#<script>",
    ],
)
def test_one_is_led_to_no_other_place_than_a_page(hostile: str) -> None:
    assert console_page(hostile) == "/"


@pytest.mark.parametrize("page", ["/", "/tasks", "/tasks/0192-x?state=failed&q=a%20b", "/chat/1"])
def test_pages_are_pages(page: str) -> None:
    assert console_page(page) == page


async def test_unknown_issuers_are_refused(issuer: Issuer) -> None:
    async with corp(issuer) as app:
        assert (await Browser(app)("GET", "/api/session/oidc/other")).status == 422
        assert (await Browser(app)("GET", "/api/session/oidc/other/callback")).status == 422


async def test_impossible_settings_are_reported(issuer: Issuer) -> None:
    two = [scheme(issuer), scheme(issuer) | {"owner_prefix": "x:"}]
    with pytest.raises((BadSettings, RuntimeError), match=r"sign_in\.name"):
        async with serving(echo, auth={"schemes": two}):
            pass
    shared = scheme(issuer) | {"secret": "x" * 32}
    with pytest.raises(BadSettings, match="sign_in"):
        async with serving(echo, auth={"schemes": [shared]}):
            pass
