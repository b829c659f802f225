"""The generic dialect, beyond its golden files: what is refused, and data that must match its schema."""

import contextlib
import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.errors import (
    TABLE,
    AccordError,
    AgentUnavailable,
    InvalidAgentResponse,
    InvalidParams,
    ParseError,
    TaskNotFound,
)
from accord.model import (
    Artifact,
    CancelRequest,
    CardRequest,
    Message,
    Part,
    Role,
    SendRequest,
    Task,
    TaskState,
    TaskStatus,
)
from accord.protocol import json_schema
from accord.protocol.dialects.gen import Gen
from accord.protocol.json_schema import MAX_STEPS, check
from accord.protocol.operations import DialectName, Operation, method_name
from accord.protocol.sse import Frame
from tests import strategies
from tests.cases import each

GEN = Gen()
BOUND_SECONDS = 60
HELLO = {"id": "m-1", "parts": [{"type": "text", "content": "hi"}]}


def with_part(part: Any) -> dict[str, Any]:
    return {"message": {"parts": [part]}}


def with_config(**config: Any) -> dict[str, Any]:
    return {"message": HELLO, "task_config": config}


def with_stream(**config: Any) -> dict[str, Any]:
    return {"message": HELLO, "stream_config": config}


# --- requests ---


@pytest.mark.proves("4-06", "4-07", "4-08", "4-10", "4-17", "B-16", "C-02")
@each(
    ("operation", "params", "field"),
    [
        ("SEND", {}, "message"),
        ("SEND", {"message": {"id": "m-1"}}, "message.parts"),
        ("SEND", {"message": {"parts": []}}, "message.parts"),
        ("SEND", with_part({"type": "text"}), "message.parts[0]"),
        ("SEND", with_part({"type": "file", "name": "a"}), "message.parts[0]"),
        ("SEND", with_part({"type": "file", "content": "no base64!"}), "message.parts[0]"),
        ("SEND", with_part({"type": "data"}), "message.parts[0]"),
        ("SEND", with_part({"type": "data", "content": 1, "schema": 5}), "message.parts[0].schema"),
        ("SEND", with_part({"type": "reference", "name": "a"}), "message.parts[0]"),
        ("SEND", with_part({"type": "dance"}), "message.parts[0]"),
        ("SEND", {"message": HELLO | {"task_id": 5}}, "message.task_id"),
        ("SEND", {"message": HELLO | {"metadata": "x"}}, "message.metadata"),
        ("GET", {}, "task_id"),
        ("GET", {"task_id": ""}, "task_id"),
        ("GET", {"task_id": "t", "history_length": -1}, "history_length"),
        ("CANCEL", {}, "task_id"),
        ("CANCEL", {"task_id": "t", "reason": 5}, "reason"),
        ("SUBSCRIBE", {}, "task_id"),
        ("LIST", {"status": "dancing"}, "status"),
        ("LIST", {"page_size": 101}, "page_size"),
        ("LIST", {"status_timestamp_after": "noon"}, "status_timestamp_after"),
        ("PUSH_SET", {"url": "https://a.example"}, "task_id"),
        ("PUSH_SET", {"task_id": "t"}, "url"),
        ("PUSH_SET", {"task_id": "t", "url": "https://a.example", "authentication": {}}, "authentication.scheme"),
        ("PUSH_SET", {"task_id": "t", "url": "https://a.example", "events": "all"}, "events"),
        ("PUSH_GET", {}, "task_id"),
        ("PUSH_LIST", {"task_id": "t", "page_size": -1}, "page_size"),
        ("PUSH_DELETE", {}, "task_id"),
    ],
)
def test_missing_and_invalid_fields_are_named(operation: str, params: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        GEN.decode_request(Operation[operation], json.dumps(params).encode())
    assert [violation.field for violation in refused.value.violations] == [field]


@pytest.mark.proves("B-08")
@each(
    ("params", "field"),
    [
        (with_config(timeout=0), "task_config.timeout"),
        (with_config(timeout=-5), "task_config.timeout"),
        (with_config(timeout=1.5), "task_config.timeout"),
        (with_config(timeout=True), "task_config.timeout"),
        (with_config(timeout="30000"), "task_config.timeout"),
        (with_config(timeout=2**60), "task_config.timeout"),
        (with_config(priority="urgent"), "task_config.priority"),
        (with_config(priority=1), "task_config.priority"),
        ({"message": HELLO, "task_config": []}, "task_config"),
        (with_stream(include_intermediates="yes"), "stream_config.include_intermediates"),
        (with_stream(buffer_size=0), "stream_config.buffer_size"),
        (with_stream(buffer_size="1024"), "stream_config.buffer_size"),
    ],
)
def test_configurations_are_checked(params: Any, field: str) -> None:
    for operation in (Operation.SEND, Operation.STREAM):
        with pytest.raises(InvalidParams) as refused:
            GEN.decode_request(operation, json.dumps(params).encode())
        assert [violation.field for violation in refused.value.violations] == [field]


@pytest.mark.proves("B-08")
def test_configurations_are_in_the_request() -> None:
    params = with_config(timeout=30_000, priority="high") | with_stream(include_intermediates=False, buffer_size=1024)
    request = GEN.decode_request(Operation.STREAM, json.dumps(params).encode())
    assert isinstance(request, SendRequest)
    assert (request.timeout_ms, request.priority) == (30_000, "high")
    assert (request.include_intermediates, request.buffer_size) == (False, 1024)


def test_cancel_reasons_are_in_the_request() -> None:
    request = GEN.decode_request(Operation.CANCEL, b'{"task_id":"t","reason":"User cancellation"}')
    assert isinstance(request, CancelRequest)
    assert request.reason == "User cancellation"


@each("operation", Operation)
def test_invalid_json_is_not_a_request(operation: Operation) -> None:
    with pytest.raises(ParseError):
        GEN.decode_request(operation, b"{")
    with pytest.raises(InvalidParams):
        GEN.decode_request(operation, b"[]")


@pytest.mark.proves("4-19", "4-20", "4-21", "B-07", "B-11", "B-13", "B-methods")
def test_the_methods_are_the_founding_document_s() -> None:
    wanted = {
        Operation.SEND: "message/send",
        Operation.STREAM: "message/stream",
        Operation.GET: "tasks/get",
        Operation.CANCEL: "tasks/cancel",
        Operation.PUSH_SET: "tasks/pushNotificationConfig/subscribe",
        Operation.PUSH_DELETE: "tasks/pushNotificationConfig/unsubscribe",
        Operation.EXTENDED_CARD: "agent/authenticatedExtendedCard",
    }
    assert {operation: method_name(operation, DialectName.GEN) for operation in wanted} == wanted


@pytest.mark.proves("4-44")
def test_invalid_utf_8_is_refused() -> None:
    with pytest.raises(ParseError):
        GEN.decode_request(Operation.SEND, b'{"message":{"parts":[{"type":"text","content":"\xff"}]}}')


# --- data and its schema ---

ORDER = {
    "type": "object",
    "properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/line"}}},
    "required": ["lines"],
    "$defs": {"line": {"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}}},
}


@pytest.mark.proves("4-09")
@each(
    ("content", "field"),
    [
        ({}, "message.parts[0].content"),
        ({"lines": 5}, "message.parts[0].content.lines"),
        ({"lines": [{"count": 1}, {"count": 0}]}, "message.parts[0].content.lines[1].count"),
        ("text", "message.parts[0].content"),
        (None, "message.parts[0].content"),
    ],
)
@each("operation", [Operation.SEND, Operation.STREAM])
def test_data_that_does_not_match_its_schema_is_refused(operation: Operation, content: Any, field: str) -> None:
    params = with_part({"type": "data", "content": content, "schema": ORDER})
    with pytest.raises(InvalidParams, match="Does not match its schema") as refused:
        GEN.decode_request(operation, json.dumps(params).encode())
    assert [violation.field for violation in refused.value.violations] == [field]


@pytest.mark.proves("4-09", "C-02")
def test_data_that_matches_its_schema_is_kept_with_it() -> None:
    params = with_part({"type": "data", "content": {"lines": [{"count": 2}]}, "schema": ORDER})
    request = GEN.decode_request(Operation.SEND, json.dumps(params).encode())
    assert isinstance(request, SendRequest)
    (part,) = request.message.parts
    assert (part.data, part.schema) == ({"lines": [{"count": 2}]}, ORDER)


def _doubling(levels: int) -> dict[str, Any]:
    """A schema of one line a level whose full expansion doubles with each."""
    twice = [{"allOf": [{"$ref": f"#/$defs/{at + 1}"}] * 2} for at in range(levels)]
    names = {str(at): schema for at, schema in enumerate([*twice, {"type": "object"}])}
    return {"$ref": "#/$defs/0", "$defs": names}


def _nested(levels: int) -> Any:
    found: Any = {}
    for _ in range(levels):
        found = {"not": found}
    return found


@pytest.mark.proves("4-09")
@each(
    "schema",
    [
        {"type": "nonsense"},
        {"minimum": "one"},
        {"required": "a"},
        {"$ref": "https://schemas.example/order.json"},
        {"$ref": "http://127.0.0.1:9/order.json"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "order.json"},
        {"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}},
        {"$ref": "#/$defs/none"},
        {"$ref": "#/allOf/7", "allOf": [True]},
        {"$ref": "#"},
        {"properties": {"child": {"$ref": "#"}}},
        {"$dynamicRef": "#/x"},
        {"properties": {"child": {"$dynamicRef": "#"}}},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "items": {"$recursiveRef": "#"}},
        {"properties": {"a": {"$id": "https://schemas.example/a"}}},
        {"$schema": "https://schemas.example/my-own-draft"},
        {"$schema": "http://json-schema.org/draft-04/schema#"},
        {"pattern": "(?=a)a"},
        {"pattern": "("},
        {"pattern": "(a{1000}){1000}"},
        {"properties": {str(at): {"pattern": f"^{at}$"} for at in range(json_schema.MAX_PATTERNS + 1)}},
        {"patternProperties": {f"^{at}$": True for at in range(json_schema.MAX_PATTERNS + 1)}},
        _doubling(40),
        _nested(json_schema.MAX_DEPTH + 1),
    ],
)
def test_a_schema_that_cannot_be_used_safely_is_refused(schema: Any) -> None:
    with pytest.raises(InvalidParams, match="Unusable JSON Schema") as refused:
        check({}, schema, "content", "schema")
    assert refused.value.violations[0].field.startswith("schema")


@pytest.mark.proves("4-09")
@pytest.mark.parametrize(
    ("schema", "data"),
    [
        (_doubling(14), [{}] * 1000),
        ({"items": {"allOf": [{"type": "integer"}] * 1000}}, [1] * 10_000),
        ({"type": "object"}, _nested(json_schema.MAX_DEPTH + 1)),
    ],
)
def test_data_too_large_for_its_schema_is_refused(schema: Any, data: Any) -> None:
    with pytest.raises(InvalidParams, match="Cannot be checked") as refused:
        check(data, schema, "content", "schema")
    assert [violation.field for violation in refused.value.violations] == ["content"]


@pytest.mark.proves("4-09")
@each(
    ("schema", "data"),
    [
        ({}, None),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "string"}, "x"),
        ({"$id": "https://schemas.example/order", "type": "string"}, "x"),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"type": "string"}}}, "x"),
        ({"$ref": "#/%24defs/a", "$defs": {"a": {"type": "string"}}}, "x"),
        ({"$ref": "#/allOf/0/items", "allOf": [{"items": {"type": "string"}}]}, "x"),
        ({"pattern": "^(a+)+$"}, "a" * 5000),
        ({"type": "integer"}, 10**400),
        ({"properties": {"$ref": {"type": "string"}, "$id": {"type": "string"}}}, {"$ref": "x", "$id": "y"}),
        (_doubling(10), {}),
        ({"format": "email"}, "formats only describe"),
        ({"patternProperties": {f"^{at}$": True for at in range(json_schema.MAX_PATTERNS)}}, {}),
    ],
)
def test_accepted_schemas(schema: Any, data: Any) -> None:
    check(data, schema, "content", "schema")


