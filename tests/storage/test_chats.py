"""Chats and their messages: a question is kept with the answer to come, which is filled in once."""

import pytest
from msgspec.structs import replace

from accord.storage.commands import chats, task_lifecycle
from accord.storage.commands.chats import Chat, DuplicateMessage, NewChatTurn, NoSuchChat, StartedTurn
from tests.storage.conftest import AT, OTHER, TENANT, AnyStore, Heard, accepting


def chat(id: str = "c-1", owner: str = "alice", title: str = "Rome", at: int = AT) -> Chat:
    return Chat(id=id, owner=owner, context_id=f"x-{id}", agent="echo", title=title, created_at=at, updated_at=at)


def turn(number: int = 1, of: Chat | None = None, **fields: object) -> NewChatTurn:
    """Something said, and the answer to come."""
    said = {"message_id": f"u-{number}", "doc": f'{{"text": "said {number}"}}'}
    given = {"chat": of or chat(), "agent": "echo", "answer_id": f"a-{number}", "at": AT + number, **said, **fields}
    return NewChatTurn(**given)  # type: ignore[arg-type]  # the tests say what they need


async def ids(store: AnyStore, chat_id: str = "c-1") -> list[str]:
    return [one.id for one in await store.read(chats.list_messages, TENANT, chat_id)]


@pytest.mark.proves("0-05", "0-76")
async def test_a_question_is_kept_with_the_answer_to_come(ready: AnyStore) -> None:
    begun = await ready.do(chats.start_turn, TENANT, turn())
    assert begun == StartedTurn(chat=replace(chat(), updated_at=AT + 1))
    question, answer = await ready.read(chats.list_messages, TENANT, "c-1")
    assert (question.id, question.role, question.doc) == ("u-1", "user", '{"text": "said 1"}')
    assert (answer.id, answer.role, answer.doc, answer.context_id) == ("a-1", "assistant", None, "x-c-1")
    data = '{"artifactType":"task","taskId":"t-1"}'
    await ready.do(chats.link_task, TENANT, "c-1", "a-1", "t-1", None, data)
    (linked,) = await ready.read(chats.list_pending_answers, TENANT, "c-1")
    assert (linked.task_id, linked.data) == ("t-1", data)
    assert await ready.do(chats.finish_answer, TENANT, "c-1", "a-1", "{}")
    assert not await ready.do(chats.finish_answer, TENANT, "c-1", "a-1", "again")
    assert await ready.read(chats.list_pending_answers, TENANT, "c-1") == []


async def test_chats_keep_context_and_title(ready: AnyStore) -> None:
    await ready.do(chats.start_turn, TENANT, turn())
    other = replace(chat(), context_id="another", title="another")
    begun = await ready.do(chats.start_turn, TENANT, turn(2, other, agent="asker"))
    assert (begun.chat.context_id, begun.chat.title, begun.chat.agent) == ("x-c-1", "Rome", "asker")
    assert await ids(ready) == ["u-1", "a-1", "u-2", "a-2"]
    assert await ready.read(chats.find_by_context, TENANT, "alice", "x-c-1") == "c-1"
    assert await ready.read(chats.find_by_context, TENANT, "bob", "x-c-1") is None


async def test_duplicate_messages_and_dropped_answers_are_not_stored(ready: AnyStore) -> None:
    await ready.do(chats.start_turn, TENANT, turn())
    with pytest.raises(DuplicateMessage):
        await ready.do(chats.start_turn, TENANT, turn(answer_id="a-2"))
    assert await ids(ready) == ["u-1", "a-1"]
    await ready.do(chats.start_turn, TENANT, turn(answer_id="a-2", instead_of="u-1"))
    assert await ids(ready) == ["u-1", "a-2"]
    assert not await ready.do(chats.link_task, TENANT, "c-1", "a-1", "t-1", None, "{}")
    assert await ready.do(chats.link_task, TENANT, "c-1", "a-2", "t-2", None, "{}")
    await ready.do(chats.finish_answer, TENANT, "c-1", "a-2", "{}")
    assert await ready.do(chats.link_task, TENANT, "c-1", "a-2", "t-3", None, "{}")  # it is there, and as it was
    assert (await ready.read(chats.list_messages, TENANT, "c-1"))[1].task_id == "t-2"


async def test_an_answer_that_has_a_task_is_not_withdrawn(ready: AnyStore) -> None:
    await ready.do(chats.start_turn, TENANT, turn())
    await ready.do(chats.link_task, TENANT, "c-1", "a-1", "t-1", None, "{}")
    await ready.do(chats.withdraw_answer, TENANT, "c-1", "a-1")
    assert await ids(ready) == ["u-1", "a-1"]


