"""Who is let in: the card lists what is enforced, everybody else gets 401 and is told what to bring."""

import base64
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from joserfc.jwk import OctKey

from accord.auth.api_keys import new_key
from accord.auth.scheme_settings import AnyScheme
from accord.http.asgi import App, Receive, Scope, Send
from accord.http.request_bodies import SMALL_BODY
from accord.protocol import http_headers, jose
from accord.server.application import Application
from accord.storage.address import open_store
from accord.storage.commands import authentication, monitoring
from accord.storage.commands.authentication import NewApiKey
from accord.testing import call
from tests.certificates import Authority
from tests.passwords import cheap_hash
from tests.server.conftest import CARD, HEADER, KNOWN, SECRET, V1, card_at, echo, get, planner, rpc, said, serving

PASSWORD = "correct horse battery"
BODY = json.dumps(rpc("SendMessage", message=said("x"))).encode()


class Enforced(NamedTuple):
    """A way to authenticate: its settings, what the card says, what is asked for, and how a request is let in."""

    scheme: dict[str, Any]
    card: dict[str, Any]
    challenge: str
    bring: Callable[[Application, Path], Awaitable[dict[str, str]]]


async def api_key(app: Application, _: Path) -> dict[str, str]:
    made = new_key()
    await app.host.node.store.do(
        authentication.create_api_key, NewApiKey(id=made.id, name="of the test", hash=made.hash, owner="alice")
    )
    return {"X-API-Key": made.key}


async def token(_: Application, __: Path) -> dict[str, str]:
    now = int(time.time())
    claims = {"iss": "me", "aud": "us", "sub": "alice", "iat": now, "exp": now + 300}
    signed = jose.sign_payload(json.dumps(claims).encode(), {"alg": "HS256"}, OctKey.import_key(SECRET * 2))
    return {"Authorization": f"Bearer {signed}"}


async def password(_: Application, __: Path) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"alice:{PASSWORD}".encode()).decode()}


async def secret(_: Application, __: Path) -> dict[str, str]:
    return KNOWN


async def signature(_: Application, __: Path) -> dict[str, str]:
    request = http_headers.SignedRequest(method="POST", target="/")
    return {
        http_headers.SIGNATURE_HEADER: http_headers.sign_body(
            BODY, int(time.time()), [SECRET.encode()], request=request, key_id="alice"
        )
    }


async def certificate(_: Application, folder: Path) -> dict[str, str]:
    return {"X-Test-Certificate": Authority(folder).client("alice").der.hex()}


JWT = {"type": "jwt", "issuer": "me", "audience": ["us"], "secret": SECRET * 2}
ISSUER = {"type": "jwt", "issuer": "https://id.example", "audience": ["us"]}
BEARER = {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}}
DISCOVERED = {
    "openIdConnectSecurityScheme": {"openIdConnectUrl": "https://id.example/.well-known/openid-configuration"}
}
OAUTH = {
    "oauth2SecurityScheme": {"flows": {"clientCredentials": {"tokenUrl": "https://id.example/token", "scopes": {}}}}
}
SIGNATURE = {"location": "header", "name": "X-A2A-Signature", "description": http_headers.SIGNATURE_DESCRIPTION}

