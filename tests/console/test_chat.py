"""Chatting over HTTP: what is said is kept, answers come as chunks of the AI SDK, and go on without their readers."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from accord.console import chat_answers
from accord.storage.address import open_store
from accord.storage.commands import chats
from accord.storage.commands.chats import Chat, NewChatTurn
from accord.storage.store import Tx
from tests.console.chatting import Chatting, Gate, chunks_of, coming, only, said, text_of, texts, types
from tests.console.conftest import Asking, serving


@pytest.mark.proves("0-22", "0-71")
async def test_an_answer_comes_as_a_ui_message_stream(server: Asking) -> None:
    answer = await server("POST", "/chat", {"id": "c-1", "message": said("hello you"), "agent": "echo"})
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    assert answer.headers["x-accel-buffering"] == "no"
    chunks = chunks_of(answer)
    assert text_of(chunks) == "hello you"
    assert types(chunks)[:3] == ["start", "start-step", "data-task"]
    assert types(chunks)[-2:] == ["finish-step", "finish"]
    assert "finishReason" not in chunks[-1]  # ai 5.0.0 refuses what it does not know
    states = [chunk["data"]["status"] for chunk in only(chunks, "data-task")]
    assert states[0] == "submitted"
    assert states[-1] == "completed"
    task_id = chunks[0]["messageMetadata"]["taskId"]
    assert {chunk["id"] for chunk in only(chunks, "data-task")} == {task_id}
    assert (await server.get(f"/tasks/{task_id}"))["status"] == "completed"


@pytest.mark.proves("0-21", "0-05", "0-75", "0-76")
async def test_messages_are_kept_as_clients_have_them(server: Asking) -> None:
    alice = Chatting(server)
    mine = said("hello", "u-1", metadata={"skin": "dark"}, unknown={"a": [1, None]})
    chunks = await alice.say("c-1", mine, agent="echo")
    history = await alice.history("c-1")
    assert history[0] == mine
    assert history[1]["id"] == chunks[0]["messageId"]
    assert history[1]["role"] == "assistant"
    assert texts(history[1]) == "hello"
    assert history[1]["metadata"]["finishReason"] == "stop"
    assert [part["type"] for part in history[1]["parts"]] == ["step-start", "data-task", "text"]
    chat = (await server.get("/chats/c-1"))["chat"]
    assert chat["title"] == "hello"
    assert chat["isActive"] is False


@pytest.mark.proves("0-01")
async def test_tasks_outside_a_chat_are_refused(server: Asking) -> None:
    """The chat has what was said; how the task stands is asked of the task, with or without the chat."""
    alice = Chatting(server)
    task_id = (await alice.say("c-1", said("hello"), agent="asker"))[0]["messageMetadata"]["taskId"]
    before = await server.get(f"/tasks/{task_id}")
    assert (before["status"], before["chatId"]) == ("input-required", "c-1")
    assert (await server("DELETE", "/chats/c-1")).status == 204
    assert (await server("GET", "/chats/c-1")).status == 404
    after = await server.get(f"/tasks/{task_id}")
    assert after == before | {"chatId": None, "feed": after["feed"]}  # which only says how far the news are read
    await server.post(f"/tasks/{task_id}/reply", {"text": "Monday"})
    assert (await server.reaches(task_id))["result"] == "Booked for Monday"


@pytest.mark.proves("0-73", "0-74")
async def test_two_turns_have_one_context(server: Asking) -> None:
    alice = Chatting(server)
    first, second = await alice.say("c-1", said("a"), agent="echo"), await alice.say("c-1", said("b", "u-2"))
    context_id = first[0]["messageMetadata"]["contextId"]
    assert second[0]["messageMetadata"]["contextId"] == context_id
    assert (await server.get("/chats/c-1"))["chat"]["contextId"] == context_id
    rows = (await server.get("/tasks", query=f"contextId={context_id}"))["items"]
    assert {row["id"] for row in rows} == {one[0]["messageMetadata"]["taskId"] for one in (first, second)}
    assert [texts(message) for message in await alice.history("c-1")] == ["a", "a", "b", "b"]


async def test_answers_survive_a_closed_page(
    address: str,
) -> None:
    gate = Gate()
    async with serving(address, gate.agent) as asking:
        alice = Chatting(asking)
        async with alice.saying("c-1", said("go")) as answer:
            start = await anext(coming(answer))
            await gate.reached.wait()
        view = await asking.get("/chats/c-1")
        assert [message["role"] for message in view["messages"]] == ["user"]  # not what is still coming
        assert view["chat"]["isActive"] is True
        async with alice.resuming("c-1") as one, alice.resuming("c-1") as two:
            assert one.status == two.status == 200
            gate.opened.set()
            await asyncio.gather(one.read(), two.read())
        assert chunks_of(one) == chunks_of(two)
        assert chunks_of(one)[0] == start
        assert text_of(chunks_of(one)) == "one two three"
        async with alice.resuming("c-1") as idle:
            assert idle.status == 204
        assert texts((await alice.history("c-1"))[1]) == "one two three"
        assert gate.runs == 1


async def test_an_answer_outlives_its_server(address: str) -> None:
    gate, later = Gate(), Gate()
    async with AsyncExitStack() as page:
        async with serving(address, gate.agent, server={"grace_seconds": 0.1}) as asking:
            answer = await page.enter_async_context(Chatting(asking).saying("c-1", said("go")))
            start = await anext(coming(answer))
            await gate.reached.wait()
        await answer.read()
    assert chunks_of(answer)[-1]["type"] == "error"  # a stream that just stops looks whole
    async with serving(address, later.agent) as asking:
        alice = Chatting(asking)
        async with alice.resuming("c-1") as again:
            assert again.status == 200
            later.opened.set()
            await again.read()
        chunks = chunks_of(again)
        assert chunks[0] == start
        assert text_of(chunks) == "one two three"  # although the agent has said its first words twice
        history = await alice.history("c-1")
        assert [texts(message) for message in history] == ["go", "one two three"]
        assert history[1]["id"] == start["messageId"]


async def test_unread_answers_come_from_the_log(address: str) -> None:
    gate, later = Gate(), Gate()
    async with (
        serving(address, gate.agent, server={"grace_seconds": 0.1}) as asking,
        Chatting(asking).saying("c-1", said("go")) as answer,
    ):
        start = await anext(coming(answer))
        await gate.reached.wait()
    later.opened.set()
    async with serving(address, later.agent) as asking:
        await asking.reaches(start["messageMetadata"]["taskId"])
        history = await Chatting(asking).history("c-1")
        assert texts(history[1]) == "one two three"
        assert history[1]["id"] == start["messageId"]
        async with Chatting(asking).resuming("c-1") as idle:
            assert idle.status == 204


@pytest.mark.proves("0-72")
async def test_the_next_message_answers_the_question(server: Asking) -> None:
    alice = Chatting(server)
    first = await alice.say("c-1", said("book"), agent="asker")
    asked = only(first, "data-task")[-1]["data"]
    assert asked["status"] == "input-required"
    assert asked["question"] == text_of(first) == "For which day?"
    assert asked["schema"]["type"] == "object"
    assert first[-1]["messageMetadata"]["finishReason"] == "other"
    answer = {"type": "data-reply", "data": {"day": "Monday"}}
    second = await alice.say("c-1", {"id": "u-2", "role": "user", "parts": [answer]}, agent="asker")
    assert second[0]["messageMetadata"]["taskId"] == first[0]["messageMetadata"]["taskId"]
    assert text_of(second) == "Booked for Monday"
    assert only(second, "data-task")[0]["data"]["status"] == "working"
    third = await alice.say("c-1", said("more", "u-3"), agent="asker")
    assert third[0]["messageMetadata"]["taskId"] != first[0]["messageMetadata"]["taskId"]
    assert len(await alice.history("c-1")) == 6


async def test_a_text_decides_no_approval(server: Asking) -> None:
    alice = Chatting(server)
    task_id = (await alice.say("c-1", said("send it"), agent="approver"))[0]["messageMetadata"]["taskId"]
    for number, text in enumerate(("What would be sent?", "yes", "no")):
        body = {"id": "c-1", "message": said(text, f"u-{number}-again")}
        refused = await server("POST", "/chat", body)
        assert refused.status == 422
        assert "a text decides nothing" in refused.json()["detail"]
    assert len(await alice.history("c-1")) == 2
    assert (await server.get(f"/tasks/{task_id}"))["waiting"] == "approval"
    reply = {"type": "data-reply", "data": {"approved": True}}
    outdated = {"id": "u-9", "role": "user", "parts": [{**reply, "id": "another question"}]}
    assert (await server("POST", "/chat", {"id": "c-1", "message": outdated})).status == 400
    question = (await server.get(f"/tasks/{task_id}"))["question"]["id"]
    decided = {"id": "u-2", "role": "user", "parts": [{**reply, "id": question}]}
    chunks = await alice.say("c-1", decided)
    assert chunks[0]["messageMetadata"]["taskId"] == task_id
    assert text_of(chunks) == "sent"
    late = await server("POST", "/chat", {"id": "c-1", "message": {**decided, "id": "u-3"}})
    assert late.status == 400, "it begins no task of its own"


async def test_stopping_is_a_request_of_its_own() -> None:
    gate = Gate()
    async with serving("sqlite://:memory:", gate.agent) as asking:
        alice = Chatting(asking)
        async with alice.saying("c-1", said("go")) as answer:
            await gate.reached.wait()
            assert (await asking("POST", "/chat/c-1/stop", {"messageId": "another"})).status == 204
            assert (await asking("POST", "/chat/c-1/stop")).status == 204
            await answer.read()
        chunks = chunks_of(answer)
        assert only(chunks, "data-task")[-1]["data"]["status"] == "canceled"
        assert types(chunks)[-3:] == ["abort", "finish-step", "finish"]
        assert (await asking("POST", "/chat/c-1/stop")).status == 204  # there is nothing left to stop
        assert (await alice.history("c-1"))[1]["metadata"]["finishReason"] == "abort"


async def test_failures_end_with_an_error(quick: Asking) -> None:
    alice = Chatting(quick)
    chunks = await alice.say("c-1", said("go"), agent="failing")
    assert only(chunks, "data-task")[-1]["data"]["status"] == "failed"
    assert chunks[-1] == {"type": "error", "errorText": "There is no paper left"}
    assert (await alice.history("c-1"))[1]["metadata"]["finishReason"] == "error"


async def test_an_answer_can_be_given_again(server: Asking) -> None:
    alice = Chatting(server)
    await alice.say("c-1", said("a"), agent="echo")
    first = await alice.say("c-1", said("b", "u-2"))
    again = await alice.again("c-1", messageId=first[0]["messageId"])
    assert again[0]["messageId"] != first[0]["messageId"]
    assert again[0]["messageMetadata"]["taskId"] != first[0]["messageMetadata"]["taskId"]
    assert [texts(message) for message in await alice.history("c-1")] == ["a", "a", "b", "b"]
    last = await alice.again("c-1")
    assert [message["id"] for message in await alice.history("c-1")][2:] == ["u-2", last[0]["messageId"]]
    missing = await server("POST", "/chat", {"id": "c-1", "trigger": "regenerate-message", "messageId": "nobody"})
    assert missing.status == 404


async def test_an_answer_given_again_cancels_the_task_that_still_asks(server: Asking) -> None:
    alice = Chatting(server)
    first = await alice.say("c-1", said("book"), agent="asker")
    again = await alice.again("c-1", messageId=first[0]["messageId"])
    old, new = (chunks[0]["messageMetadata"]["taskId"] for chunks in (first, again))
    assert (await server.reaches(old))["status"] == "canceled"
    assert (await server.get(f"/tasks/{new}"))["status"] == "input-required"
    assert [item["task"]["id"] for item in (await server.get("/inbox"))["items"]] == [new]


async def test_edited_messages_replace_later_ones(server: Asking) -> None:
    alice = Chatting(server)
    await alice.say("c-1", said("a"), agent="echo")
    await alice.say("c-1", said("b", "u-2"))
    await alice.say("c-1", said("c"), messageId="u-1")
    assert [texts(message) for message in await alice.history("c-1")] == ["c", "c"]


async def test_a_request_that_is_repeated_reads_the_same_answer() -> None:
    gate = Gate()
    async with serving("sqlite://:memory:", gate.agent) as asking:
        alice = Chatting(asking)
        async with alice.saying("c-1", said("go")) as one, alice.saying("c-1", said("go")) as two:
            gate.opened.set()
            await asyncio.gather(one.read(), two.read())
        assert chunks_of(one) == chunks_of(two)
        assert gate.runs == 1


@pytest.mark.proves("0-40")
async def test_chats_are_their_owners(server: Asking) -> None:
    await Chatting(server).say("c-1", said("secret"), agent="echo")
    for by in ("bob", "dora", "carol"):
        assert (await server("GET", "/chats/c-1", by=by)).status == 404
        assert (await server("GET", "/chat/c-1/stream", by=by)).status == 204
        assert (await server("POST", "/chat/c-1/stop", by=by)).status == 404
        assert (await server("PATCH", "/chats/c-1", {"title": "mine"}, by=by)).status == 404
        assert (await server("DELETE", "/chats/c-1", by=by)).status == 404
        assert (await server.get("/chats", by=by))["items"] == []
    taken = await server("POST", "/chat", {"id": "c-1", "message": said("x"), "agent": "echo"}, by="bob")
    assert taken.status == 404
    other = await Chatting(server, "carol").say("c-1", said("mine"), agent="echo")  # a tenant has its own ids
    assert text_of(other) == "mine"
    assert len(await Chatting(server).history("c-1")) == 2


async def test_chats_are_listed_found_renamed_and_removed(server: Asking) -> None:
    alice = Chatting(server)
    for number, text in enumerate(("The weather of Rome", "100% wool", "A long story " + "x" * 200)):
        await alice.say(f"c-{number}", said(text), agent="echo")
    page = await server.get("/chats", query="limit=2")
    rest = await server.get("/chats", query=f"limit=2&page={page['next']}")
    assert [chat["id"] for chat in (*page["items"], *rest["items"])] == ["c-2", "c-1", "c-0"]
    assert rest["next"] is None
    assert len(page["items"][0]["title"]) <= 80
    found = {q: [chat["id"] for chat in (await server.get("/chats", query=f"q={q}"))["items"]] for q in FOUND}
    assert found == FOUND
    renamed = await server("PATCH", "/chats/c-0", {"title": "Rome"})
    assert renamed.json()["title"] == "Rome"
    assert (await server("PATCH", "/chats/c-0", {"title": ""})).status == 422
    assert (await server("DELETE", "/chats/c-0")).status == 204
    assert (await server("GET", "/chats/c-0")).status == 404
    assert (await server.get("/tasks"))["total"] == 3


FOUND: dict[str, list[str]] = {"WEATHER": ["c-0"], "100%25": ["c-1"], "%25": ["c-1"], "nothing": []}


async def test_open_pages_hear_of_chats(quick: Asking) -> None:
    async with quick.listening() as mine, quick.listening(by="bob") as others:
        await Chatting(quick).say("c-1", said("hello"), agent="echo")
        await mine.hears("chat", id="c-1", isActive=False)
        await Chatting(quick, "bob").say("c-9", said("hi"), agent="echo")
        await others.hears("chat", id="c-9", isActive=False)
    assert {body["id"] for kind, body in others.heard if kind == "chat"} == {"c-9"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"id": "c", "agent": "echo"}, 422),
        ({"id": "", "message": said("x")}, 422),
        ({"id": "c", "message": said("x"), "agent": "nobody"}, 422),
        ({"id": "c", "message": {"role": "assistant", "parts": []}}, 422),
        ({"id": "c", "message": {"role": "user", "parts": []}}, 422),
        ({"id": "c", "message": {"role": "user", "parts": [{"type": "file", "url": "file:///etc/passwd"}]}}, 422),
        ({"id": "c", "message": {"role": "user", "parts": [{"type": "file", "url": "data:a;base64,%%%"}]}}, 422),
        ({"id": "c", "trigger": "regenerate-message"}, 404),
        ({"id": "c", "message": said("x" * (33 * 1024 * 1024))}, 413),
    ],
    ids=str,
)
async def test_invalid_messages_are_refused_and_not_stored(quick: Asking, body: dict[str, Any], status: int) -> None:
    answer = await quick("POST", "/chat", body)
    assert answer.status == status
    assert answer.json()["detail"]
    assert (await quick.get("/chats"))["items"] == []


async def test_a_message_that_the_agent_refuses_can_be_sent_again(quick: Asking) -> None:
    picture = {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,iVBORw0="}
    refused = await quick("POST", "/chat", {"id": "c-1", "message": said("look", "u-1", picture), "agent": "echo"})
    assert refused.status >= 400
    view = await quick.get("/chats/c-1")
    assert [message["id"] for message in view["messages"]] == ["u-1"]
    assert view["chat"]["isActive"] is False
    changed = await Chatting(quick).say("c-1", said("look"), messageId="u-1")
    assert text_of(changed) == "look"


async def test_newer_clients_get_the_finish_reason(quick: Asking) -> None:
    chunks = await Chatting(quick).say("c-1", said("hi"), "ui=6", agent="echo")
    assert chunks[-1]["finishReason"] == "stop"


async def test_a_stream_in_which_nothing_happens_is_kept_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_answers, "KEEP_ALIVE_SECONDS", 0.01)
    gate = Gate()
    async with serving("sqlite://:memory:", gate.agent) as asking, Chatting(asking).saying("c-1", said("go")) as answer:
        async for piece in answer.pieces():
            if piece.startswith(b": "):
                break
        gate.opened.set()
        await answer.read()
    assert text_of(chunks_of(answer)) == "one two three"


@pytest.mark.parametrize(("age", "found"), [(chat_answers.UNSURE_MS + 1, chat_answers.NOT_SENT), (0, None)])
async def test_answers_without_a_task_are_searched(address: str, age: int, found: str | None) -> None:
    """As after a process that was lost between keeping what was said and telling the agent."""
    async with serving(address):
        pass
    at = time.time_ns() // 1_000_000 - age
    chat = Chat(id="c-1", owner="alice", context_id="x", agent="echo", title="t", created_at=at, updated_at=at)
    turn = NewChatTurn(chat=chat, agent="echo", answer_id="a-1", at=at, message_id="u-1", doc=json.dumps(said("hi")))
    async with open_store(address, lambda _: None) as store:
        await store.do(chats.start_turn, "acme", turn)
    async with serving(address) as asking:
        history = await Chatting(asking).history("c-1")
        if found is None:
            assert len(history) == 1  # it may be on its way
        else:
            assert history[1]["metadata"]["finishReason"] == "error"


async def test_unlinked_answers_are_found_by_message_id(address: str) -> None:
    async with serving(address) as asking:
        alice = Chatting(asking)
        chunks = await alice.say("c-1", said("hello"), agent="echo")
    async with open_store(address, lambda _: None) as store:
        await store.do(_unlinked)
    async with serving(address) as asking:
        history = await Chatting(asking).history("c-1")
        assert texts(history[1]) == "hello"
        assert history[1]["metadata"]["taskId"] == chunks[0]["messageMetadata"]["taskId"]


async def _unlinked(tx: Tx) -> None:
    await tx.run("UPDATE message SET task_id = NULL, data = NULL, doc = NULL WHERE role = 'assistant'")
