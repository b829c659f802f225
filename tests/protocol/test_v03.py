"""What golden files cannot say of A2A 0.2 and 0.3: refusals by path, one meaning for all spellings, the SDK's word."""

import base64
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.errors import AgentUnavailable, InvalidAgentResponse, InvalidParams, ParseError, TaskNotFound
from accord.model import Event, GetRequest, Message, MessageUpdate, Part, PushFormat, Role, SendRequest
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.v03 import V03
from accord.protocol.dialects.v03.rest import V03Rest
from accord.protocol.operations import Operation
from accord.protocol.sse import Frame
from tests import strategies
from tests.cases import each
from tests.environments import judge
from tests.protocol.golden import GOLDEN

V03_JSON, V03_REST = V03(), V03Rest()
ASKED = GetRequest(id="t-1")
MISSING = "Required field is missing"
TEXT = {"kind": "text", "text": "hello"}
SENT: dict[str, Any] = {"messageId": "m-1", "role": "user", "parts": [TEXT]}


def refused(dialect: Dialect, operation: str, params: Any) -> tuple[str, str]:
    """The field that a request is refused for, and why."""
    with pytest.raises(InvalidParams) as caught:
        dialect.decode_request(Operation[operation], json.dumps(params).encode())
    ((field, reason),) = caught.value.violations
    assert not field or f"`{field}`" in caught.value.message
    return field, reason


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in SENT.items() if key != name}


# Refusals


@pytest.mark.proves("3-07", "CORE-ERR-002", "DM-SERIAL-004", "DM-MSG-001", "DM-MSG-002", "DM-PART-001")
@each(
    ("operation", "params", "field", "reason"),
    [
        ("SEND", {}, "message", MISSING),
        ("SEND", {"message": without("messageId")}, "message.messageId", MISSING),
        ("SEND", {"message": SENT | {"messageId": ""}}, "message.messageId", MISSING),
        ("SEND", {"message": without("role")}, "message.role", MISSING),
        ("SEND", {"message": SENT | {"role": "robot"}}, "message.role", "Unknown role 'robot'"),
        ("SEND", {"message": without("parts")}, "message.parts", MISSING),
        ("SEND", {"message": SENT | {"parts": []}}, "message.parts", "Expected at least one part"),
        ("SEND", {"message": SENT | {"parts": [TEXT, {}]}}, "message.parts[1]", "Unknown part ''"),
        ("SEND", {"message": SENT | {"parts": [{"kind": "video"}]}}, "message.parts[0]", "Unknown part 'video'"),
        ("SEND", {"message": SENT | {"parts": [{"kind": "text"}]}}, "message.parts[0]", "A text part needs"),
        (
            "SEND",
            {"message": SENT | {"parts": [{"kind": "file", "file": {}}]}},
            "message.parts[0]",
            "A file part needs",
        ),
        (
            "SEND",
            {"message": SENT | {"parts": [{"kind": "file", "file": {"bytes": "!"}}]}},
            "message.parts[0]",
            "Invalid b",
        ),
        (
            "SEND",
            {"message": SENT | {"parts": [{"kind": "text", "text": 1}]}},
            "message.parts[0].text",
            "Expected `str",
        ),
        ("STREAM", {"message": SENT | {"metadata": []}}, "message.metadata", "Expected `object"),
        ("SEND", {"message": SENT, "configuration": {"historyLength": -1}}, "configuration.historyLength", "Expected"),
        (
            "SEND",
            {"message": SENT, "configuration": {"pushNotificationConfig": {"token": "t"}}},
            "configuration.pushNotificationConfig.url",
            MISSING,
        ),
        ("GET", {}, "id", MISSING),
        ("GET", {"id": ""}, "id", MISSING),
        ("GET", {"id": 7}, "id", "Expected `str"),
        ("GET", [], "", "Expected `object`, got `array`"),
        ("CANCEL", {"metadata": {}}, "id", MISSING),
        ("SUBSCRIBE", {}, "id", MISSING),
        ("LIST", {"status": "paused"}, "status", "Unknown state 'paused'"),
        ("LIST", {"pageSize": 0}, "pageSize", "Expected `int` >= 1"),
        ("LIST", {"statusTimestampAfter": "soon"}, "statusTimestampAfter", "Not an ISO 8601 timestamp: 'soon'"),
        ("PUSH_SET", {"taskId": "t-1"}, "pushNotificationConfig", MISSING),
        ("PUSH_SET", {"pushNotificationConfig": {"url": "https://hook.example"}}, "id", MISSING),
        (
            "PUSH_SET",
            {"taskId": "t-1", "pushNotificationConfig": {"url": ""}},
            "pushNotificationConfig.url",
            "Expected",
        ),
        ("PUSH_GET", {"pushNotificationConfigId": "p-1"}, "id", MISSING),
        ("PUSH_LIST", {}, "id", MISSING),
        ("PUSH_DELETE", {}, "id", MISSING),
    ],
)
def test_missing_and_invalid_fields_are_refused_by_path(operation: str, params: Any, field: str, reason: str) -> None:
    found, why = refused(V03_JSON, operation, params)
    assert found == field
    assert why.startswith(reason)


