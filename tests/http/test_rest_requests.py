"""HTTP+JSON from the other side: addresses, verbs, versions, types and callers, and everything that is malformed."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.auth.rate_limits import Quotas
from accord.errors import TABLE, AccordError, AuthenticationFailed, Violation
from accord.http.asgi import QUOTAS, App, Receive, Scope, Send
from accord.http.jsonrpc import JsonRpcBinding
from accord.http.rest import RestBinding
from accord.protocol.codec import MAX_DEPTH
from accord.protocol.operations import DialectName
from accord.testing.asgi import Response, call
from tests.cases import each
from tests.http.scripted import Scripted

V1, V03 = DialectName.V1, DialectName.V03
SEND = {
    "": {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}},
    "/v1": {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "x"}]}},
}
PREFIXES = list(SEND)
PUSHES = "/tasks/{}/pushNotificationConfigs"


def reason(answer: Response) -> str:
    """The name of an error, in either version's form."""
    body = answer.json()
    if "error" in body:
        assert body["error"]["code"] == answer.status
        found: str = body["error"]["details"][0]["reason"]
        return found
    return str(body["data"]["reason"])


def message(answer: Response) -> str:
    body = answer.json()
    return str(body.get("error", body)["message"])


def field(answer: Response) -> str:
    body = answer.json()
    if "error" in body:
        return str(body["error"]["details"][1]["fieldViolations"][0]["field"])
    return str(body["data"]["violations"][0]["field"])


async def get(app: App, path: str, query: str = "", **headers: str) -> Response:
    stated = {name.replace("_", "-"): value for name, value in headers.items()}
    return await call(app, method="GET", path=path, query=query, headers={"content-type": ""} | stated)


# --- addresses ------------------------------------------------------------------------------------------------------

IDS = {
    "t-1": "t-1",
    "urn:x:1": "urn:x:1",
    "a%3Acancel": "a:cancel",
    "a%2Fb": "a/b",
    "a+b": "a+b",
    "a%20b": "a b",
    "%F0%9F%8C%8D": "\N{EARTH GLOBE EUROPE-AFRICA}",
    "50%25": "50%",
    "100%": "100%",
    "..": "..",
    "%7Bid%7D": "{id}",
    "v1": "v1",
    "x%00y": "x\0y",
}


@each("prefix", PREFIXES)
@each(("written", "meant"), IDS.items())
async def test_ids_are_read_from_the_path_as_they_were_sent(prefix: str, written: str, meant: str) -> None:
    service = Scripted()
    app = RestBinding(service)
    assert (await get(app, f"{prefix}/tasks/{written}")).status == 200
    assert (await call(app, path=f"{prefix}/tasks/{written}:cancel")).status == 200
    assert (await get(app, prefix + PUSHES.format(written) + f"/{written}")).status == 200
    got, cancelled, push = (asked.request for asked in service.calls)
    assert (got.id, cancelled.id, push.task_id, push.id) == (meant, meant, meant, meant)


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_without_a_raw_path_the_decoded_one_is_used(prefix: str) -> None:
    service = Scripted()
    app = RestBinding(service)

    async def bare(scope: Scope, receive: Receive, send: Send) -> None:
        await app({key: value for key, value in scope.items() if key != "raw_path"}, receive, send)

    for written, meant in (("50%25", "50%"), ("%C3%A9%20", "\u00e9 "), ("a:b", "a:b")):
        assert (await get(bare, f"{prefix}/tasks/{written}")).status == 200
        assert service.calls[-1].request.id == meant


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("mount", ["/agents/echo", "/agents/echo/", "/agents/my%20agent"])
async def test_it_answers_below_where_it_is_mounted(prefix: str, mount: str) -> None:
    service = Scripted()
    app = RestBinding(service)

    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "root_path": mount.replace("%20", " ")}, receive, send)

    assert (await get(mounted, f"{mount.rstrip('/')}{prefix}/tasks/a%2Fb")).status == 200
    assert service.only.request.id == "a/b"
    lost = await get(mounted, f"{mount.rstrip('/')}{prefix}/nowhere")
    assert (lost.status, f"{prefix}/nowhere;" in message(lost), mount in message(lost)) == (404, True, False)


