"""Signing in and out: what sessions are good for, how they end, and what their cookies are like."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from accord.auth.api_keys import new_key
from accord.console import sessions as made
from accord.server.application import Application
from accord.storage.address import open_store
from accord.storage.commands import authentication, monitoring
from accord.storage.commands.authentication import NewApiKey
from accord.storage.store import Tx
from accord.testing import call
from tests.console.browsers import AGENT, HOST, Browser
from tests.databases import emptied, postgres
from tests.passwords import cheap_hash
from tests.server.conftest import SECRET, V1, echo, rpc, said, serving

__all__ = ["postgres"]

PASSWORD = "correct horse battery"
HASH = cheap_hash(PASSWORD)


def schemes(**user: Any) -> list[dict[str, Any]]:
    """The ways in of a server with somebody of each kind."""
    return [
        {"type": "api-keys", "remember_seconds": 0},
        {"type": "header", "name": "X-Secret", "secrets": [{"owner": "carol", "tenant": "globex", "secret": SECRET}]},
        {"type": "basic", "users": {"bob": {"password": HASH, "tenant": "acme", "roles": ["admin"], **user}}},
    ]


@asynccontextmanager
async def guarded(**settings: Any) -> AsyncIterator[Application]:
    async with serving(echo, **({"auth": {"schemes": schemes()}} | settings)) as app:
        yield app


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    async with guarded() as application:
        yield application


async def key_of(app: Application, owner: str = "alice", tenant: str | None = "acme") -> tuple[str, str]:
    """A new key, and its id."""
    secret = new_key()
    key = NewApiKey(id=secret.id, hash=secret.hash, name="of the test", owner=owner, tenant=tenant)
    await app.host.node.store.do(authentication.create_api_key, key)
    return secret.key, secret.id


async def hashes(tx: Tx) -> list[tuple[str, str | None]]:
    return [(row[0], row[1]) for row in await tx.all("SELECT hash, proof FROM session")]


async def test_one_signs_in_with_a_key(app: Application) -> None:
    browser = Browser(app)
    assert await browser.who() is None
    answer = await browser.sign_in(apiKey=(await key_of(app))[0])
    assert answer.status == 200, answer.body
    found = answer.json()
    assert (found["signedIn"], found["isOpen"]) == (True, False)
    assert (found["name"], found["tenant"], found["roams"], found["roles"]) == ("alice", "acme", False, [])
    assert await browser.who() == "alice"
    assert (await browser("GET", "/api/tasks")).status == 200


async def test_one_signs_in_with_a_password_or_a_secret(app: Application) -> None:
    bob, carol = Browser(app), Browser(app)
    answer = await bob.sign_in(username="bob", password=PASSWORD)
    assert (answer.status, answer.json()["roles"]) == (200, ["admin"])
    assert (await carol.sign_in(apiKey=SECRET)).json()["tenant"] == "globex"
    assert (await bob.who(), await carol.who()) == ("bob", "carol")


async def test_anonymous_callers_only_learn_how_to_sign_in(app: Application) -> None:
    browser = Browser(app)
    found = (await browser("GET", "/api/session")).json()
    assert [way["kind"] for way in found["ways"]] == ["password", "api-key"]
    assert (found["signedIn"], found["name"], found["tenant"], found["roles"]) == (False, "", "", [])
    for path in ("/api/tasks", "/api/agents", "/api/inbox", "/api/events", "/api/deliveries", "/api/audit"):
        assert (await browser("GET", path)).status == 401


@pytest.mark.parametrize(
    "credentials",
    [
        {"apiKey": "ak_0000000000000000_" + "x" * 43},
        {"apiKey": "not a key"},
        {"apiKey": ""},
        {"apiKey": "ünïcode"},
        {"apiKey": PASSWORD},
        {"username": "bob", "password": "wrong"},
        {"username": "nobody", "password": PASSWORD},
        {"username": "bob:" + PASSWORD[:3], "password": PASSWORD[4:]},
    ],
)
async def test_failed_sign_ins_are_audited_without_a_prompt(app: Application, credentials: dict[str, str]) -> None:
    browser = Browser(app)
    answer = await browser.sign_in(**credentials)
    assert answer.status == 401
    assert "www-authenticate" not in answer.headers
    assert browser.cookies == {}
    assert await app.host.node.store.read(hashes) == []


@pytest.mark.parametrize("body", [{}, {"username": "bob"}, {"password": PASSWORD}, {"token": "x"}, {"apiKey": 1}])
async def test_unusable_credentials_are_reported(app: Application, body: dict[str, Any]) -> None:
    assert (await Browser(app)("POST", "/api/session", body)).status == 422


async def test_the_store_holds_no_usable_session_secret(app: Application) -> None:
    browser = Browser(app)
    await browser.sign_in(apiKey=SECRET)
    [(hash, proof)] = await app.host.node.store.read(hashes)
    token = browser.cookies["accord_session"]
    assert hash == hashlib.sha256(token.encode()).hexdigest()
    assert len(token) >= 43, "256 bits"
    assert proof != hashlib.sha256(SECRET.encode()).hexdigest()
    browser.cookies["accord_session"] = hash
    assert await browser.who() is None


async def test_a_session_is_good_after_a_restart_and_on_another_node(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    async with guarded(store=store) as app:
        browser = Browser(app)
        await browser.sign_in(username="bob", password=PASSWORD)
        cookies = browser.cookies
    async with guarded(store=store) as app:
        later = Browser(app)
        later.cookies = cookies
        assert await later.who() == "bob"


async def test_postgres_sessions_are_valid_on_every_node(postgres: str) -> None:
    await emptied(postgres)
    async with guarded(store=postgres) as one, guarded(store=postgres) as other:
        here, there = Browser(one), Browser(other)
        await here.sign_in(username="bob", password=PASSWORD)
        there.cookies = dict(here.cookies)
        assert await there.who() == "bob"


async def test_signing_out_ends_the_session_wherever_its_cookie_is(app: Application) -> None:
    browser, thief = Browser(app), Browser(app)
    await browser.sign_in(username="bob", password=PASSWORD)
    thief.cookies = dict(browser.cookies)
    assert await thief.who() == "bob"
    answer = await browser("DELETE", "/api/session")
    assert answer.status == 204
    assert "Max-Age=0" in answer.headers["set-cookie"]
    assert browser.cookies == {}
    assert (await thief("GET", "/api/tasks")).status == 401
    assert await app.host.node.store.read(hashes) == []


async def test_a_session_is_never_the_one_a_browser_had(app: Application) -> None:
    """Session fixation: what somebody planted beforehand is no session, and an earlier one of one's own ends."""
    browser = Browser(app)
    browser.cookies["accord_session"] = planted = "A" * 43
    await browser.sign_in(username="bob", password=PASSWORD)
    first = browser.cookies["accord_session"]
    assert first != planted
    await browser.sign_in(apiKey=SECRET)
    assert browser.cookies["accord_session"] not in (first, planted)
    for token in (first, planted):
        browser.cookies["accord_session"] = token
        assert await browser.who() is None


