"""`/openapi.json` and `/schemas`: valid, complete, true of every request and answer, and made to be cached."""

import json
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import pytest
from msgspec.structs import replace

from accord.errors import TABLE, AccordError, Violation
from accord.http.asgi import Receive, Scope, Send
from accord.http.openapi import NAMES, ApiDocuments, describe_api
from accord.http.rest import RestBinding
from accord.model import (
    AgentInterface,
    ApiKeyScheme,
    ClientCredentialsFlow,
    HttpAuthScheme,
    MutualTlsScheme,
    OAuth2Scheme,
    OAuthFlows,
    OpenIdConnectScheme,
    Scopes,
    SecurityRequirement,
    SecurityScheme,
)
from accord.protocol.operations import ROWS, DialectName, RestMatch, match_rest
from accord.protocol.operations import TABLE as OPERATIONS
from accord.testing.asgi import Response, call
from tests.cases import each
from tests.http.scripted import CARD, Scripted
from tests.http.test_rest import CASES, Case, ask
from tests.judges.openapi import mistakes

V1, V03 = DialectName.V1, DialectName.V03
MODIFIED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
API: dict[str, Any] = json.loads(json.dumps(describe_api(CARD)))
EACH = [(path, verb, stated) for path, item in API["paths"].items() for verb, stated in item.items()]


async def get(path: str, method: str = "GET", app: ApiDocuments | None = None, **headers: str) -> Response:
    stated = {name.replace("_", "-"): value for name, value in headers.items()}
    return await call(app or ApiDocuments(CARD, modified=MODIFIED), method=method, path=path, headers=stated)


def matches(schema: dict[str, Any], data: Any) -> bool:
    """Whether data matches a schema of the document."""
    whole = {"components": API["components"]} | schema
    return bool(jsonschema_rs.Draft202012Validator(whole, validate_formats=True, offline=True).is_valid(data))


def described(case: Case) -> dict[str, Any]:
    """What the document says about a request."""
    path = case.path.replace("t-1", "{taskId}" if "push" in case.path else "{id}").replace("p-1", "{id}")
    found: dict[str, Any] = API["paths"][path][case.verb.lower()]
    return found


# --- OpenAPI --------------------------------------------------------------------------------------------------------

SCHEMES = {
    "key": SecurityScheme(api_key_security_scheme=ApiKeyScheme(location="header", name="X-Api-Key")),
    "bearer": SecurityScheme(http_auth_security_scheme=HttpAuthScheme(scheme="Bearer", bearer_format="JWT")),
    "oauth": SecurityScheme(
        oauth2_security_scheme=OAuth2Scheme(
            flows=OAuthFlows(
                client_credentials=ClientCredentialsFlow(token_url="https://id.example/token", scopes={"a": "b"})
            ),
            oauth2_metadata_url="https://id.example/metadata",
        )
    ),
    "oidc": SecurityScheme(
        open_id_connect_security_scheme=OpenIdConnectScheme(open_id_connect_url="https://id.example/oidc")
    ),
    "mtls": SecurityScheme(mtls_security_scheme=MutualTlsScheme()),
}


@each("enabled", [frozenset(DialectName), frozenset({V1}), frozenset({V03}), frozenset()])
@each("schemes", [{}, SCHEMES])
def test_the_document_is_openapi(enabled: frozenset[DialectName], schemes: dict[str, SecurityScheme]) -> None:
    needs = (
        SecurityRequirement(schemes={"oauth": Scopes(list=("a",))}),
        SecurityRequirement(schemes={"key": Scopes()}),
    )
    card = replace(CARD, security_schemes=schemes, security_requirements=needs if schemes else ())
    document = json.loads(json.dumps(describe_api(card, enabled)))
    assert mistakes(document) == []
    assert set(document["components"]["securitySchemes"]) == set(schemes)
    assert document.get("security") == ([{"oauth": ["a"]}, {"key": []}] if schemes else None)


@pytest.mark.proves("BIND-EQUIV-001")
def test_every_route_is_described_once_and_is_one() -> None:
    routes = [(r.verb, prefix + r.path) for row in OPERATIONS for prefix, r in _routes(row)]
    assert sorted((verb.upper(), path) for path, verb, _ in EACH) == sorted(routes)
    assert len({stated["operationId"] for _, _, stated in EACH}) == len(EACH)
    for path, verb, stated in EACH:
        named = [found["name"] for found in stated["parameters"] if found["in"] == "path"]
        found = match_rest(verb.upper(), path.replace("{", "x-").replace("}", ""))
        assert isinstance(found, RestMatch)
        assert stated["operationId"].startswith(found.operation.value)
        assert (found.dialect is V03) == stated.get("deprecated", False)
        assert found.values == {name: f"x-{name}" for name in named}


def _routes(row: Any) -> list[tuple[str, Any]]:
    return [
        *(("", route) for route in row.rest),
        *(("/v1", route) for route in row.rest_v03),
        *(("", route) for route in row.rest_v02),
    ]


def test_only_enabled_dialects_are_described() -> None:
    assert not any(path.startswith("/v1") for path in describe_api(CARD, frozenset({V1}))["paths"])
    assert all(path.startswith(("/v1", "/agent/")) for path in describe_api(CARD, frozenset({V03}))["paths"])


