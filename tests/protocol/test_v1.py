"""A2A 1.0: identity with the model, judged by the official SDK's protobuf types, strictly."""

import json
from typing import Any

import msgspec
import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from google.rpc import error_details_pb2
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accord import errors
from accord.errors import TABLE, AccordError, InvalidAgentResponse, InvalidParams, RateLimited, Violation
from accord.model import (
    AgentCard,
    ClientCredentialsFlow,
    Event,
    Message,
    MessageUpdate,
    OAuth2Scheme,
    OAuthFlows,
    Part,
    PasswordFlow,
    PushDeleteRequest,
    Role,
    SecurityScheme,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol import codec
from accord.protocol.dialects import REST_DIALECTS
from accord.protocol.dialects.v1 import V1
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame
from tests import strategies
from tests.cases import each
from tests.protocol import golden

V1_ = V1()

REQUESTS = {
    "SEND": a2a_pb2.SendMessageRequest,
    "STREAM": a2a_pb2.SendMessageRequest,
    "GET": a2a_pb2.GetTaskRequest,
    "LIST": a2a_pb2.ListTasksRequest,
    "CANCEL": a2a_pb2.CancelTaskRequest,
    "SUBSCRIBE": a2a_pb2.SubscribeToTaskRequest,
    "PUSH_SET": a2a_pb2.TaskPushNotificationConfig,
    "PUSH_GET": a2a_pb2.GetTaskPushNotificationConfigRequest,
    "PUSH_LIST": a2a_pb2.ListTaskPushNotificationConfigsRequest,
    "PUSH_DELETE": a2a_pb2.DeleteTaskPushNotificationConfigRequest,
    "EXTENDED_CARD": a2a_pb2.GetExtendedAgentCardRequest,
}
RESULTS = {
    "SEND": a2a_pb2.SendMessageResponse,
    "GET": a2a_pb2.Task,
    "LIST": a2a_pb2.ListTasksResponse,
    "CANCEL": a2a_pb2.Task,
    "PUSH_SET": a2a_pb2.TaskPushNotificationConfig,
    "PUSH_GET": a2a_pb2.TaskPushNotificationConfig,
    "PUSH_LIST": a2a_pb2.ListTaskPushNotificationConfigsResponse,
    "EXTENDED_CARD": a2a_pb2.AgentCard,
}


def accepted(wire: bytes, kind: Any) -> Any:
    """Parse as the official SDK does, refusing every member that its definition does not have."""
    return json_format.Parse(wire, kind(), ignore_unknown_fields=False)


@pytest.mark.parametrize("operation", strategies.requests)
@given(data=st.data())
def test_the_official_types_accept_every_request(operation: str, data: st.DataObject) -> None:
    request = data.draw(strategies.requests[operation])
    accepted(V1_.encode_request(Operation[operation], request), REQUESTS[operation])


@pytest.mark.proves("DM-TASK-001", "DM-TASK-002")
@given(strategies.tasks)
def test_the_official_types_accept_every_task_and_give_it_back(task: Task) -> None:
    parsed = accepted(V1_.encode_result(Operation.GET, task), a2a_pb2.Task)
    theirs = json_format.MessageToJson(parsed).encode()
    ours = V1_.decode_result(Operation.GET, theirs, strategies.GET)
    assert isinstance(ours, Task)
    assert (ours.id, ours.status.timestamp, len(ours.history)) == (task.id, task.status.timestamp, len(task.history))
    # protobuf's Struct has doubles only and no UNSPECIFIED state on the wire; everything else is the same.
    assert [part.text for message in ours.history for part in message.parts] == [
        part.text for message in task.history for part in message.parts
    ]


@given(strategies.messages | strategies.tasks)
def test_the_official_types_accept_every_answer_to_a_send(result: Any) -> None:
    accepted(V1_.encode_result(Operation.SEND, result), a2a_pb2.SendMessageResponse)


@pytest.mark.proves("JSONRPC-SSE-002")
@given(strategies.events, strategies.tasks)
def test_the_official_types_accept_every_event_and_webhook_body(event: Event, task: Task) -> None:
    frame = V1_.encode_event(event)
    assert (frame is None) == isinstance(event.body, MessageUpdate)
    if frame is not None:
        accepted(frame.data, a2a_pb2.StreamResponse)
    accepted(V1_.encode_push(event, task), a2a_pb2.StreamResponse)


@given(strategies.pages)
def test_the_official_types_accept_every_page(page: Any) -> None:
    accepted(V1_.encode_result(Operation.LIST, page), a2a_pb2.ListTasksResponse)


@pytest.mark.proves("CARD-PROTO-002")
@given(strategies.cards)
def test_the_official_types_accept_every_card(card: Any) -> None:
    accepted(codec.encode(V1_.encode_card(card)), a2a_pb2.AgentCard)
    accepted(V1_.encode_result(Operation.EXTENDED_CARD, card), a2a_pb2.AgentCard)


def test_the_official_types_accept_every_golden_wire() -> None:
    judged = 0
    for name, _, case in golden.cases():
        if name != "v1" or case.direction == "in":
            continue
        kind = {
            "request": REQUESTS.get(case.operation or ""),
            "result": RESULTS.get(case.operation or ""),
            "event": a2a_pb2.StreamResponse,
            "push": None if case.format == "simple" else a2a_pb2.StreamResponse,
            "card": a2a_pb2.AgentCard,
        }.get(case.kind)
        if kind is not None:
            accepted(json.dumps(case.wire).encode(), kind)
            judged += 1
    assert judged >= 40


DETAILS = {
    "type.googleapis.com/google.rpc.ErrorInfo": error_details_pb2.ErrorInfo,
    "type.googleapis.com/google.rpc.BadRequest": error_details_pb2.BadRequest,
    "type.googleapis.com/google.rpc.RetryInfo": error_details_pb2.RetryInfo,
}


@pytest.mark.proves("JSONRPC-ERR-002", "HTTP_JSON-ERR-001", "HTTP_JSON-ERR-002", "B-15")
@each("kind", TABLE)
def test_every_error_carries_typed_details(kind: type[AccordError]) -> None:
    error = kind("why", violations=(Violation("a.b", "wrong"),), retry_after=3, metadata={"taskId": "t"})
    written = V1_.encode_error(error)
    assert written.code == error.row.code
    for detail in written.data:
        body = {key: value for key, value in detail.items() if key != "@type"}
        json_format.ParseDict(body, DETAILS[detail["@type"]](), ignore_unknown_fields=False)
    assert written.data[0]["reason"] == error.row.reason
    body = json.loads(REST_DIALECTS[DialectName.V1].encode_http_error(error))["error"]
    assert (body["code"], body["status"], body["message"]) == (error.row.http, error.row.grpc, "why")
    assert body["details"] == written.data
    read = V1_.decode_error(written)
    assert type(read).__name__ in (kind.__name__, "ContentTypeNotSupported")
    assert (read.violations, read.retry_after, read.metadata["taskId"]) == (error.violations, 3, "t")


@pytest.mark.parametrize(
    "data", [None, "text", 5, [1, "x", None], [{"reason": 5, "metadata": [], "fieldViolations": "x", "retryDelay": {}}]]
)
def test_strange_details_of_another_server_do_no_harm(data: Any) -> None:
    read = V1_.decode_error(msgspec.convert({"code": -32001, "message": "gone", "data": data}, ErrorObject))
    assert isinstance(read, errors.TaskNotFound)


def test_rate_limits_carry_retry_after() -> None:
    assert V1_.encode_error(RateLimited(retry_after=2)).data[-1]["retryDelay"] == "2s"


@pytest.mark.parametrize(
    "answer", [b"{}", b'{"statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}}', b"5"]
)
def test_invalid_answers_are_agent_errors(answer: bytes) -> None:
    with pytest.raises(InvalidAgentResponse):
        V1_.decode_result(Operation.SEND, answer, strategies.GET)


def test_invalid_events_are_agent_errors() -> None:
    with pytest.raises(InvalidAgentResponse):
        V1_.decode_event(Frame(data=b"{}"))


def test_a_missing_id_is_refused_by_its_name() -> None:
    for operation in (Operation.GET, Operation.CANCEL, Operation.SUBSCRIBE):
        with pytest.raises(InvalidParams, match="`id`: Required field is missing"):
            V1_.decode_request(operation, b"{}")


@pytest.mark.proves("B-11", "DM-SERIAL-004")
@each(
    ("dialect", "operation", "params", "field"),
    [
        ("v1", "PUSH_SET", {"url": "https://example.com"}, "taskId"),
        ("v1", "PUSH_GET", {"taskId": "t"}, "id"),
        ("v1", "PUSH_DELETE", {"taskId": "t"}, "id"),
        ("v1", "PUSH_SET", {"url": "https://example.com", "id": "p"}, "taskId"),
        ("v1", "PUSH_SET", {"url": "https://example.com", "task_id": ""}, "taskId"),
        ("v1", "PUSH_SET", {"url": "https://example.com", "task_id": 5}, "taskId"),
        ("v1", "PUSH_GET", {"id": "p"}, "taskId"),
        ("v1", "PUSH_GET", {"task_id": "t"}, "id"),
        ("v1", "PUSH_LIST", {"pageSize": 5}, "taskId"),
        ("v1", "PUSH_DELETE", {"id": "p"}, "taskId"),
        ("v1", "PUSH_DELETE", {"task_id": "t"}, "id"),
        ("v03", "PUSH_DELETE", {"id": "t"}, "pushNotificationConfigId"),
        ("v03_rest", "PUSH_DELETE", {"id": "t"}, "pushNotificationConfigId"),
        ("relay", "PUSH_DELETE", {"id": "t"}, "pushNotificationConfigId"),
        ("vault", "PUSH_DELETE", {"taskId": "t"}, "id"),
    ],
)
def test_no_webhook_is_set_or_removed_without_saying_which(
    dialect: str, operation: str, params: dict, field: str
) -> None:
    with pytest.raises(InvalidParams) as caught:
        golden.CODECS[dialect].decode_request(Operation[operation], json.dumps(params).encode())
    assert caught.value.violations[0].field == field


@pytest.mark.proves("3-07")
@each("number", ["1e999", "9" * 5000])
@each(
    ("rest", "field"),
    [
        ('"configuration":{"historyLength":%s}', "configuration.historyLength"),
        ('"metadata":{"a":[{"b":%s}]}', "metadata.a[0].b"),
        ('"future":1e999,"metadata":{"a":%s}', "metadata.a"),
        ('"configuration":{"acceptedOutputModes":null},"metadata":{"a":%s}', "metadata.a"),
    ],
)
def test_a_number_out_of_range_is_refused_by_its_path(rest: str, field: str, number: str) -> None:
    message = '{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},'
    with pytest.raises(InvalidParams) as caught:
        V1_.decode_request(Operation.SEND, (message + rest % number + "}").encode())
    assert caught.value.violations[0].field == field


def test_a_card_with_several_oauth_flows_keeps_one() -> None:
    flow = ClientCredentialsFlow(token_url="https://example.com/t", scopes={})
    flows = OAuthFlows(client_credentials=flow, password=PasswordFlow(token_url="https://example.com/t"))
    scheme = SecurityScheme(oauth2_security_scheme=OAuth2Scheme(flows=flows))
    case = next(case for name, _, case in golden.cases() if (name, case.kind) == ("v1", "card"))
    card = replace(golden.build(case.model), security_schemes={"oauth": scheme})
    accepted(codec.encode(V1_.encode_card(card)), a2a_pb2.AgentCard)
    for strange in ({"profile": "x"}, {"profile": {"humanReadableId": "evil/x"}}):
        assert V1_.decode_card(json.dumps(case.wire | strange).encode()).profile is None
    skills = [skill | {"inputSchema": True} for skill in case.wire["skills"]]
    assert V1_.decode_card(json.dumps(case.wire | {"skills": skills}).encode()).skills[0].input_schema is None


@given(strategies.cards)
def test_a_card_is_read_as_protobuf_writes_it(card: AgentCard) -> None:
    """It leaves out whatever is empty: skills, scopes, tags, a description."""
    stated = codec.encode(V1_.encode_card(card))
    written = json_format.MessageToJson(json_format.Parse(stated, a2a_pb2.AgentCard())).encode()
    numbers = msgspec.json.decode  # 1 and 1.0 are the same
    assert numbers(codec.encode(V1_.decode_card(written))) == numbers(codec.encode(V1_.decode_card(stated)))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"skills": 7}, "skills"),
        ({"skills": [7]}, "skills[0]"),
        ({"provider": 7}, "provider"),
        ({"securitySchemes": 7}, "securitySchemes"),
        ({"securitySchemes": {"a": {"oauth2SecurityScheme": {"flows": 7}}}}, "flows"),
        ({"securitySchemes": {"a": {"oauth2SecurityScheme": {"flows": {"clientCredentials": {}}}}}}, "tokenUrl"),
        ({"name": ""}, "name"),
    ],
    ids=str,
)
def test_card_errors_are_named(wrong: dict[str, Any], field: str) -> None:
    card = {"name": "a", "supportedInterfaces": []} | wrong
    with pytest.raises(InvalidParams) as refused:
        V1_.decode_card(json.dumps(card).encode())
    assert field in refused.value.violations[0].field


