"""What links send: the address, the headers and the body of each operation in each version."""

import json
from typing import Any
from uuid import UUID

import pytest

from accord.client.grpc_link import parse_target
from accord.client.http_link import HttpLink, JsonRpcLink, RestLink
from accord.errors import InvalidParams
from accord.model import (
    CancelRequest,
    CardRequest,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Request,
    Role,
    SendRequest,
    SubscribeRequest,
    TaskFilter,
    TaskState,
)
from accord.outbound import HttpRequest, OpenReply
from accord.protocol.operations import TABLE, DialectName, Operation
from tests.cases import each

V1, V03, VAULT, GEN, RELAY = DialectName
SEND = SendRequest(message=Message(message_id="m", role=Role.USER, parts=(Part(text="hi"),)))
REQUESTS: dict[Operation, Request] = {
    Operation.SEND: SEND,
    Operation.STREAM: SEND,
    Operation.GET: GetRequest(id="t", history_length=2),
    Operation.LIST: TaskFilter(context_id="c d", status=TaskState.WORKING, page_size=5, include_artifacts=True),
    Operation.CANCEL: CancelRequest(id="t"),
    Operation.SUBSCRIBE: SubscribeRequest(id="t"),
    Operation.PUSH_SET: PushConfig(url="https://example.com", id="p", task_id="t"),
    Operation.PUSH_GET: PushGetRequest(task_id="t", id="p"),
    Operation.PUSH_LIST: PushListRequest(task_id="t", page_size=3),
    Operation.PUSH_DELETE: PushDeleteRequest(task_id="t", id="p"),
    Operation.EXTENDED_CARD: CardRequest(),
}


class Nowhere:
    """A transport that nothing may be sent over."""

    async def open(self, request: HttpRequest) -> OpenReply:
        raise AssertionError(f"sent {request}")

    async def close(self) -> None:
        pass


def rest(dialect: DialectName, url: str = "http://a/b/", **options: Any) -> RestLink:
    return RestLink(Nowhere(), url, dialect, **options)


def rpc(dialect: DialectName, url: str = "http://a/rpc", **options: Any) -> JsonRpcLink:
    return JsonRpcLink(Nowhere(), url, dialect, **options)


def sent(link: HttpLink, operation: Operation, request: Request | None = None) -> HttpRequest:
    return link.outgoing(operation, request or REQUESTS[operation], 60)


ADDRESSES = {
    Operation.SEND: ("POST", "/message:send", "/message:send"),
    Operation.STREAM: ("POST", "/message:stream", "/message:stream"),
    Operation.GET: ("GET", "/tasks/t?historyLength=2", "/tasks/t?historyLength=2"),
    Operation.LIST: (
        "GET",
        "/tasks?contextId=c+d&status=TASK_STATE_WORKING&pageSize=5&includeArtifacts=true",
        "/tasks?contextId=c+d&status=TASK_STATE_WORKING&pageSize=5&includeArtifacts=true",
    ),
    Operation.CANCEL: ("POST", "/tasks/t:cancel", "/tasks/t:cancel"),
    Operation.SUBSCRIBE: ("GET", "/tasks/t:subscribe", "/tasks/t:subscribe"),
    Operation.PUSH_SET: ("POST", "/tasks/t/pushNotificationConfigs", "/tasks/t/pushNotificationConfigs"),
    Operation.PUSH_GET: ("GET", "/tasks/t/pushNotificationConfigs/p", "/tasks/t/pushNotificationConfigs/p"),
    Operation.PUSH_LIST: (
        "GET",
        "/tasks/t/pushNotificationConfigs?pageSize=3",
        "/tasks/t/pushNotificationConfigs?pageSize=3",
    ),
    Operation.PUSH_DELETE: ("DELETE", "/tasks/t/pushNotificationConfigs/p", "/tasks/t/pushNotificationConfigs/p"),
    Operation.EXTENDED_CARD: ("GET", "/extendedAgentCard", "/card"),
}


@each("operation", Operation)
def test_every_operation_has_its_address(operation: Operation) -> None:
    verb, v1, v03 = ADDRESSES[operation]
    assert (sent(rest(V1), operation).method, sent(rest(V1), operation).url) == (verb, f"http://a/b{v1}")
    assert (sent(rest(V03), operation).method, sent(rest(V03), operation).url) == (verb, f"http://a/b/v1{v03}")
    assert (sent(rest(V1), operation).body is None) == (verb != "POST")


