"""What an agent keeps of a conversation: later tasks of the same caller and context find it, on any node."""

import pytest

from accord import Context, agent
from accord.model import TaskState
from tests.core.conftest import ALICE, BOB, Hosting, saying, state, text
from tests.core.doubles import sent

S = TaskState


@agent
async def counting(ctx: Context) -> str:
    """Count the turns of a conversation."""
    before = await ctx.recall_context("turns")
    await ctx.remember_context("turns", f"{before or ''}{ctx.text} ")
    return f"before: {before}"


async def test_later_tasks_of_a_context_find_what_earlier_ones_kept(hosting: Hosting) -> None:
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
async def test_a_run_finds_what_it_kept_itself(hosting: Hosting, value: str) -> None:
    found = []

    @agent
    async def keeper(ctx: Context) -> None:
        await ctx.remember_context("k", value)
        found.append(await ctx.recall_context("k"))

    host = await hosting(keeper)
    await sent(host.default, saying("a"), ALICE)
    assert found == [value]
