"""Protobuf and back: whatever a dialect's JSON says, the same message of the official definition says, both ways."""

import math
from typing import Any

import msgspec
import pytest
from a2a.types import a2a_pb2
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accord.errors import InvalidAgentResponse, InvalidParams, ParseError
from accord.http.grpc.calls import encode_message
from accord.model import (
    Event,
    GetRequest,
    MessageUpdate,
    Part,
    PushListRequest,
    SendConfiguration,
    SendRequest,
    TaskFilter,
    TaskState,
)
from accord.protocol.operations import DialectName, Operation
from accord.protocol.protobuf import GRPC_SERVICES, to_json
from accord.protocol.sse import Frame
from tests import strategies
from tests.cases import each

METHODS = {method.path: method for edition in GRPC_SERVICES.values() for method in edition.methods}
each_method = pytest.mark.parametrize("path", METHODS)
V1 = {method.operation: method for method in GRPC_SERVICES[DialectName.V1].methods}

RESULTS: dict[Operation, st.SearchStrategy[Any]] = {
    Operation.SEND: strategies.tasks | strategies.messages,
    Operation.GET: strategies.tasks,
    Operation.LIST: strategies.pages,
    Operation.CANCEL: strategies.tasks,
    Operation.PUSH_SET: strategies.push_configs,
    Operation.PUSH_GET: strategies.push_configs,
    Operation.PUSH_LIST: strategies.push_pages,
    Operation.PUSH_DELETE: st.integers(0, 3),
    Operation.EXTENDED_CARD: strategies.cards,
}


def plain(value: Any) -> Any:
    """A model value as data in which numbers are what JSON says they are: 1 and 1.0 are the same."""
    return msgspec.json.decode(msgspec.json.encode(value))


def sayable(request: Any, dialect: DialectName) -> Any:
    """The request without what protobuf cannot tell from nothing said: zeros of fields that are not optional."""
    match request:
        case TaskFilter(status=TaskState.UNKNOWN):
            return replace(request, status=None)
        case PushListRequest(page_size=0):
            return replace(request, page_size=None)
        case GetRequest(history_length=0) if dialect is DialectName.V03:
            return replace(request, history_length=None)
        case SendRequest(configuration=SendConfiguration(history_length=0) as wish) if dialect is DialectName.V03:
            return replace(request, configuration=replace(wish, history_length=None))
    return request


@each_method
@given(data=st.data())
def test_every_request_arrives_as_it_would_over_json(path: str, data: st.DataObject) -> None:
    method = METHODS[path]
    request = sayable(data.draw(strategies.requests[method.operation.name]), method.dialect.name)
    json = method.dialect.encode_request(method.operation, request)
    sent = json_format.Parse(json, method.request()).SerializeToString()
    over_grpc = method.dialect.decode_request(method.operation, to_json(method.request, sent))
    assert plain(over_grpc) == plain(method.dialect.decode_request(method.operation, json))


@pytest.mark.proves("GRPC-SVC-002")
@pytest.mark.parametrize("path", [path for path, method in METHODS.items() if not method.streams])
@given(data=st.data())
def test_every_answer_can_be_read_as_it_would_be_over_json(path: str, data: st.DataObject) -> None:
    method = METHODS[path]
    request = sayable(data.draw(strategies.requests[method.operation.name]), method.dialect.name)
    json = method.dialect.encode_result(method.operation, data.draw(RESULTS[method.operation]))
    sent = encode_message(method.response, json)
    assert method.response.FromString(sent) == json_format.Parse(json, method.response(), ignore_unknown_fields=False)
    if method.operation is Operation.LIST:
        return  # protobuf leaves out zeros, and for a page they mean that nobody counted
    over_grpc = method.dialect.decode_result(method.operation, to_json(method.response, sent), request)
    over_json = method.dialect.decode_result(method.operation, json, request)
    assert without_false(plain(over_grpc)) == without_false(plain(over_json))


def without_false(result: Any) -> Any:
    """An answer without what protobuf cannot tell from nothing said: 0.3's card has no extended one either way."""
    if isinstance(result, dict) and "capabilities" in result:
        said = {name: value for name, value in result["capabilities"].items() if value is not False}
        return result | {"capabilities": said}
    return result


@pytest.mark.parametrize("path", [path for path, method in METHODS.items() if method.streams])
@given(event=strategies.events)
def test_every_event_can_be_read_as_it_would_be_over_json(path: str, event: Event) -> None:
    method = METHODS[path]
    frame = method.dialect.encode_event(event)
    assert (frame is None) == isinstance(event.body, MessageUpdate)
    if frame is not None:
        sent = encode_message(method.response, frame.data)
        over_grpc = method.dialect.decode_event(Frame(data=to_json(method.response, sent)))
        assert plain(over_grpc) == plain(method.dialect.decode_event(frame))


# --- what protobuf has in its own way -----------------------------------------------------------------------------


def received(message: Any, operation: Operation = Operation.SEND) -> Any:
    """The request that we make of an official message."""
    method = V1[operation]
    return method.dialect.decode_request(operation, to_json(method.request, message.SerializeToString()))


