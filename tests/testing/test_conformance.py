"""The conformance agent: every behaviour through the service and over JSON-RPC, in A2A 1.0 and 0.3."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from itertools import count
from typing import Any, NamedTuple

import msgspec
import pytest

from accord.agents.loader import load
from accord.errors import ContentTypeNotSupported
from accord.model import (
    Message,
    Part,
    Role,
    SendRequest,
    StatusUpdate,
    Task,
    TaskState,
)
from accord.testing import Running, call, running, stream
from accord.testing.conformance import BEHAVIOURS, agent, agent_slow, streaming_timeout

S = TaskState
V1 = {"A2A-Version": "1.0"}
V03_STATES = {
    S.COMPLETED: "completed",
    S.INPUT_REQUIRED: "input-required",
    S.AUTH_REQUIRED: "auth-required",
    S.REJECTED: "rejected",
    S.FAILED: "failed",
    S.WORKING: "working",
    S.CANCELED: "canceled",
}

TEXT = {"text": "Generated text content"}
FILE = {"filename": "output.txt", "mediaType": "text/plain", "raw": "R2VuZXJhdGVkIGZpbGUgY29udGVudA=="}
LINK = {"filename": "output.txt", "mediaType": "text/plain", "url": "https://example.com/output.txt"}
DATA = {"data": {"key": "value", "count": 42}, "mediaType": "application/json"}
CHUNKS = [{"text": "chunk-1 "}, {"text": "chunk-2"}]

V03_TEXT = {"kind": "text", "text": "Generated text content"}
V03_FILE = {"kind": "file", "file": {"name": "output.txt", "mimeType": "text/plain", "bytes": FILE["raw"]}}
V03_LINK = {"kind": "file", "file": {"name": "output.txt", "mimeType": "text/plain", "uri": LINK["url"]}}
V03_DATA = {"kind": "data", "data": {"key": "value", "count": 42}}
V03_CHUNKS = [{"kind": "text", "text": "chunk-1 "}, {"kind": "text", "text": "chunk-2"}]


class Row(NamedTuple):
    """What becomes of a message that names a behaviour: state, words, and the one artifact's parts in 1.0 and 0.3."""

    state: TaskState
    words: str | None = None
    v1: list[dict[str, Any]] | None = None
    v03: list[dict[str, Any]] | None = None


GENERATED = Row(S.COMPLETED, None, [TEXT], [V03_TEXT])
EXPECTED = {
    "tck-complete-task": Row(S.COMPLETED, "Hello from TCK"),
    "tck-artifact-text": GENERATED,
    "tck-artifact-file": Row(S.COMPLETED, None, [FILE], [V03_FILE]),
    "tck-artifact-file-url": Row(S.COMPLETED, None, [LINK], [V03_LINK]),
    "tck-artifact-data": Row(S.COMPLETED, None, [DATA], [V03_DATA]),
    "tck-input-required": Row(S.INPUT_REQUIRED),
    "tck-reject-task": Row(S.REJECTED, "rejected"),
    "tck-stream-001": GENERATED,
    "tck-stream-002": Row(S.COMPLETED),
    "tck-stream-003": GENERATED,
    "tck-stream-ordering-001": GENERATED,
    "tck-stream-artifact-text": GENERATED,
    "tck-stream-artifact-file": Row(S.COMPLETED, None, [FILE], [V03_FILE]),
    "tck-stream-artifact-chunked": Row(S.COMPLETED, None, CHUNKS, V03_CHUNKS),
    "test-resubscribe-message-id": Row(
        S.COMPLETED, None, [{"text": "Took long"}], [{"kind": "text", "text": "Took long"}]
    ),
    "tck-long-running": Row(S.COMPLETED, None, [{"text": "Took long"}], [{"kind": "text", "text": "Took long"}]),
    "tck-multi-turn": Row(S.INPUT_REQUIRED),
    "tck-task-failure": Row(S.FAILED, "Failed on request"),
    "tck-auth-required": Row(S.AUTH_REQUIRED, "Credentials are needed"),
    "tck-stream-basic": GENERATED,
    "tck-stream-chunked": Row(S.COMPLETED, None, CHUNKS, V03_CHUNKS),
    "unheard-of": Row(S.COMPLETED, "Hello from TCK"),
}
APART = {"tck-message-response", "tck-cancel"}
"""The two that no blocking send ends with a task."""