FOREVER = """
from accord.errors import InvalidParams
from accord.protocol.json_schema import check
try:
    check("a" * 50_000 + "!", {"pattern": "^(a+)+$"}, "content", "schema")
except InvalidParams as refused:
    print(refused.message)
"""


@pytest.mark.proves("4-09")
def test_a_pattern_made_to_take_forever_does_not() -> None:
    # A process of its own: what runs forever inside the validator cannot be stopped from Python.
    try:
        done = subprocess.run(
            [sys.executable, "-c", FOREVER], capture_output=True, text=True, timeout=BOUND_SECONDS, check=True
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"the check still ran after {BOUND_SECONDS} seconds")
    assert "the value does not match" in done.stdout


def doubling(levels: int) -> dict[str, Any]:
    """A schema whose every level refers ten times to the one below: small to write, large to check."""
    below = {f"l{at}": {"anyOf": [{"$ref": f"#/$defs/l{at - 1}"}] * 10} for at in range(1, levels + 1)}
    return {"$defs": {"l0": {"type": "integer"}} | below, "$ref": f"#/$defs/l{levels}"}


@pytest.mark.proves("4-09")
def test_expensive_schemas_are_refused_first() -> None:
    with pytest.raises(InvalidParams, match="too complex"):
        check("x", doubling(6), "content", "schema")
    with pytest.raises(InvalidParams) as refused:
        check("x", doubling(4), "content", "schema")
    assert refused.value.violations == (("content", "Does not match its schema"),)


