"""Field names of the protobuf definition, which A2A 1.0 reads besides its JSON names; protobuf itself is the judge."""

import json
import re
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import example, given
from hypothesis import strategies as st

from accord.errors import AccordError, InvalidParams, ParseError
from accord.model import GetRequest, PushGetRequest, Request, TaskFilter, TaskState
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.dialects.v1 import json_names
from accord.protocol.operations import DialectName, Operation
from tests import strategies
from tests.protocol.test_v1 import REQUESTS

V1, REST = DIALECTS[DialectName.V1], REST_DIALECTS[DialectName.V1]
each_codec = pytest.mark.parametrize("codec", [V1, REST])


def renamed(said: Any) -> Any:
    return json.loads(json_names(json.dumps(said).encode()))


@pytest.mark.proves("DM-SERIAL-001")
@pytest.mark.parametrize("operation", REQUESTS)
@given(data=st.data())
def test_both_name_styles_are_equivalent(operation: str, data: st.DataObject) -> None:
    asked = Operation[operation]
    said = json_format.Parse(V1.encode_request(asked, data.draw(strategies.requests[operation])), REQUESTS[operation]())
    camel = json_format.MessageToJson(said).encode()
    snake = json_format.MessageToJson(said, preserving_proto_field_name=True).encode()
    assert V1.decode_request(asked, snake) == V1.decode_request(asked, camel)


@each_codec
@pytest.mark.parametrize(
    ("operation", "said", "wanted"),
    [
        (Operation.GET, {"id": "t", "history_length": 5}, GetRequest(id="t", history_length=5)),
        (Operation.GET, {"id": "t", "history_length": 5, "historyLength": 6}, GetRequest(id="t", history_length=6)),
        (Operation.GET, {"historyLength": 6, "history_length": 5, "id": "t"}, GetRequest(id="t", history_length=6)),
        (Operation.PUSH_GET, {"task_id": "t", "id": "w"}, PushGetRequest(task_id="t", id="w")),
        (
            Operation.LIST,
            {"context_id": "c", "page_size": 3, "status": "TASK_STATE_WORKING", "include_artifacts": True},
            TaskFilter(context_id="c", page_size=3, status=TaskState.WORKING, include_artifacts=True),
        ),
    ],
)
def test_a_json_name_wins_over_the_other(codec: Any, operation: Operation, said: Any, wanted: Request) -> None:
    assert codec.decode_request(operation, json.dumps(said).encode()) == wanted


@pytest.mark.proves("HTTP_JSON-QP-001")
def test_query_values_under_proto_names_are_typed() -> None:
    said = {"context_id": "c", "page_size": "3", "history_length": "0", "include_artifacts": "true", "page_token": ""}
    wanted = TaskFilter(context_id="c", page_size=3, history_length=0, include_artifacts=True)
    assert REST.decode_request(Operation.LIST, json.dumps(said).encode()) == wanted
    with pytest.raises(InvalidParams, match="`pageSize`"):
        REST.decode_request(Operation.LIST, b'{"page_size":"many"}')


def test_metadata_keys_are_left_unchanged() -> None:
    free = {"my_key": [{"task_id": "x", "taskId": "y"}]}
    part = {"data": free, "metadata": free, "media_type": "application/json"}
    message = {"message_id": "m", "role": "ROLE_USER", "parts": [part], "metadata": free}
    sent = {"message": message, "metadata": free, "configuration": {"return_immediately": True}}
    read: Any = V1.decode_request(Operation.SEND, json.dumps(sent).encode())
    (found,) = read.message.parts
    assert (found.data, found.metadata, read.message.metadata, read.metadata) == (free, free, free, free)
    assert (found.media_type, read.message.message_id) == ("application/json", "m")
    assert read.configuration.return_immediately


@pytest.mark.parametrize(
    "params",
    [
        b'{"id" : "t", "historyLength":1e0}',
        b'{"text":"\\"history_length\\": 5"}',
        b'{"value":"a_b"}',
        b'["a_b"]',
        b'{"a_b"',
        b"\xff",
        b"",
    ],
)
def test_requests_without_proto_names_are_unchanged(params: bytes) -> None:
    assert json_names(params) is params


A_NAME = re.compile(rb'"[a-z]+(_[a-z0-9]+)+"\s*:')
PIECES = [bytes([byte]) for byte in b'"_aB7: \n{},\\\xc3']
PIECES += [
    b"task",
    b"ROLE_USER",
    b'"role":"ROLE_AGENT"',
    b'"task_id":"t"',
    b'"a_1"\t:7',
    b'"A_b":0',
    b'"a_B":0',
    b'"_id":0',
]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join) | st.binary(max_size=40))
@example(b"")
@example(b"_")
@example(b"_A")
@example(b'{"a_1":0}')
@example(b'{"role":"ROLE_USER","task_id":"t"}')
def test_shortcuts_equal_the_full_scan(params: bytes) -> None:
    try:
        is_as_it_was = json_names(params) is params
    except AccordError:  # there is such a name, and it is in no object
        is_as_it_was = False
    assert is_as_it_was == (A_NAME.search(params) is None)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ({"a_b": {"c_d": [{"e_f1": None}]}}, {"aB": {"cD": [{"eF1": None}]}}),
        ({"a_b": 2**70, "c": -0.5, "d": True}, {"aB": 2**70, "c": -0.5, "d": True}),
        ({"task_push_notification_config": {"task_id": "t"}}, {"taskPushNotificationConfig": {"taskId": "t"}}),
        ({"x_y": "snow \N{SNOWMAN}"}, {"xY": "snow \N{SNOWMAN}"}),
    ],
)
def test_names_change_at_every_depth_and_values_nowhere(said: Any, wanted: Any) -> None:
    assert renamed(said) == wanted


@pytest.mark.parametrize("depth", [101, 600, 5000])
def test_deeply_nested_requests_are_refused(depth: int) -> None:
    with pytest.raises(InvalidParams, match="nested too deeply"):
        json_names(b'{"a_b":' + b"[" * depth + b"]" * depth + b"}")


@pytest.mark.parametrize(("params", "error"), [(b'[{"a_b":1}]', InvalidParams), (b'{"a_b":1', ParseError)])
def test_non_objects_are_refused_as_under_json_names(params: bytes, error: type[Exception]) -> None:
    for said in (params, params.replace(b"a_b", b"aB")):
        with pytest.raises(error):
            V1.decode_request(Operation.GET, said)