@pytest.mark.parametrize("tenant", ["acme", "a%20b", "message:send", "V1"])
async def test_a_tenant_may_precede_every_address_of_1_0(tenant: str) -> None:
    service = Scripted()
    app = RestBinding(service)
    meant = tenant.replace("%20", " ")
    hook = {"url": "https://h.example/", "tenant": "other"}
    answers = [
        await call(app, SEND[""] | {"tenant": "other"}, path=f"/{tenant}/message:send"),
        await call(app, SEND[""], path=f"/{tenant}/message:stream"),
        await get(app, f"/{tenant}/tasks/t", "tenant=other"),
        await get(app, f"/{tenant}/tasks", "tenant=other"),
        await call(app, path=f"/{tenant}/tasks/t:cancel"),
        await get(app, f"/{tenant}/tasks/t:subscribe"),
        await call(app, hook, path=f"/{tenant}{PUSHES.format('t')}"),
        await get(app, f"/{tenant}{PUSHES.format('t')}"),
        await get(app, f"/{tenant}{PUSHES.format('t')}/p"),
        await call(app, method="DELETE", path=f"/{tenant}{PUSHES.format('t')}/p"),
        await get(app, f"/{tenant}/extendedAgentCard"),
    ]
    assert {answer.status for answer in answers} == {200}
    assert len(service.calls) == 11
    assert {asked.request.tenant for asked in service.calls} == {meant}


async def test_a_tenant_may_also_be_a_parameter() -> None:
    service = Scripted()
    app = RestBinding(service)
    await get(app, "/tasks", "tenant=acme")
    await call(app, SEND[""] | {"tenant": "acme"}, path="/message:send")
    assert [asked.request.tenant for asked in service.calls] == ["acme", "acme"]


@each("prefix", PREFIXES)
@each("name", ["id", "taskId", "task_id", "name", "parent"])
async def test_the_path_s_task_id_wins(prefix: str, name: str) -> None:
    service = Scripted()
    app = RestBinding(service)
    other = {name: "tasks/other" if name in ("name", "parent") else "other"}
    query = "&".join(f"{key}={value}" for key, value in other.items())
    hook = {"url": "https://h.example/"} | (other if name != "id" else {})
    await get(app, f"{prefix}/tasks/t", query)
    await call(app, other, path=f"{prefix}/tasks/t:cancel")
    await call(app, other, path=f"{prefix}/tasks/t:subscribe")
    await call(app, hook, path=prefix + PUSHES.format("t"))
    await get(app, prefix + PUSHES.format("t") + "/p", query + "&pushNotificationConfigId=q")
    await call(app, method="DELETE", path=prefix + PUSHES.format("t") + "/p", query=query)
    *by_id, push_set, push_get, push_delete = (asked.request for asked in service.calls)
    assert [request.id for request in by_id] == ["t", "t", "t"]
    assert (push_set.task_id, push_get.task_id, push_delete.task_id) == ("t", "t", "t")
    assert (push_get.id, push_delete.id) == ("p", "p")


LOST = [
    "/",
    "",
    "/nowhere",
    "/message:sent",
    "/message",
    "/tasks/",
    "/tasks//x",
    "/tasks/a/b",
    "/tasks/t/pushNotificationConfigs/",
    "/tasks/t:",
    "/a/b/tasks",
    "/tasks/:cancel",
    "/.well-known/agent-card.json",
    "/extendedAgentCard/",
]


@pytest.mark.proves("CORE-ERR-001")
@each("verb", ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "BREW"])
@each("path", [path for path in LOST if path != "/tasks/t:"])
async def test_unknown_paths_list_known_routes(verb: str, path: str) -> None:
    service = Scripted()
    for prefix, dialect in (("", "v1"), ("/v1", "v03")):
        answer = await call(RestBinding(service), method=verb, path=prefix + path)
        if prefix and not path.startswith("/"):
            assert answer.status == 404
            continue
        assert (answer.status, answer.headers["x-a2a-dialect"]) == (404, dialect)
        if verb == "HEAD":
            assert answer.body == b""
            continue
        assert reason(answer) == "METHOD_NOT_FOUND"
        assert f"{verb} {prefix}{path or '/'};" in message(answer)
        assert f"POST {prefix}/message:send" in message(answer)
    assert not service.calls