@pytest.mark.proves("3-07")
@each(
    ("operation", "params", "field"),
    [
        ("SEND", {"message": {"messageId": "m-1", "role": "ROLE_USER"}}, "message.parts"),
        ("SEND", {"message": {"messageId": "m-1", "role": "ROLE_USER", "content": []}}, "message.parts"),
        ("SEND", {"message": {"messageId": "m-1", "role": "ROLE_USER", "content": [{}]}}, "message.content[0]"),
        ("GET", {"name": "tasks/"}, "id"),
        ("GET", {"id": "t-1", "historyLength": "many"}, "historyLength"),
        ("LIST", {"pageSize": "1000"}, "pageSize"),
        ("PUSH_SET", {"parent": "tasks/t-1", "config": {}}, "config.pushNotificationConfig"),
        ("PUSH_SET", {"config": {"pushNotificationConfig": {"url": "https://hook.example"}}}, "id"),
        ("PUSH_GET", {}, "id"),
    ],
)
def test_rest_refuses_by_path_too(operation: str, params: Any, field: str) -> None:
    assert refused(V03_REST, operation, params)[0] == field


@pytest.mark.proves("3-41")
@each("dialect", [V03_JSON, V03_REST])
@each("operation", [operation for operation in Operation if operation is not Operation.EXTENDED_CARD])
def test_non_json_is_a_parse_error(dialect: Dialect, operation: Operation) -> None:
    with pytest.raises(ParseError):
        dialect.decode_request(operation, b'{"id": ')


WORKING = {"state": "working"}
TASK: dict[str, Any] = {"kind": "task", "id": "t-1", "contextId": "c-1", "status": WORKING}


@pytest.mark.proves("DM-TASK-001", "DM-TASK-002", "DM-ART-001", "DM-STATUS-001")
@each(
    ("answer", "field"),
    [
        ({"kind": "task", "contextId": "c-1", "status": WORKING}, "id"),
        ({"kind": "task", "id": "t-1"}, "status"),
        ({"kind": "task", "id": "t-1", "status": "working"}, "status"),
        (TASK | {"status": {}}, "status.state"),
        (TASK | {"status": {"state": "paused"}}, "status.state"),
        (TASK | {"status": {"state": "working", "timestamp": "now"}}, "status.timestamp"),
        (
            TASK | {"status": {"state": "working", "message": {"role": "agent", "parts": [TEXT]}}},
            "status.message.messageId",
        ),
        (TASK | {"history": [SENT, SENT | {"role": "robot"}]}, "history[1].role"),
        (TASK | {"history": [SENT, SENT | {"parts": [TEXT, {"kind": "x"}]}]}, "history[1].parts[1]"),
        (TASK | {"artifacts": [{"parts": [TEXT]}]}, "artifacts[0].artifactId"),
        (TASK | {"artifacts": [{"artifactId": "a-1"}]}, "artifacts[0].parts"),
        ({"task": {"id": "t-1", "status": {}}}, "task.status.state"),
    ],
)
def test_answers_without_a_task_are_agent_errors(answer: Any, field: str) -> None:
    with pytest.raises(InvalidAgentResponse, match="answer is invalid") as caught:
        V03_JSON.decode_result(Operation.GET, json.dumps(answer).encode(), ASKED)
    assert f"`{field}`" in caught.value.message