_numbers = count()


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kits' patience, which the slow behaviours outlast, is short."""
    monkeypatch.setenv("TCK_STREAMING_TIMEOUT", "0.01")


@pytest.fixture
async def a2a() -> AsyncIterator[Running]:
    async with running(agent) as host:
        yield host


def by_id(name: str) -> tuple[str, str]:
    """A message's id and text that name a behaviour as a2a-tck does."""
    return f"{name}-{next(_numbers)}", "Something else"


def by_text(name: str) -> tuple[str, str]:
    """The same as ACTS does it."""
    return f"m-{next(_numbers)}", f"{name} and something else"


Naming = Callable[[str], tuple[str, str]]
both_ways = pytest.mark.parametrize("naming", [by_id, by_text])


def message(naming: tuple[str, str], **fields: Any) -> Message:
    message_id, text = naming
    return Message(message_id=message_id, role=Role.USER, parts=(Part(text=text),), **fields)


async def rpc(a2a: Running, method: str, params: dict[str, Any], headers: dict[str, str]) -> Any:
    sent = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    answer = (await call(a2a.app, sent, headers=headers)).json()
    return answer["result"]


def v1_message(naming: tuple[str, str], **fields: Any) -> dict[str, Any]:
    return {"messageId": naming[0], "role": "ROLE_USER", "parts": [{"text": naming[1]}], **fields}


def v03_message(naming: tuple[str, str], **fields: Any) -> dict[str, Any]:
    parts = [{"kind": "text", "text": naming[1]}]
    return {"kind": "message", "messageId": naming[0], "role": "user", "parts": parts, **fields}


# --- each behaviour -----------------------------------------------------------------------------------------------


def test_every_behaviour_is_expected() -> None:
    assert EXPECTED.keys() - {"unheard-of"} == BEHAVIOURS.keys() - APART


@both_ways
@pytest.mark.parametrize("name", EXPECTED)
async def test_through_the_service(a2a: Running, name: str, naming: Naming) -> None:
    task = await a2a.send(message(naming(name)))
    assert isinstance(task, Task)
    expected = EXPECTED[name]
    words = task.status.message.parts[0].text if task.status.message else None
    assert (task.status.state, words) == (expected.state, expected.words)
    made = [json.loads(msgspec.json.encode(part)) for artifact in task.artifacts for part in artifact.parts]
    assert (made, len(task.artifacts)) == (expected.v1 or [], 1 if expected.v1 else 0)


@pytest.mark.proves("DM-ART-001", "DM-PART-001")
@pytest.mark.parametrize("name", EXPECTED)
async def test_in_1_0(a2a: Running, name: str) -> None:
    task = (await rpc(a2a, "SendMessage", {"message": v1_message(by_id(name))}, V1))["task"]
    expected = EXPECTED[name]
    assert task["status"]["state"] == f"TASK_STATE_{expected.state.name}"
    said = task["status"].get("message")
    assert (said and said["parts"]) == (expected.words and [{"text": expected.words}])
    assert [artifact["parts"] for artifact in task.get("artifacts", [])] == ([expected.v1] if expected.v1 else [])


@pytest.mark.parametrize("name", EXPECTED)
async def test_in_0_3(a2a: Running, name: str) -> None:
    params = {"message": v03_message(by_text(name)), "configuration": {"blocking": True}}
    task = await rpc(a2a, "message/send", params, {})
    expected = EXPECTED[name]
    assert (task["kind"], task["status"]["state"]) == ("task", V03_STATES[expected.state])
    said = task["status"].get("message")
    assert (said and said["parts"]) == (expected.words and [{"kind": "text", "text": expected.words}])
    made = [artifact["parts"] for artifact in task.get("artifacts", [])]
    assert [[without_metadata(part) for part in parts] for parts in made] == ([expected.v03] if expected.v03 else [])