ENFORCED = {
    "api-keys": Enforced(
        {"type": "api-keys"},
        {"apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}}},
        'Bearer realm="accord"',
        api_key,
    ),
    "jwt": Enforced(JWT, {"bearer": BEARER}, 'Bearer realm="accord"', token),
    "jwt-oauth": Enforced(
        JWT | {"token_url": "https://id.example/token"}, {"oauth2": OAUTH}, 'Bearer realm="accord"', token
    ),
    "basic": Enforced(
        {"type": "basic", "users": {"alice": {"password": cheap_hash(PASSWORD)}}},
        {"basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}}},
        'Basic realm="accord"',
        password,
    ),
    "header": Enforced(
        HEADER,
        {"header": {"apiKeySecurityScheme": {"location": "header", "name": "X-Secret"}}},
        'ApiKey realm="accord", header="X-Secret"',
        secret,
    ),
    "hmac": Enforced(
        {"type": "hmac", "keys": {"alice": {"secret": SECRET}}},
        {"signature": {"apiKeySecurityScheme": SIGNATURE}},
        'X-A2A-Signature realm="accord"',
        signature,
    ),
    "mtls": Enforced({"type": "mtls"}, {"mtls": {"mtlsSecurityScheme": {}}}, "", certificate),
}


def ending_tls(app: App) -> App:
    """What a server does that ends TLS: it notes the certificate of the connection."""

    async def noted(scope: Scope, receive: Receive, send: Send) -> None:
        for name, value in scope["headers"]:
            if name == b"x-test-certificate":
                scope = {**scope, "state": {"client_certificate": bytes.fromhex(value.decode())}}
        await app(scope, receive, send)

    return noted


@pytest.mark.proves("3-13", "3-21", "3-33", "4-01", "4-26", "4-27", "4-28", "4-30", "AUTH-SERVER-002", "CARD-PROTO-001")
@pytest.mark.parametrize("name", list(ENFORCED))
async def test_cards_list_enforced_schemes(name: str, tmp_path: Path) -> None:
    enforced = ENFORCED[name]
    async with serving(auth={"schemes": [enforced.scheme]}) as app:
        card = await card_at(app)
        assert card.get("securitySchemes", {}) == enforced.card
        wanted: list[dict[str, Any]] = [{"schemes": {known: {}}} for known in enforced.card]
        assert card.get("securityRequirements", []) == wanted
        vault = (await get(app, CARD, query="dialect=vault")).json()
        assert "none" not in {one["scheme"] for one in vault["authSchemes"]}
        outside = ending_tls(app)
        refused = await call(outside, BODY, headers=V1)
        assert refused.status == 401
        assert enforced.challenge in refused.headers["www-authenticate"]
        assert "result" not in refused.json()
        brought = await enforced.bring(app, tmp_path)
        assert (await call(outside, BODY, headers=V1 | brought)).json()["result"]["task"]


def test_every_scheme_is_among_them() -> None:
    tags = {kind.__struct_config__.tag for kind in AnyScheme.__args__}
    assert {one.scheme["type"] for one in ENFORCED.values()} == tags - {"plugin"}  # tests/plugins has one


@pytest.mark.proves("4-24")
async def test_several_schemes_at_once_are_alternatives(tmp_path: Path) -> None:
    names = ["api-keys", "jwt", "basic", "header"]
    async with serving(auth={"schemes": [ENFORCED[name].scheme for name in names]}) as app:
        card = await card_at(app)
        assert list(card["securitySchemes"]) == ["apiKey", "bearer", "basic", "header"]
        assert [list(one["schemes"]) for one in card["securityRequirements"]] == [[k] for k in card["securitySchemes"]]
        refused = await call(app, BODY, headers=V1)
        assert refused.headers["www-authenticate"] == (
            'Bearer realm="accord", Basic realm="accord", charset="UTF-8", ApiKey realm="accord", header="X-Secret"'
        )
        for name in names:
            brought = await ENFORCED[name].bring(app, tmp_path)
            assert (await call(app, BODY, headers=V1 | brought)).status == 200


async def test_cards_list_the_issuer_without_a_request() -> None:
    async with serving(auth={"schemes": [ISSUER | {"token_url": "https://id.example/token"}]}) as app:
        assert (await card_at(app))["securitySchemes"] == {"openIdConnect": DISCOVERED, "oauth2": OAUTH}


@pytest.mark.parametrize("path", ["/", "/agents/trip-planner/"])
@pytest.mark.proves("AUTH-SERVER-002", "BIND-EQUIV-004")
async def test_every_operation_of_every_agent_needs_credentials(path: str) -> None:
    async with serving(echo, planner, auth={"schemes": [HEADER]}) as app:
        for method in ("SendMessage", "SendStreamingMessage", "GetTask", "ListTasks", "CancelTask", "SubscribeToTask"):
            answer = await call(app, rpc(method, id="x", message=said("x")), path=path, headers=V1)
            assert (answer.status, bool(answer.headers["www-authenticate"])) == (401, True)
        for verb, place in [("POST", "message:send"), ("POST", "message:stream"), ("GET", "tasks"), ("GET", "tasks/x")]:
            body = {"message": said("x")} if verb == "POST" else b""
            answer = await call(app, body, method=verb, path=path + place, headers=V1)
            assert (answer.status, bool(answer.headers["www-authenticate"])) == (401, True)
        assert (await get(app, path.rstrip("/") + "/tasks", headers=KNOWN)).status == 200


EXTENDED = {
    "v1": rpc("GetExtendedAgentCard"),
    "v03": rpc("agent/getAuthenticatedExtendedCard"),
    "gen": rpc("agent/authenticatedExtendedCard"),
}
ROUTES = {"v1": "/extendedAgentCard", "v03": "/v1/card", "v02": "/agent/authenticatedExtendedCard"}


@pytest.mark.proves("B-13", "3-06", "4-19", "CARD-EXT-001")
@pytest.mark.parametrize("path", ["", "/agents/trip-planner"])
async def test_the_extended_card_s_routes_all_need_credentials(path: str) -> None:
    async with serving(planner, auth={"schemes": [HEADER]}) as app:
        public = await card_at(app, path)
        assert [skill["name"] for skill in public["skills"]] == ["plan"]
        for dialect, body in EXTENDED.items():
            refused = await call(app, body, path=f"{path}/")
            assert (refused.status, refused.headers["x-a2a-dialect"]) == (401, dialect)
            assert refused.headers["www-authenticate"] == 'ApiKey realm="accord", header="X-Secret"'
            card = (await call(app, body, path=f"{path}/", headers=KNOWN)).json()["result"]
            assert [skill["name"] for skill in card["skills"]] == ["plan", "book"]
        for place in ROUTES.values():
            refused = await get(app, path + place)
            assert (refused.status, refused.headers["www-authenticate"]) == (
                401,
                'ApiKey realm="accord", header="X-Secret"',
            )
            card = (await get(app, path + place, headers=KNOWN)).json()
            assert [skill["name"] for skill in card["skills"]] == ["plan", "book"]


async def test_open_servers_serve_the_extended_card() -> None:
    async with serving(planner) as app:
        for body in EXTENDED.values():
            assert (await call(app, body)).json()["result"]["skills"]
        for place in ROUTES.values():
            assert (await get(app, place)).status == 200


async def test_a_long_signed_body_is_read_before_it_is_authenticated() -> None:
    body = json.dumps(rpc("SendMessage", message=said("x " * SMALL_BODY))).encode()
    request = http_headers.SignedRequest(method="POST", target="/")
    signed = http_headers.sign_body(body, int(time.time()), [SECRET.encode()], request=request, key_id="alice")
    async with serving(auth={"schemes": [ENFORCED["hmac"].scheme]}) as app:
        answer = await call(app, body, headers=V1 | {http_headers.SIGNATURE_HEADER: signed})
        assert answer.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (await call(app, body + b" ", headers=V1 | {http_headers.SIGNATURE_HEADER: signed})).status == 401


@pytest.mark.proves("3-06", "CARD-EXT-001")
async def test_only_the_extended_card_of_an_open_server_may_be_guarded() -> None:
    async with serving(planner, auth={"schemes": [HEADER], "required_for": "extended-card"}) as app:
        for card in (await card_at(app, ""), (await get(app, "/.well-known/agent.json")).json()):
            assert card["securitySchemes"]
            assert not card.get("securityRequirements")
            assert not card.get("security")
        assert (await get(app, "/.well-known/agent.json")).json()["supportsAuthenticatedExtendedCard"] is True
        challenge = 'ApiKey realm="accord", header="X-Secret"'
        for body in EXTENDED.values():
            refused = await call(app, body)
            assert (refused.status, refused.headers["www-authenticate"]) == (401, challenge)
            shown = (await call(app, body, headers=KNOWN)).json()["result"]
            assert [skill["name"] for skill in shown["skills"]] == ["plan", "book"]
        for place in ROUTES.values():
            assert (await get(app, place)).status == 401
            assert (await get(app, place, headers=KNOWN)).status == 200
        assert (await call(app, BODY, headers=V1)).status == 200, "everything else is open"
        wrong = await call(app, BODY, headers=V1 | {"X-Secret": "guessed"})
        assert (wrong.status, wrong.headers["www-authenticate"]) == (401, challenge)
        mine = await call(app, BODY, headers=V1 | KNOWN)
        task = mine.json()["result"]["task"]["id"]
        asked = json.dumps(rpc("GetTask", id=task)).encode()
        assert "error" in (await call(app, asked, headers=V1)).json(), "a stranger does not see a caller's task"
        assert (await call(app, asked, headers=V1 | KNOWN)).json()["result"]["id"] == task


@pytest.mark.proves("4-25", "AUTH-SCOPE-001")
async def test_roles_of_the_settings_hold_for_the_agents_that_they_name() -> None:
    secrets = [{"owner": "bob", "secret": SECRET, "roles": ["planner-only"]}]
    roles = [{"name": "planner-only", "agents": ["trip-*"], "operations": ["SendMessage"]}]
    settings = {"schemes": [HEADER | {"secrets": secrets}], "roles": roles}
    async with serving(echo, planner, auth=settings) as app:
        for path, method, status in [
            ("/agents/trip-planner/", "SendMessage", 200),
            ("/agents/trip-planner/", "ListTasks", 403),
            ("/agents/echo/", "SendMessage", 403),
            ("/", "SendMessage", 403),
        ]:
            body = rpc(method, message=said("x")) if method == "SendMessage" else rpc(method)
            assert (await call(app, body, path=path, headers=V1 | KNOWN)).status == status


HOOK = {"url": "https://example.com/hook"}
HOOKED: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    (
        "/",
        V1,
        rpc("SendMessage", message=said("x"), configuration={"taskPushNotificationConfig": HOOK}),
    ),
    ("/message:send", V1, {"message": said("x"), "configuration": {"taskPushNotificationConfig": HOOK}}),
    (
        "/",
        {},
        rpc(
            "message/send",
            message={"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]},
            configuration={"pushNotificationConfig": HOOK},
        ),
    ),
    (
        "/",
        {},
        rpc(
            "tasks/send", message={"role": "user", "parts": [{"type": "text", "content": "x"}]}, webhookUrl=HOOK["url"]
        ),
    ),
]


@pytest.mark.proves("4-25")
@pytest.mark.parametrize(("path", "headers", "body"), HOOKED)
async def test_inline_webhooks_need_the_permission_in_every_dialect(
    path: str, headers: dict[str, str], body: dict[str, Any]
) -> None:
    other = "another secret of the tests"
    secrets = [
        {"owner": "alice", "secret": SECRET, "roles": ["caller"]},
        {"owner": "bob", "secret": other, "roles": ["user"]},
    ]
    async with serving(auth={"schemes": [HEADER | {"secrets": secrets}]}) as app:
        refused = await call(app, body, path=path, headers=headers | KNOWN)
        assert (refused.status, b"CreateTaskPushNotificationConfig" in refused.body) == (403, True)
        assert (await call(app, body, path=path, headers=headers | {"X-Secret": other})).status == 200


async def test_callers_see_only_their_own_tasks() -> None:
    other = "another secret of the tests"
    secrets = [{"owner": "alice", "secret": SECRET}, {"owner": "bob", "secret": other}]
    async with serving(auth={"schemes": [HEADER | {"secrets": secrets}]}) as app:
        task = (await call(app, BODY, headers=V1 | KNOWN)).json()["result"]["task"]["id"]
        assert (await get(app, f"/tasks/{task}", headers=KNOWN)).status == 200
        assert (await get(app, f"/tasks/{task}", headers={"X-Secret": other})).status == 404


@pytest.mark.proves("4-32")
async def test_refused_callers_are_audited(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    async with serving(store=url, auth={"schemes": [HEADER]}) as app:
        await call(app, BODY, headers=V1)
        await call(app, BODY, headers=V1 | KNOWN)
    async with open_store(url) as store:
        found = [
            (entry.owner, entry.agent, entry.operation, entry.outcome)
            for entry in await store.read(monitoring.find_audit, "", monitoring.AuditLogQuery())
        ]
    assert found == [("alice", "echo", "SendMessage", "ok"), ("", "", "Authenticate", "UNAUTHENTICATED")]


async def test_limits_of_the_settings_hold() -> None:
    async with serving(limits={"body": 400, "rate": 1, "burst": 2}, auth={"schemes": [HEADER]}) as app:
        long = await call(app, rpc("SendMessage", message=said("x" * 400)), headers=V1 | KNOWN)
        assert long.status == 413
        statuses = [(await get(app, "/tasks", headers=KNOWN)).status for _ in range(3)]
        assert statuses == [200, 200, 429]


async def test_the_card_itself_needs_nothing() -> None:
    async with serving(auth={"schemes": [HEADER]}) as app:
        assert (await get(app, CARD)).status == 200
