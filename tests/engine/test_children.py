"""Tasks that tasks have started: however a task ends, they end with it, on whichever node."""

import asyncio
from typing import Any

import pytest

from accord import Context, agent
from accord.agents.function import FunctionAgent
from accord.engine.outcome import CallFailed, Failed
from accord.model import CancelRequest, Task, TaskState
from accord.service.host import Host
from accord.storage.commands.task_endings import LEFT_BEHIND
from accord.storage.commands.task_lists import TaskListQuery, list_tasks
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, said, saying, state, text
from tests.engine.doubles import change, reaches, rows, sent, until

S = TaskState


class Leaf:
    """An agent that works until it is stopped, and notes what becomes of it."""

    def __init__(self) -> None:
        self.started, self.stopped = asyncio.Event(), asyncio.Event()

    async def __call__(self, ctx: Context) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.stopped.set()


def leaf_agent(leaf: Leaf) -> FunctionAgent:
    return agent(name="leaf")(leaf)


@agent
async def branch(ctx: Context) -> str:
    return (await ctx.call("leaf", "x")).text


async def states(host: Host) -> dict[str, str]:
    """The agent of every task, and the task's state."""
    page, _ = await host.node.store.read(list_tasks, "acme", TaskListQuery())
    return {stored.agent: stored.state for stored in page}


async def none_is_left(host: Host) -> bool:
    return not host.node._executions and await rows(host.node.store, "job", "kind") == []


async def begun(host: Host, leaf: Leaf, **fields: Any) -> Task:
    """Send something to the first agent, and wait until the leaf works for it."""
    task = await sent(host.default, saying("go", configuration=AT_ONCE, **fields), ALICE)
    await leaf.started.wait()
    return task


@agent
async def trunk(ctx: Context) -> str:
    return (await ctx.call("branch", "x")).text


async def test_cancel_reaches_all_children(hosting: Hosting) -> None:
    leaf = Leaf()
    host = await hosting(trunk, branch, leaf_agent(leaf))
    task = await begun(host, leaf)
    assert state(await host.default.cancel(CancelRequest(id=task.id), ALICE)) is S.CANCELED
    await leaf.stopped.wait()
    assert await states(host) == {"trunk": "canceled", "branch": "canceled", "leaf": "canceled"}
    await until(lambda: none_is_left(host))


async def test_cancel_reaches_children_on_other_nodes(hosting: Hosting) -> None:
    leaf = Leaf()
    first, second = await hosting(trunk), await hosting(branch, leaf_agent(leaf))
    first.services |= {"branch": second.default}
    task = await begun(first, leaf)
    await first.default.cancel(CancelRequest(id=task.id), ALICE)
    await leaf.stopped.wait()
    assert await states(first) == {"trunk": "canceled", "branch": "canceled", "leaf": "canceled"}


async def test_deadlines_end_children(hosting: Hosting) -> None:
    leaf = Leaf()
    host = await hosting(trunk, branch, leaf_agent(leaf))
    task = await begun(host, leaf, metadata={"task_config": {"timeout": 1000}})
    late = await reaches(host.default, task.id, S.FAILED, ALICE)
    assert said(late) == "The task did not finish in time"
    await leaf.stopped.wait()
    assert await states(host) == {"trunk": "failed", "branch": "canceled", "leaf": "canceled"}
    await until(lambda: none_is_left(host))


async def test_sla_timers_end_children(hosting: Hosting) -> None:
    leaf = Leaf()

    @agent
    async def limited(ctx: Context) -> str:
        await ctx.sla(1, "Nobody answered")
        return (await ctx.call("branch", "x")).text

    host = await hosting(limited, branch, leaf_agent(leaf))
    task = await begun(host, leaf)
    await reaches(host.default, task.id, S.UNKNOWN, ALICE)
    await leaf.stopped.wait()
    assert await states(host) == {"limited": "unknown", "branch": "canceled", "leaf": "canceled"}
    page, _ = await host.node.store.read(list_tasks, "acme", TaskListQuery(agents=("leaf",)))
    message = page[0].task().status.message
    assert message is not None
    assert message.parts[0].text == LEFT_BEHIND
    await until(lambda: none_is_left(host))