def without_metadata(part: dict[str, Any]) -> dict[str, Any]:
    """A part without what 0.3 has no field for."""
    return {name: value for name, value in part.items() if name != "metadata"}


# --- a message alone ----------------------------------------------------------------------------------------------


@pytest.mark.proves("DM-MSG-001", "CORE-STREAM-002")
@both_ways
async def test_a_message_is_answered_with_a_message(a2a: Running, naming: Naming) -> None:
    name = "tck-message-response"
    answers = [
        await a2a.send(message(naming(name))),
        await a2a.send(message(naming(name)), at_once=True),
        *[event.body async for event in a2a.service.stream(SendRequest(message=message(naming(name))), a2a.caller)],
    ]
    assert len(answers) == 3
    for answer in answers:
        assert isinstance(answer, Message)
        assert (answer.role, answer.task_id) == (Role.AGENT, None)
        assert answer.parts == (Part(text="Direct message response"),)
    in_1_0 = await rpc(a2a, "SendMessage", {"message": v1_message(naming(name))}, V1)
    assert list(in_1_0) == ["message"]
    assert in_1_0["message"]["parts"] == [{"text": "Direct message response"}]
    in_0_3 = await rpc(a2a, "message/send", {"message": v03_message(naming(name))}, {})
    assert (in_0_3["kind"], "taskId" in in_0_3) == ("message", False)
    assert in_0_3["parts"] == [{"kind": "text", "text": "Direct message response"}]
    streamed = await events_of(a2a, "SendStreamingMessage", {"message": v1_message(naming(name))}, V1)
    assert [list(event) for event in streamed] == [["message"]]


@both_ways
async def test_where_an_answer_is_always_a_task_it_has_the_message(a2a: Running, naming: Naming) -> None:
    """A2A 0.1, which `relay` reads, sends with `tasks/send` and knows no other answer."""
    message_id, text = naming("tck-message-response")
    said = {"role": "user", "messageId": message_id, "parts": [{"type": "text", "text": text}]}
    task = await rpc(a2a, "tasks/send", {"id": "mine", "message": said}, {})
    assert (task["kind"], task["status"]["state"]) == ("task", "completed")
    assert task["status"]["message"]["parts"] == [{"type": "text", "text": "Direct message response"}]
    assert (await rpc(a2a, "tasks/get", {"id": task["id"]}, {}))["id"] == task["id"]
    streamed = await events_of(a2a, "tasks/sendSubscribe", {"id": "mine", "message": said}, {})
    assert streamed[0]["kind"] == "task"
    assert streamed[-1]["status"]["message"]["parts"] == [{"type": "text", "text": "Direct message response"}]


# --- several turns ------------------------------------------------------------------------------------------------


async def test_questions_repeat_until_answered(a2a: Running) -> None:
    same = "tck-input-required-again"  # the kit uses one id for all of these
    first = await a2a.send(message((same, "first")))
    assert isinstance(first, Task)
    for text in ("second", "third"):
        again = await a2a.send(message((same, text), task_id=first.id))
        assert isinstance(again, Task)
        assert again.status.state is S.INPUT_REQUIRED
    done = await a2a.send(message(by_id("tck-complete-task"), task_id=first.id))
    assert isinstance(done, Task)
    assert done.status.state is S.COMPLETED
    assert [said.parts[0].text for said in done.history] == ["first", "second", "third", "Something else"]


