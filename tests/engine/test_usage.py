"""What tasks use is added up, once for each key and for whoever called, and shown with the task wherever it is."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from accord import Context, agent
from accord.engine.hooks import Hooks, UsageReported
from accord.model import CancelRequest, GetRequest, StatusUpdate, SubscribeRequest, Task, TaskFilter, TaskState
from accord.protocol.budgets import TokenUsage
from accord.service.host import Host
from accord.storage.commands.steps import load_steps
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, saying, state
from tests.engine.doubles import Meddler, Watch, reaches, sent, times

S = TaskState


def used(task: Task) -> object:
    return (task.metadata or {}).get("usage")


def tokens(task: Task) -> tuple[int, int]:
    shown = used(task)
    assert isinstance(shown, dict)
    return shown["inputTokens"], shown["outputTokens"]


@agent
async def modest(ctx: Context) -> str:
    await ctx.usage(input_tokens=7, output_tokens=5, cost=0.1, model="small")
    await ctx.usage(input_tokens=1, cost=0.2, model="large")
    return "done"


async def test_usage_is_in_the_task_s_metadata(hosting: Hosting) -> None:
    host = await hosting(modest)
    task = await sent(host.default, saying("x", metadata={"own": 1}), ALICE)
    shown = {
        "inputTokens": 8,
        "outputTokens": 5,
        "totalTokens": 13,
        "cost": 0.3,
        "models": {
            "small": {"inputTokens": 7, "outputTokens": 5, "cost": 0.1},
            "large": {"inputTokens": 1, "outputTokens": 0, "cost": 0.2},
        },
    }
    assert task.metadata == {"own": 1, "usage": shown}
    assert (await host.default.get(GetRequest(id=task.id), ALICE)).metadata == task.metadata
    assert (await host.default.list(TaskFilter(), ALICE)).tasks[0].metadata == task.metadata


async def test_subscribers_see_usage_with_the_next_status(hosting: Hosting) -> None:
    @agent
    async def tells(ctx: Context) -> AsyncIterator[str]:
        await ctx.status("thinking")
        await ctx.usage(input_tokens=3)
        await ctx.status("thought", metadata={"step": 1})
        yield "done"

    host = await hosting(tells)
    events = await all_of(host.default.stream(saying("x"), ALICE))
    told = [event.body.metadata for event in events if isinstance(event.body, StatusUpdate)]
    shown = {"inputTokens": 3, "outputTokens": 0, "totalTokens": 3, "cost": 0.0}
    assert told[-3:] == [None, {"step": 1, "usage": shown}, {"usage": shown}]
    task = (await host.default.list(TaskFilter(), ALICE)).tasks[0]
    again = await all_of(host.default.subscribe(SubscribeRequest(id=task.id), ALICE, after=0))
    assert isinstance(again[0].body, Task)
    assert used(again[0].body) is None  # as it was then


async def test_a_turn_that_is_run_again_counts_a_key_once(hosting: Hosting) -> None:
    @agent
    async def asks(ctx: Context) -> str:
        await ctx.usage(output_tokens=10, key="draft")
        name = await ctx.ask("Who?")
        await ctx.usage(output_tokens=1, key="final")
        return name.text

    host = await hosting(asks)
    task = await sent(host.default, saying("x"), ALICE)
    assert tokens(task) == (0, 10)
    task = await sent(host.default, saying("Ann", task_id=task.id), ALICE)
    assert tokens(task) == (0, 11)


async def test_without_a_key_every_call_counts(hosting: Hosting) -> None:
    @agent
    async def asks(ctx: Context) -> str:
        await ctx.usage(output_tokens=10)
        return (await ctx.ask("Who?")).text

    host = await hosting(asks)
    task = await sent(host.default, saying("x"), ALICE)
    task = await sent(host.default, saying("Ann", task_id=task.id), ALICE)
    assert tokens(task) == (0, 20)


async def test_a_commit_whose_answer_was_lost_counts_once(hosting: Hosting) -> None:
    host = await hosting(modest, wrap=Meddler)
    store = host.node.store
    assert isinstance(store, Meddler)
    store.loses = times("task_endings.charge_usage", 2)
    assert tokens(await sent(host.default, saying("x"), ALICE)) == (8, 5)


@agent
async def middle(ctx: Context) -> str:
    await ctx.usage(input_tokens=100)
    return (await ctx.call("modest", "x")).text


@agent
async def top(ctx: Context) -> str:
    await asyncio.gather(ctx.call("middle", "x", key="a"), ctx.call("modest", "x", key="b"))
    await ctx.status("both are done")
    return "done"


async def test_parents_include_their_children_s_usage(hosting: Hosting) -> None:
    host = await hosting(top, middle, modest)
    events = await all_of(host.default.stream(saying("x"), ALICE))
    found = {task.status.state: tokens(task) for task in (await host.default.list(TaskFilter(), ALICE)).tasks}
    assert found == {S.COMPLETED: (116, 10)}
    (progress,) = (
        event.body for event in events if isinstance(event.body, StatusUpdate) and event.body.status.message is not None
    )
    assert progress.metadata is not None
    assert progress.metadata["usage"]["inputTokens"] == 116
    (half,) = (await host.services["middle"].list(TaskFilter(), ALICE)).tasks
    assert tokens(half) == (108, 5)


async def test_a_child_on_another_node_counts_as_well(hosting: Hosting) -> None:
    first, second = await hosting(middle), await hosting(modest)
    first.services |= {"modest": second.default}
    assert tokens(await sent(first.default, saying("x"), ALICE)) == (108, 5)


async def test_externally_ended_tasks_show_usage(hosting: Hosting) -> None:
    counted = asyncio.Event()

    @agent
    async def works(ctx: Context) -> None:
        await ctx.usage(input_tokens=4)
        counted.set()
        await asyncio.Event().wait()

    host = await hosting(works)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await counted.wait()
    task = await host.default.cancel(CancelRequest(id=task.id), ALICE)
    assert (state(task), tokens(task)) == (S.CANCELED, (4, 0))


async def test_hooks_get_each_usage_once(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(middle, modest, hooks=Hooks((watch,)))
    await sent(host.default, saying("x"), ALICE)
    told = [(detail.agent, detail.use, detail.model) for detail in watch.details if isinstance(detail, UsageReported)]
    assert told == [
        ("middle", TokenUsage(input_tokens=100), None),
        ("modest", TokenUsage(input_tokens=7, output_tokens=5, cost=0.1), "small"),
        ("modest", TokenUsage(input_tokens=1, cost=0.2), "large"),
    ]


@pytest.mark.parametrize("wrong", [{"input_tokens": -1}, {"output_tokens": -1}, {"cost": -0.1}, {"cost": float("nan")}])
async def test_no_model_uses_less_than_nothing(hosting: Hosting, wrong: dict[str, float]) -> None:
    @agent
    async def bad(ctx: Context) -> None:
        with pytest.raises(ValueError, match="not negative"):
            await ctx.usage(**wrong)  # type: ignore[arg-type]

    host = await hosting(bad)
    task = await sent(host.default, saying("x"), ALICE)
    assert (state(task), used(task)) == (S.COMPLETED, None)


async def test_tasks_without_usage_have_no_usage_metadata(hosting: Hosting) -> None:
    @agent
    async def plain(ctx: Context) -> str:
        return "done"

    host: Host = await hosting(plain)
    task = await sent(host.default, saying("x"), ALICE)
    assert (task.metadata, await host.node.store.read(load_steps, "acme", task.id)) == (None, {})
    await reaches(host.default, task.id, S.COMPLETED, ALICE)
