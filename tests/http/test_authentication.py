"""Authentication at the edge: 401 with what could be brought, 200 for whoever brought it, and a card that says so."""

import base64
import json
from typing import Any

import pytest
from msgspec.structs import replace

from accord.a2a import Caller
from accord.auth.authentication import Access, Presented
from accord.auth.scheme_settings import AnyScheme, Basic, Header, Hmac, Secret, User
from accord.auth.schemes import Ports, build_scheme, card_security
from accord.errors import AuthenticationFailed
from accord.http.asgi import error_headers, presented
from accord.http.jsonrpc import JsonRpcBinding
from accord.model import TaskFilter, TaskPage
from accord.protocol import http_headers
from accord.protocol.cards import encode_card
from accord.protocol.operations import DialectName
from accord.testing.asgi import Response, call
from tests.passwords import cheap_hash
from tests.protocol.test_cards import CARD

SECRET = "a secret of sixteen or more"
AT = 1_700_000_000
HASH = cheap_hash("password")


class Lists:
    """An A2A that can only list, and notes who asks."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    async def list(self, request: TaskFilter, caller: Caller) -> TaskPage:
        self.callers.append(caller)
        return TaskPage(tasks=(), page_size=1, total_size=0, next_page_token="")

    def __getattr__(self, name: str) -> Any:
        return None


@pytest.fixture
def service() -> Lists:
    return Lists()


@pytest.fixture
def access() -> Access:
    secret = Secret(secret=SECRET, owner="acme", tenant="t")
    settings: list[AnyScheme] = [
        Header(name="X-Acme", secrets=(secret,)),
        Basic(users={"alice": User(password=HASH)}),
        Hmac(keys={"partner": Secret(secret=SECRET)}),
    ]
    return Access(build_scheme(settings, Ports(now=lambda: AT)))


@pytest.fixture
def app(service: Any, access: Access) -> JsonRpcBinding:
    return JsonRpcBinding(service, admit=access.admit)


def listing(identifier: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, "method": "ListTasks", "params": {}}


async def ask(app: JsonRpcBinding, body: Any, **headers: str) -> Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await call(app, body, headers={"A2A-Version": "1.0", **named})


@pytest.mark.proves("B-17", "3-21", "AUTH-SERVER-002")
@pytest.mark.parametrize("headers", [{}, {"X_Acme": "wrong"}, {"Authorization": "Basic !"}])
async def test_unknown_callers_get_401_and_a_json_rpc_error(
    headers: dict[str, str], app: JsonRpcBinding, service: Lists
) -> None:
    answer = await ask(app, listing(), **headers)
    assert answer.status == 401
    error = answer.json()["error"]
    assert (error["code"], error["message"]) == (-32000, "The credentials are missing or invalid")
    assert answer.headers["www-authenticate"]
    assert service.callers == []


@pytest.mark.proves("B-17", "3-21")
@pytest.mark.parametrize("dialect", ["vault", "gen"])
async def test_notifications_of_unknown_callers_get_401(dialect: str, app: JsonRpcBinding, service: Lists) -> None:
    unnumbered = {"jsonrpc": "2.0", "method": "tasks/list", "params": {}}
    answer = await ask(app, unnumbered, X_A2A_Dialect=dialect)
    assert (answer.status, answer.body) == (401, b"")
    assert answer.headers["www-authenticate"]
    assert service.callers == []
    assert (await ask(app, unnumbered, X_A2A_Dialect=dialect, X_Acme=SECRET)).status == 204


@pytest.mark.proves("3-33", "4-24")
async def test_authenticated_callers_are_served_as_themselves(app: JsonRpcBinding, service: Lists) -> None:
    basic = base64.b64encode(b"alice:password").decode()
    for headers in ({"X_Acme": SECRET}, {"Authorization": f"Basic {basic}"}):
        answer = await ask(app, listing(), **headers)
        assert answer.status == 200
        assert answer.json()["result"]["tasks"] == []
    found = [(caller.owner, caller.tenant, caller.scheme) for caller in service.callers]
    assert found == [("acme", "t", "header"), ("alice", "", "basic")]


def signed(body: bytes, target: str) -> str:
    request = http_headers.SignedRequest(method="POST", target=target)
    return http_headers.sign_body(body, AT, [SECRET.encode()], request=request, key_id="partner")


@pytest.mark.proves("4-30")
async def test_a_signed_request_is_served_once_and_as_it_was_signed(app: JsonRpcBinding, service: Lists) -> None:
    body = json.dumps(listing()).encode()
    signature = signed(body, "/")
    assert (await ask(app, body.replace(b"1", b"2"), X_A2A_Signature=signature)).status == 401
    assert (await ask(app, body, X_A2A_Signature=signature)).status == 200
    assert (await ask(app, body, X_A2A_Signature=signature)).status == 401
    assert len(service.callers) == 1


async def test_a_batch_is_authenticated_once(app: JsonRpcBinding, service: Lists) -> None:
    body = json.dumps([listing(1), listing(2), 7, listing(3)]).encode()
    answer = await ask(app, body, X_A2A_Signature=signed(body, "/"))
    assert answer.status == 200
    assert [one.get("id") for one in answer.json() if "result" in one] == [1, 2, 3]
    refused = await ask(app, body)
    assert refused.status == 401
    assert refused.json()["id"] is None
    assert "www-authenticate" in refused.headers
    assert len(service.callers) == 3


def test_presented_credentials_equal_the_sent_ones() -> None:
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/a b",
        "raw_path": b"/a%20b",
        "query_string": b"x=%2F",
        "headers": [(b"x-acme", b"1")],
        "client": ("192.0.2.1", 5000),
        "accord.proxy": "10.0.0.1",
        "state": {"client_certificate": b"der"},
    }
    found = presented(scope, b"body")
    assert (found.target, found.method, found.body) == ("/a%20b?x=%2F", "POST", b"body")
    assert (found.peer, found.proxy, found.certificate) == ("192.0.2.1", "10.0.0.1", b"der")


@pytest.mark.proves("3-13", "2-06", "CARD-PROTO-001")
def test_cards_of_every_dialect_list_enforced_schemes(access: Access) -> None:
    schemes, requirements = card_security(access.schemes)
    card = replace(CARD, security_schemes=schemes, security_requirements=requirements)
    v1 = json.loads(encode_card(card, frozenset({DialectName.V1})))
    assert v1["securitySchemes"]["header"] == {"apiKeySecurityScheme": {"location": "header", "name": "X-Acme"}}
    assert v1["securityRequirements"] == [{"schemes": {name: {}}} for name in ("header", "basic", "signature")]
    v03 = json.loads(encode_card(card, frozenset({DialectName.V03})))
    assert v03["securitySchemes"]["basic"] == {"type": "http", "scheme": "Basic"}
    vault = json.loads(encode_card(card, frozenset({DialectName.VAULT})))
    assert [one["scheme"] for one in vault["authSchemes"]] == ["apiKey"]  # it has no word for the others


async def test_every_challenge_is_a_header_of_its_own(access: Access) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        await access.admit(Presented())
    assert error_headers(refused.value) == [
        (b"www-authenticate", b'ApiKey realm="accord", header="X-Acme"'),
        (b"www-authenticate", b'Basic realm="accord", charset="UTF-8"'),
        (b"www-authenticate", b'X-A2A-Signature realm="accord"'),
    ]
