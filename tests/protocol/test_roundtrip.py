"""Round trips: writing, reading and writing again gives the same wire, in every dialect, for anything the model holds.

What a dialect cannot carry is listed, with the reason, in `tests/golden/lossy_<dialect>.toml`: a difference between
what was written and what is read back must be in that list.
"""

import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accord.errors import AccordError, InvalidParams
from accord.model import (
    Event,
    EventBody,
    MessageUpdate,
    PushConfig,
    PushDeleteRequest,
    PushFormat,
    PushGetRequest,
    PushListRequest,
    PushPage,
    Task,
)
from accord.protocol.dialects.base import read_simple, result_of
from accord.protocol.operations import Operation
from accord.protocol.sse import Frame
from accord.protocol.states import LOWER
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


OWN_UNNAMED = {"v03", "v03_rest", "relay", "vault"}
"""Where a webhook that is set without a name is read with its task's, so that the next one replaces it (B-11)."""


def unlisted(name: str, before: Any, after: Any) -> list[str]:
    """Differences that the dialect's list does not explain."""
    one, other = (msgspec.json.decode(msgspec.json.encode(model)) for model in (before, after))
    found = differences(one, other, type(before).__name__)
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
    if asked is Operation.PUSH_SET and name in OWN_UNNAMED:
        request = replace(request, id=request.id or request.task_id)
    wire = codec.encode_request(asked, request)
    read = codec.decode_request(asked, wire)
    assert codec.encode_request(asked, read) == wire
    assert type(read) is type(request)
    assert unlisted(name, request, read) == []


@each_codec
@pytest.mark.proves("B-11")
@given(request=strategies.deletes_by_url)
def test_webhooks_deleted_by_url(name: str, request: PushDeleteRequest) -> None:
    """Who cannot say the url says so, instead of sending a request that no server can understand."""
    codec = CODECS[name]
    if "PushDeleteRequest.url" in [path for path, _ in LOSSY[name]]:
        with pytest.raises(InvalidParams, match="removes a webhook by its id"):
            codec.encode_request(Operation.PUSH_DELETE, request)
        return
    wire = codec.encode_request(Operation.PUSH_DELETE, request)
    read = codec.decode_request(Operation.PUSH_DELETE, wire)
    assert read == replace(request, tenant=None)


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
@pytest.mark.proves("B-11")
@given(config=strategies.push_configs)
def test_webhooks(name: str, config: PushConfig) -> None:
    codec = CODECS[name]
    for operation, request in (
        (Operation.PUSH_SET, config),
        (Operation.PUSH_GET, PushGetRequest(task_id=str(config.task_id), id=config.id)),
    ):
        wire = codec.encode_result(operation, config)
        read = codec.decode_result(operation, wire, request)
        assert isinstance(read, PushConfig)
        assert codec.encode_result(operation, read) == wire
        assert unlisted(name, config, read) == []


@each_codec
@pytest.mark.proves("B-11")
@given(page=strategies.push_pages)
def test_pages_of_webhooks(name: str, page: PushPage) -> None:
    codec = CODECS[name]
    wire = codec.encode_result(Operation.PUSH_LIST, page)
    read = codec.decode_result(Operation.PUSH_LIST, wire, PushListRequest(task_id="t"))
    assert codec.encode_result(Operation.PUSH_LIST, read) == wire
    assert unlisted(name, page, read) == []


def carried(name: str, body: EventBody, read: EventBody) -> None:
    """Assert that an event's body arrived, or that the dialect's list says why it became another."""
    if type(read) is type(body):
        assert unlisted(name, body, read) == []
    else:
        assert f"Event.{type(body).__name__}" in [path for path, _ in LOSSY[name]]


@each_codec
@pytest.mark.proves("B-14")
@given(event=strategies.events)
def test_events(name: str, event: Event) -> None:
    codec = CODECS[name]
    frame = codec.encode_event(event)
    if frame is None:
        assert isinstance(event.body, MessageUpdate)
        return
    read = codec.decode_event(frame)
    again = codec.encode_event(Event(seq=event.seq, body=read, at=event.at))
    assert again == frame
    carried(name, event.body, read)


@each_codec
@pytest.mark.proves("B-10")
@pytest.mark.parametrize("form", [None, *PushFormat])
@given(event=strategies.events, task=strategies.tasks)
def test_webhook_bodies(name: str, form: PushFormat | None, event: Event, task: Task) -> None:
    # A webhook of 0.3 does not depend on the binding that set it.
    name = "v03" if name == "v03_rest" else name
    codec = CODECS[name]
    body = codec.encode_push(event, task, form)
    read = codec.decode_push(body)
    frame = codec.encode_event(event)
    form = form or (PushFormat.EVENT if name == "v1" else PushFormat.TASK)
    if form is PushFormat.SIMPLE:
        state = LOWER[task.status.state]
        assert json.loads(body) == {"taskId": task.id, "status": state, "result": result_of(task)}
        assert read == read_simple(body)
    elif form is PushFormat.EVENT and frame is not None:
        assert body == frame.data
        carried(name, event.body, read)
    else:
        # A send of 1.0 answers the task as a member, and so does its webhook.
        assert body == codec.encode_result(Operation.SEND if name == "v1" else Operation.GET, task)
        carried(name, task, read)


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
