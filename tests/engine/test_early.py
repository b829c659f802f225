"""What is kept early: the task of a caller who waits for its end. What begins late: runs whose callers hear first."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from accord import Context, agent
from accord.engine import slots as module
from accord.engine.node import Limits
from accord.engine.slots import Slots
from accord.model import TaskState
from accord.service.host import Host
from tests.engine.conftest import ALICE, AT_ONCE, QUICK, Hosting, all_of, saying
from tests.engine.doubles import Meddler

ACCEPT = "task_lifecycle.accept_task"


@agent(description="Says the same.")
async def parrot(ctx: Context) -> str:
    return ctx.text


@agent(description="Must never be run twice.", on_crash="fail")
async def once(ctx: Context) -> str:
    return ctx.text


@agent(description="Never ends.")
async def endless(ctx: Context) -> None:
    await asyncio.Event().wait()


@agent(description="Asks another.")
async def asking(ctx: Context) -> str:
    return (await ctx.call("parrot", ctx.text)).text


def meddling(host: Host) -> Meddler:
    store = host.node.store
    assert isinstance(store, Meddler)
    return store


async def test_only_blocking_sends_commit_before_the_sync(hosting: Hosting) -> None:
    host = await hosting(parrot, once, asking, wrap=Meddler)
    store = meddling(host)
    service = host.services["parrot"]
    await service.send(saying("hello", configuration=AT_ONCE), ALICE)
    await all_of(service.stream(saying("hello"), ALICE))
    await host.services["once"].send(saying("hello"), ALICE)
    assert store.early == []
    await service.send(saying("hello"), ALICE)
    assert store.early == [ACCEPT]
    await host.services["asking"].send(saying("hello"), ALICE)
    assert store.early == [ACCEPT] * 2, "its own, and not the one that it calls for"
    assert store.done.count(ACCEPT) == 6


async def test_tasks_for_other_nodes_are_synced_first(hosting: Hosting) -> None:
    host = await hosting(parrot, wrap=Meddler, limits=Limits(lease_seconds=3.0, poll_seconds=0.05, tenant_runs=5))
    await host.services["parrot"].send(saying("hello"), ALICE)
    assert meddling(host).early == []


async def test_reported_tasks_are_durable(hosting: Hosting) -> None:
    """A server that stops tells who waits how the task stands: it makes a durable commit before it does."""
    host = await hosting(endless, wrap=Meddler)
    host.node.dismiss()
    answer = await host.services["endless"].send(saying("hello"), ALICE)
    assert answer.status.state is TaskState.WORKING  # type: ignore[union-attr]  # it answers with tasks
    store = meddling(host)
    assert store.early == [ACCEPT]
    done = store.done[store.done.index(ACCEPT) :]
    assert done.index("tasks.read_head") < done.index("tasks.read_task")


# --- runs that begin later --------------------------------------------------------------------------------------------


def open_slots() -> Slots:
    slots = Slots("node", {}, {}, limit=10, has_tenant_limit=False, on_release=lambda: None)
    slots.is_open = True
    return slots


async def test_executions_start_once_no_message_is_being_accepted() -> None:
    slots, begun = open_slots(), list[str]()
    with slots.reserve_claims("echo", 1):
        slots.defer("echo", lambda: begun.append("first"))
        slots.defer("echo", lambda: begun.append("second"))
        assert slots.reserved["echo"] == 3, "two places are kept"
        with slots.reserve_claims("other", 1):
            pass
        for _ in range(10):
            await asyncio.sleep(0)
        assert begun == []
    await asyncio.sleep(0)
    assert begun == ["first", "second"]
    assert slots.reserved.total() == 0


async def test_executions_do_not_wait_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_START_DELAY_SECONDS", 0.0)
    slots, begun, has_begun = open_slots(), list[str](), asyncio.Event()
    with slots.reserve_claims("other", 1):
        with slots.reserve_claims("echo", 1):
            slots.defer("echo", has_begun.set)
        async with asyncio.timeout(10):
            await has_begun.wait()
        slots.defer("echo", lambda: begun.append("second"))
        slots.start_deferred()
        assert begun == ["second"], "as when the node stops"
    assert slots.reserved.total() == 0


async def test_a_blocked_start_does_not_block_others(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise LookupError("on purpose")

    slots, begun = open_slots(), list[str]()
    slots.defer("broken", fail)
    slots.defer("parrot", lambda: begun.append("second"))
    slots.start_deferred()
    assert begun == ["second"]
    assert slots.reserved.total() == 0
    assert caplog.messages == ["job.not_begun"]


async def test_a_stream_s_run_keeps_its_place_until_it_begins(hosting: Hosting) -> None:
    at_once, most = 0, 0

    @agent(description="Does one thing at a time.", concurrency=1)
    async def alone(ctx: Context) -> AsyncIterator[str]:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        yield ctx.text
        await asyncio.sleep(0.01)
        at_once -= 1

    host = await hosting(alone, limits=QUICK)
    service = host.services["alone"]
    streams = await asyncio.gather(*(all_of(service.stream(saying(str(number)), ALICE)) for number in range(5)))
    assert most == 1
    assert all(events[-1].body.status.state is TaskState.COMPLETED for events in streams)  # type: ignore[union-attr]


async def test_stopping_nodes_finish_new_streams(hosting: Hosting) -> None:
    host = await hosting(parrot)
    stream = host.services["parrot"].stream(saying("hello"), ALICE)
    first = await anext(stream)
    await host.node.stop(5.0)
    rest = [event async for event in stream]
    assert first.seq < rest[-1].seq
    assert rest[-1].body.status.state is TaskState.COMPLETED  # type: ignore[union-attr]  # a status ends it


@pytest.mark.parametrize("count", [1, 40])
async def test_early_or_not_every_send_is_answered_with_its_own_words(hosting: Hosting, count: int) -> None:
    service = (await hosting(parrot)).services["parrot"]
    answers = await asyncio.gather(*(service.send(saying(f"word {number}"), ALICE) for number in range(count)))
    said = [answer.artifacts[0].parts[0].text for answer in answers]  # type: ignore[union-attr]
    assert said == [f"word {number}" for number in range(count)]
