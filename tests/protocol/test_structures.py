"""The published schemas: they are A2A's own definition; what we write matches them, and what is wrong does not."""

import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from a2a.types import a2a_pb2
from google.api import field_behavior_pb2
from hypothesis import given, settings

from accord.errors import TABLE, AccordError, Violation
from accord.http.openapi import NAMES, a2a_schemas, schema_document
from accord.model import AgentCard, Event, Message, MessageUpdate, PushConfig, PushPage, Task, TaskPage
from accord.model.base import A2AModel
from accord.protocol.dialects import REST_DIALECTS
from accord.protocol.operations import DialectName, Operation
from tests import strategies
from tests.cases import each
from tests.protocol import golden

V1 = REST_DIALECTS[DialectName.V1]
MESSAGES = a2a_pb2.DESCRIPTOR.message_types_by_name
ENUMERATIONS = a2a_pb2.DESCRIPTOR.enum_types_by_name
OURS = {"ErrorResponse", "Status"}
VALIDATORS = {
    name: jsonschema_rs.Draft202012Validator(
        schema_document(name, f"https://example.com/schemas/{name}.json"), validate_formats=True, offline=True
    )
    for name in NAMES.values()
}


def check(name: str, data: bytes) -> None:
    """Fail, with the place and the reason, if JSON does not match a structure."""
    VALIDATORS[name].validate(json.loads(data))


# --- the definition -------------------------------------------------------------------------------------------------


@pytest.mark.proves("4-50")
def test_every_structure_of_the_specification_has_a_schema() -> None:
    assert set(NAMES.values()) == {*MESSAGES, *ENUMERATIONS, *OURS}


@pytest.mark.proves("4-50", "DM-SERIAL-001", "DM-SERIAL-004")
@each("name", MESSAGES)
def test_a_schema_has_the_members_of_the_specification(name: str) -> None:
    schema, fields = a2a_schemas()[name], MESSAGES[name].fields
    assert set(schema.get("properties", {})) == {field.json_name for field in fields}
    required = {
        field.json_name
        for field in fields
        if field_behavior_pb2.REQUIRED in field.GetOptions().Extensions[field_behavior_pb2.field_behavior]
    }
    assert set(schema.get("required", ())) == required
    unions = [[field.json_name for field in union.fields] for union in MESSAGES[name].oneofs if len(union.fields) > 1]
    assert [choice["required"] for choice in schema.get("oneOf", ())] == [[name] for union in unions for name in union]


TYPES = {
    "TYPE_STRING": "string",
    "TYPE_BYTES": "string",
    "TYPE_BOOL": "boolean",
    "TYPE_INT32": "integer",
}


@pytest.mark.proves("4-50")
@each("name", MESSAGES)
def test_a_member_has_its_type(name: str) -> None:
    for field in MESSAGES[name].fields:
        schema = a2a_schemas()[name]["properties"][field.json_name]
        is_map = field.message_type is not None and field.message_type.GetOptions().map_entry
        if field.is_repeated and not is_map:
            assert schema["type"] == "array"
            schema = schema["items"]
        if field.message_type is not None and field.message_type.name in MESSAGES:
            assert schema == {"$ref": f"#/$defs/{field.message_type.name}"}
        elif field.enum_type is not None:
            assert schema == {"$ref": f"#/$defs/{field.enum_type.name}"}
        elif is_map or (field.message_type is not None and field.message_type.name == "Struct"):
            assert schema["type"] == "object"
        elif field.message_type is not None:
            named = {"Timestamp": {"type": "string", "format": "date-time"}, "Value": {}}
            assert schema == named[field.message_type.name]
        else:
            kind = next(key for key in TYPES if getattr(type(field), key) == field.type)
            assert schema["type"] == TYPES[kind]
            assert schema.get("contentEncoding") == ("base64" if kind == "TYPE_BYTES" else None)


@pytest.mark.proves("4-50", "DM-SERIAL-002")
@pytest.mark.parametrize("name", ENUMERATIONS)
def test_an_enumeration_has_its_values(name: str) -> None:
    known = set(ENUMERATIONS[name].values_by_name) - {"ROLE_UNSPECIFIED"}
    assert set(a2a_schemas()[name]["enum"]) == known


@each("name", NAMES.values())
def test_a_document_stands_alone(name: str) -> None:
    document = schema_document(name, f"https://example.com/{name}")
    jsonschema_rs.meta.validate(document)
    assert (document["$id"], document["title"]) == (f"https://example.com/{name}", name)
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert document["description"].endswith(".")
    assert "\n" not in document["description"]
    text = json.dumps(document)
    used = {piece.partition('"')[0] for piece in text.split('"#/$defs/')[1:]}
    assert used == set(document.get("$defs", {}))
    assert '"null"' not in text


def test_references_use_the_requested_prefix() -> None:
    schemas = a2a_schemas("#/components/schemas/{name}")
    assert schemas["Task"]["properties"]["status"] == {"$ref": "#/components/schemas/TaskStatus"}
    assert "$defs" not in json.dumps(schemas)


# --- what we write --------------------------------------------------------------------------------------------------

RESULTS: dict[type, tuple[Operation, str]] = {
    Task: (Operation.GET, "Task"),
    TaskPage: (Operation.LIST, "ListTasksResponse"),
    PushConfig: (Operation.PUSH_SET, "TaskPushNotificationConfig"),
    PushPage: (Operation.PUSH_LIST, "ListTaskPushNotificationConfigsResponse"),
    AgentCard: (Operation.EXTENDED_CARD, "AgentCard"),
}