@pytest.mark.proves("4-50", "HTTP_JSON-SVC-001")
@each("case", CASES)
async def test_every_answer_is_as_described(case: Case) -> None:
    answer = await ask(RestBinding(Scripted()), case)
    content = described(case)["responses"]["200"]["content"]
    schema = content[answer.headers["content-type"]]["schema"]
    bodies = (
        [json.loads(frame.data) for frame in answer.frames()] if "event-stream" in str(content) else [answer.json()]
    )
    assert bodies
    for body in bodies:
        assert matches(schema, body)
    if case.dialect is V1 and case.verb != "DELETE":
        assert not matches(schema, {"configs": 5}), "a schema that everything matches describes nothing"


@pytest.mark.proves("4-50", "HTTP_JSON-ERR-001")
@each("kind", TABLE)
async def test_every_error_is_as_described(kind: type[AccordError]) -> None:
    error = kind("why", violations=(Violation("a", "b"),), retry_after=3)
    for case in CASES[:1] + CASES[-1:]:
        answer = await ask(RestBinding(Scripted(error)), case)
        schema = described(case)["responses"]["default"]["content"][answer.headers["content-type"]]["schema"]
        assert matches(schema, answer.json())


@each("case", CASES)
def test_every_request_is_as_described(case: Case) -> None:
    stated = described(case)
    known = {found["name"] for found in stated["parameters"] if found["in"] == "query"}
    assert {pair.partition("=")[0] for pair in case.query.split("&") if pair} <= known
    assert ("requestBody" in stated) == (case.verb == "POST")
    if case.verb == "POST":
        for found in stated["requestBody"]["content"].values():
            assert matches(found["schema"], case.body or {})
        assert stated["requestBody"]["required"] == (case.operation.value.startswith(("Send", "Create")))
    if ROWS[case.operation].streams:
        assert {"after"} <= known


def test_the_document_is_about_this_agent() -> None:
    assert API["info"] == {"title": "Trips", "description": "Plans trips", "version": "2.1.0"}
    assert API["servers"] == [{"url": "/"}]
    deeper = AgentInterface(url="https://a.example/agents/trips/", protocol_binding="HTTP+JSON", protocol_version="1.0")
    other = AgentInterface(url="a.example:50051", protocol_binding="GRPC", protocol_version="1.0")
    card = replace(CARD, supported_interfaces=(other, deeper))
    assert describe_api(card)["servers"] == [{"url": "/agents/trips"}]
    assert describe_api(replace(CARD, supported_interfaces=(other,)))["servers"] == [{"url": "/"}]


# --- served ---------------------------------------------------------------------------------------------------------


@pytest.mark.proves("4-50")
async def test_every_schema_is_listed_and_served() -> None:
    index = await get("/schemas")
    listed = index.json()["schemas"]
    assert [found["name"] for found in listed] == list(NAMES.values())
    for found in listed:
        path = found["url"].removeprefix("https://example.com")
        answer = await get(path)
        assert (answer.status, answer.headers["content-type"]) == (200, "application/schema+json")
        schema = answer.json()
        assert (schema["$id"], schema["title"]) == (found["url"], found["name"])
        assert schema["description"] == found["description"]
        jsonschema_rs.meta.validate(schema)


PATHS = ["/openapi.json", "/schemas", "/schemas/Task.json"]


@pytest.mark.parametrize("path", PATHS)
async def test_a_document_may_be_cached(path: str) -> None:
    app = ApiDocuments(CARD, modified=MODIFIED)
    whole = await get(path, app=app)
    assert whole.status == 200
    assert whole.headers["cache-control"] == "public, max-age=60"
    assert whole.headers["last-modified"] == "Fri, 02 Jan 2026 03:04:05 GMT"
    assert whole.headers["access-control-allow-origin"] == "*"
    again = await get(path, app=app, if_none_match=whole.headers["etag"])
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", whole.headers["etag"])
    assert (await get(path, app=app, if_none_match='"other"')).body == whole.body
    head = await get(path, "HEAD", app=app)
    assert (head.status, head.headers, head.body) == (200, whole.headers, b"")
    assert ApiDocuments.serves(path)


@each("path", PATHS)
@each("verb", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_other_verbs_are_refused(path: str, verb: str) -> None:
    answer = await get(path, verb)
    assert (answer.status, answer.headers["allow"], answer.body) == (405, "GET, HEAD", b"")


@pytest.mark.parametrize(
    "path", ["/schemas/", "/schemas/Nothing.json", "/schemas/Task", "/schemas/Task.json.json", "/schemas/a/Task.json"]
)
async def test_an_unknown_document_is_not_there(path: str) -> None:
    answer = await get(path)
    assert (answer.status, b"/schemas" in answer.body) == (404, True)
    assert (await get(path, "HEAD")).body == b""
    assert ApiDocuments.serves(path), "nobody else answers for it"


@pytest.mark.parametrize("path", ["/", "/schema", "/schemata", "/openapi", "/tasks"])
def test_other_addresses_are_not_its_own(path: str) -> None:
    assert not ApiDocuments.serves(path)


@pytest.mark.parametrize("path", PATHS)
async def test_it_is_served_below_where_it_is_mounted(path: str) -> None:
    app = ApiDocuments(CARD, modified=MODIFIED)

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": "/agents/trips"}, receive, send)

    answer = await call(mounted, method="GET", path="/agents/trips" + path)
    elsewhere = {"servers": [{"url": "/agents/trips"}]} if path == "/openapi.json" else {}
    assert answer.json() == (await get(path, app=app)).json() | elsewhere