@pytest.mark.parametrize("name", ["tck-input-required", "tck-auth-required"])
@pytest.mark.parametrize(("answer", "parts"), [("tck-artifact-text", (Part(text=TEXT["text"]),)), ("anything", ())])
async def test_answers_choose_the_next_step(a2a: Running, name: str, answer: str, parts: tuple[Part, ...]) -> None:
    first = await a2a.send(message(by_text(name)))
    assert isinstance(first, Task)
    done = await a2a.send(message(by_text(answer), task_id=first.id))
    assert isinstance(done, Task)
    assert done.status.state is S.COMPLETED
    assert tuple(part for artifact in done.artifacts for part in artifact.parts) == parts


@pytest.mark.parametrize(("headers", "version"), [(V1, "v1"), ({}, "v03")])
async def test_conversations_continue_to_the_end(a2a: Running, headers: dict[str, str], version: str) -> None:
    async def says(text: str, **fields: Any) -> Any:
        naming = (f"m-{next(_numbers)}", text)
        if version == "v1":
            return (await rpc(a2a, "SendMessage", {"message": v1_message(naming, **fields)}, headers))["task"]
        sent = {"message": v03_message(naming, **fields), "configuration": {"blocking": True}}
        return await rpc(a2a, "message/send", sent, headers)

    first = await says("tck-multi-turn start")
    turns = [await says(text, taskId=first["id"]) for text in ("here is more input", "tck-multi-turn more", " Done")]
    waits, ends = {"v1": ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"), "v03": ("input-required", "completed")}[
        version
    ]
    assert [turn["status"]["state"] for turn in (first, *turns)] == [waits, waits, waits, ends]
    said = [message["parts"][0]["text"] for message in turns[-1]["history"]]
    assert said == ["tck-multi-turn start", "here is more input", "tck-multi-turn more", " Done"]


async def test_the_same_message_makes_another_task(a2a: Running) -> None:
    sent = message(("tck-complete-task-x", "again"))
    first, second = [await a2a.send(sent) for _ in range(2)]
    assert isinstance(first, Task)
    assert isinstance(second, Task)
    assert first.id != second.id


# --- streams ------------------------------------------------------------------------------------------------------


async def events_of(a2a: Running, method: str, params: dict[str, Any], headers: dict[str, str]) -> list[Any]:
    sent = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    async with stream(a2a.app, sent, headers=headers) as answer:
        return [json.loads(frame.data)["result"] async for frame in answer.events()]


STREAMS = {name: 1 for name in BEHAVIOURS if EXPECTED.get(name) in (GENERATED, EXPECTED["tck-stream-artifact-file"])}
STREAMS |= {"tck-stream-002": 0, "tck-stream-artifact-chunked": 2, "tck-stream-chunked": 2}


