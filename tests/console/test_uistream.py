"""The encoder of UI message streams: golden streams, and what holds for every log whatsoever."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from accord.console.ui_messages import fold_chunks, title_from, to_agent_message, to_agent_parts
from accord.console.ui_stream import AnswerInfo, Chunk, UiStreamEncoder, acknowledgement, frame, message_answer
from accord.errors import InvalidParams
from accord.model import (
    Artifact,
    ArtifactUpdate,
    Event,
    EventBody,
    Message,
    MessageUpdate,
    Part,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)

S = TaskState
AT = "2026-01-01T00:00:00.000Z"
ABOUT = AnswerInfo(
    message_id="msg", task_id="t 1", context_id="ctx", agent="Echo", slug="echo", created_at=AT, title="Say hello"
)
ROW = {
    "artifactType": "task",
    "taskId": "t 1",
    "id": "t 1",
    "contextId": "ctx",
    "agent": "Echo",
    "slug": "echo",
    "title": "Say hello",
}


def status(state: TaskState, text: str | None = None, **more: Any) -> StatusUpdate:
    metadata = more.pop("metadata", None)
    said = None if text is None else message(text, **more)
    return StatusUpdate(
        task_id="t 1", context_id="ctx", status=TaskStatus(state=state, message=said), metadata=metadata
    )


def message(text: str, id: str = "m-1", role: Role = Role.AGENT, **more: Any) -> Message:
    return Message(message_id=id, role=role, parts=more.pop("parts", (Part(text=text),)), **more)


def piece(*parts: Part, id: str = "answer", append: bool = True, last: bool = False, **more: Any) -> ArtifactUpdate:
    artifact = Artifact(artifact_id=id, parts=parts, **more)
    return ArtifactUpdate(task_id="t 1", context_id="ctx", artifact=artifact, append=append, last_chunk=last)


def text(words: str, **more: Any) -> ArtifactUpdate:
    return piece(Part(text=words), **more)


def encoded(*bodies: EventBody, about: AnswerInfo = ABOUT) -> list[Chunk]:
    encoder = UiStreamEncoder(about)
    chunks = encoder.begin()
    for seq, body in enumerate(bodies, 1):
        chunks += encoder.feed(Event(seq=seq, body=body, at=AT))
    return chunks


def task_chunk(state: str, seq: int, **more: Any) -> Chunk:
    dated = {"updatedAt": AT} if seq else {}
    return {"type": "data-task", "id": "t 1", "data": {**ROW, "status": state, **more, **dated, "seq": seq}}


def finish(reason: str = "stop", why: str | None = None) -> list[Chunk]:
    about = {"finishReason": why or reason, "endedAt": AT}
    return [{"type": "finish-step"}, {"type": "finish", "finishReason": reason, "messageMetadata": about}]


START: list[Chunk] = [
    {
        "type": "start",
        "messageId": "msg",
        "messageMetadata": {
            "contextId": "ctx",
            "taskId": "t 1",
            "agent": "echo",
            "createdAt": AT,
            "mode": "stream",
        },
    },
    {"type": "start-step"},
    task_chunk("submitted", 0),
]


def test_text_is_streamed_as_it_comes() -> None:
    chunks = encoded(status(S.WORKING), text("Hel", append=False), text("lo"), text("", last=True), status(S.COMPLETED))
    assert chunks == [
        *START,
        task_chunk("working", 1),
        {"type": "text-start", "id": "answer"},
        {"type": "text-delta", "id": "answer", "delta": "Hel"},
        {"type": "text-delta", "id": "answer", "delta": "lo"},
        {"type": "text-end", "id": "answer"},
        task_chunk("completed", 5),
        *finish(),
    ]


def test_progress_is_shown_with_the_task_and_last_words_as_text() -> None:
    chunks = encoded(status(S.WORKING, "half"), status(S.WORKING, "half"), status(S.COMPLETED, "done", id="m-2"))
    assert chunks[3:] == [
        task_chunk("working", 1, statusMessage="half"),
        {"type": "text-start", "id": "m-2"},
        {"type": "text-delta", "id": "m-2", "delta": "done"},
        {"type": "text-end", "id": "m-2"},
        task_chunk("completed", 3, statusMessage="done"),
        *finish(),
    ]


@pytest.mark.parametrize(
    ("data", "is_shown"),
    [({"question": "Book it?", "approval": True}, False), ({"question": "Book it?", "price": 40}, True), ([1], True)],
)
def test_question_data_is_shown_if_it_adds_information(data: Any, is_shown: bool) -> None:
    asked = replace(message("Book it?"), parts=(Part(text="Book it?"), Part(data=data)))
    update = StatusUpdate(
        task_id="t 1", context_id="ctx", status=TaskStatus(state=S.INPUT_REQUIRED, message=asked, timestamp=AT)
    )
    shown = [chunk["data"] for chunk in encoded(update) if chunk["type"] == "data-artifact"]
    card = {"artifactId": "m-1", "taskId": "t 1", "name": "Details", "parts": [{"data": data}]}
    assert shown == ([card] if is_shown else [])


def test_a_question_finishes_the_answer() -> None:
    chunks = encoded(status(S.INPUT_REQUIRED, "Which?"))
    assert chunks[-3:] == [task_chunk("input-required", 1, statusMessage="Which?", question="Which?"), *finish("other")]
    formed = encoded(
        StatusUpdate(
            task_id="t 1",
            context_id="ctx",
            status=TaskStatus(
                state=S.AUTH_REQUIRED,
                message=message("Key?", metadata={"schema": {"type": "string"}, "approval": True}),
            ),
        )
    )
    data = [chunk["data"] for chunk in formed if chunk["type"] == "data-task"][-1]
    assert (data["question"], data["schema"], data["approval"]) == ("Key?", {"type": "string"}, True)


@pytest.mark.parametrize(
    ("state", "said", "shown"),
    [
        (S.FAILED, "No paper", "No paper"),
        (S.FAILED, None, "The task failed"),
        (S.REJECTED, None, "The agent rejected the task"),
        (S.UNKNOWN, "Silence", "Silence"),
    ],
)
def test_failures_end_with_an_error(state: TaskState, said: str | None, shown: str) -> None:
    chunks = encoded(text("so far", append=False), status(state, said))
    assert [chunk["type"] for chunk in chunks[-5:]] == [
        "text-delta",
        "data-task",
        "text-end",
        "message-metadata",
        "error",
    ]
    assert chunks[-1] == {"type": "error", "errorText": shown}


def test_canceled_answers_are_aborted() -> None:
    chunks = encoded(status(S.CANCELED))
    assert chunks[-4:] == [task_chunk("canceled", 1), {"type": "abort"}, *finish("other", "abort")]


@pytest.mark.proves("0-02", "0-10")
def test_tools_are_shown_as_parts() -> None:
    made = {"name": "createTask", "callId": "c", "input": {"title": "x"}}
    chunks = encoded(
        status(S.WORKING, metadata={"tool": made}),
        status(S.WORKING, metadata={"tool": {**made, "output": {"taskId": "t-9", "status": "submitted"}}}),
        status(S.WORKING, metadata={"tool": {"name": "search", "callId": "s", "input": None, "error": "down"}}),
        status(S.WORKING, metadata={"tool": {"name": "search", "callId": "n", "output": None}}),
        status(S.WORKING, metadata={"tool": "nothing of the kind"}),
        status(S.WORKING, metadata={"tool": {"name": 3, "callId": "x"}}),
    )
    about = {"artifactType": "task", "id": "t-9", "contextId": "ctx", "taskId": "t-9", "status": "submitted"}
    assert [chunk for chunk in chunks[3:] if chunk["id" if "id" in chunk else "type"] != "t 1"] == [
        {"type": "tool-input-available", "toolCallId": "c", "toolName": "createTask", "input": {"title": "x"}},
        {"type": "tool-output-available", "toolCallId": "c", "output": {"taskId": "t-9", "status": "submitted"}},
        {"type": "data-task", "id": "t-9", "data": about},
        {"type": "tool-input-available", "toolCallId": "s", "toolName": "search", "input": {}, "dynamic": True},
        {"type": "tool-output-error", "toolCallId": "s", "errorText": "down", "dynamic": True},
        {"type": "tool-input-available", "toolCallId": "n", "toolName": "search", "input": {}, "dynamic": True},
        {"type": "tool-output-available", "toolCallId": "n", "output": {}, "dynamic": True},
    ]
    parts = {part["type"]: part for part in fold_chunks(chunks)["parts"]}
    assert parts["tool-createTask"]["state"] == "output-available"
    assert parts["dynamic-tool"]["toolName"] == "search"


def test_files_and_data_are_shown_with_their_artifact() -> None:
    chunks = encoded(
        piece(Part(data={"n": None}), id="a/b", append=False, name="Numbers"),
        piece(Part(raw=b"x", media_type="image/png", filename="x.png"), id="a/b"),
        piece(Part(text="words"), Part(url="https://elsewhere.example/y"), id="a/b", last=True),
        status(S.COMPLETED, "kept", parts=(Part(text="kept"), Part(raw=b"z")), id="m 1"),
    )
    files = [(chunk["url"], chunk["mediaType"]) for chunk in chunks if chunk["type"] == "file"]
    assert files == [
        ("/api/tasks/t%201/files/a%2Fb/1", "image/png"),
        ("https://elsewhere.example/y", "application/octet-stream"),
        ("/api/tasks/t%201/files/message/m%201/1", "application/octet-stream"),
    ]
    shown = [chunk for chunk in chunks if chunk["type"] == "data-artifact"]
    assert [chunk["id"] for chunk in shown] == ["a/b", "a/b"]
    assert shown[-1]["data"] == {
        "artifactId": "a/b",
        "taskId": "t 1",
        "name": "Numbers",
        "parts": [
            {"data": {"n": None}},
            {"mediaType": "image/png", "filename": "x.png", "url": files[0][0]},
            {"text": "words"},
            {"url": "https://elsewhere.example/y"},
        ],
    }


def test_files_are_shown_once_at_safe_addresses() -> None:
    picture = piece(Part(raw=b"x", media_type="image/png"), id="a", append=False)
    odd = piece(Part(url="javascript:alert(1)"), Part(url="DATA:text/html,x"), id="b", append=False)
    chunks = encoded(picture, picture, odd, status(S.COMPLETED))
    assert [chunk["url"] for chunk in chunks if chunk["type"] == "file"] == ["/api/tasks/t%201/files/a/0"]
    assert "javascript" not in json.dumps(chunks)


def test_repeated_output_after_a_crash_is_shown_once() -> None:
    again = encoded(
        text("one ", append=False), text("two "), text("one ", append=False), text("two "), text("three"),
        status(S.COMPLETED),
    )  # fmt: skip
    assert [chunk["delta"] for chunk in again if chunk["type"] == "text-delta"] == ["one ", "two ", "three"]
    other = encoded(text("one two", append=False), text("one ", append=False), text("six"), status(S.COMPLETED))
    assert [part["text"] for part in fold_chunks(other)["parts"] if part["type"] == "text"] == ["one two", "one six"]
    less = encoded(text("one two", append=False), text("one", append=False, last=True), status(S.COMPLETED))
    assert [part["text"] for part in fold_chunks(less)["parts"] if part["type"] == "text"] == ["one two", "one"]


def test_only_events_after_the_answered_message_count() -> None:
    about = AnswerInfo(**{name: getattr(ABOUT, name) for name in AnswerInfo.__struct_fields__} | {"asked": "u-2"})
    question = MessageUpdate(task_id="t 1", context_id="ctx", message=message("Monday", "u-2", Role.USER))
    chunks = encoded(
        piece(Part(raw=b"0"), id="files", append=False),
        status(S.INPUT_REQUIRED, "Which?"),
        status(S.WORKING),
        question,
        piece(Part(raw=b"1"), id="files"),
        status(S.COMPLETED, "Booked"),
        about=about,
    )
    assert [chunk["url"][-1] for chunk in chunks if chunk["type"] == "file"] == ["1"]
    assert "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta") == "Booked"
    assert chunks[2]["data"]["status"] == "working"


def test_compacted_logs_show_the_result() -> None:
    whole = Task(
        id="t 1",
        context_id="ctx",
        status=TaskStatus(state=S.COMPLETED),
        artifacts=(Artifact(artifact_id="answer", parts=(Part(text="Hello "), Part(text="you"))),),
    )
    chunks = encoded(whole)
    assert "".join(chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta") == "Hello you"
    assert chunks[-2:] == finish()


@pytest.mark.proves("0-10", "0-48", "0-53")
def test_an_acknowledgement_marks_the_task_in_three_ways() -> None:
    chunks = acknowledgement(ABOUT, "submitted")
    assert chunks[0]["messageMetadata"]["artifactType"] == "task"
    assert chunks[0]["messageMetadata"]["taskId"] == "t 1"
    assert [chunk["type"] for chunk in chunks[1:]] == [
        "start-step",
        "tool-input-available",
        "tool-output-available",
        "data-task",
        "text-start",
        "text-delta",
        "text-end",
        "finish-step",
        "finish",
    ]
    assert chunks[2]["toolName"] == "createTask"
    assert chunks[4]["data"] == {**ROW, "status": "submitted", "seq": 0}
    assert [part["type"] for part in fold_chunks(chunks)["parts"]] == [
        "step-start",
        "tool-createTask",
        "data-task",
        "text",
    ]


def test_a_message_alone_is_an_answer_without_a_task() -> None:
    chunks = message_answer(ABOUT, message("Hi"))
    assert [chunk["type"] for chunk in chunks] == [
        "start", "start-step", "text-start", "text-delta", "text-end", "finish-step", "finish",
    ]  # fmt: skip


def test_older_clients_get_only_supported_parts() -> None:
    last = encoded(status(S.COMPLETED))[-1]
    assert "finishReason" not in json.loads(frame(last)[6:])
    assert json.loads(frame(last, 6)[6:])["finishReason"] == "stop"
    assert frame(last).endswith(b"}\n\n")


# --- whatever happens -------------------------------------------------------------------------------------------------

words = st.text(alphabet="ab ", max_size=4)
parts = st.one_of(
    st.builds(lambda text: Part(text=text), words),
    st.builds(lambda data: Part(data=data), st.sampled_from([None, 1, {"a": None}])),
    st.builds(lambda: Part(raw=b"x", media_type="image/png")),
    st.builds(lambda: Part(url="https://elsewhere.example/x")),
)
tools = st.fixed_dictionaries(
    {"name": st.sampled_from(["createTask", "search", ""]), "callId": st.sampled_from(["1", "2", None])},
    optional={"input": st.none(), "output": st.sampled_from([None, {"taskId": "t-2"}]), "error": words},
)
events = st.one_of(
    st.builds(
        lambda some, id, append, last: piece(*some, id=id, append=append, last=last),
        st.lists(parts, min_size=1, max_size=3),
        st.sampled_from(["a", "b", "a-2"]),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(
        lambda state, said, tool: status(state, said, metadata={"tool": tool}),
        st.sampled_from(list(S)),
        st.one_of(st.none(), words),
        st.one_of(st.none(), tools),
    ),
    st.builds(
        lambda said, role, id: MessageUpdate(task_id="t 1", context_id="ctx", message=message(said, id, role)),
        words,
        st.sampled_from(list(Role)),
        st.sampled_from(["a", "m-1", "m-2"]),
    ),
)


@given(st.lists(events, max_size=25))
def test_every_stream_is_valid_for_clients(bodies: list[EventBody]) -> None:
    encoder = UiStreamEncoder(ABOUT)
    chunks = encoder.begin()
    for seq, body in enumerate(bodies, 1):
        chunks += encoder.feed(Event(seq=seq, body=body, at=AT))
    chunks += encoder.broken("cut off")
    assert encoder.is_done
    assert encoder.feed(Event(seq=99, body=status(S.WORKING, "more"))) == []
    check(chunks)
    again = UiStreamEncoder(ABOUT)
    repeated = again.begin()
    for seq, body in enumerate(bodies, 1):
        repeated += again.feed(Event(seq=seq, body=body, at=AT))
    assert [*repeated, *again.broken("cut off")] == chunks
    message = fold_chunks(chunks)
    assert all(part.get("state") != "streaming" for part in message["parts"])
    assert "finishReason" in message["metadata"]


KNOWN = {
    "start": {"messageId", "messageMetadata"},
    "start-step": set(),
    "text-start": {"id"},
    "text-delta": {"id", "delta"},
    "text-end": {"id"},
    "tool-input-available": {"toolCallId", "toolName", "input", "dynamic"},
    "tool-output-available": {"toolCallId", "output", "dynamic"},
    "tool-output-error": {"toolCallId", "errorText", "dynamic"},
    "file": {"url", "mediaType"},
    "message-metadata": {"messageMetadata"},
    "finish-step": set(),
    "finish": {"messageMetadata"},
    "abort": set(),
    "error": {"errorText"},
}
"""Types of chunks and their members, as ai 5.0.0 has them, which refuses all others."""


def check(chunks: Sequence[Chunk]) -> None:
    """Check what clients would: types, members, order."""
    open_texts: set[str] = set()
    texts: set[str] = set()
    calls: set[str] = set()
    for sent in chunks:
        chunk: dict[str, Any] = json.loads(frame(sent)[6:])
        kind = chunk["type"]
        members = {"id", "data"} if kind.startswith("data-") else KNOWN[kind]
        assert set(chunk) - {"type"} <= members
        assert None not in chunk.values()
        if kind == "text-start":
            assert chunk["id"] not in texts
            texts.add(chunk["id"])
            open_texts.add(chunk["id"])
        elif kind.startswith("text-"):
            assert chunk["id"] in open_texts
            open_texts -= {chunk["id"]} if kind == "text-end" else set()
        elif kind == "tool-input-available":
            assert chunk["toolCallId"] not in calls
            calls.add(chunk["toolCallId"])
        elif kind.startswith("tool-output"):
            assert chunk["toolCallId"] in calls
    kinds = [chunk["type"] for chunk in chunks]
    assert kinds[0] == "start"
    assert kinds.count("start") == 1
    assert not open_texts
    assert [kind for kind in kinds if kind in ("finish", "error")] == kinds[-1:]


# --- what people say --------------------------------------------------------------------------------------------------


@pytest.mark.proves("0-21", "0-72")
def test_text_files_and_data_reach_the_agent_whole() -> None:
    mine = {
        "id": "u",
        "role": "user",
        "metadata": {"skill": "x"},
        "parts": [
            {"type": "text", "text": "Look"},
            {"type": "file", "mediaType": "image/png", "filename": "a.png", "url": "data:image/png;base64,AAEC"},
            {"type": "file", "mediaType": "text/plain", "url": "data:,a%20b"},
            {"type": "file", "mediaType": "application/pdf", "url": "https://files.example/a.pdf"},
            {"type": "data-form", "id": "f", "data": {"a": [None, 1]}},
            {"type": "step-start"},
        ],
    }
    assert to_agent_parts(mine) == (
        Part(text="Look"),
        Part(raw=b"\x00\x01\x02", media_type="image/png", filename="a.png"),
        Part(raw=b"a b", media_type="text/plain"),
        Part(url="https://files.example/a.pdf", media_type="application/pdf"),
        Part(data={"a": [None, 1]}, metadata={"ui": {"type": "data-form", "id": "f"}}),
    )
    sent = to_agent_message(mine, "u/a", "ctx", "t-1")
    assert (sent.message_id, sent.context_id, sent.task_id, sent.metadata) == ("u/a", "ctx", "t-1", {"skill": "x"})


@pytest.mark.parametrize(
    "part",
    [
        "text",
        {"type": 3},
        {"type": "text"},
        {"type": "file", "url": 3},
        {"type": "file", "url": "ftp://x"},
        {"type": "file", "url": "data:nothing"},
        {"type": "file", "url": "data:;base64,A"},
    ],
    ids=str,
)
def test_unsendable_values_are_refused(part: Any) -> None:
    with pytest.raises(InvalidParams):
        to_agent_parts({"parts": [{"type": "text", "text": "x"}, part]})


@pytest.mark.parametrize(
    ("parts", "title"),
    [
        ([{"type": "text", "text": " a\n b "}], "a b"),
        ([{"type": "text", "text": "x" * 100}], "x" * 79 + "…"),
        ([{"type": "file", "filename": "a.png"}], "a.png"),
        ([{"type": "data-x", "data": 1}], "New chat"),
    ],
)
def test_titles(parts: list[dict[str, Any]], title: str) -> None:
    assert title_from({"parts": parts}) == title
