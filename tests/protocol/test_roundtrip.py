"""Round trips: writing, reading and writing again gives the same wire, in every dialect, for anything the model holds.

What a dialect cannot carry is listed, with the reason, in `tests/golden/lossy_<dialect>.toml`: a difference between
what was written and what is read back must be in that list.
"""

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.errors import AccordError
from accord.model import Event, EventBody, Message, MessageUpdate, PushFormat, Task
from accord.protocol.operations import Operation
from accord.protocol.simple_push import read_simple
from accord.protocol.sse import Frame
from tests import strategies
from tests.protocol.golden import CODECS, GOLDEN

each_codec = pytest.mark.parametrize("name", CODECS)


def lossy(name: str) -> list[tuple[str, str]]:
    path = GOLDEN / f"lossy_{name}.toml"
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["lossy"] if path.exists() else []
    return [(row["path"], row["reason"]) for row in rows]


LOSSY = {name: lossy(name) for name in CODECS}


def differences(one: Any, other: Any, path: str = "") -> Iterator[str]:
    """Paths, with list positions left out, at which two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys()):
            yield from differences(one.get(key, ...), other.get(key, ...), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            yield from differences(left, right, f"{path}[]")
    elif one != other or type(one) is not type(other):
        yield path


def unlisted(name: str, before: Any, after: Any) -> list[str]:
    """Differences that the dialect's list does not explain."""
    found = differences(*(msgspec.json.decode(msgspec.json.encode(model)) for model in (before, after)))
    allowed = [path for path, _ in LOSSY[name]]
    return [path for path in found if not any(_explains(pattern, path) for pattern in allowed)]


def _explains(pattern: str, path: str) -> bool:
    """A pattern explains the places it ends, and whatever is inside them."""
    return re.search(r"(^|[.\]])" + re.escape(pattern) + r"($|[.\[])", path) is not None


@each_codec
@pytest.mark.parametrize("operation", strategies.requests)
@given(data=st.data())
def test_requests(name: str, operation: str, data: st.DataObject) -> None:
    codec, asked = CODECS[name], Operation[operation]
    request = data.draw(strategies.requests[operation])
    wire = codec.encode_request(asked, request)
    read = codec.decode_request(asked, wire)
    assert codec.encode_request(asked, read) == wire
    assert unlisted(name, request, read) == []


@each_codec
@pytest.mark.proves("4-41", "B-06")
@given(task=strategies.tasks)
def test_tasks(name: str, task: Task) -> None:
    codec, request = CODECS[name], strategies.GET
    wire = codec.encode_result(Operation.GET, task)
    read = codec.decode_result(Operation.GET, wire, request)
    assert codec.encode_result(Operation.GET, read) == wire
    assert unlisted(name, task, read) == []


@each_codec
@given(page=strategies.pages)
def test_pages(name: str, page: Any) -> None:
    codec = CODECS[name]
    wire = codec.encode_result(Operation.LIST, page)
    read = codec.decode_result(Operation.LIST, wire, strategies.GET)
    assert codec.encode_result(Operation.LIST, read) == wire
    assert unlisted(name, page, read) == []


@each_codec
@pytest.mark.proves("B-14")
@given(event=strategies.events)
def test_events(name: str, event: Event) -> None:
    codec = CODECS[name]
    frame = codec.encode_event(event)
    if frame is None:
        assert isinstance(event.body, MessageUpdate | Message | Task)
        return
    read = codec.decode_event(frame)
    again = codec.encode_event(Event(seq=event.seq, body=read, at=event.at))
    assert again == frame
    if type(read) is type(event.body):
        assert unlisted(name, event.body, read) == []
    else:
        assert type(event.body).__name__ in [path for path, _ in LOSSY[name]]


@each_codec
@pytest.mark.proves("B-10")
@pytest.mark.parametrize("form", [None, *PushFormat])
@given(event=strategies.events, task=strategies.tasks)
def test_webhook_bodies(name: str, form: PushFormat | None, event: Event, task: Task) -> None:
    codec = CODECS[name]
    body = codec.encode_push(event, task, form)
    read = read_simple(body) if form is PushFormat.SIMPLE else codec.decode_push(body)
    assert isinstance(read, EventBody)


@each_codec
@pytest.mark.proves("B-03")
@given(card=strategies.cards)
def test_cards(name: str, card: Any) -> None:
    codec = CODECS[name]
    wire = codec.encode_card(card)
    read = codec.decode_card(msgspec.json.encode(wire))
    assert codec.encode_card(read) == wire
    assert unlisted(name, card, read) == []


@pytest.mark.parametrize("name", [name for name in CODECS if LOSSY[name]])
def test_every_loss_has_a_reason(name: str) -> None:
    assert all(path and reason.endswith(".") for path, reason in LOSSY[name])


@each_codec
@given(data=st.binary(max_size=60), event=st.none() | st.sampled_from(["task_status", "task_artifact", "error", "x"]))
def test_bytes_that_are_no_event_raise_our_errors_only(name: str, data: bytes, event: str | None) -> None:
    for decode in (
        lambda: CODECS[name].decode_event(Frame(data=data, event=event)),
        lambda: CODECS[name].decode_push(data),
        lambda: CODECS[name].decode_card(data),
    ):
        with suppress(AccordError):
            decode()
