"""The model: frozen values that check themselves and whose JSON is A2A 1.0."""

from itertools import combinations
from typing import Any

import msgspec
import pytest
from hypothesis import given

from accord.engine.ids import uuid7
from accord.model import (
    Message,
    Part,
    Role,
    SecurityScheme,
    SendRequest,
    Task,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp, timestamp_ms
from tests import strategies
from tests.cases import each

STATUS = TaskStatus(state=TaskState.WORKING)
CONTENTS: dict[str, Any] = {"text": "", "raw": b"", "url": "", "data": None}  # each of them counts, empty or not


@pytest.mark.proves("0-04", "0-36")
def test_there_are_nine_states() -> None:
    assert len(TaskState) == 9


@pytest.mark.proves("3-25")
def test_there_are_two_roles() -> None:
    assert [role.name for role in Role] == ["USER", "AGENT"]


@pytest.mark.proves("3-26", "DM-PART-001")
@each("names", [names for size in range(5) for names in combinations(CONTENTS, size)])
def test_a_part_holds_exactly_one_content(names: tuple[str, ...]) -> None:
    content = {name: CONTENTS[name] for name in names}
    if len(names) == 1:
        assert msgspec.json.decode(msgspec.json.encode(content), type=Part) == Part(**content)
        return
    with pytest.raises(ValueError, match="exactly one"):
        Part(**content)
    with pytest.raises(msgspec.ValidationError, match="exactly one"):
        msgspec.json.decode(msgspec.json.encode(content), type=Part)


def test_data_may_be_any_json_value_even_null() -> None:
    assert msgspec.json.encode(Part(data=None)) == b'{"data":null}'
    assert msgspec.json.decode(b'{"data":null}', type=Part) == Part(data=None)


def test_a_part_finds_its_schema_and_whether_it_is_a_reference() -> None:
    assert Part(data=1, metadata={"schema": {"type": "integer"}}).schema == {"type": "integer"}
    assert Part(data=1, metadata={"schema": "mine"}).schema is None
    assert Part(url="u", metadata={"reference": True}).is_reference
    assert not Part(text="u", metadata={"reference": True}).is_reference


def test_values_are_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        STATUS.state = TaskState.FAILED  # type: ignore[misc]  # that it fails is the point


@pytest.mark.proves("4-45", "DM-SERIAL-003")
@pytest.mark.parametrize(
    ("given_text", "wanted"),
    [
        ("2024-03-15T11:00:00Z", "2024-03-15T11:00:00.000Z"),
        ("2024-03-15T11:00:00.123Z", "2024-03-15T11:00:00.123Z"),
        ("2024-03-15T11:00:00.123456Z", "2024-03-15T11:00:00.123Z"),
        ("2024-03-15T13:00:00+02:00", "2024-03-15T11:00:00.000Z"),
        ("2024-03-15T11:00:00", "2024-03-15T11:00:00.000Z"),
        ("2024-W11-5T11:00:00.000Z", "2024-03-15T11:00:00.000Z"),
    ],
)
def test_every_timestamp_has_one_form(given_text: str, wanted: str) -> None:
    assert timestamp(given_text) == wanted
    assert TaskStatus(state=TaskState.WORKING, timestamp=given_text).timestamp == wanted


@pytest.mark.parametrize("text", ["", "now", "2024-13-01T00:00:00.000Z", "0001-01-01T00:00:00+23:59", "9" * 30])
def test_invalid_timestamps_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ISO 8601"):
        timestamp(text)


def test_creation_time_comes_from_the_task_id() -> None:
    made = uuid7(1_700_000_000_123, bytes(10))
    assert Task(id=made, status=STATUS).created_at == timestamp_ms(1_700_000_000_123)


def test_creation_time_falls_back_to_the_status() -> None:
    stated = Task(id="x", status=STATUS, metadata={"createdAt": "2024-01-01T00:00:00Z"})
    assert stated.created_at == "2024-01-01T00:00:00.000Z"
    assert Task(id="x", status=STATUS, metadata={"createdAt": "soon"}).created_at is None
    dated = TaskStatus(state=TaskState.WORKING, timestamp="2024-01-01T00:00:00Z")
    assert Task(id="123", status=dated).created_at == "2024-01-01T00:00:00.000Z"
    strange = "ffffffff-ffff-7fff-bfff-ffffffffffff"
    assert Task(id=strange, status=dated).created_at is not None


def test_a_security_scheme_is_exactly_one_thing() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        SecurityScheme()


def test_hints_of_an_unexpected_type_are_not_hints() -> None:
    message = Message(message_id="m", role=Role.USER, parts=(Part(text="x"),))
    plain = SendRequest(message=message)
    odd = SendRequest(
        message=message,
        metadata={
            "task_config": {"timeout": True, "priority": 7},
            "stream_config": {"include_intermediates": "no", "buffer_size": -1},
        },
    )
    good = SendRequest(
        message=message,
        metadata={
            "task_config": {"timeout": 30000, "priority": "high"},
            "stream_config": {"include_intermediates": False, "buffer_size": 1024},
        },
    )
    for request in (plain, odd, SendRequest(message=message, metadata={"task_config": 5})):
        assert (request.timeout_ms, request.priority) == (None, "normal")
        assert (request.include_intermediates, request.buffer_size) == (True, None)
    assert (good.timeout_ms, good.priority, good.include_intermediates, good.buffer_size) == (
        30000,
        "high",
        False,
        1024,
    )


@pytest.mark.proves("4-41", "4-44", "DM-SERIAL-001")
@given(strategies.tasks)
def test_the_models_json_holds_everything(task: Task) -> None:
    assert msgspec.json.decode(msgspec.json.encode(task), type=Task) == task
