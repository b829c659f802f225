"""Requests without a body: what a path and a query say, read by both versions' REST dialects."""

import json

import pytest

from accord.errors import AccordError, InvalidParams
from accord.model import (
    CardRequest,
    GetRequest,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Request,
    SubscribeRequest,
    TaskFilter,
    TaskState,
)
from accord.protocol.dialects import REST_DIALECTS
from accord.protocol.dialects.fields import params_from_body, params_from_query
from accord.protocol.operations import TABLE, DialectName, Operation, RestMatch, match_rest
from tests.cases import each

V1, V03 = DialectName.V1, DialectName.V03
PUSHES = "/tasks/t/pushNotificationConfigs"


def read(verb: str, path: str, query: dict[str, object]) -> Request:
    """Read a request as a binding does: find it, put path and query together, hand them to its dialect."""
    found = match_rest(verb, path)
    assert isinstance(found, RestMatch), found
    return REST_DIALECTS[found.dialect].decode_request(found.operation, json.dumps(query | found.values).encode())


def refused(verb: str, path: str, query: dict[str, object]) -> str:
    with pytest.raises(InvalidParams) as caught:
        read(verb, path, query)
    (violation,) = caught.value.violations
    assert f"`{violation.field}`" in caught.value.message
    return violation.field


EVERY_FILTER: dict[str, object] = {
    "contextId": "5",
    "status": "TASK_STATE_WORKING",
    "pageSize": "10",
    "pageToken": "7",
    "historyLength": "0",
    "statusTimestampAfter": "2026-01-02T03:04:05Z",
    "includeArtifacts": "true",
}
REQUESTS: list[tuple[str, str, dict[str, object], Request]] = [
    ("GET", "/tasks/t", {}, GetRequest(id="t")),
    ("GET", "/tasks/t", {"historyLength": "5"}, GetRequest(id="t", history_length=5)),
    ("GET", "/tasks/t", {"historyLength": 5}, GetRequest(id="t", history_length=5)),
    ("GET", "/tasks/5", {"historyLength": "0", "unknown": "x"}, GetRequest(id="5", history_length=0)),
    (
        "GET",
        "/tasks",
        EVERY_FILTER,
        TaskFilter(
            context_id="5",
            status=TaskState.WORKING,
            page_size=10,
            page_token="7",
            history_length=0,
            status_timestamp_after="2026-01-02T03:04:05.000Z",
            include_artifacts=True,
        ),
    ),
    ("GET", "/tasks", {"contextId": "null", "includeArtifacts": "False"}, TaskFilter(context_id="null")),
    ("GET", "/tasks", {"includeArtifacts": "1"}, TaskFilter(include_artifacts=True)),
    ("GET", "/tasks", dict.fromkeys(["contextId", "status", "pageToken", "statusTimestampAfter"], ""), TaskFilter()),
    ("GET", "/tasks/t:subscribe", {}, SubscribeRequest(id="t")),
    ("GET", PUSHES, {"pageSize": "3", "pageToken": "x"}, PushListRequest(task_id="t", page_size=3, page_token="x")),
    ("GET", PUSHES + "/p", {}, PushGetRequest(task_id="t", id="p")),
    ("DELETE", PUSHES + "/p", {}, PushDeleteRequest(task_id="t", id="p")),
    ("DELETE", PUSHES + "/p", {"tenant": "", "url": ""}, PushDeleteRequest(task_id="t", id="p")),
]


@pytest.mark.proves("HTTP_JSON-QP-001")
@each("prefix", ["", "/v1"])
@each(("verb", "path", "query", "request_"), REQUESTS)
def test_query_text_is_parsed_by_type(
    prefix: str, verb: str, path: str, query: dict[str, object], request_: Request
) -> None:
    assert read(verb, prefix + path, query) == request_


def test_a_tenant_is_read_from_the_path() -> None:
    assert read("GET", "/acme/tasks", {"pageSize": "1"}) == TaskFilter(page_size=1, tenant="acme")
    assert read("GET", "/acme/extendedAgentCard", {}) == CardRequest(tenant="acme")
    assert read("GET", "/extendedAgentCard", {}) == read("GET", "/v1/card", {}) == CardRequest()
    assert read("DELETE", "/acme" + PUSHES + "/p", {}) == PushDeleteRequest(task_id="t", id="p", tenant="acme")