async def test_failed_agents_leave_no_children_running(hosting: Hosting) -> None:
    leaf = Leaf()

    @agent
    async def refuses(ctx: Context) -> None:
        await leaf.started.wait()
        raise Failed("no paper")

    @agent
    async def gathers(ctx: Context) -> None:
        await asyncio.gather(ctx.call("branch", "x", key="a"), ctx.call("refuses", "x", key="b"))

    host = await hosting(gathers, branch, refuses, leaf_agent(leaf))
    task = await sent(host.default, saying("go"), ALICE)
    assert state(task) is S.FAILED
    await leaf.stopped.wait()
    assert await states(host) == {"gathers": "failed", "refuses": "failed", "branch": "canceled", "leaf": "canceled"}
    await until(lambda: none_is_left(host))
    assert not host.node.slots.waiting


async def test_completed_agents_leave_no_children_running(hosting: Hosting) -> None:
    leaf = Leaf()

    @agent
    async def quick(ctx: Context) -> str:
        await leaf.started.wait()
        return "first"

    @agent
    async def races(ctx: Context) -> str:
        calls = [asyncio.create_task(ctx.call(name, "x", key=name)) for name in ("quick", "branch")]
        done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result().text

    host = await hosting(races, quick, branch, leaf_agent(leaf))
    task = await sent(host.default, saying("go"), ALICE)
    assert (state(task), text(task)) == (S.COMPLETED, "first")
    await leaf.stopped.wait()
    assert await states(host) == {"races": "completed", "quick": "completed", "branch": "canceled", "leaf": "canceled"}
    await until(lambda: none_is_left(host))
    assert not host.node.slots.waiting


async def test_ended_agents_cannot_call_others(hosting: Hosting, caplog: pytest.LogCaptureFixture) -> None:
    leaf = Leaf()

    @agent
    async def late(ctx: Context) -> None:
        await ctx.complete("done")
        await ctx.flush()
        await ctx.call("leaf", "x")

    host = await hosting(late, leaf_agent(leaf))
    assert state(await sent(host.default, saying("go"), ALICE)) is S.COMPLETED
    assert await states(host) == {"late": "completed"}
    assert "cannot create child tasks" in caplog.text


async def test_a_dead_node_ends_only_its_children(hosting: Hosting) -> None:
    """The parent may be run once: with its node it is lost, and what it called on another node ends."""
    leaf = Leaf()

    @agent(on_crash="fail")
    async def fragile(ctx: Context) -> str:
        return (await ctx.call("leaf", "x")).text

    first, second = await hosting(fragile), await hosting(leaf_agent(leaf))
    first.services |= {"leaf": second.default}
    task = await begun(first, leaf)
    for loop in first.node._loops:
        loop.cancel()
    await asyncio.gather(*first.node._loops, return_exceptions=True)
    await change(second.node.store, f"UPDATE node SET expires_at = 1 WHERE id = '{first.node.node_id}'")
    lost = await reaches(first.default, task.id, S.FAILED, ALICE)
    assert said(lost) == "The agent's process was lost once; the task was given up"
    await leaf.stopped.wait()
    assert await states(second) == {"fragile": "failed", "leaf": "canceled"}


async def test_a_repeated_execution_after_the_end_ends_children(hosting: Hosting) -> None:
    """The process dies between the agent's last word and the end of its run."""
    leaf, told, never = Leaf(), asyncio.Event(), asyncio.Event()

    @agent
    async def hasty(ctx: Context) -> None:
        calling = asyncio.create_task(ctx.call("leaf", "x"))
        await leaf.started.wait()
        await ctx.complete("done")
        await ctx.flush()
        told.set()
        await never.wait()
        await calling

    first, second = await hosting(hasty), await hosting(leaf_agent(leaf))
    first.services |= {"leaf": second.default}
    await begun(first, leaf)
    await told.wait()
    for loop in first.node._loops:
        loop.cancel()
    await asyncio.gather(*first.node._loops, return_exceptions=True)
    await change(second.node.store, f"UPDATE node SET expires_at = 1 WHERE id = '{first.node.node_id}'")
    await hosting(hasty)
    await leaf.stopped.wait()
    assert await states(second) == {"hasty": "completed", "leaf": "canceled"}


async def test_a_child_that_is_cancelled_by_itself_fails_the_call(hosting: Hosting) -> None:
    leaf = Leaf()

    @agent
    async def calls(ctx: Context) -> str:
        try:
            return (await ctx.call("leaf", "x")).text
        except CallFailed as error:
            return f"{error.task.status.state.name}"

    host = await hosting(calls, leaf_agent(leaf))
    task = await begun(host, leaf)
    page, _ = await host.node.store.read(list_tasks, "acme", TaskListQuery(parent_id=task.id))
    await host.services["leaf"].cancel(CancelRequest(id=page[0].id), ALICE)
    assert text(await reaches(host.default, task.id, S.COMPLETED, ALICE)) == "CANCELED"