async def test_an_unknown_address_is_not_repeated_at_length() -> None:
    answer = await get(RestBinding(Scripted()), "/" + "x" * 10_000)
    assert answer.status == 404
    assert len(answer.body) < 1000


@each("prefix", ["", "/acme", "/v1"])
@each(
    ("path", "allow"),
    [
        ("/message:send", "POST"),
        ("/message:stream", "POST"),
        ("/tasks/t", "GET, HEAD"),
        ("/tasks", "GET, HEAD"),
        ("/tasks/t:cancel", "POST"),
        ("/tasks/t:subscribe", "GET, POST, HEAD"),
        (PUSHES.format("t"), "POST, GET, HEAD"),
        (PUSHES.format("t") + "/p", "GET, DELETE, HEAD"),
    ],
)
async def test_other_methods_get_405_with_allow(prefix: str, path: str, allow: str) -> None:
    service = Scripted()
    app = RestBinding(service)
    for verb in {"GET", "POST", "DELETE", "PUT", "PATCH", "OPTIONS", "HEAD"} - set(allow.split(", ")):
        answer = await call(app, method=verb, path=prefix + path)
        assert (answer.status, answer.headers["allow"], answer.body) == (405, allow, b"")
    assert not service.calls


async def test_only_enabled_dialects_have_addresses() -> None:
    service = Scripted()
    new, old = (
        RestBinding(service, enabled=frozenset({V1})),
        RestBinding(service, enabled=frozenset({V03, DialectName.GEN})),
    )
    assert (await get(new, "/v1/tasks/t")).headers["x-a2a-dialect"] == "v1"
    assert service.only.request.tenant == "v1"
    lost = await get(old, "/tasks/t")
    assert (lost.status, lost.headers["x-a2a-dialect"]) == (404, "v03")
    assert (await get(old, "/v1/tasks/t")).status == 200


@pytest.mark.parametrize(
    ("enabled", "path", "named"),
    [
        ({V1, V03}, "/nowhere", "POST /message:send, tasks are at GET /tasks/{id}"),
        ({V1}, "/nowhere", "POST /message:send, tasks are at GET /tasks/{id}"),
        ({V03}, "/message:send", "POST /v1/message:send, tasks are at GET /v1/tasks/{id}"),
        ({DialectName.VAULT}, "/message:send", "POST / as JSON-RPC"),
        (set(), "/tasks/t", "POST / as JSON-RPC"),
    ],
)
async def test_route_lists_name_only_enabled_routes(enabled: set[DialectName], path: str, named: str) -> None:
    lost = await call(RestBinding(Scripted(), enabled=frozenset(enabled)), b"{}", path=path)
    card = "/.well-known/agent-card.json describes the agent"
    assert lost.status == 404
    assert message(lost) == f"There is nothing at POST {path}; messages go to {named}, and {card}"


# --- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.proves("HTTP_JSON-SVC-002", "VER-SERVER-001", "VER-SERVER-002", "VER-CLIENT-002")
@each(
    ("prefix", "version", "is_spoken"),
    [
        ("", "1.0", True),
        ("", "1.0.1", True),
        ("", "", True),
        ("", " ", True),
        ("", "0.3", False),
        ("", "0.2", False),
        ("", "1", False),
        ("", "1.1", False),
        ("", "99.0", False),
        ("", "one", False),
        ("/acme", "1.0", True),
        ("/acme", "0.3", False),
        ("/v1", "0.3", True),
        ("/v1", "0.3.0", True),
        ("/v1", "0.2.6", True),
        ("/v1", "", True),
        ("/v1", "1.0", False),
        ("/v1", "99.0", False),
    ],
)
async def test_a_version_that_an_address_does_not_speak_is_refused(prefix: str, version: str, is_spoken: bool) -> None:
    service = Scripted()
    app = RestBinding(service)
    answers = [
        await get(app, prefix + "/tasks/t", a2a_version=version),
        await get(app, prefix + "/tasks/t", f"A2A-Version={version}"),
        await call(app, path=prefix + "/tasks/t:subscribe", headers={"A2A-Version": version}),
        await call(
            app, SEND["/v1" if prefix == "/v1" else ""], path=prefix + "/message:send", query=f"A2A-Version={version}"
        ),
    ]
    for answer in answers:
        if is_spoken:
            assert answer.status == 200
        else:
            assert (answer.status, reason(answer)) == (400, "VERSION_NOT_SUPPORTED")
            assert (version if "." in version else repr(version)) in message(answer)
    assert len(service.calls) == (4 if is_spoken else 0)