@pytest.mark.parametrize(
    ("event", "field"),
    [
        ({"kind": "status-update", "contextId": "c-1", "status": WORKING}, "taskId"),
        ({"kind": "status-update", "taskId": "t-1"}, "status"),
        ({"kind": "artifact-update", "artifact": {"artifactId": "a-1", "parts": [TEXT]}}, "taskId"),
        ({"kind": "artifact-update", "taskId": "t-1"}, "artifact"),
        (
            {"kind": "artifact-update", "taskId": "t-1", "artifact": {"artifactId": "a-1", "parts": [{}]}},
            "artifact.parts[0]",
        ),
        ({"statusUpdate": {"taskId": "t-1"}}, "statusUpdate.status"),
        ({}, "id"),
    ],
)
def test_an_event_that_lacks_something_names_it(event: Any, field: str) -> None:
    with pytest.raises(InvalidAgentResponse) as caught:
        V03_JSON.decode_event(Frame(data=json.dumps(event).encode()))
    assert f"`{field}`" in caught.value.message


@pytest.mark.proves("3-34")
@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (Operation.GET, {"kind": "message", **SENT}),
        (Operation.SEND, {"kind": "status-update", "taskId": "t-1", "contextId": "c-1", "status": WORKING}),
    ],
)
def test_an_answer_of_the_wrong_kind_is_the_agents_fault(operation: Operation, answer: Any) -> None:
    with pytest.raises(InvalidAgentResponse, match="neither a task nor a message"):
        V03_JSON.decode_result(operation, json.dumps(answer).encode(), ASKED)


@pytest.mark.proves("B-10")
@pytest.mark.parametrize(
    "body", [{}, {"id": "t-1"}, {"taskId": "t-1", "status": "paused"}, {"kind": "task", "status": WORKING}]
)
def test_a_webhook_body_that_lacks_something_is_refused(body: Any) -> None:
    with pytest.raises(InvalidParams):
        V03_JSON.decode_push(json.dumps(body).encode())


