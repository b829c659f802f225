"""Agents that keep their own account of a task: states that they enter, messages that join the history, its end."""

import asyncio
from typing import Any

import pytest

from accord import Context, agent
from accord.model import CancelRequest, Message, MessageUpdate, Part, Role, TaskState
from accord.protocol.lifecycle import IllegalTransition, TaskEnded
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, said, saying, state, states, text
from tests.engine.doubles import reaches, sent

S = TaskState


@pytest.mark.parametrize("end", [S.COMPLETED, S.FAILED, S.REJECTED, S.CANCELED])
async def test_an_end_that_an_agent_enters_is_the_end(hosting: Hosting, end: TaskState) -> None:
    refused: list[str] = []

    @agent
    async def ends(ctx: Context) -> None:
        await ctx.enter(end, (Part(text="because"), Part(data={"code": 7})), metadata={"k": "v"})
        for late in (ctx.artifact("late"), ctx.say("late")):
            with pytest.raises(TaskEnded):
                await late
            refused.append("late")
        with pytest.raises(IllegalTransition):
            await ctx.enter(S.WORKING)
        raise RuntimeError("after the end it does not matter")

    host = await hosting(ends)
    task = await sent(host.default, saying("go"), ALICE)
    assert (state(task), said(task), refused) == (end, "because", ["late", "late"])
    assert task.status.message is not None
    assert task.status.message.parts[1].data == {"code": 7}


async def test_silent_messages_join_the_history_only(hosting: Hosting) -> None:
    @agent
    async def notes(ctx: Context) -> None:
        await ctx.say("noted")
        await ctx.say(Message(message_id="own", role=Role.AGENT, parts=(Part(text="as it is"),)))
        await ctx.say(None)
        await ctx.artifact("done")

    host = await hosting(notes)
    events = await all_of(host.default.stream(saying("go"), ALICE))
    told = [event.body.message.parts[0].text for event in events if isinstance(event.body, MessageUpdate)]
    assert told in ([], ["noted", "as it is"])  # dialects have no form for it
    assert S.COMPLETED in states(events)
    first: Any = events[0].body
    task = await reaches(host.default, first.id, S.COMPLETED, ALICE)
    assert [message.parts[0].text for message in task.history] == ["go", "noted", "as it is"]
    assert task.history[2].message_id == "own"


async def test_waiting_callers_see_auth_required(hosting: Hosting) -> None:
    allowed = asyncio.Event()

    @agent
    async def waits(ctx: Context) -> str:
        await ctx.enter(S.AUTH_REQUIRED, "Log in there")
        await allowed.wait()
        await ctx.status("thanks")
        return "done"

    host = await hosting(waits)
    task = await sent(host.default, saying("go"), ALICE)
    assert (state(task), said(task)) == (S.AUTH_REQUIRED, "Log in there")
    allowed.set()
    ended = await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert text(ended) == "done"
    assert state(await sent(host.default, saying("again"), ALICE)) is S.AUTH_REQUIRED


@pytest.mark.parametrize("how", ["cancelled", "handed over"])
async def test_stopped_agents_can_check_for_the_end(hosting: Hosting, how: str) -> None:
    begun, seen = asyncio.Event(), asyncio.get_running_loop().create_future()

    @agent
    async def holds(ctx: Context) -> None:
        assert not await ctx.has_ended()
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.set_result(await ctx.has_ended())
            raise

    host = await hosting(holds)
    task = await sent(host.default, saying("go", configuration=AT_ONCE), ALICE)
    await begun.wait()
    if how == "cancelled":
        await host.default.cancel(CancelRequest(id=task.id), ALICE)
    else:
        await host.stop(0)
    assert await seen is (how == "cancelled")