@pytest.mark.proves("4-50")
@settings(max_examples=60)
@given(
    strategies.tasks | strategies.pages | strategies.push_configs | strategies.push_pages | strategies.cards,
)
def test_every_result_matches_its_schema(result: Any) -> None:
    operation, name = RESULTS[type(result)]
    check(name, V1.encode_result(operation, result))


@pytest.mark.proves("4-50")
@given(strategies.tasks | strategies.messages)
def test_every_answer_to_a_message_matches_its_schema(result: Task | Message) -> None:
    check("SendMessageResponse", V1.encode_result(Operation.SEND, result))


@pytest.mark.proves("4-50")
@given(strategies.events)
def test_every_event_matches_its_schema(event: Event) -> None:
    frame = V1.encode_event(event)
    assert (frame is None) == isinstance(event.body, MessageUpdate)
    if frame is not None:
        check("StreamResponse", frame.data)


@pytest.mark.proves("4-50")
@each("operation", Operation)
def test_every_request_matches_its_schema(operation: Operation) -> None:
    @settings(max_examples=20)
    @given(strategies.requests[operation.name])
    def matches(request: Any) -> None:
        check(NAMES[type(request)], V1.encode_request(operation, request))

    matches()


@pytest.mark.proves("4-50", "HTTP_JSON-ERR-001")
@each("kind", TABLE)
def test_every_error_matches_its_schema(kind: type[AccordError]) -> None:
    error = kind("why", violations=(Violation("a", "b"),), retry_after=3, metadata={"x": "y"})
    check("ErrorResponse", V1.encode_http_error(error))


GOLDEN = {
    "request": lambda case: NAMES[type(golden.build(case.model))],
    "event": lambda case: "StreamResponse",
    "push": lambda case: "StreamResponse",
    "card": lambda case: "AgentCard",
    "result": lambda case: {
        "SEND": "SendMessageResponse",
        "GET": "Task",
        "CANCEL": "Task",
        "LIST": "ListTasksResponse",
        "PUSH_SET": "TaskPushNotificationConfig",
        "PUSH_GET": "TaskPushNotificationConfig",
        "PUSH_LIST": "ListTaskPushNotificationConfigsResponse",
        "EXTENDED_CARD": "AgentCard",
    }.get(case.operation),
}
WRITTEN = [
    pytest.param(case, id=name)
    for dialect, name, case in golden.cases()
    if dialect == "v1" and case.kind in GOLDEN and case.direction != "in" and case.format != "simple"
]


@pytest.mark.proves("4-50")
@each("case", WRITTEN)
def test_every_golden_document_matches_its_schema(case: golden.Case) -> None:
    name = GOLDEN[case.kind](case)
    if name is None:
        assert case.wire == {}
    else:
        check(name, msgspec.json.encode(case.wire))


# --- what is wrong --------------------------------------------------------------------------------------------------

PART = {"text": "x"}
MESSAGE: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [PART]}
STATUS = {"state": "TASK_STATE_WORKING"}


@pytest.mark.proves("4-50")
@each(
    ("name", "document"),
    [
        ("Part", {}),
        ("Part", {"text": "x", "url": "y"}),
        ("Part", {"text": None}),
        ("Part", {"raw": 5}),
        ("Message", MESSAGE | {"parts": []}),
        ("Message", MESSAGE | {"role": "user"}),
        ("Message", MESSAGE | {"messageId": ""}),
        ("Message", MESSAGE | {"taskId": None}),
        ("Message", {"messageId": "m", "role": "ROLE_USER"}),
        ("Task", {"id": "t"}),
        ("Task", {"id": "t", "status": {"state": "working"}}),
        ("Task", {"id": "t", "status": STATUS | {"timestamp": "yesterday"}}),
        ("Task", {"id": "t", "status": STATUS, "artifacts": [{"artifactId": "a"}]}),
        ("StreamResponse", {}),
        ("StreamResponse", {"task": {"id": "t", "status": STATUS}, "message": MESSAGE}),
        ("SendMessageResponse", {"statusUpdate": {}}),
        ("SendMessageRequest", {"message": MESSAGE, "configuration": {"historyLength": -1}}),
        ("ListTasksRequest", {"pageSize": 101}),
        ("ListTasksResponse", {"tasks": []}),
        ("GetTaskPushNotificationConfigRequest", {"taskId": "t"}),
        ("SecurityScheme", {}),
        ("AgentCard", {"name": "x"}),
        ("ErrorResponse", {"error": {"code": "404"}}),
    ],
)
def test_invalid_documents_do_not_match(name: str, document: Any) -> None:
    assert not VALIDATORS[name].is_valid(document)


def test_unknown_members_are_allowed() -> None:
    check("Message", json.dumps(MESSAGE | {"later": 1, "parts": [PART | {"soon": 2}]}).encode())


def test_no_type_of_the_model_is_forgotten() -> None:
    """What the specification has no word for is left out on purpose."""
    found = {kind for kind in A2AModel.__subclasses__() if kind.__module__.startswith("accord.model")}
    assert {kind.__name__ for kind in found - set(NAMES)} == {"CardProfile", "Event", "MessageUpdate"}
