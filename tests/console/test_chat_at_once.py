"""Requests to one chat that come at once: nothing is said twice, and of several answers only the last goes on."""

import asyncio
import time

import pytest

from accord.storage.address import open_store
from accord.storage.commands import chats
from accord.storage.commands.chats import NewChatTurn
from tests.console.chatting import Chatting, Chunk, Gate, coming, said, texts
from tests.console.conftest import Asking, serving
from tests.engine.doubles import until


async def test_concurrent_duplicate_messages_share_one_answer(address: str) -> None:
    gate, all_read = Gate(), asyncio.Barrier(5)
    async with serving(address, gate.agent) as asking:
        alice = Chatting(asking)

        async def ask() -> list[Chunk]:
            async with alice.saying("c-1", said("go")) as answer:
                await all_read.wait()  # whoever comes when it has been answered has it answered again
                return [chunk async for chunk in coming(answer)]

        answers = [asyncio.create_task(ask()) for _ in range(4)]
        await all_read.wait()
        gate.opened.set()
        assert len({(await answer)[0]["messageId"] for answer in answers}) == 1
        assert gate.runs == 1
        assert [texts(message) for message in await alice.history("c-1")] == ["go", "one two three"]


async def test_answers_that_make_way_while_they_are_sent_are_cancelled(address: str) -> None:
    gate = Gate()
    async with serving(address, gate.agent) as asking:
        alice = Chatting(asking)
        gate.opened.set()
        (start, *_) = await alice.say("c-1", said("go"))
        gate.opened.clear()
        again = [asyncio.create_task(alice.again("c-1")) for _ in range(4)]
        where = f"contextId={start['messageMetadata']['contextId']}"

        async def is_settled() -> bool:
            rows = (await asking.get("/tasks", query=where))["items"]
            states = sorted(row["status"] for row in rows)
            return states == ["canceled", "canceled", "canceled", "completed", "working"]

        await until(is_settled)
        gate.opened.set()
        answers = await asyncio.gather(*again)
        (kept,) = [chunks for chunks in answers if chunks[-1]["messageMetadata"]["finishReason"] == "stop"]
        assert [message["id"] for message in await alice.history("c-1")] == ["u-1", kept[0]["messageId"]]


async def test_an_answer_is_stopped_that_another_process_is_still_sending(address: str) -> None:
    """The other process is one that has only kept what is said, which is how far it may be when somebody stops it."""
    async with serving(address) as asking, open_store(address, lambda _: None) as elsewhere:
        await Chatting(asking).say("c-1", said("hello"), agent="echo")
        chat = await elsewhere.read(chats.find, "acme", "alice", "c-1")
        assert chat is not None
        now = round(time.time() * 1000)
        turn = NewChatTurn(chat=chat, agent="echo", answer_id="a-2", at=now, message_id="u-2", doc='{"parts":[]}')
        await elsewhere.do(chats.start_turn, "acme", turn)
        assert (await asking("POST", "/chat/c-1/stop")).status == 204
        assert not await elsewhere.do(
            chats.link_task, "acme", "c-1", "a-2", "t-2", None, "{}"
        )  # so its task is cancelled
        assert (await asking("GET", "/chat/c-1/stream")).status == 204


@pytest.mark.parametrize("id", ["a/b", ".", ".."])
async def test_a_chat_has_an_id_that_addresses_can_have(quick: Asking, id: str) -> None:
    answer = await quick("POST", "/chat", {"id": id, "message": said("hello"), "agent": "echo"})
    assert answer.status == 422
    assert answer.json()["findings"][0]["field"] == "id"


async def test_callers_over_the_stream_limit_send_nothing() -> None:
    async with serving(limits={"streams": 1}) as asking, asking.listening():
        answer = await asking("POST", "/chat", {"id": "c-1", "message": said("hello"), "agent": "echo"})
        assert answer.status == 429
        await asking.get("/chats/c-1", 404)
        assert (await asking.get("/tasks"))["items"] == []