def test_parts_of_a_request_share_the_work_limit() -> None:
    once = check(1, doubling(4), "content", "schema")
    assert once > 0
    with pytest.raises(InvalidParams, match="too large for so complex"):
        check(1, doubling(4), "content", "schema", MAX_STEPS)


def test_a_refusal_quotes_only_so_much() -> None:
    with pytest.raises(InvalidParams) as refused:
        check("x" * 100_000, {"type": "integer"}, "content", "schema")
    assert len(refused.value.message) < 400


@given(
    strategies.json_values,
    st.dictionaries(st.sampled_from(["$ref", "type", "pattern", "items", "enum"]), strategies.json_values),
)
def test_no_schema_raises_anything_else(data: Any, schema: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidParams):
        check(data, schema, "content", "schema")


# --- objects ---


ODD_PARTS = strategies.parts | st.builds(
    Part,
    url=strategies.texts,
    filename=st.none() | st.just("") | strategies.ids,
    media_type=st.none() | st.just("") | strategies.media_types,
    metadata=st.none() | st.sampled_from([{}, {"reference": True}, {"reference": True, "k": 1}, {"reference": 1}]),
)


@pytest.mark.proves("4-08", "4-10", "4-11", "B-02", "B-06")
@given(st.lists(ODD_PARTS, min_size=1, max_size=3))
def test_every_part_survives_in_messages_and_artifacts(parts: list[Part]) -> None:
    message = Message(message_id="m", role=Role.USER, parts=tuple(parts))
    request = GEN.decode_request(Operation.SEND, GEN.encode_request(Operation.SEND, SendRequest(message=message)))
    assert isinstance(request, SendRequest)
    assert request.message == message

    artifact = Artifact(artifact_id="a", parts=tuple(parts))
    task = Task(id="t", status=TaskStatus(state=TaskState.COMPLETED), artifacts=(artifact,))
    read = GEN.decode_result(Operation.GET, GEN.encode_result(Operation.GET, task), strategies.GET)
    assert read == task