async def test_messages_make_way(ready: AnyStore) -> None:
    for number in (1, 2, 3):
        await ready.do(chats.start_turn, TENANT, turn(number))
    await ready.do(chats.finish_answer, TENANT, "c-1", "a-1", "{}")
    again = await ready.do(chats.start_turn, TENANT, turn(4, doc=None, after="u-3"))
    assert [said.id for said in again.dropped] == ["a-3"]
    assert await ids(ready) == ["u-1", "a-1", "u-2", "a-2", "u-3", "a-4"]
    changed = await ready.do(chats.start_turn, TENANT, turn(5, message_id="u-1", instead_of="u-1"))
    assert [said.id for said in changed.dropped] == ["a-1", "a-2", "a-4"]  # a task may outlive its answer
    assert await ids(ready) == ["u-1", "a-5"]
    with pytest.raises(NoSuchChat):
        await ready.do(chats.start_turn, TENANT, turn(6, after="nobody"))
    await ready.do(chats.withdraw_answer, TENANT, "c-1", "a-5")
    assert await ids(ready) == ["u-1"]


async def test_last_and_earlier_messages_are_found(ready: AnyStore) -> None:
    for number in (1, 2):
        await ready.do(chats.start_turn, TENANT, turn(number))
    assert [one.id for one in await ready.read(chats.read_message_pair, TENANT, "c-1")] == ["u-2", "a-2"]
    assert [one.id for one in await ready.read(chats.read_message_pair, TENANT, "c-1", "a-1")] == ["u-1", "a-1"]
    assert [one.id for one in await ready.read(chats.read_message_pair, TENANT, "c-1", "u-1")] == ["u-1"]
    assert await ready.read(chats.read_message_pair, TENANT, "c-1", "nobody") == []


@pytest.mark.proves("0-40")
async def test_others_do_not_have_a_chat(ready: AnyStore) -> None:
    await ready.do(chats.start_turn, TENANT, turn())
    with pytest.raises(NoSuchChat):
        await ready.do(chats.start_turn, TENANT, turn(2, chat(owner="bob")))
    assert await ready.read(chats.find, TENANT, "bob", "c-1") is None
    assert await ready.read(chats.find, OTHER, "alice", "c-1") is None
    assert not await ready.do(chats.rename, TENANT, "bob", "c-1", "mine")
    assert not await ready.do(chats.delete, TENANT, "bob", "c-1")
    assert await ready.read(chats.list_chats, TENANT, "bob") == []
    assert await ids(ready) == ["u-1", "a-1"]
    assert (await ready.do(chats.start_turn, OTHER, turn(1, chat(owner="bob")))).chat.owner == "bob"


async def test_chats_are_listed_by_page_and_by_words(ready: AnyStore) -> None:
    for number, title in enumerate(("Rome", "100%", "a_b", "axb")):
        await ready.do(chats.start_turn, TENANT, turn(1, chat(f"c-{number}", title=title), at=AT + number))
    page = await ready.read(chats.list_chats, TENANT, "alice", "", None, 3)
    assert [one.id for one in page] == ["c-3", "c-2", "c-1"]
    rest = await ready.read(chats.list_chats, TENANT, "alice", "", (page[-1].updated_at, page[-1].id), 3)
    assert [one.id for one in rest] == ["c-0"]
    for words, found in (("rOme", ["c-0"]), ("%", ["c-1"]), ("a_b", ["c-2"]), ("SAID 1", ["c-3", "c-2", "c-1", "c-0"])):
        assert [one.id for one in await ready.read(chats.list_chats, TENANT, "alice", words)] == found


async def test_chats_are_active_while_their_task_runs(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    await ready.do(chats.start_turn, TENANT, turn())
    assert not (await ready.read(chats.list_chats, TENANT, "alice"))[0].is_active
    await ready.do(chats.link_task, TENANT, "c-1", "a-1", "t-1", None, "{}")
    found = await ready.read(chats.find, TENANT, "alice", "c-1")
    assert found is not None
    assert found.is_active
    await ready.do(chats.finish_answer, TENANT, "c-1", "a-1", "{}")
    assert not (await ready.read(chats.list_chats, TENANT, "alice"))[0].is_active


async def test_a_chat_is_renamed_and_removed_with_its_messages(ready: AnyStore) -> None:
    await ready.do(chats.start_turn, TENANT, turn())
    assert await ready.do(chats.rename, TENANT, "alice", "c-1", "Naples")
    assert (await ready.read(chats.list_chats, TENANT, "alice"))[0].title == "Naples"
    assert await ready.do(chats.delete, TENANT, "alice", "c-1")
    assert await ids(ready) == []
    assert not await ready.do(chats.delete, TENANT, "alice", "c-1")


async def test_chat_changes_are_notified(ready: AnyStore, heard: Heard) -> None:
    mine = chat("a:b c", title="Rome: notes")
    topic = chats.chat_topic(TENANT, mine.id)
    assert chats.chat_of_topic(topic) == (TENANT, mine.id)
    for change in (
        ready.do(chats.start_turn, TENANT, turn(of=mine)),
        ready.do(chats.link_task, TENANT, mine.id, "a-1", "t-1", None, "{}"),
        ready.do(chats.finish_answer, TENANT, mine.id, "a-1", "{}"),
        ready.do(chats.rename, TENANT, "alice", mine.id, "Oslo"),
    ):
        heard.clear()
        await change
        assert topic in heard
    (found,) = await ready.read(chats.rows, TENANT, [mine.id, "nobody's"])
    assert (found.id, found.owner, found.title) == (mine.id, "alice", "Oslo")
    assert await ready.read(chats.rows, OTHER, [mine.id]) == []
    assert await ready.read(chats.rows, TENANT, []) == []