async def test_a_header_wins_over_the_query() -> None:
    app = RestBinding(Scripted())
    assert (await get(app, "/tasks/t", "A2A-Version=0.3", a2a_version="1.0")).status == 200
    assert (await get(app, "/tasks/t", "A2A-Version=1.0", a2a_version="0.3")).status == 400


# --- types of bodies ------------------------------------------------------------------------------------------------


@pytest.mark.proves("HTTP_JSON-SVC-001")
@each("prefix", PREFIXES)
@each(
    "named",
    [
        "application/json",
        "application/a2a+json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/a2a+json;charset=UTF-8",
        " application/json ;x=y",
    ],
)
async def test_json_goes_by_two_names(prefix: str, named: str) -> None:
    service = Scripted()
    answer = await call(
        RestBinding(service), SEND[prefix], path=prefix + "/message:send", headers={"content-type": named}
    )
    assert (answer.status, len(service.calls)) == (200, 1)


@each("prefix", PREFIXES)
@each(
    "named",
    [
        "",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonp",
        "application/vnd.api+json",
        "*/*",
        ";",
        "x" * 500,
    ],
)
@each("path", ["/message:send", "/message:stream", "/tasks/t:cancel", "/tasks/t:subscribe"])
async def test_a_body_that_is_called_something_else_is_not_read(prefix: str, named: str, path: str) -> None:
    service = Scripted()
    answer = await call(RestBinding(service), SEND[prefix], path=prefix + path, headers={"content-type": named})
    assert (answer.status, reason(answer)) == (400, "CONTENT_TYPE_NOT_SUPPORTED")
    assert "application/json or application/a2a+json" in message(answer)
    assert len(message(answer)) < 200
    assert not service.calls


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_without_a_body_no_type_is_needed_but_a_wrong_one_is_refused(prefix: str) -> None:
    service = Scripted()
    app = RestBinding(service)
    for path in ("/tasks/t:cancel", "/tasks/t:subscribe"):
        assert (await call(app, path=prefix + path, headers={"content-type": ""})).status == 200
        assert (await call(app, path=prefix + path)).status == 200
        assert (await call(app, path=prefix + path, headers={"content-type": "text/plain"})).status == 400
    missing = await call(app, path=prefix + "/message:send", headers={"content-type": ""})
    assert (missing.status, field(missing)) == (400, "message")
    assert len(service.calls) == 4


@each("prefix", PREFIXES)
@each("body", [b"{", b"\xff", b'{"id":"other"}', b"text"])
async def test_a_body_means_nothing_where_the_verb_has_none(prefix: str, body: bytes) -> None:
    service = Scripted()
    app = RestBinding(service)
    for named in ("", "text/plain", "application/json"):
        got = await call(app, body, method="GET", path=prefix + "/tasks/t", headers={"content-type": named})
        where = prefix + PUSHES.format("t") + "/p"
        gone = await call(app, body, method="DELETE", path=where, headers={"content-type": named})
        assert (got.status, gone.status) == (200, 200)
    assert {asked.request.id for asked in service.calls} == {"t", "p"}


@pytest.mark.proves("HTTP_JSON-QP-001")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_query_means_nothing_where_there_is_a_body(prefix: str) -> None:
    service = Scripted()
    await call(RestBinding(service), path=prefix + "/tasks/t:cancel", query="id=other&metadata=x&tenant=y")
    assert (service.only.request.id, service.only.request.metadata, service.only.request.tenant) == ("t", None, None)


# --- what is malformed ----------------------------------------------------------------------------------------------