@pytest.mark.proves("4-04", "4-41", "B-05", "B-06", "B-states")
@given(strategies.tasks)
def test_a_task_survives_except_for_the_ids_that_its_messages_share(task: Task) -> None:
    read = GEN.decode_result(Operation.GET, GEN.encode_result(Operation.GET, task), strategies.GET)
    assert isinstance(read, Task)
    assert _bare(read) == _bare(task)


def _bare(task: Task) -> Task:
    def bare(message: Message) -> Message:
        return msgspec.structs.replace(message, task_id=None, context_id=None)

    said = task.status.message
    status = msgspec.structs.replace(task.status, message=said and bare(said))
    return msgspec.structs.replace(task, status=status, history=tuple(map(bare, task.history)))


@pytest.mark.proves("4-45")
@pytest.mark.parametrize("key", ["created_at", "updated_at"])
def test_times_are_iso_8601(key: str) -> None:
    answer = {"task_id": "t", "status": "running", key: "2024-01-01T01:00:00+01:00"}
    read = GEN.decode_result(Operation.GET, json.dumps(answer).encode(), strategies.GET)
    assert isinstance(read, Task)
    assert read.created_at == "2024-01-01T00:00:00.000Z"
    assert json.loads(GEN.encode_result(Operation.GET, read))[key] == "2024-01-01T00:00:00.000Z"
    with pytest.raises(InvalidAgentResponse, match=key):
        GEN.decode_result(Operation.GET, json.dumps(answer | {key: "noon"}).encode(), strategies.GET)