def test_fields_unknown_to_1_0_are_not_sent() -> None:
    wire = V1_.encode_request(Operation.PUSH_DELETE, PushDeleteRequest(task_id="t", id="p", url="https://example.com"))
    accepted(wire, a2a_pb2.DeleteTaskPushNotificationConfigRequest)


@pytest.mark.parametrize("depth", [101, 500, 900])
def test_deep_nesting_raises_nothing_of_pythons_own(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    for read in (
        lambda: V1_.decode_request(Operation.SEND, deep),
        lambda: V1_.decode_card(b'{"supportedInterfaces":' + deep + b"}"),
        lambda: V1_.decode_push(b'{"task":' + deep + b"}"),
    ):
        with pytest.raises(AccordError):
            read()


def test_metadata_and_data_are_never_changed() -> None:
    odd = {"raw": "not base64!", "nothing": None}
    wire = json.dumps(
        {
            "message": {
                "messageId": "m",
                "role": "ROLE_USER",
                "extensions": None,
                "parts": [{"data": odd, "metadata": odd}],
                "metadata": odd,
            }
        }
    ).encode()
    found = V1_.decode_request(Operation.SEND, wire)
    part = Part(data=odd, metadata=odd)
    assert found.message == Message(message_id="m", role=Role.USER, parts=(part,), metadata=odd)  # type: ignore[union-attr]


def test_unknown_is_written_as_the_enumeration_s_zero() -> None:
    task = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.UNKNOWN))
    assert b'"TASK_STATE_UNSPECIFIED"' in V1_.encode_result(Operation.GET, task)
