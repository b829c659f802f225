"""What only other dialects define is unknown to 0.3 and relay: ignored if it is anything else, never a refusal."""

import json
from typing import Any

import pytest

from accord.errors import InvalidParams
from accord.model import SendRequest
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.relay import RelayDialect
from accord.protocol.dialects.v03 import V03
from accord.protocol.dialects.v03.rest import V03Rest
from accord.protocol.operations import Operation
from tests.cases import each

JSON, REST, RELAY = V03(), V03Rest(), RelayDialect()
SENT: dict[str, Any] = {"messageId": "m-1", "role": "user", "parts": [{"kind": "text", "text": "hello"}]}
BARE = {"messageId": "m-1", "role": "user"}
WEBHOOK = {"url": "https://hook.example"}


def read(dialect: Dialect, operation: str, params: Any) -> Any:
    return dialect.decode_request(Operation[operation], json.dumps(params).encode())


def refused(dialect: Dialect, operation: str, params: Any) -> str:
    with pytest.raises(InvalidParams) as caught:
        read(dialect, operation, params)
    return caught.value.violations[0].field


@pytest.mark.proves("DM-SERIAL-005")
@each("dialect", [JSON, RELAY])
@each(
    ("operation", "params", "unknown"),
    [
        ("SEND", {"message": SENT}, {"message": SENT | {"content": "hi"}}),
        ("SEND", {"message": SENT}, {"message": SENT | {"content": [5]}}),
        ("STREAM", {"message": SENT, "configuration": {}}, {"configuration": {"pushNotification": {"on": True}}}),
        ("GET", {"id": "t-1"}, {"name": 5}),
        ("GET", {"id": "t-1"}, {"pushNotificationConfigId": 5}),
        ("CANCEL", {"id": "t-1"}, {"historyLength": "all"}),
        ("SUBSCRIBE", {"id": "t-1"}, {"taskId": 5, "url": {}}),
        ("PUSH_SET", {"taskId": "t-1", "pushNotificationConfig": WEBHOOK}, {"id": 5, "task_id": {}, "metadata": 5}),
        ("PUSH_GET", {"id": "t-1"}, {"url": 5, "parent": 5}),
        ("PUSH_LIST", {"id": "t-1"}, {"pageSize": -1, "pageToken": 5}),
        ("PUSH_DELETE", {"id": "t-1", "pushNotificationConfigId": "p-1"}, {"url": 5}),
    ],
)
def test_fields_of_other_dialects_are_ignored(dialect: Dialect, operation: str, params: Any, unknown: Any) -> None:
    assert read(dialect, operation, params | unknown) == read(dialect, operation, params)


@pytest.mark.proves("DM-SERIAL-005")
@each("dialect", [JSON, REST, RELAY])
@each("name", ["url", "raw", "name", "filename", "mediaType", "mime_type", "schema"])
@each("value", [5, True, ["x"]])
def test_no_part_is_refused_for_a_member_of_others(dialect: Dialect, name: str, value: Any) -> None:
    for part in ({"kind": "text", "text": "x"}, {"kind": "data", "data": {"a": 1}}, {"file": {"uri": "u:"}}):
        sent = [{"message": SENT | {"parts": [wire, wire]}} for wire in (part, part | {name: value})]
        assert read(dialect, "SEND", sent[1]) == read(dialect, "SEND", sent[0])


@pytest.mark.proves("3-07", "DM-SERIAL-005")
@each(
    ("part", "dialect", "field"),
    [
        ({"text": "x", "kind": 5}, JSON, "kind"),
        ({"text": "x", "kind": 5}, REST, "kind"),
        ({"text": "x", "kind": 5}, RELAY, None),
        ({"text": "x", "type": 5}, JSON, None),
        ({"text": "x", "type": 5}, REST, None),
        ({"text": "x", "type": 5}, RELAY, "type"),
        ({"text": "x", "kind": "text", "type": 5}, RELAY, "type"),
        ({"file": {"uri": "u:", "fileWithUri": 5}}, JSON, None),
        ({"file": {"uri": "u:", "fileWithUri": 5}}, REST, "file.fileWithUri"),
        ({"file": {"uri": "u:", "fileWithBytes": 5}}, RELAY, None),
        ({"file": {"uri": "u:", "fileWithBytes": 5}}, REST, "file.fileWithBytes"),
        ({"file": {"uri": "u:", "name": 5}}, JSON, "file.name"),
        ({"text": 5}, RELAY, "text"),
        ({"text": "x", "metadata": 5}, RELAY, "metadata"),
    ],
)
def test_parts_are_checked_by_their_dialect(part: Any, dialect: Dialect, field: str | None) -> None:
    params = {"message": SENT | {"parts": [{"text": "first"}, part]}}
    if field is None:
        assert isinstance(read(dialect, "SEND", params), SendRequest)
    else:
        assert refused(dialect, "SEND", params) == f"message.parts[1].{field}"


@pytest.mark.proves("3-07")
def test_message_content_must_be_a_list() -> None:
    for message in (BARE, SENT | {"parts": []}):
        assert refused(JSON, "SEND", {"message": message | {"content": "hi"}}) == "message.parts"
    assert refused(JSON, "SEND", {"message": BARE | {"content": [5]}}) == "message.content[0]"
    parts = read(JSON, "SEND", {"message": BARE | {"content": SENT["parts"]}}).message.parts
    assert [part.text for part in parts] == ["hello"]


@pytest.mark.proves("3-07")
@each(
    ("operation", "params", "field"),
    [
        ("SEND", {"message": SENT | {"content": "hi"}}, "message.content"),
        ("SEND", {"message": SENT | {"content": [{"text": 5}]}}, "message.content[0].text"),
        ("SEND", {"message": SENT, "configuration": {"pushNotification": {}}}, "configuration.pushNotification.url"),
        ("GET", {"id": "t-1", "name": 5}, "name"),
        ("CANCEL", {"id": "t-1", "name": 5}, "name"),
        ("PUSH_LIST", {"id": "t-1", "parent": 5}, "parent"),
        ("PUSH_LIST", {"parent": "tasks/t-1", "pageSize": -1}, "pageSize"),
        ("PUSH_SET", {"taskId": "t-1", "parent": 5, "config": {}}, "parent"),
        ("PUSH_SET", {"taskId": "t-1", "configId": 5, "config": {}}, "configId"),
    ],
)
def test_rest_accepts_protobuf_json_fields(operation: str, params: Any, field: str) -> None:
    assert refused(REST, operation, params) == field