async def test_a_revoked_key_ends_its_sessions(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "CACHE_SECONDS", 0.0)
    async with guarded() as served:
        browser = Browser(served)
        key, id = await key_of(served)
        await browser.sign_in(apiKey=key)
        assert await browser.who() == "alice"
        await served.host.node.store.do(authentication.revoke_api_key, id)
        assert await browser.who() is None


@pytest.mark.parametrize("change", [{"password": cheap_hash("another")}, {"roles": []}, {"tenant": "globex"}])
async def test_changed_users_must_sign_in_again(tmp_path: Any, change: dict[str, Any]) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    async with guarded(store=store) as app:
        browser = Browser(app)
        await browser.sign_in(username="bob", password=PASSWORD)
    async with guarded(store=store, auth={"schemes": schemes(**change)}) as app:
        later = Browser(app)
        later.cookies = browser.cookies
        assert await later.who() is None


async def test_a_scheme_that_is_gone_takes_its_sessions_along(tmp_path: Any) -> None:
    store = f"sqlite:///{tmp_path / 'tasks.db'}"
    async with guarded(store=store) as app:
        browser = Browser(app)
        await browser.sign_in(apiKey=(await key_of(app))[0])
    async with guarded(store=store, auth={"schemes": schemes()[1:]}) as app:
        later = Browser(app)
        later.cookies = browser.cookies
        assert await later.who() is None