def test_addresses_of_0_3_may_contain_the_version() -> None:
    assert sent(rest(V03, "http://a/v1"), Operation.SEND).url == "http://a/v1/message:send"
    assert sent(rest(V1, "http://a/v1"), Operation.SEND).url == "http://a/v1/message:send"


def test_a_tenant_is_a_part_of_the_path() -> None:
    request = GetRequest(id="t", tenant="a b")
    assert sent(rest(V1), Operation.GET, request).url == "http://a/b/a%20b/tasks/t"
    assert sent(rest(V03), Operation.GET, request).url == "http://a/b/v1/tasks/t"


def test_ids_cannot_break_out_of_their_place() -> None:
    request = GetRequest(id="../x/y:cancel?a=b#c")
    assert sent(rest(V1), Operation.GET, request).url == "http://a/b/tasks/..%2Fx%2Fy%3Acancel%3Fa%3Db%23c"


def test_a_path_must_not_lack_a_value() -> None:
    with pytest.raises(InvalidParams, match="`id`: Required field is missing"):
        sent(rest(V1), Operation.PUSH_GET, PushGetRequest(task_id="t"))


def test_a_binding_that_a_dialect_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"There is no HTTP\+JSON in dialect gen"):
        rest(GEN)


@pytest.mark.parametrize("dialect", DialectName)
@pytest.mark.proves("1-14", "2-06")
def test_every_call_is_json_rpc_under_the_dialects_name(dialect: DialectName) -> None:
    ids = set()
    for row in TABLE:
        request = sent(rpc(dialect), row.operation)
        body = json.loads(request.body or b"")
        assert (request.method, request.url, body["jsonrpc"]) == ("POST", "http://a/rpc", "2.0")
        assert (body["method"], isinstance(body["params"], dict)) == (row.names[dialect][0], True)
        ids.add(str(UUID(body["id"])))
    assert len(ids) == len(TABLE)


@pytest.mark.proves("1-14")
def test_relay_writes_the_parts_of_its_specification() -> None:
    body = json.loads(sent(rpc(RELAY), Operation.SEND).body or b"")
    message = body["params"]["message"]
    assert (body["method"], message["role"], message["messageId"]) == ("message/send", "user", "m")
    assert message["parts"] == [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize(
    ("dialect", "said"),
    [
        (V1, {"a2a-version": "1.0"}),
        (V03, {"a2a-version": "0.3", "x-a2a-dialect": "v03"}),
        (VAULT, {"x-a2a-dialect": "vault"}),
        (GEN, {"x-a2a-dialect": "gen"}),
        (RELAY, {"x-a2a-dialect": "relay"}),
    ],
)
@pytest.mark.proves("1-07", "VER-CLIENT-001")
def test_headers_carry_version_and_extensions(dialect: DialectName, said: dict[str, str]) -> None:
    plain = {name.lower(): value for name, value in sent(rpc(dialect), Operation.SEND).headers}
    assert plain == {"content-type": "application/json"} | said
    link = rpc(dialect, headers={"X-Mine": "1"}, extensions=["urn:a", "urn:b"])
    more = {name.lower(): value for name, value in sent(link, Operation.SEND).headers}
    declared = {"a2a-extensions": "urn:a, urn:b"} | ({} if dialect is V1 else {"x-a2a-extensions": "urn:a, urn:b"})
    assert more == plain | declared | {"x-mine": "1"}


@each(
    ("url", "target", "is_secure"),
    [
        ("localhost:5000", "localhost:5000", False),
        ("127.0.0.1:5000", "127.0.0.1:5000", False),
        ("[::1]:5000", "[::1]:5000", False),
        ("[::ffff:127.0.0.1]:5000", "[::ffff:127.0.0.1]:5000", False),
        ("a.localhost:5000", "a.localhost:5000", False),
        ("agent.example:5000", "agent.example:5000", True),
        ("localhost.example:5000", "localhost.example:5000", True),
        ("127.example:5000", "127.example:5000", True),
        ("agent.example", "agent.example:443", True),
        ("https://agent.example", "agent.example:443", True),
        ("https://agent.example:5000/x", "agent.example:5000", True),
        ("grpcs://agent.example:5000", "agent.example:5000", True),
        ("http://agent.example:5000", "agent.example:5000", False),
        ("grpc://agent.example", "agent.example:80", False),
    ],
)
def test_a_grpc_address_may_have_many_forms(url: str, target: str, is_secure: bool) -> None:
    assert parse_target(url) == (target, is_secure)