DEEP = b'{"metadata":' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}"
BODIES: dict[str, tuple[bytes, str]] = {
    "nothing but space": (b" ", "PARSE_ERROR"),
    "half an object": (b'{"message":', "PARSE_ERROR"),
    "text": (b"hello", "PARSE_ERROR"),
    "a comment": (b"{/* */}", "PARSE_ERROR"),
    "not UTF-8": (b'{"message":{"parts":[{"text":"\xff"}]}}', "PARSE_ERROR"),
    "not UTF-8 where nobody looks": (b'{"unknown":"\xff"}', "PARSE_ERROR"),
    "half a character": (b'{"message":"\\ud800"}', "PARSE_ERROR"),
    "UTF-16": ('{"message":{}}'.encode("utf-16"), "PARSE_ERROR"),
    "a list": (b"[]", "INVALID_PARAMS"),
    "null": (b"null", "INVALID_PARAMS"),
    "a number": (b"5", "INVALID_PARAMS"),
    "a string": (b'"x"', "INVALID_PARAMS"),
    "too deep": (DEEP, "INVALID_REQUEST"),
    "much too deep": (b"[" * 100_000, "INVALID_REQUEST"),
    "a number out of range": (b'{"message":{},"metadata":{"a":1e999}}', "INVALID_PARAMS"),
}


@pytest.mark.proves("CORE-ERR-001", "CORE-ERR-002")
@each("prefix", [*PREFIXES, "/acme"])
@each("path", ["/message:send", "/message:stream", PUSHES.format("t"), "/tasks/t:cancel"])
@each(("body", "why"), BODIES.values())
async def test_a_bad_body_is_refused(prefix: str, path: str, body: bytes, why: str) -> None:
    service = Scripted()
    answer = await call(RestBinding(service), body, path=prefix + path)
    assert (answer.status, reason(answer)) == (400, why)
    assert not service.calls


@pytest.mark.proves("CORE-ERR-001")
@pytest.mark.parametrize("path", ["/message:send", "/tasks/t:cancel", "/v1/message:send"])
async def test_a_body_that_is_too_large_is_refused(path: str) -> None:
    service = Scripted()
    answer = await call(RestBinding(service), b" " * (QUOTAS.body + 1), path=path)
    assert (answer.status, reason(answer)) == (413, "REQUEST_TOO_LARGE")
    got = await call(RestBinding(service), b" " * (QUOTAS.body + 1), path="/tasks/t", method="GET")
    assert got.status == 413
    assert not service.calls


@each(
    ("path", "body", "named"),
    [
        ("/message:send", {}, "message"),
        ("/message:send", {"message": {}}, "message.messageId"),
        ("/message:send", {"message": {"messageId": "m", "role": "USER", "parts": [{"text": "x"}]}}, "message.role"),
        ("/message:send", {"message": {"messageId": "m", "role": "ROLE_USER", "parts": []}}, "message.parts"),
        ("/v1/message:send", {}, "message"),
        ("/v1/message:send", {"message": {"messageId": "m", "role": "ROLE_USER"}}, "message.parts"),
        (PUSHES.format("t"), {}, "url"),
        (PUSHES.format("t"), {"url": 5}, "url"),
        ("/v1" + PUSHES.format("t"), {}, "config.pushNotificationConfig"),
        ("/tasks/t:cancel", {"metadata": 5}, "metadata"),
        ("/v1/tasks/t:cancel", {"metadata": 5}, "metadata"),
    ],
)
async def test_a_wrong_member_is_named(path: str, body: Any, named: str) -> None:
    answer = await call(RestBinding(Scripted()), body, path=path)
    assert (answer.status, reason(answer), field(answer)) == (400, "INVALID_PARAMS", named)


@pytest.mark.proves("HTTP_JSON-QP-001", "CORE-ERR-001")
@each("prefix", PREFIXES)
@each(
    ("path", "query", "named"),
    [
        ("/tasks/t", "historyLength=-1", "historyLength"),
        ("/tasks/t", "historyLength=many", "historyLength"),
        ("/tasks/t", "historyLength=1&historyLength=2", "historyLength"),
        ("/tasks", "pageSize=0", "pageSize"),
        ("/tasks", "pageSize=1&pageSize=2", "pageSize"),
        ("/tasks", "status=WORKING", "status"),
        ("/tasks", "contextId=a&contextId=b", "contextId"),
        ("/tasks", "includeArtifacts=maybe", "includeArtifacts"),
        ("/tasks", "statusTimestampAfter=yesterday", "statusTimestampAfter"),
        (PUSHES.format("t"), "pageSize=x", "pageSize"),
    ],
)
async def test_a_wrong_parameter_is_named(prefix: str, path: str, query: str, named: str) -> None:
    service = Scripted()
    answer = await get(RestBinding(service), prefix + path, query)
    assert (answer.status, reason(answer), field(answer)) == (400, "INVALID_PARAMS", named)
    assert not service.calls