@pytest.mark.proves("B-03")
@each(
    ("card", "field"),
    [
        ({"url": "https://agent.example"}, "name"),
        ({"name": "A"}, "url"),
        ({"name": "A", "url": "https://agent.example", "skills": [{"name": "S"}]}, "skills[0].id"),
        ({"name": "A", "url": "https://agent.example", "security": [{"b": "x"}]}, "security[0]"),
        (
            {"name": "A", "url": "https://agent.example", "securitySchemes": {"b": {"type": "magic"}}},
            "securitySchemes.b.type",
        ),
        (
            {"name": "A", "url": "https://agent.example", "securitySchemes": {"b": {"type": "http"}}},
            "securitySchemes.b",
        ),
        (
            {"name": "A", "url": "https://agent.example", "securitySchemes": {"b": {"type": "apiKey", "name": "k"}}},
            "securitySchemes.b",
        ),
        ({"name": "A", "url": "https://agent.example", "securitySchemes": {"b": {}}}, "securitySchemes.b"),
    ],
)
def test_a_card_is_refused_by_path(card: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        V03_JSON.decode_card(json.dumps(card).encode())
    assert caught.value.violations[0].field == field


# One meaning for every spelling


def tagged(part: Part) -> dict[str, Any]:
    """A part as 0.3 spells it."""
    wire = json.loads(V03_JSON.encode_request(Operation.SEND, _send(part)))
    found: dict[str, Any] = wire["message"]["parts"][0]
    return found


def _send(*parts: Part) -> SendRequest:
    return SendRequest(message=Message(message_id="m-1", role=Role.USER, parts=parts))


@pytest.mark.proves("B-01", "B-02")
@given(part=strategies.parts)
def test_a_part_means_the_same_with_kind_with_type_and_with_neither(part: Part) -> None:
    kind, rest = (wire := tagged(part))["kind"], {key: value for key, value in wire.items() if key != "kind"}
    spellings = [wire, {"type": kind} | rest, rest]
    for wires in (*([one] for one in spellings), spellings):
        params = {"message": SENT | {"parts": wires}}
        request = V03_JSON.decode_request(Operation.SEND, json.dumps(params).encode())
        assert isinstance(request, SendRequest)
        assert request.message.parts == (part,) * len(wires)


@pytest.mark.proves("B-02")
@given(
    content=st.binary(),
    media_type=st.sampled_from(["text/plain", "application/json", "application/octet-stream", None]),
)
def test_rest_never_touches_a_file_that_may_be_base64_itself(content: bytes, media_type: str | None) -> None:
    file = {"fileWithBytes": base64.b64encode(content).decode(), "mimeType": media_type}
    assert _read_rest({"file": file}) == Part(raw=content, media_type=media_type)


@pytest.mark.proves("B-02")
@given(content=st.binary(min_size=18))
def test_rest_undoes_double_base64_of_an_image(content: bytes) -> None:
    twice = base64.b64encode(base64.b64encode(content)).decode()
    assert _read_rest({"file": {"fileWithBytes": twice, "mimeType": "image/png"}}) == Part(
        raw=content, media_type="image/png"
    )


def _read_rest(part: dict[str, Any]) -> Part:
    params = {"message": {"messageId": "m-1", "role": "ROLE_USER", "content": [part]}}
    request = V03_REST.decode_request(Operation.SEND, json.dumps(params).encode())
    assert isinstance(request, SendRequest)
    return request.message.parts[0]


@pytest.mark.proves("B-08")
@pytest.mark.parametrize(
    ("configuration", "waits"),
    [(None, True), ({}, True), ({"blocking": None}, True), ({"blocking": True}, True), ({"blocking": False}, False)],
)
def test_sends_block_by_default(configuration: Any, waits: bool) -> None:
    params = {"message": SENT, "configuration": configuration}
    request = V03_JSON.decode_request(Operation.SEND, json.dumps(params).encode())
    assert isinstance(request, SendRequest)
    assert (request.configuration is None or not request.configuration.return_immediately) is waits


# Events, errors and webhooks


@pytest.mark.proves("B-14")
@pytest.mark.parametrize("dialect", [V03_JSON, V03_REST])
def test_history_messages_are_not_events(dialect: Dialect) -> None:
    body = MessageUpdate(task_id="t-1", context_id="c-1", message=_send(Part(text="x")).message)
    assert dialect.encode_event(Event(seq=1, body=body)) is None


@pytest.mark.proves("B-15")
def test_a_rest_error_is_understood_by_every_sdk() -> None:
    """Python's shows `message` or, since 1.0, looks for a `type`; JavaScript's looks for a numeric `code`."""
    error = TaskNotFound("There is no task t-1", metadata={"task_id": "t-1"})
    said = {"type": "TaskNotFoundError", "code": -32001, "message": "There is no task t-1"}
    body = said | {"data": {"reason": "TASK_NOT_FOUND", "task_id": "t-1"}}
    assert json.loads(V03_REST.encode_http_error(error)) == body
    frame = V03_REST.encode_stream_error(error)
    assert (frame.event, json.loads(frame.data)) == ("error", body)


@pytest.mark.proves("B-15")
def test_decoded_errors_keep_actionable_facts() -> None:
    sent = AgentUnavailable("busy", retry_after=30, metadata={"agent_id": "echo"})
    read = V03_JSON.decode_error(V03_JSON.encode_error(sent))
    assert (type(read), read.message, read.retry_after) == (AgentUnavailable, "busy", 30)
    assert read.metadata["agent_id"] == "echo"


@pytest.mark.proves("B-10")
@given(event=strategies.events, task=strategies.tasks)
def test_webhook_bodies_do_not_depend_on_the_binding(event: Event, task: Any) -> None:
    for form in PushFormat:
        assert V03_REST.encode_push(event, task, form) == V03_JSON.encode_push(event, task, form)


# The official SDK's word on every wire that the golden files say we write

KINDS = {
    "task": "Task",
    "message": "Message",
    "status-update": "TaskStatusUpdateEvent",
    "artifact-update": "TaskArtifactUpdateEvent",
}
PARAMS = {
    "SEND": "MessageSendParams",
    "STREAM": "MessageSendParams",
    "GET": "TaskQueryParams",
    "CANCEL": "TaskIdParams",
    "SUBSCRIBE": "TaskIdParams",
    "PUSH_SET": "TaskPushNotificationConfig",
    "PUSH_GET": "GetTaskPushNotificationConfigParams",
    "PUSH_LIST": "ListTaskPushNotificationConfigParams",
    "PUSH_DELETE": "DeleteTaskPushNotificationConfigParams",
}
RESULTS = {
    "PUSH_SET": "TaskPushNotificationConfig",
    "PUSH_GET": "TaskPushNotificationConfig",
    "PUSH_LIST": "list[TaskPushNotificationConfig]",
    "EXTENDED_CARD": "AgentCard",
}
PROTO_PARAMS = {
    "SEND": "pb:SendMessageRequest",
    "STREAM": "pb:SendMessageRequest",
    "GET": "pb:GetTaskRequest",
    "CANCEL": "pb:CancelTaskRequest",
    "SUBSCRIBE": "pb:TaskSubscriptionRequest",
    "PUSH_SET": "pb:CreateTaskPushNotificationConfigRequest",
    "PUSH_GET": "pb:GetTaskPushNotificationConfigRequest",
    "PUSH_LIST": "pb:ListTaskPushNotificationConfigRequest",
    "PUSH_DELETE": "pb:DeleteTaskPushNotificationConfigRequest",
    "EXTENDED_CARD": "pb:GetAgentCardRequest",
}
PROTO_RESULTS = {
    "SEND": "pb:SendMessageResponse",
    "GET": "pb:Task",
    "CANCEL": "pb:Task",
    "PUSH_SET": "pb:TaskPushNotificationConfig",
    "PUSH_GET": "pb:TaskPushNotificationConfig",
    "PUSH_LIST": "pb:ListTaskPushNotificationConfigResponse",
    "EXTENDED_CARD": "AgentCard",
}


def questions(name: str) -> list[dict[str, Any]]:
    """Every golden wire that we write, with the SDK's type of it; what 0.3 has no type for is left out."""
    found = []
    for path in sorted((GOLDEN / name).glob("*.json")):
        for case in json.loads(path.read_text(encoding="utf-8")):
            if case.get("direction", "both") != "in":
                found += [{"type": kind, "json": wire, "strict": True} for kind, wire in _typed(name, case)]
    return found


def _typed(name: str, case: dict[str, Any]) -> list[tuple[str, Any]]:
    kind, wire, operation = case["kind"], case["wire"], case.get("operation", "")
    proto = name == "v03_rest"
    if kind == "error":
        return [("JSONRPCErrorResponse", {"jsonrpc": "2.0", "id": "1", "error": wire})]
    if kind == "card":
        return [("AgentCard", wire)]
    if kind == "event" and proto:
        return [("pb:StreamResponse", wire)]
    if operation == "LIST" and kind == "result":
        return [("pb:Task" if proto else "Task", task) for task in wire["tasks"]]
    table = {"request": PROTO_PARAMS if proto else PARAMS, "result": PROTO_RESULTS if proto else RESULTS}.get(kind, {})
    stated = KINDS.get(wire.get("kind", "")) if isinstance(wire, dict) else None
    found = table.get(operation) or stated
    return [(found, wire)] if found else []


@pytest.mark.proves("B-06", "B-14", "3-36")
@pytest.mark.parametrize("name", ["v03", "v03_rest"])
def test_the_sdk_accepts_every_golden_wire(name: str) -> None:
    asked = questions(name)
    assert len(asked) > 60
    complaints = judge("a2a-sdk-03", "v03.py", asked)
    assert [(case["json"], why) for case, why in zip(asked, complaints, strict=True) if why] == []


def gathered(strategy: st.SearchStrategy[Any]) -> list[Any]:
    """Many examples at once, because asking a judge takes a process."""
    found: list[Any] = []

    @settings(max_examples=50)
    @given(strategy)
    def gather(value: Any) -> None:
        found.append(value)

    gather()
    return found


@pytest.mark.proves("B-03", "B-06", "B-14")
def test_the_sdk_accepts_our_output() -> None:
    asked: list[tuple[str, bytes]] = []
    for name, strategy in strategies.requests.items():
        for request in gathered(strategy):
            for dialect, table in ((V03_JSON, PARAMS), (V03_REST, PROTO_PARAMS)):
                if name in table:
                    asked.append((table[name], dialect.encode_request(Operation[name], request)))
    for event in gathered(strategies.events):
        plain, proto = V03_JSON.encode_event(event), V03_REST.encode_event(event)
        if plain is not None and proto is not None:
            asked += [(KINDS[json.loads(plain.data)["kind"]], plain.data), ("pb:StreamResponse", proto.data)]
    for card in gathered(strategies.cards):
        asked.append(("AgentCard", V03_JSON.encode_result(Operation.EXTENDED_CARD, card)))
    documents = [{"type": kind, "json": json.loads(wire), "strict": True} for kind, wire in asked]
    complaints = judge("a2a-sdk-03", "v03.py", documents)
    assert [(case, why) for case, why in zip(documents, complaints, strict=True) if why] == []


def test_the_judge_refuses_other_versions() -> None:
    """Else its word would be worth nothing: unknown members, also deep inside, and missing ones."""
    message = {"kind": "message", "messageId": "m-1", "role": "user", "parts": [TEXT | {"future": 1}]}
    documents: list[tuple[str, Any]] = [
        ("Task", {"kind": "task", "id": "t-1", "status": WORKING}),
        ("Task", TASK | {"history": [message]}),
        ("list[TaskPushNotificationConfig]", [{"taskId": "t-1", "pushNotificationConfig": {"url": "x", "events": []}}]),
        ("pb:Task", {"id": "t-1", "kind": "task"}),
        ("pb:Task", {"id": "t-1", "status": {"state": "TASK_STATE_CANCELED"}}),
    ]
    asked = [{"type": kind, "json": document, "strict": True} for kind, document in documents]
    assert all(judge("a2a-sdk-03", "v03.py", asked))


# The definition's own field names, which readers of protobuf JSON take as well

MADE = {"data": {"data": {"message_id": 1}}, "metadata": {"task_id": "x"}}
BY_JSON_NAME: dict[Operation, dict[str, Any]] = {
    Operation.SEND: {
        "message": {
            "messageId": "m-1",
            "contextId": "c-1",
            "taskId": "t-1",
            "role": "ROLE_USER",
            "content": [{"text": "x"}, {"file": {"fileWithBytes": "AP8=", "mimeType": "image/png"}}, MADE],
            "metadata": {"message_id": {"task_id": 1}},
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"],
            "historyLength": 3,
            "blocking": True,
            "pushNotification": {"id": "p", "url": "https://h.example/"},
        },
    },
    Operation.PUSH_SET: {
        "parent": "tasks/t-1",
        "configId": "p",
        "config": {"name": "x", "pushNotificationConfig": {"url": "https://h.example/"}},
    },
    Operation.GET: {"id": "t-1", "historyLength": "3"},
    Operation.PUSH_LIST: {"parent": "tasks/t-1", "pageSize": "3", "pageToken": "x"},
}


def _by_field_name(value: Any) -> Any:
    """The same with the names that the definition itself has, but for what is free."""
    if isinstance(value, list):
        return [_by_field_name(item) for item in value]
    if not isinstance(value, dict):
        return value
    names = {name: re.sub("[A-Z]", lambda found: "_" + found[0].lower(), name) for name in value}
    return {names[name]: item if name in ("data", "metadata") else _by_field_name(item) for name, item in value.items()}


@pytest.mark.parametrize("operation", BY_JSON_NAME)
def test_a_field_s_own_name_is_as_good_as_its_json_name(operation: Operation) -> None:
    plain = BY_JSON_NAME[operation]
    other = _by_field_name(plain)
    assert other != plain
    read = V03_REST.decode_request(operation, json.dumps(plain).encode())
    assert V03_REST.decode_request(operation, json.dumps(other, indent=2).encode()) == read
    if operation is Operation.SEND:
        renamed = {"request": other.pop("message")} | other
        assert V03_REST.decode_request(operation, json.dumps(renamed).encode()) == read
        assert isinstance(read, SendRequest)
        assert read.message.metadata == {"message_id": {"task_id": 1}}
        assert (read.message.parts[2].data, read.message.parts[2].metadata) == ({"message_id": 1}, {"task_id": "x"})


def test_the_official_definition_takes_both_names() -> None:
    cases = [BY_JSON_NAME[Operation.SEND], _by_field_name(BY_JSON_NAME[Operation.SEND])]
    asked = [{"type": "pb:SendMessageRequest", "json": case, "strict": True} for case in cases]
    assert judge("a2a-sdk-03", "v03.py", asked) == [None, None]


def test_a_field_name_too_deep_is_refused() -> None:
    deep = b'{"message_id":' + b"[" * 300 + b"]" * 300 + b"}"
    with pytest.raises(InvalidParams, match="deep"):
        V03_REST.decode_request(Operation.SEND, deep)
