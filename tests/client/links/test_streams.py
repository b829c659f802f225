"""Streams without a network: events as they are numbered, the end of a stream, and everything that is no event."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.client.http_link import KEEP_ALIVE_EVENTS, EventStream, JsonRpcLink
from accord.errors import AccordError, InvalidAgentResponse, RateLimited, TaskNotFound
from accord.model import ArtifactUpdate, Event, Message, StatusUpdate, Task, TaskState
from accord.outbound import HttpRequest, OpenReply, StreamBroken, TimedOut, Unreachable
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.operations import DialectName
from accord.protocol.sse import Frame, encode
from tests.cases import each

V1 = DialectName.V1
IDS = {"taskId": "t", "contextId": "c"}


def status(state: str) -> dict[str, Any]:
    return {"statusUpdate": {**IDS, "status": {"state": f"TASK_STATE_{state}"}}}


CHUNK = {"artifactUpdate": {**IDS, "artifact": {"artifactId": "a", "parts": [{"text": "x"}]}, "append": True}}
TASK = {"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}
MESSAGE = {"message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}}


def framed(*bodies: dict[str, Any], first: int | None = None) -> bytes:
    """Events in JSON-RPC answers, numbered or not."""
    return b"".join(
        encode(
            Frame(
                data=json.dumps({"jsonrpc": "2.0", "id": 1, "result": body}).encode(),
                id=None if first is None else str(first + at),
            )
        )
        for at, body in enumerate(bodies)
    )


def reading() -> EventStream:
    return EventStream(DIALECTS[V1].decode_streamed)


def fed(stream: EventStream, data: bytes) -> list[Event]:
    return list(stream.feed(data))


def test_events_have_the_agents_numbers() -> None:
    stream = reading()
    events = fed(stream, framed(TASK, CHUNK, status("COMPLETED"), first=7))
    assert [(event.seq, type(event.body)) for event in events] == [(7, Task), (8, ArtifactUpdate), (9, StatusUpdate)]
    assert stream.is_numbered


def test_events_without_numbers_are_counted() -> None:
    stream = reading()
    assert [event.seq for event in fed(stream, framed(TASK, CHUNK, CHUNK))] == [1, 2, 3]
    assert not stream.is_numbered


class Silent:
    """A transport that is not used."""

    async def open(self, request: HttpRequest) -> OpenReply:
        raise AssertionError(request)

    async def close(self) -> None:
        """Have nothing to close."""


def test_streams_of_1_0_may_mix_shapes_of_0_3() -> None:
    """langgraph-api does; a member of data that has the same name changes nothing."""
    data = {"kind": "status-update"}
    chunk = {"artifactUpdate": {**IDS, "artifact": {"artifactId": "a", "parts": [{"data": data}]}}}
    tagged = {
        "kind": "artifact-update",
        **IDS,
        "artifact": {"artifactId": "b", "parts": [{"kind": "text", "text": "x"}]},
    }
    ended = {"kind": "status-update", **IDS, "status": {"state": "completed"}, "final": True}
    stream = EventStream(JsonRpcLink(Silent(), "http://agent.example/", V1).streamed)
    first, plain, second, last = (event.body for event in fed(stream, framed(TASK, chunk, tagged, ended)))
    assert isinstance(first, Task)
    assert isinstance(plain, ArtifactUpdate)
    assert plain.artifact.parts[0].data == data
    assert isinstance(second, ArtifactUpdate)
    assert (second.artifact.artifact_id, second.artifact.parts[0].text) == ("b", "x")
    assert isinstance(last, StatusUpdate)
    assert last.status.state is TaskState.COMPLETED
    stream.finish()


@pytest.mark.parametrize("number", ["a1b2", "", "-1", "1.5", "٣", "1" * 19])
def test_invalid_event_ids_are_ignored(number: str) -> None:
    stream = reading()
    data = b"id: " + number.encode() + b"\n" + framed(TASK)
    assert [event.seq for event in fed(stream, data)] == [1]
    assert not stream.is_numbered


@given(st.lists(st.integers(0, 400), max_size=6))
def test_cuts_between_bytes_change_nothing(cuts: list[int]) -> None:
    data = framed(TASK, CHUNK, status("COMPLETED"), first=0)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    stream = reading()
    found = [event for start, end in pairwise(edges) for event in fed(stream, data[start:end])]
    assert found == fed(reading(), data)
    stream.finish()


# --- the end --------------------------------------------------------------------------------------------------------


@each("state", TaskState)
def test_a_stream_ends_when_the_task_rests(state: TaskState) -> None:
    stream = reading()
    fed(stream, framed(TASK, {"statusUpdate": {**IDS, "status": {"state": state.value}}}))
    if state in (TaskState.SUBMITTED, TaskState.WORKING):
        with pytest.raises(StreamBroken, match="before the task did"):
            stream.finish()
    else:
        stream.finish()


@pytest.mark.parametrize("state", ["COMPLETED", "INPUT_REQUIRED", "WORKING"])
def test_a_cut_matters_unless_the_task_has_ended(state: str) -> None:
    """Of a task that asks, more might have come."""
    stream, cut = reading(), TimedOut("silence", was_sent=True)
    fed(stream, framed(TASK, status(state)))
    if state == "COMPLETED":
        stream.cut(cut)
        return
    with pytest.raises(Unreachable) as raised:
        stream.cut(cut)
    assert raised.value is cut


def test_a_message_alone_is_a_whole_stream() -> None:
    stream = reading()
    assert isinstance(fed(stream, framed(MESSAGE))[0].body, Message)
    stream.finish()


def test_ended_tasks_end_the_stream() -> None:
    stream = reading()
    fed(stream, framed({"task": {"id": "t", "status": {"state": "TASK_STATE_FAILED"}}}, CHUNK))
    stream.finish()


def test_empty_streams_are_errors() -> None:
    with pytest.raises(StreamBroken):
        reading().finish()


# --- what is no event -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(KEEP_ALIVE_EVENTS))
def test_keep_alive_comments_are_ignored(name: str) -> None:
    noise = f": hello\n\nevent: {name}\ndata: now\n\ndata:\n\nretry: 10\n\n".encode()
    assert [type(event.body) for event in fed(reading(), noise + framed(TASK) + noise)] == [Task]


def test_an_error_is_raised_after_the_events_before_it() -> None:
    error = {"code": -32001, "message": "gone", "data": []}
    data = framed(TASK, CHUNK) + encode(Frame(data=json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode()))
    events = reading().feed(data)
    assert [type(next(events).body), type(next(events).body)] == [Task, ArtifactUpdate]
    with pytest.raises(TaskNotFound, match="gone"):
        next(events)


@each(
    "data",
    [
        b"not json",
        b"[]",
        b"null",
        b"{}",
        b'{"result":{}}',
        b'{"result":{"statusUpdate":{}}}',
        b'{"error":"no"}',
        b'{"error":{"code":"x","message":1}}',
        b'{"result":' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"result":{"task":{"id":"t","status":{"state":"TASK_STATE_MAYBE"}}}}',
        b'{"result":"\xff"}',
    ],
)
@each("name", DialectName)
def test_garbage_is_the_agents_fault(name: DialectName, data: bytes) -> None:
    stream = EventStream(DIALECTS[name].decode_streamed)
    with pytest.raises(InvalidAgentResponse):
        fed(stream, b"data: " + data + b"\n\n")


@given(st.binary(max_size=200))
@pytest.mark.parametrize("name", DialectName)
def test_no_bytes_break_a_reader(name: DialectName, data: bytes) -> None:
    try:
        fed(EventStream(DIALECTS[name].decode_streamed), data + b"\n\n")
    except AccordError as error:
        assert isinstance(error, InvalidAgentResponse)  # noqa: PT017 - nothing may be raised, but if, then this


def test_oversized_events_end_the_stream() -> None:
    stream = EventStream(DIALECTS[V1].decode_streamed, max_bytes=500)
    events = stream.feed(framed(TASK) + b"data: " + b"x" * 600)
    assert isinstance(next(events).body, Task)
    with pytest.raises(InvalidAgentResponse, match="more than 500 bytes"):
        next(events)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (
            V1,
            {
                "error": {
                    "code": 429,
                    "status": "RESOURCE_EXHAUSTED",
                    "message": "slow down",
                    "details": [{"reason": "RATE_LIMITED"}, {"retryDelay": "7s"}],
                }
            },
        ),
        (
            DialectName.V03,
            {"code": -32000, "message": "slow down", "data": {"reason": "RATE_LIMITED", "retry_after": 7}},
        ),
    ],
    ids=["v1", "v03"],
)
def test_an_error_event_of_http_json_is_raised(name: DialectName, data: dict[str, Any]) -> None:
    stream = EventStream(REST_DIALECTS[name].decode_streamed)
    with pytest.raises(RateLimited, match="slow down") as raised:
        fed(stream, encode(Frame(event="error", data=json.dumps(data).encode())))
    assert raised.value.retry_after == 7
