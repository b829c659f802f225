"""What golden files cannot say of relay: messages without an id, and that nothing it writes carries a part's `kind`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from accord.errors import InvalidParams
from accord.model import Event, Message, MessageUpdate, Part, Role, SendConfiguration, SendRequest, Task
from accord.protocol.dialects.relay import RelayDialect
from accord.protocol.operations import DialectName, Operation, operation_for
from tests import strategies

RELAY = RelayDialect()
TEXT = {"type": "text", "text": "hello"}


def read(params: Any, operation: Operation = Operation.SEND) -> SendRequest:
    found = RELAY.decode_request(operation, json.dumps(params).encode())
    assert isinstance(found, SendRequest)
    return found


# Google's A2A 0.1


@pytest.mark.proves("B-04", "B-07")
def test_a_message_without_an_id_waits_for_the_service_to_give_it_one() -> None:
    request = read({"message": {"role": "user", "parts": [TEXT]}})
    assert request == SendRequest(message=Message(message_id="", role=Role.USER, parts=(Part(text="hello"),)))


@pytest.mark.proves("B-07", "B-08")
@pytest.mark.parametrize("method", ["tasks/send", "tasks/sendSubscribe"])
def test_sends_of_0_1_carry_session_and_task_id(method: str) -> None:
    operation = operation_for(method, DialectName.RELAY)
    assert operation is not None
    params = {"id": "t-1", "sessionId": "s-1", "historyLength": 2, "message": {"role": "user", "parts": [TEXT]}}
    request = read(params, operation)
    assert (request.message.task_id, request.message.context_id) == (None, "s-1")
    assert request.configuration == SendConfiguration(history_length=2)


@pytest.mark.proves("B-08")
def test_the_configuration_wins_over_fields_of_0_1() -> None:
    params = {"message": {"role": "user", "parts": [TEXT]}, "historyLength": 2, "configuration": {"historyLength": 5}}
    assert read(params).configuration == SendConfiguration(history_length=5)


@pytest.mark.proves("3-07")
@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "message"),
        ({"message": {"parts": [TEXT]}}, "message.role"),
        ({"message": {"role": "user"}}, "message.parts"),
        ({"message": {"role": "user", "parts": []}}, "message.parts"),
        ({"message": {"role": "user", "parts": [{"type": "text"}]}}, "message.parts[0]"),
        ({"message": {"role": "user", "parts": [TEXT]}, "historyLength": -1}, "historyLength"),
        ({"message": {"role": "user", "parts": [TEXT]}, "pushNotification": {}}, "pushNotification.url"),
    ],
)
def test_refusals_name_the_field(params: Any, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        read(params)
    assert caught.value.violations[0].field == field


# What is written


def parts_of(wire: Any) -> Iterator[dict[str, Any]]:
    """Every part in a document; what is inside of data and metadata belongs to users."""
    if isinstance(wire, list):
        for item in wire:
            yield from parts_of(item)
    elif isinstance(wire, dict):
        yield from wire.get("parts", ())
        for key, value in wire.items():
            if key not in ("metadata", "parts"):
                yield from parts_of(value)


@pytest.mark.proves("1-14", "B-01")
@given(task=strategies.tasks)
def test_parts_carry_type_and_never_kind(task: Task) -> None:
    wire = json.loads(RELAY.encode_result(Operation.GET, task))
    assert wire["kind"] == "task"
    parts = list(parts_of(wire))
    holders = [message.parts for message in task.history] + [artifact.parts for artifact in task.artifacts]
    holders += [task.status.message.parts] if task.status.message else []
    assert len(parts) == sum(map(len, holders))
    assert all(part["type"] in ("text", "file", "data") and "kind" not in part for part in parts)


@pytest.mark.proves("B-14")
def test_history_messages_are_not_events() -> None:
    message = Message(message_id="m-1", role=Role.AGENT, parts=(Part(text="x"),))
    assert RELAY.encode_event(Event(seq=1, body=MessageUpdate(task_id="t", context_id="c", message=message))) is None
