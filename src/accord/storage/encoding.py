"""Stored encoding of model values: A2A 1.0 JSON, event kinds and state names."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from accord.model import ArtifactUpdate, Event, EventBody, MessageUpdate, StatusUpdate, Task, TaskState
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.storage.store import Row

S = TypeVar("S", bound=Struct)

EVENT_TYPES: dict[str, type[EventBody]] = {
    "status": StatusUpdate,
    "artifact": ArtifactUpdate,
    "message": MessageUpdate,
    "task": Task,
}
"""Name of an event type -> its class. A message reply without a task has no event log."""

_TYPE_NAMES = {event_type: name for name, event_type in EVENT_TYPES.items()}
_DECODERS = {name: msgspec.json.Decoder(event_type) for name, event_type in EVENT_TYPES.items()}
_TASK: msgspec.json.Decoder[Task] = msgspec.json.Decoder(Task)
_ENCODER = msgspec.json.Encoder()
_STATES = {state.name.lower(): state for state in TaskState}
_NAMES = {state: name for name, state in _STATES.items()}

TERMINAL = tuple(_NAMES[state] for state in sorted(lifecycle.TERMINAL, key=lambda state: state.name))


def encode_body(body: EventBody) -> tuple[str, str]:
    """Return an event's kind and its JSON."""
    return _TYPE_NAMES[type(body)], _ENCODER.encode(body).decode()


def encode_bodies(bodies: Iterable[EventBody]) -> tuple[list[tuple[str, str]], int]:
    """Return the kind and JSON of each event, and the bytes of all the JSON."""
    encoded, size = [], 0
    for body in bodies:
        data = _ENCODER.encode(body)
        encoded.append((_TYPE_NAMES[type(body)], data.decode()))
        size += len(data)
    return encoded, size


def byte_count(text: str) -> int:
    """Return the size of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def decode_event(row: Row, *, dated: bool = True) -> Event:
    """Decode the event of a row (seq, kind, data, at).

    Without `dated` it has no timestamp: converting one costs as much as everything else.
    """
    seq, kind, data, at = row
    return Event(seq=seq, body=_DECODERS[kind].decode(data), at=timestamp_ms(at) if dated else None)


def encode_task(task: Task) -> str:
    """Return a task's JSON."""
    return _ENCODER.encode(task).decode()


def decode_task(doc: str) -> Task:
    """Return the task of a JSON text."""
    return _TASK.decode(doc)


def from_row(kind: type[S], row: Row, **decoders: Callable[[Any], Any]) -> S:
    """Return a row as a struct whose fields are its columns, in order. `decoders` convert single columns."""
    values = dict(zip(kind.__struct_fields__, row, strict=True))
    for column, decode in decoders.items():
        values[column] = decode(values[column])
    return kind(**values)


def state_name(state: TaskState) -> str:
    """Return the stored name of a state."""
    return _NAMES[state]


def state_of(name: str) -> TaskState:
    """Return the state of a stored name."""
    return _STATES[name]