async def test_a_session_expires(app: Application) -> None:
    async def expire(tx: Tx) -> None:
        await tx.run("UPDATE session SET expires_at = {now}")

    browser = Browser(app)
    await browser.sign_in(username="bob", password=PASSWORD)
    await app.host.node.store.do(expire)
    assert await browser.who() is None


# --- cookies ----------------------------------------------------------------------------------------------------------


async def test_the_cookie_is_for_this_host_and_no_script(app: Application) -> None:
    browser = Browser(app)
    answer = await browser.sign_in(username="bob", password=PASSWORD)
    name, *flags = answer.headers["set-cookie"].split("; ")
    assert name.startswith("accord_session=")
    assert set(flags) == {"Path=/", "Max-Age=86400", "HttpOnly", "SameSite=Strict"}


@pytest.mark.parametrize("by_proxy", [False, True], ids=["tls", "proxy"])
async def test_over_tls_only_host_prefixed_cookies_count(by_proxy: bool) -> None:
    server = {"behind_proxy": True, "trusted_proxies": ["127.0.0.1"]} if by_proxy else {}
    async with guarded(server=server) as app:
        browser = Browser(app, scheme="http" if by_proxy else "https")
        browser.page = f"https://{HOST}"
        told = {"X-Forwarded-Proto": "https"} if by_proxy else {}
        credentials = {"username": "bob", "password": PASSWORD}
        answer = await browser("POST", "/api/session", credentials, **told)
        assert answer.status == 200, answer.body
        assert answer.headers["set-cookie"].startswith("__Host-accord_session=")
        assert "; Secure" in answer.headers["set-cookie"]
        assert "Domain" not in answer.headers["set-cookie"]
        assert (await browser("GET", "/api/session", **told)).json()["name"] == "bob"
        browser.cookies["accord_session"] = browser.cookies.pop("__Host-accord_session")
        assert (await browser("GET", "/api/session", **told)).json()["signedIn"] is False


async def test_two_cookies_of_one_name_are_none(app: Application) -> None:
    browser = Browser(app)
    await browser.sign_in(username="bob", password=PASSWORD)
    token = browser.cookies.pop("accord_session")
    twice = f"accord_session={token}; accord_session={'B' * 43}"
    assert (await browser("GET", "/api/session", Cookie=twice)).json()["signedIn"] is False
    assert (await browser("GET", "/api/session", Cookie=f"a=b; accord_session={token}")).json()["signedIn"] is True


# --- what a session is good for ---------------------------------------------------------------------------------------


async def test_a_cookie_is_good_for_the_api_and_for_no_agent(app: Application) -> None:
    browser = Browser(app)
    await browser.sign_in(username="bob", password=PASSWORD)
    cookie = f"accord_session={browser.cookies['accord_session']}"
    for path in ("/", "/agents/echo/", "/a2a"):
        headers = {**V1, "Cookie": cookie, "Content-Type": "application/json"}
        answer = await call(app, rpc("SendMessage", message=said("x")), path=path, headers=headers)
        assert answer.status == 401, path
    assert (await call(app, method="GET", path="/tasks", headers={**V1, "Cookie": cookie})).status == 401
    assert (await browser("GET", "/api/v1/developers/me")).json()["name"] == "bob"
    assert (await call(app, method="GET", path="/metrics", headers={"Cookie": cookie})).status == 401