@pytest.mark.proves("CORE-STREAM-001", "CORE-STREAM-003", "STREAM-ORDER-001", "4-13")
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_in_1_0(a2a: Running, name: str) -> None:
    task, working, *made, done = await events_of(
        a2a, "SendStreamingMessage", {"message": v1_message(by_text(name))}, V1
    )
    assert task["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert working["statusUpdate"]["status"]["state"] == "TASK_STATE_WORKING"
    assert done["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    updates = [event["artifactUpdate"] for event in made]
    assert [part for update in updates for part in update["artifact"]["parts"]] == (EXPECTED[name].v1 or [])
    chunks = [(update.get("append", False), update.get("lastChunk", False)) for update in updates]
    assert chunks == [[], [(False, True)], [(False, False), (True, True)]][STREAMS[name]]


@pytest.mark.proves("3-10")
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_in_0_3(a2a: Running, name: str) -> None:
    task, working, *made, done = await events_of(a2a, "message/stream", {"message": v03_message(by_id(name))}, {})
    assert (task["kind"], task["status"]["state"]) == ("task", "submitted")
    assert (working["kind"], working["status"]["state"], working["final"]) == ("status-update", "working", False)
    assert (done["kind"], done["status"]["state"], done["final"]) == ("status-update", "completed", True)
    assert {event["kind"] for event in made} <= {"artifact-update"}
    parts = [without_metadata(part) for event in made for part in event["artifact"]["parts"]]
    assert parts == (EXPECTED[name].v03 or [])
    chunks = [(event.get("append", False), event.get("lastChunk", False)) for event in made]
    assert chunks == [[], [(False, True)], [(False, False), (True, True)]][STREAMS[name]]


@pytest.mark.proves("STREAM-SUB-001", "STREAM-SUB-002", "CORE-CANCEL-001")
@pytest.mark.parametrize("version", ["v1", "v03"])
async def test_a_task_works_until_it_is_cancelled(a2a: Running, version: str) -> None:
    headers: dict[str, str] = V1 if version == "v1" else {}
    sends, follows, cancels = {
        "v1": ("SendStreamingMessage", "SubscribeToTask", "CancelTask"),
        "v03": ("message/stream", "tasks/resubscribe", "tasks/cancel"),
    }[version]
    sent = (v1_message if version == "v1" else v03_message)(by_text("tck-cancel"))
    ask = {"jsonrpc": "2.0", "id": 1, "method": sends, "params": {"message": sent}}
    async with stream(a2a.app, ask, headers=headers) as first, aclosing(first.events()) as events:
        begun, working = [json.loads((await anext(events)).data)["result"] for _ in range(2)]
        task_id = begun["task"]["id"] if version == "v1" else begun["id"]
        assert state_of(working) in ("TASK_STATE_WORKING", "working")
        again = {"jsonrpc": "2.0", "id": 2, "method": follows, "params": {"id": task_id}}
        async with stream(a2a.app, again, headers=headers) as second, aclosing(second.events()) as others:
            now = json.loads((await anext(others)).data)["result"]
            assert state_of(now) in ("TASK_STATE_WORKING", "working")
            await rpc(a2a, cancels, {"id": task_id}, headers)
            for following in (events, others):
                ends = [json.loads(frame.data)["result"] async for frame in following]
                assert [state_of(end) for end in ends] in (["TASK_STATE_CANCELED"], ["canceled"])


def state_of(event: dict[str, Any]) -> Any:
    inner = event.get("task") or event.get("statusUpdate") or event
    return inner["status"]["state"]


# --- the rest -----------------------------------------------------------------------------------------------------


async def test_the_slow_ones_outlast_the_kits(a2a: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert streaming_timeout() == 0.01
    monkeypatch.setenv("TCK_STREAMING_TIMEOUT", "3600")
    for name in ("test-resubscribe-message-id", "tck-long-running"):
        task = await a2a.send(message(by_id(name)), at_once=True)
        assert isinstance(task, Task)
        await a2a.reaches(task, S.WORKING)
        assert (await a2a.cancel(task)).status.state is S.CANCELED
    monkeypatch.delenv("TCK_STREAMING_TIMEOUT")
    assert streaming_timeout() == 2


async def test_other_messages_of_0_3_are_answered_slowly() -> None:
    async with running(agent_slow) as a2a:
        events = [event.body async for event in a2a.stream_text("hello")]
        states = [body.status.state for body in events if isinstance(body, Task | StatusUpdate)]
        assert states == [S.SUBMITTED, S.WORKING, S.INPUT_REQUIRED]
        task = events[0]
        assert isinstance(task, Task)
        assert (await a2a.send_text("more", task=task)).status.state is S.INPUT_REQUIRED
        assert (await a2a.cancel(task)).status.state is S.CANCELED
        named = await a2a.send(message(by_id("tck-artifact-text")))
        assert isinstance(named, Task)
        assert named.status.state is S.COMPLETED


@pytest.mark.proves("CORE-SEND-003")
async def test_unsupported_media_types_are_refused(a2a: Running) -> None:
    part = Part(raw=b"tck", media_type="application/x-unsupported-tck-type")
    with pytest.raises(ContentTypeNotSupported):
        await a2a.send(Message(message_id="tck-send-003", role=Role.USER, parts=(part,)))


@pytest.mark.parametrize("name", ["agent", "agent_slow"])
def test_it_can_be_named_on_a_command_line(name: str) -> None:
    assert load(f"accord.testing.conformance:{name}").profile.takes_repeats
