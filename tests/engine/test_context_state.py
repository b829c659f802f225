"""What an agent keeps of a conversation: later tasks of the same caller and context find it, on any node."""

import asyncio

import pytest

from accord import Context, agent
from accord.engine.journal import ConversationHistory
from accord.model import TaskState
from tests.engine.conftest import ALICE, BOB, Hosting, saying, state, text
from tests.engine.doubles import sent

S = TaskState


@agent
async def counting(ctx: Context) -> str:
    """Count the turns of a conversation."""
    before = await ctx.recall_context("turns")
    await ctx.remember_context("turns", f"{before or ''}{ctx.text} ")
    return f"before: {before}"


async def test_conversation_state_is_shared_by_later_tasks(hosting: Hosting) -> None:
    here, there = await hosting(counting), await hosting(counting)
    one, two = here.default, there.default
    first = await sent(one, saying("a"), ALICE)
    assert state(first) is S.COMPLETED
    assert text(first) == "before: None"
    context_id = first.context_id
    assert text(await sent(two, saying("b", context_id=context_id), ALICE)) == "before: a "
    assert text(await sent(one, saying("c", context_id=context_id), ALICE)) == "before: a b "
    assert text(await sent(one, saying("d"), ALICE)) == "before: None"
    assert text(await sent(one, saying("e", context_id=context_id), BOB)) == "before: None"


@pytest.mark.parametrize("value", ["", "ümläut \n" * 1000])
async def test_executions_read_their_own_state(hosting: Hosting, value: str) -> None:
    found = []

    @agent
    async def keeper(ctx: Context) -> None:
        await ctx.remember_context("k", value)
        found.append(await ctx.recall_context("k"))

    host = await hosting(keeper)
    await sent(host.default, saying("a"), ALICE)
    assert found == [value]


async def test_concurrent_updates_of_a_value_both_count(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    read, both = ConversationHistory.recall, asyncio.Barrier(2)
    looks: list[str | None] = []

    async def recall(self: ConversationHistory, key: str) -> str | None:
        found = await read(self, key)
        looks.append(found)
        if len(looks) <= 2:
            await both.wait()  # neither has written when both have looked
        return found

    @agent
    async def adding(ctx: Context) -> str | None:
        if ctx.text == "?":
            return await ctx.recall_context("said")
        await ctx.remember_context("said", lambda before: f"{before or ''}{ctx.text} ")
        return None

    host = await hosting(adding)
    first = await sent(host.default, saying("a"), ALICE)
    looks.clear()
    monkeypatch.setattr(ConversationHistory, "recall", recall)
    again = [saying(text, context_id=first.context_id) for text in ("b", "c")]
    async with asyncio.timeout(30):
        ended = await asyncio.gather(*(sent(host.default, message, ALICE) for message in again))
    assert {state(task) for task in ended} == {S.COMPLETED}
    assert looks[:2] == ["a ", "a "]
    assert looks[2] in ("a b ", "a c "), "who was later looks again"
    assert len(looks) == 3
    said = text(await sent(host.default, saying("?", context_id=first.context_id), ALICE))
    assert sorted(said.split()) == ["a", "b", "c"]