@pytest.mark.proves("HTTP_JSON-QP-001")
@each("prefix", ["", "/v1"])
@each(
    ("path", "name", "values"),
    [
        (
            "/tasks/t",
            "historyLength",
            ["", "null", "many", "-1", "1.5", "5.0", "+5", " 5", "1_0", "\u0665", "-" + "9" * 19],
        ),
        ("/tasks", "historyLength", ["null", "-1", "2147483648"]),
        ("/tasks", "pageSize", ["", "0", "101", "-1", "ten", "null"]),
        ("/tasks", "includeArtifacts", ["", "yes", "null", "2", "tru"]),
        ("/tasks", "status", ["WORKING", "null", "5"]),
        ("/tasks", "statusTimestampAfter", ["yesterday", "5", "null"]),
        (PUSHES, "pageSize", ["", "ten", "-1", "null"]),
    ],
)
def test_a_bad_value_is_refused_by_its_name(prefix: str, path: str, name: str, values: list[str]) -> None:
    for value in values:
        assert refused("GET", prefix + path, {name: value}) == name, value


def test_every_route_without_a_body_is_tried_above() -> None:
    found = [match_rest(verb, path) for verb, path, _, _ in REQUESTS]
    tried = {match.operation for match in found if isinstance(match, RestMatch)} | {Operation.EXTENDED_CARD}
    assert tried == {row.operation for row in TABLE if any(route.verb != "POST" for route in row.rest)}


@each("dialect", [V1, V03])
@each("params", [b"[]", b"5", b"{", b'{"id":1}'])
def test_non_object_parameters_are_refused(dialect: DialectName, params: bytes) -> None:
    with pytest.raises(AccordError, match=r"id|object|JSON"):
        REST_DIALECTS[dialect].decode_request(Operation.GET, params)


@pytest.mark.parametrize("dialect", [V1, V03])
def test_a_body_is_not_read_as_text(dialect: DialectName) -> None:
    part = {"text": "x"} if dialect is V1 else {"kind": "text", "text": "x"}
    role = "ROLE_USER" if dialect is V1 else "user"
    sent = {"message": {"messageId": "m", "role": role, "parts": [part]}, "configuration": {"historyLength": "5"}}
    with pytest.raises(InvalidParams, match="historyLength"):
        REST_DIALECTS[dialect].decode_request(Operation.SEND, json.dumps(sent).encode())


def test_an_empty_text_in_a_body_stays() -> None:
    sent = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "x"}]}, "tenant": ""}
    read_ = REST_DIALECTS[V1].decode_request(Operation.SEND, json.dumps(sent).encode())
    assert read_.tenant == ""


# --- body, query and path together ----------------------------------------------------------------------------------


def test_bodies_pass_unchanged_without_path_values() -> None:
    body = b' {"message" : {}, "message":1} '
    assert params_from_body(body, {}) is body
    assert params_from_body(b"", {}) == b"{}"


@pytest.mark.parametrize(
    ("body", "values", "whole"),
    [
        (b"", {"id": "t"}, {"id": "t"}),
        (b"{}", {"id": "t"}, {"id": "t"}),
        (b'{"id":"x","metadata":{"a":[1,{"b":null}]}}', {"id": "t"}, {"metadata": {"a": [1, {"b": None}]}, "id": "t"}),
        (b'{"taskId":"x","task_id":1,"name":[],"parent":"p"}', {"id": "t"}, {"id": "t"}),
        (
            b'{"id":"p","taskId":"x","parent":"tasks/x","url":"u"}',
            {"taskId": "t"},
            {"id": "p", "url": "u", "taskId": "t"},
        ),
        (b'{"tenant":"x","message":{}}', {"tenant": "acme"}, {"message": {}, "tenant": "acme"}),
        (b'{"id":"a","id":"b"}', {"tenant": "acme"}, {"id": "b", "tenant": "acme"}),
    ],
)
def test_path_values_replace_body_fields(body: bytes, values: dict, whole: dict) -> None:
    assert json.loads(params_from_body(body, values)) == whole


@pytest.mark.proves("HTTP_JSON-QP-001")
def test_a_name_that_is_repeated_is_a_list() -> None:
    pairs = [("tag", "a"), ("x", ""), ("tag", "b"), ("tag", "b")]
    assert json.loads(params_from_query(pairs, {"id": "t"})) == {"tag": ["a", "b", "b"], "x": "", "id": "t"}
    beside = [("id", "x"), ("taskId", "y"), ("pushNotificationConfigId", "z"), ("pageSize", "1")]
    assert json.loads(params_from_query(beside, {"taskId": "t", "id": "p"})) == {
        "pageSize": "1",
        "taskId": "t",
        "id": "p",
    }


@each("body", [b"[]", b"5", b"null", b"{", b'{"a":}', b'{"\xff":1}', b"[" * 300])
@each("values", [{"id": "t"}, {"tenant": "a"}])
def test_non_object_bodies_cannot_be_merged(body: bytes, values: dict) -> None:
    with pytest.raises(AccordError):
        params_from_body(body, values)