def sending(**fields: Any) -> Any:
    stated = {"message_id": "m", "role": a2a_pb2.ROLE_USER, "parts": [{"text": "hi"}], **fields}
    return a2a_pb2.SendMessageRequest(message=a2a_pb2.Message(**stated))


def test_optional_zero_and_absent_fields_are_distinct() -> None:
    none, unsaid = a2a_pb2.GetTaskRequest(id="t", history_length=0), a2a_pb2.GetTaskRequest(id="t")
    assert received(none, Operation.GET) == GetRequest(id="t", history_length=0)
    assert received(unsaid, Operation.GET) == GetRequest(id="t", history_length=None)
    with pytest.raises(InvalidParams, match="pageSize"):
        received(a2a_pb2.ListTasksRequest(page_size=0), Operation.LIST)
    assert received(a2a_pb2.ListTasksRequest(), Operation.LIST) == TaskFilter()


def test_numbers_are_whole_where_they_are() -> None:
    numbers = {
        "one": 1,
        "half": 0.5,
        "minus": -3.0,
        "none": 0,
        "large": 2**53 - 1,
        "vast": 2.0**80,
        "list": [1, {"a": 2}],
    }
    request = sending()
    request.metadata.update(numbers)
    found = received(request).metadata
    assert found == numbers
    assert {name: type(value) for name, value in found.items()} == {
        "one": int,
        "half": float,
        "minus": int,
        "none": int,
        "large": int,
        "vast": float,
        "list": list,
    }


@each(
    ("sent", "part"),
    [
        ({"text": ""}, Part(text="")),
        ({"raw": b""}, Part(raw=b"")),
        ({"raw": bytes(range(256))}, Part(raw=bytes(range(256)))),
        ({"url": "https://example.com/a", "filename": "a", "media_type": "text/plain"}, None),
        ({"data": {"struct_value": {}}}, Part(data={})),
        ({"data": {"null_value": 0}}, Part(data=None)),
        ({"data": {}}, Part(data=None)),
        ({"data": {"list_value": {}}}, Part(data=[])),
        ({"data": {"bool_value": False}}, Part(data=False)),
        ({"data": {"number_value": 0}}, Part(data=0)),
        ({"data": {"string_value": ""}}, Part(data="")),
    ],
)
def test_empty_part_fields_are_kept(sent: dict, part: Part | None) -> None:
    expected = part or Part(url="https://example.com/a", filename="a", media_type="text/plain")
    request = received(sending(parts=[sent]))
    assert request.message.parts == (expected,)
    answer = encode_message(a2a_pb2.Message, msgspec.json.encode(request.message))
    (again,) = a2a_pb2.Message.FromString(answer).parts
    assert again.WhichOneof("content") == next(iter(sent))
    assert again.raw == (expected.raw or b"")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (a2a_pb2.SendMessageRequest(), "message"),
        (sending(message_id=""), "message.messageId"),
        (sending(role=a2a_pb2.ROLE_UNSPECIFIED), "message.role"),
        (sending(role=17), "message.role"),
        (sending(parts=[]), "message.parts"),
        (sending(parts=[{}]), "message.parts[0]"),
    ],
)
def test_missing_fields_are_named(request_: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as refused:
        received(request_)
    assert [violation.field for violation in refused.value.violations] == [field]


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe", b"{}", b"\x0b" * 200])
def test_invalid_messages_are_refused(body: bytes) -> None:
    with pytest.raises(ParseError):
        to_json(a2a_pb2.GetTaskRequest, body)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(number: float) -> None:
    with pytest.raises(InvalidParams, match="JSON cannot express"):
        received(sending(parts=[{"data": {"number_value": number}}]))


def test_a_time_that_does_not_exist_is_refused() -> None:
    request = a2a_pb2.ListTasksRequest(status_timestamp_after={"seconds": 10**12})
    with pytest.raises(InvalidParams, match="JSON cannot express"):
        received(request, Operation.LIST)


# --- depth --------------------------------------------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def test_deeply_nested_values_round_trip() -> None:
    part = a2a_pb2.Part()
    json_format.ParseDict(nested(25), part.data)
    found = received(sending(parts=[part])).message
    assert found.parts == (Part(data=nested(25)),)
    task = {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "history": [found]}
    again = a2a_pb2.Task.FromString(encode_message(a2a_pb2.Task, msgspec.json.encode(task)))
    assert json_format.MessageToDict(again)["history"][0]["parts"] == [{"data": nested(25)}]


def test_a_request_that_is_nested_too_deeply_is_refused() -> None:
    request = sending()
    request.metadata.update(nested(40))
    with pytest.raises(ParseError):
        received(request)


@pytest.mark.parametrize("levels", [40, 90])
def test_an_answer_that_no_client_could_read_is_not_sent(levels: int, caplog: pytest.LogCaptureFixture) -> None:
    task = msgspec.json.encode({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}, "metadata": nested(levels)})
    with pytest.raises(InvalidAgentResponse, match="nested too deeply"):
        encode_message(a2a_pb2.Task, task)
    assert "grpc.not_encodable" in caplog.text