@each("prefix", PREFIXES)
@each("query", ["x=1&x=2&y", "&&&", "=", "a=%zz", "after=1", "utm=\u00e9", "x" * 5000])
async def test_unknown_parameters_are_ignored(prefix: str, query: str) -> None:
    service = Scripted()
    assert (await get(RestBinding(service), prefix + "/tasks/t", query)).status == 200
    assert service.only.request.id == "t"


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize(("path", "query"), [("/tasks/%FF", ""), ("/tasks/%C3", ""), ("/tasks", "contextId=%FF")])
async def test_undecodable_paths_are_refused(prefix: str, path: str, query: str) -> None:
    service = Scripted()
    answer = await get(RestBinding(service), prefix + path, query)
    assert (answer.status, reason(answer), message(answer)) == (400, "INVALID_REQUEST", "The address is not UTF-8")
    assert not service.calls


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_bytes_that_should_have_been_encoded_are_read_as_utf_8(prefix: str) -> None:
    service = Scripted()
    app = RestBinding(service)

    async def raw(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "raw_path": f"{prefix}/tasks/".encode() + b"\xc3\xa9"}, receive, send)

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "raw_path": f"{prefix}/tasks/".encode() + b"\xe9", "query_string": b"\xe9"}, receive, send)

    assert (await get(raw, prefix + "/tasks/x")).status == 200
    assert service.only.request.id == "\u00e9"
    assert (await get(broken, prefix + "/tasks/x")).status == 400


async def test_a_client_that_leaves_while_it_sends_is_not_answered() -> None:
    service = Scripted()
    said: list[Any] = []

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def hear(event: Any) -> None:
        said.append(event)

    scope = {"type": "http", "method": "POST", "path": "/message:send", "query_string": b"", "headers": []}
    await RestBinding(service)(scope, gone, hear)
    assert (said, service.calls) == ([], [])


# --- every error ----------------------------------------------------------------------------------------------------


@pytest.mark.proves("HTTP_JSON-STATUS-001", "HTTP_JSON-ERR-001", "HTTP_JSON-ERR-002", "BIND-EQUIV-003")
@each("kind", TABLE)
async def test_every_error_has_its_status_and_form(kind: type[AccordError]) -> None:
    row = TABLE[kind]
    error = kind("why", violations=(Violation("a.b", "wrong"),), metadata={"taskId": "t"})
    app = RestBinding(Scripted(error))
    answer = await get(app, "/tasks/t")
    google = "type.googleapis.com/google.rpc."
    details = [
        {"@type": google + "ErrorInfo", "reason": row.reason, "domain": row.domain, "metadata": {"taskId": "t"}},
        {"@type": google + "BadRequest", "fieldViolations": [{"field": "a.b", "description": "wrong"}]},
    ]
    status = {"code": row.http, "status": row.grpc, "message": "why", "details": details}
    assert (answer.status, answer.json()) == (row.http, {"error": status})
    old = await get(app, "/v1/tasks/t")
    data = {"reason": row.reason, "taskId": "t", "violations": [{"field": "a.b", "description": "wrong"}]}
    shown = {name: value for name, value in old.json().items() if name != "type"}  # the name is test_errors' to judge
    assert (old.status, shown) == (row.http, {"code": row.code, "message": "why", "data": data})


# --- callers --------------------------------------------------------------------------------------------------------


class Door:
    """Lets those in who say the word, and keeps what they brought."""

    challenge = 'Bearer realm="accord"'

    def __init__(self) -> None:
        self.seen: list[Presented] = []

    async def admit(self, presented: Presented) -> Caller:
        self.seen.append(presented)
        if presented.header("authorization") != "Bearer sesame":
            refused = AuthenticationFailed("That is not the word")
            refused.challenges = (self.challenge,)
            raise refused
        return Caller(owner="alice", tenant="acme", roles=frozenset({"reader"}), origin="elsewhere")


