"""Tasks that are held until somebody executes them, and tasks that runs begin beside their own."""

import asyncio
from typing import Any

import pytest

from accord import Context, agent
from accord.a2a import Caller
from accord.errors import PermissionDenied, TaskNotFound, UnsupportedOperation
from accord.model import CancelRequest, GetRequest, SendRequest, TaskFilter, TaskState
from accord.model.metadata_keys import HOLD, TASK_CONFIG
from accord.server.pipeline import pipeline
from tests.engine.conftest import ALICE, BOB, Hosting, saying, state, text
from tests.engine.doubles import reaches, rows, sent

S = TaskState
HELD = {HOLD: True}


@agent
async def echo(ctx: Context) -> str:
    return f"said {ctx.text}"


def held(metadata: dict[str, Any] = HELD) -> SendRequest:
    return saying("later", metadata=metadata)


@pytest.mark.proves("0-09", "0-50")
async def test_a_held_task_waits_until_it_is_executed(hosting: Hosting) -> None:
    host = await hosting(echo)
    task = await sent(host.default, held(), ALICE)  # which answers at once although it was not asked to
    assert state(task) is S.SUBMITTED
    assert await rows(host.node.store, "job", "key, parked, node") == [(task.id, 1, None)]
    begun = await host.default.start_held_task(task.id, ALICE)
    assert begun.id == task.id
    ended = await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert text(ended) == "said later"
    assert (
        state(await host.default.start_held_task(task.id, ALICE)) is S.COMPLETED
    )  # once more is no error, and does nothing


async def test_only_whose_it_is_executes_it(hosting: Hosting) -> None:
    host = await hosting(echo)
    task = await sent(host.default, held(), ALICE)
    with pytest.raises(TaskNotFound):
        await host.default.start_held_task(task.id, BOB)
    with pytest.raises(TaskNotFound):
        await host.default.start_held_task("nobody's", ALICE)
    reader = Caller(tenant="acme", owner="alice", roles=frozenset({"reader"}))
    with pytest.raises(PermissionDenied):
        await pipeline(host.default, "echo").start_held_task(task.id, reader)
    assert state(await host.default.get(GetRequest(id=task.id), ALICE)) is S.SUBMITTED
    await pipeline(host.default, "echo").start_held_task(task.id, ALICE)
    await reaches(host.default, task.id, S.COMPLETED, ALICE)


async def test_a_held_task_can_be_cancelled_and_then_not_be_executed(hosting: Hosting) -> None:
    host = await hosting(echo)
    task = await sent(host.default, held(), ALICE)
    await host.default.cancel(CancelRequest(id=task.id), ALICE)
    with pytest.raises(UnsupportedOperation):
        await host.default.start_held_task(task.id, ALICE)
    assert await rows(host.node.store, "job", "key") == []


async def test_a_held_task_outlives_its_node(hosting: Hosting) -> None:
    first = await hosting(echo)
    task = await sent(first.default, held(), ALICE)
    await first.stop(0)
    second = await hosting(echo)
    assert state(await second.default.get(GetRequest(id=task.id), ALICE)) is S.SUBMITTED
    await second.default.start_held_task(task.id, ALICE)
    await reaches(second.default, task.id, S.COMPLETED, ALICE)


async def test_the_time_of_a_held_task_begins_when_it_does(hosting: Hosting) -> None:
    @agent
    async def slow(ctx: Context) -> None:
        await asyncio.Event().wait()

    host = await hosting(slow)
    task = await sent(host.default, held({**HELD, TASK_CONFIG: {"timeout": 300}}), ALICE)
    assert await rows(host.node.store, "job", "kind") == [("run",)]
    await host.default.start_held_task(task.id, ALICE)
    await reaches(host.default, task.id, S.FAILED, ALICE)


async def test_executing_twice_at_once_begins_one_run(hosting: Hosting) -> None:
    runs = 0

    @agent
    async def counted(ctx: Context) -> None:
        nonlocal runs
        runs += 1

    host, other = await hosting(counted), await hosting(counted)
    task = await sent(host.default, held(), ALICE)
    await asyncio.gather(*(one.default.start_held_task(task.id, ALICE) for one in (host, other, host)))
    await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert runs == 1


async def test_a_run_begins_tasks_of_its_caller_beside_its_own(hosting: Hosting) -> None:
    @agent
    async def planner(ctx: Context) -> str:
        now = await ctx.spawn("echo", "now", key="now", metadata={"why": "planned"})
        later = await ctx.spawn("echo", "later", key="later", hold=True)
        assert set(ctx.spawning.agents) == {"planner", "echo"}
        return f"{now} {later}"

    host = await hosting(planner, echo)
    plan = await sent(host.default, saying("go"), ALICE)
    now, later = text(plan).split()
    done = await reaches(host.services["echo"], now, S.COMPLETED, ALICE)
    assert (text(done), done.context_id, (done.metadata or {})["why"]) == ("said now", plan.context_id, "planned")
    waits = await host.services["echo"].get(GetRequest(id=later), ALICE)
    assert state(waits) is S.SUBMITTED
    parents = await rows(host.node.store, "task", "parent_id")
    assert parents == [(None,)] * 3  # they are no children: they do not end with the plan
    await host.services["echo"].start_held_task(later, ALICE)
    await reaches(host.services["echo"], later, S.COMPLETED, ALICE)


async def test_a_run_that_is_repeated_begins_a_task_once(hosting: Hosting) -> None:
    crashed = asyncio.Event()

    @agent
    async def planner(ctx: Context) -> str:
        made = await ctx.spawn("echo", f"attempt {ctx.attempt}", key="one", hold=True)
        if not crashed.is_set():
            crashed.set()
            await asyncio.Event().wait()
        return made

    first = await hosting(planner, echo)
    begun = asyncio.create_task(first.default.send(saying("go"), ALICE))
    await crashed.wait()
    begun.cancel()
    await first.stop(0)
    second = await hosting(planner, echo)
    page = await second.services["echo"].list(TaskFilter(), ALICE)
    (made,) = page.tasks
    plan = (await second.default.list(TaskFilter(), ALICE)).tasks[0]
    assert text(await reaches(second.default, plan.id, S.COMPLETED, ALICE)) == made.id
    assert (await second.services["echo"].list(TaskFilter(), ALICE)).total_size == 1


async def test_a_run_reaches_the_tasks_of_its_conversation_alone(hosting: Hosting) -> None:
    @agent
    async def planner(ctx: Context) -> str:
        try:
            await ctx.spawning.cancel(ctx.text)
        except TaskNotFound:
            return "not mine"
        return "cancelled"

    host = await hosting(planner, echo)
    mine = await sent(host.services["echo"], saying("x", metadata=HELD, context_id="one"), ALICE)
    other = await sent(host.services["echo"], saying("x", metadata=HELD, context_id="two"), ALICE)
    bobs = await sent(host.services["echo"], saying("x", metadata=HELD, context_id="one"), BOB)
    answers = [await sent(host.default, saying(one.id, context_id="one"), ALICE) for one in (mine, other, bobs)]
    assert [text(one) for one in answers] == ["cancelled", "not mine", "not mine"]
