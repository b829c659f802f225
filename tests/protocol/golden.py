"""Reads the golden files: what each dialect's JSON looks like, case by case, both ways.

A file is a list of cases; `tests/golden/README.md` says what a case holds.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from accord import errors, model
from accord.model import Event, PushFormat
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.dialects.base import Dialect
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame

GOLDEN = Path(__file__).parent.parent / "golden"
CODECS: dict[str, Dialect] = {name.value: dialect for name, dialect in DIALECTS.items()} | {
    "v03_rest": REST_DIALECTS[DialectName.V03]
}


class Case(msgspec.Struct, frozen=True, kw_only=True):
    note: str
    kind: str
    wire: Any
    model: Any
    direction: str = "both"
    operation: str | None = None
    request: Any = None
    format: str | None = None
    proves: tuple[str, ...] = ()


def cases() -> Iterator[tuple[str, str, Case]]:
    """Every case of every dialect, with a name to find it by."""
    for name in CODECS:
        for path in sorted((GOLDEN / name).glob("*.json")):
            for position, case in enumerate(msgspec.json.decode(path.read_bytes(), type=list[Case])):
                yield name, f"{name}/{path.stem}[{position}] {case.note[:60]}", case


def build(stated: Any) -> Any:
    """Make the model value that a case states as `{"type": ..., "value": ...}`."""
    if stated["type"] == "int":
        return stated["value"]
    kind = getattr(errors, stated["type"], None)
    if kind is not None:
        return kind(
            stated["message"],
            violations=tuple(errors.Violation(**v) for v in stated.get("violations", ())),
            retry_after=stated.get("retry_after"),
            metadata=stated.get("metadata", {}),
        )
    return _unnamed(msgspec.convert(_named(stated["value"]), getattr(model, stated["type"])))


NO_ID = "no id yet"
"""Stands for a message id that the service will make: the model refuses an empty one from the wire."""


def _named(value: Any) -> Any:
    if isinstance(value, list):
        return [_named(item) for item in value]
    if isinstance(value, dict):
        return {key: NO_ID if (key, item) == ("messageId", "") else _named(item) for key, item in value.items()}
    return value


def _unnamed(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_unnamed(item) for item in value)
    if isinstance(value, msgspec.Struct):
        return replace(value, **{name: _unnamed(getattr(value, name)) for name in value.__struct_fields__})
    return "" if value == NO_ID else value


def build_event(stated: Any) -> Event:
    """Make an event from its body, or from a whole one."""
    if stated["type"] == "Event":
        value = dict(stated["value"])
        return Event(seq=value["seq"], at=value.get("at"), body=build(value["body"]))
    return Event(seq=1, body=build(stated), at=stated.get("at"))


def written(dialect: Dialect, case: Case) -> Any:
    """Encode a case's model, as the wire's plain data."""
    match case.kind:
        case "request":
            return json.loads(dialect.encode_request(Operation[_operation(case)], build(case.model)))
        case "result":
            return json.loads(dialect.encode_result(Operation[_operation(case)], build(case.model)))
        case "event":
            frame = dialect.encode_event(build_event(case.model))
            assert frame is not None, "the dialect has no form for this event"
            return _unframed(frame, case.wire)
        case "error":
            return json.loads(msgspec.json.encode(dialect.encode_error(build(case.model))))
        case "push":
            form = PushFormat(case.format) if case.format else None
            body = dialect.encode_push(build_event(case.model["event"]), build(case.model["task"]), form)
            return json.loads(body)
        case "card":
            return json.loads(msgspec.json.encode(dialect.encode_card(build(case.model))))
    raise AssertionError(f"unknown kind {case.kind}")


def read(dialect: Dialect, case: Case) -> Any:
    """Decode a case's wire."""
    data = json.dumps(case.wire).encode()
    match case.kind:
        case "request":
            return dialect.decode_request(Operation[_operation(case)], data)
        case "result":
            request = build(case.request) if case.request else model.CardRequest()
            return dialect.decode_result(Operation[_operation(case)], data, request)
        case "event":
            return dialect.decode_event(_framed(case.wire))
        case "error":
            return dialect.decode_error(msgspec.convert(case.wire, ErrorObject))
        case "push":
            return dialect.decode_push(data)
        case "card":
            return dialect.decode_card(data)
    raise AssertionError(f"unknown kind {case.kind}")


def _operation(case: Case) -> str:
    assert case.operation, "the case names no operation"
    return case.operation


def _is_named(wire: Any) -> bool:
    return isinstance(wire, dict) and set(wire) == {"event", "data"}


def _framed(wire: Any) -> Frame:
    if _is_named(wire):
        return Frame(event=wire["event"], data=json.dumps(wire["data"]).encode())
    return Frame(data=json.dumps(wire).encode())


def _unframed(frame: Frame, wire: Any) -> Any:
    data = json.loads(frame.data)
    return {"event": frame.event, "data": data} if _is_named(wire) else data