@pytest.mark.proves("AUTH-SERVER-002", "3-21")
@each("prefix", PREFIXES)
@each("path", ["/tasks/t", "/tasks/t:subscribe", "/tasks", PUSHES.format("t")])
async def test_refused_callers_get_challenges(prefix: str, path: str) -> None:
    service, door = Scripted(), Door()
    app = RestBinding(service, admit=door.admit)
    for word in ("", "Bearer guess"):
        answer = await get(app, prefix + path, "pageSize=x", authorization=word, a2a_version="99.0")
        assert (answer.status, reason(answer)) == (401, "UNAUTHENTICATED")
        assert answer.headers["www-authenticate"] == door.challenge
    assert not service.calls


@pytest.mark.proves("BIND-EQUIV-004")
@pytest.mark.parametrize("prefix", PREFIXES)
async def test_a_caller_brings_the_same_to_both_bindings(prefix: str) -> None:
    service, door = Scripted(), Door()
    headers = {"Authorization": "Bearer sesame", "A2A-Extensions": "urn:a, urn:b"}
    rest, rpc = RestBinding(service, admit=door.admit), JsonRpcBinding(service, admit=door.admit)
    params = SEND[""] if not prefix else {"message": SEND["/v1"]["message"] | {"role": "user"}}
    method = "message/send" if prefix else "SendMessage"
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    assert (await call(rest, SEND[prefix], path=prefix + "/message:send", query="x=1", headers=headers)).status == 200
    assert (await call(rpc, body, path="/", query="x=1", headers=headers)).status == 200
    by_rest, by_rpc = door.seen
    assert (by_rest.method, by_rest.target) == ("POST", prefix + "/message:send?x=1")
    assert by_rest.body == json.dumps(SEND[prefix]).encode()
    assert (list(by_rest.headers), by_rest.peer) == (list(by_rpc.headers), by_rpc.peer)
    assert service.calls[0].caller == replace(service.calls[1].caller, binding="rest")
    assert service.calls[0].caller == Caller(
        owner="alice",
        tenant="acme",
        roles=frozenset({"reader"}),
        origin="v03" if prefix else "v1",
        extensions=frozenset({"urn:a", "urn:b"}),
        binding="rest",
    )


@pytest.mark.proves("HTTP_JSON-SVC-002")
@pytest.mark.parametrize("name", ["A2A-Extensions", "X-A2A-Extensions"])
async def test_extensions_are_read_from_their_header(name: str) -> None:
    service = Scripted()
    await call(RestBinding(service), method="GET", path="/tasks/t", headers={name: "urn:a,urn:b ,"})
    assert service.only.caller.extensions == {"urn:a", "urn:b"}


@each("prefix", PREFIXES)
@each("path", ["/tasks/t", "/tasks/t:subscribe"])
@each("name", ["a2a-extensions", "x-a2a-extensions"])
async def test_an_answer_names_the_extensions_that_it_uses(prefix: str, path: str, name: str) -> None:
    app = RestBinding(Scripted(), extensions=frozenset({"urn:a", "urn:b"}))
    used = await call(app, method="GET", path=prefix + path, headers={name: "urn:b, urn:c, urn:a"})
    assert (used.status, used.headers[name]) == (200, "urn:a, urn:b")
    unknown = await call(app, method="GET", path=prefix + path, headers={name: "urn:c"})
    assert name not in unknown.headers
    failed = RestBinding(Scripted(AuthenticationFailed()), extensions=frozenset({"urn:a"}))
    assert name not in (await call(failed, method="GET", path=prefix + path, headers={name: "urn:a"})).headers


@pytest.mark.parametrize("prefix", PREFIXES)
async def test_the_server_s_limits_apply(prefix: str) -> None:
    service = Scripted()
    app = RestBinding(service, quotas=Quotas(body=10, head=200))
    large = await call(app, SEND[prefix], path=prefix + "/message:send")
    assert (large.status, reason(large)) == (413, "REQUEST_TOO_LARGE")
    long = await get(app, prefix + "/tasks/t", "x=" + "y" * 200)
    assert (long.status, reason(long)) == (431, "HEADERS_TOO_LARGE")
    assert not service.calls
    assert (await call(app, b"{}", path=prefix + "/tasks/t:cancel")).status == 200