async def test_keys_work_for_the_api_without_a_session(app: Application) -> None:
    key, _ = await key_of(app)
    answer = await call(app, method="GET", path="/api/session", headers={"X-API-Key": key, "Host": HOST})
    assert answer.json()["name"] == "alice"
    assert (await call(app, method="GET", path="/api/tasks", headers={"X-API-Key": key})).status == 200


async def test_basic_challenges_go_to_programs_only(app: Application) -> None:
    by_page = await Browser(app)("GET", "/api/tasks")
    assert by_page.headers["www-authenticate"].startswith("Session ")
    by_program = await call(app, method="GET", path="/api/tasks", headers={"User-Agent": "curl/8"})
    assert "Basic " in by_program.headers["www-authenticate"]
    assert AGENT.startswith("Mozilla/")


@pytest.mark.proves("0-40", "0-46")
async def test_people_of_one_tenant_see_nothing_of_another(app: Application) -> None:
    alice, carol = Browser(app), Browser(app)
    await alice.sign_in(apiKey=(await key_of(app))[0])
    await carol.sign_in(apiKey=SECRET)
    made_task = (await alice("POST", "/api/tasks", {"agent": "echo", "text": "for acme alone"})).json()
    assert made_task["owner"] == "alice"
    assert [one["id"] for one in (await alice("GET", "/api/tasks")).json()["items"]] == [made_task["id"]]
    assert (await carol("GET", "/api/tasks")).json()["items"] == []
    assert (await carol("GET", f"/api/tasks/{made_task['id']}")).status == 404
    assert (await carol("GET", "/api/tasks", query="tenant=acme")).status == 403


# --- attempts, notes --------------------------------------------------------------------------------------------------


async def test_failed_attempts_are_counted_per_address(
    app: Application,
) -> None:
    guesser, other = Browser(app, peer="::ffff:192.0.2.1"), Browser(app, peer="::ffff:192.0.2.2")
    statuses = [(await guesser.sign_in(apiKey="x")).status for _ in range(11)]
    assert statuses[-1] == 429
    assert (await Browser(app, peer="192.0.2.1").sign_in(apiKey="x")).status == 429, "the same machine"
    assert (await other.sign_in(username="bob", password=PASSWORD)).status == 200


async def test_attempts_are_limited_by_address(app: Application) -> None:
    guesser, other = Browser(app, peer="192.0.2.1"), Browser(app, peer="192.0.2.2")
    statuses = [(await guesser.sign_in(apiKey="x")).status for _ in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert (await guesser.sign_in(username="bob", password=PASSWORD)).status == 429, "right or wrong"
    assert (await other.sign_in(username="bob", password=PASSWORD)).status == 200


async def test_signing_in_and_out_and_failing_is_noted(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with guarded(store=url) as app:
        browser = Browser(app)
        await browser.sign_in(username="bob", password="wrong")
        await browser.sign_in(username="bob", password=PASSWORD)
        await browser("DELETE", "/api/session")
    async with open_store(url) as store:
        found = [
            one
            for tenant in ("", "acme")
            for one in await store.read(monitoring.find_audit, tenant, monitoring.AuditLogQuery())
        ]
    assert {(one.operation, one.owner, one.scheme, one.outcome) for one in found} == {
        ("Authenticate", "", None, "UNAUTHENTICATED"),
        ("SignIn", "bob", "basic", "ok"),
        ("SignOut", "bob", "basic", "ok"),
    }


async def test_servers_without_authentication_are_open() -> None:
    async with serving(echo) as app:
        browser = Browser(app)
        found = (await browser("GET", "/api/session")).json()
        assert (found["isOpen"], found["signedIn"], found["ways"]) == (True, True, [])
        answer = await browser.sign_in(apiKey="anything")
        assert (answer.status, browser.cookies) == (200, {})
        assert (await browser("GET", "/api/tasks")).status == 200