@each(
    ("operation", "answer"),
    [
        ("SEND", b"{}"),
        ("SEND", b"["),
        ("GET", b'{"task_id":"","status":"running"}'),
        ("GET", b'{"task_id":"t"}'),
        ("GET", b'{"task_id":"t","status":"dancing"}'),
        (
            "GET",
            b'{"task_id":"t","status":"running","artifacts":[{"id":"a","content":1,"metadata":'
            b'{"format":"application/vnd.a2a.parts+json"}}]}',
        ),
        ("LIST", b'{"tasks":[{}]}'),
        ("CANCEL", b"[]"),
        ("PUSH_GET", b"{}"),
        ("EXTENDED_CARD", b"{}"),
    ],
)
def test_invalid_answers_are_agent_errors(operation: str, answer: bytes) -> None:
    with pytest.raises(InvalidAgentResponse):
        GEN.decode_result(Operation[operation], answer, CardRequest())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"type":"dance"}', b'{"type":"status"}', b'{"type":"task"}', b'{"type":5}']
)
def test_invalid_events_are_agent_errors(data: bytes) -> None:
    with pytest.raises(InvalidAgentResponse):
        GEN.decode_event(Frame(data=data))


# --- errors ---


@pytest.mark.proves("4-34", "4-35", "4-36", "4-37", "4-38", "4-39", "B-errors")
@each("kind", TABLE)
def test_codes_are_the_five_of_json_rpc_or_the_five_of_the_dialect(kind: type[AccordError]) -> None:
    code = GEN.encode_error(kind("why")).code
    assert code in {-32700, -32600, -32601, -32602, -32603, -40001, -40002, -40003, -40004, -40005}


@pytest.mark.proves("4-40", "B-15")
def test_the_error_format() -> None:
    error = AgentUnavailable("Busy", retry_after=30, metadata={"agent_id": "agent_123", "details": "Too many tasks"})
    wire = GEN.encode_error(error)
    assert (wire.code, wire.message) == (-40001, "Busy")
    assert {name: wire.data[name] for name in ("agent_id", "retry_after", "details")} == {
        "agent_id": "agent_123",
        "retry_after": 30,
        "details": "Too many tasks",
    }


@pytest.mark.proves("4-35", "4-40")
def test_error_of_a_served_agent_names_it_and_has_details() -> None:
    wire = GEN.encode_error(AgentUnavailable("Too many tasks", retry_after=30), "billing")
    assert wire.data == {
        "agent_id": "billing",
        "details": "Too many tasks",
        "retry_after": 30,
        "reason": "AGENT_UNAVAILABLE",
    }
    own = AgentUnavailable("Busy", metadata={"agent_id": "agent_123", "details": "Too many tasks"})
    assert GEN.encode_error(own, "billing").data["agent_id"] == "agent_123"


def test_chunks_of_a_streamed_text_are_one_string() -> None:
    chunks = Artifact(artifact_id="a", parts=(Part(text="Hello, "), Part(text="Ada")))
    task = Task(id="t", status=TaskStatus(state=TaskState.COMPLETED), artifacts=(chunks,))
    (written,) = json.loads(GEN.push_task(task))["artifacts"]
    assert (written["content"], written["metadata"]["format"]) == ("Hello, Ada", "text/plain")
    read = GEN.read_push(GEN.push_task(task))
    assert isinstance(read, Task)
    assert read.artifacts == (chunks,)


@pytest.mark.proves("B-15")
def test_missing_tasks_and_bad_parameters_are_distinguished() -> None:
    missing, bad = TaskNotFound("why", metadata={"task_id": "t"}), InvalidParams("why")
    assert GEN.encode_error(missing).code == GEN.encode_error(bad).code
    assert type(GEN.decode_error(GEN.encode_error(missing))) is TaskNotFound
    assert type(GEN.decode_error(GEN.encode_error(bad))) is InvalidParams


@pytest.mark.proves("4-02")
@pytest.mark.parametrize(
    ("card", "field"),
    [
        ({}, "name"),
        ({"name": "A", "description": ""}, "version"),
        ({"name": "A", "description": "", "version": "1", "capabilities": {}}, "capabilities"),
        ({"name": "A", "description": "", "version": "1", "skills": [{}]}, "skills[0].name"),
    ],
)
def test_an_invalid_card_is_refused(card: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        GEN.decode_card(json.dumps(card).encode())
    assert refused.value.violations[0].field == field
