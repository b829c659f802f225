"""Waiting without holding anything: sleep, news from outside, agreed limits and deadlines."""

import asyncio

import pytest

from accord import Context, agent
from accord.engine import context
from accord.engine.clock import Clock
from accord.engine.hooks import ExecutionEnded, ExecutionStarted, Hooks
from accord.engine.node import Limits
from accord.errors import TaskTimeout
from accord.model import GetRequest, SendRequest, Task, TaskState
from accord.service.host import Host
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, said, saying, state, states, text
from tests.engine.doubles import Watch, is_parked, reaches, rows, sent, until

S = TaskState
ONE_SLOT = Limits(lease_seconds=3.0, poll_seconds=0.2, slots=1)


@pytest.fixture
def parks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every sleep park the run."""
    monkeypatch.setattr(context, "IN_MEMORY_SECONDS", 0)


class Hands:
    """The time of a node, which passes when a test says so; the store's passes as it does."""

    def __init__(self) -> None:
        self.at = 1_700_000_000.0
        self.clock = Clock(now=lambda: self.at)


def within(seconds: float) -> SendRequest:
    """A request that sets a deadline."""
    return saying("go", metadata={"task_config": {"timeout": round(seconds * 1000)}})


async def timers(host: Host) -> list[str]:
    """The timers that are set."""
    return [kind for (kind,) in await rows(host.node.store, "job", "kind") if kind != "run"]


# --- sleeping -----------------------------------------------------------------------------------------------------


@agent
async def naps(ctx: Context) -> str:
    await ctx.sleep(0)
    await ctx.sleep(0.01)
    return "awake"


@agent
async def sleeps(ctx: Context) -> str:
    await ctx.sleep(0.1)
    await ctx.sleep(0.1)
    return "awake"


async def test_a_short_sleep_is_slept(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(naps, hooks=Hooks((watch,)))
    assert text(await sent(host.default, saying("x"), ALICE)) == "awake"
    assert len(watch.of(ExecutionStarted)) == 1


@pytest.mark.usefixtures("parks_at_once")
async def test_a_long_sleep_holds_nothing(hosting: Hosting) -> None:
    watch, hands = Watch(), Hands()
    host = await hosting(sleeps, hooks=Hooks((watch,)), clock=hands.clock)

    async def is_second() -> bool:
        return len(await rows(host.node.store, "step", "key")) == 2

    asked = asyncio.create_task(sent(host.default, saying("x"), ALICE))
    await watch.until(ExecutionEnded)
    assert host.node._executions == {}
    await watch.until(ExecutionEnded, 2)
    assert not await is_second(), "whoever wakes it too early wakes it for nothing"
    hands.at += 1
    await until(is_second)
    assert not asked.done()
    hands.at += 1
    assert text(await asked) == "awake"
    assert [detail.state for detail in watch.of(ExecutionEnded)][:2] == [S.WORKING, S.WORKING]
    assert {detail.attempt for detail in watch.of(ExecutionStarted)} == {1}


@pytest.mark.usefixtures("parks_at_once")
async def test_a_message_does_not_cut_a_sleep_short(hosting: Hosting) -> None:
    started, gate = asyncio.Event(), asyncio.Event()
    watch, hands = Watch(), Hands()

    @agent
    async def dozes(ctx: Context) -> str:
        started.set()
        await gate.wait()
        await ctx.sleep(0.5)
        return "awake"

    host = await hosting(dozes, hooks=Hooks((watch,)), clock=hands.clock)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await started.wait()
    await host.default.send(saying("psst", task_id=task.id, configuration=AT_ONCE), ALICE)
    gate.set()
    await watch.until(ExecutionEnded)
    await host.default.send(saying("psst", task_id=task.id, configuration=AT_ONCE), ALICE)
    assert {detail.state for detail in await watch.until(ExecutionEnded, 2)} == {S.WORKING}
    hands.at += 1
    assert text(await reaches(host.default, task.id, S.COMPLETED, ALICE)) == "awake"


# --- news from outside --------------------------------------------------------------------------------------------


@agent
async def awaits_payment(ctx: Context) -> str:
    try:
        paid = await ctx.wait("payment", timeout=0.3 if ctx.text == "hurry" else None)
    except TimeoutError:
        return "late"
    return f"paid {paid['amount']}"


async def test_news_wake_a_task_that_waits(hosting: Hosting) -> None:
    host = await hosting(awaits_payment)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await until(lambda: is_parked(host.node.store, task.id))
    assert host.node._executions == {}
    assert not await host.default.wake("acme", "nothing", "payment", 1)
    assert not await host.default.wake("globex", task.id, "payment", 1)
    assert await host.default.wake("acme", task.id, "other", 0)
    assert await host.default.wake("acme", task.id, "payment", {"amount": 3})
    assert not await host.default.wake("acme", task.id, "payment", {"amount": 4})
    assert text(await reaches(host.default, task.id, S.COMPLETED, ALICE)) == "paid 3"
    assert not await host.default.wake("acme", task.id, "payment", {"amount": 5})


async def test_news_may_be_there_before_they_are_waited_for(hosting: Hosting) -> None:
    started, gate = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @agent
    async def prepares(ctx: Context) -> str:
        runs.append(ctx.attempt)
        started.set()
        await gate.wait()
        await ctx.status("prepared")
        return f"{await ctx.wait('news')}"

    host = await hosting(prepares)
    stream = host.default.stream(saying("x"), ALICE)
    first = (await anext(stream)).body
    assert isinstance(first, Task)
    await started.wait()
    assert await host.default.wake("acme", first.id, "news", "early")
    gate.set()
    assert states(await all_of(stream)) == [S.WORKING, S.WORKING, S.COMPLETED]
    assert text(await host.default.get(GetRequest(id=first.id), ALICE)) == "early"
    assert runs == [1]


async def test_news_that_do_not_come_end_the_wait(hosting: Hosting) -> None:
    host = await hosting(awaits_payment)
    assert text(await sent(host.default, saying("hurry"), ALICE)) == "late"


# --- agreed limits ------------------------------------------------------------------------------------------------


@agent
async def remote(ctx: Context) -> str:
    await ctx.sla(0.2, "The other side did not answer")
    await ctx.status("asked the other side")
    await ctx.artifact("a letter", id="letter")
    return f"it said {await ctx.wait('answer')}"


async def test_a_task_that_is_given_up_ends_when_the_late_answer_comes(hosting: Hosting) -> None:
    host = await hosting(remote)
    stream = host.default.stream(saying("x"), ALICE)
    events = await all_of(stream)
    assert states(events)[-1] is S.UNKNOWN
    assert isinstance(events[0].body, Task)
    task = await host.default.get(GetRequest(id=events[0].body.id), ALICE)
    assert (state(task), said(task)) == (S.UNKNOWN, "The other side did not answer")
    assert await host.default.wake("acme", task.id, "answer", "yes")
    late = await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert text(late).endswith("it said yes")
    assert await timers(host) == []


@agent
async def patient(ctx: Context) -> str:
    await ctx.sla(60, "first")
    if ctx.text == "moves":
        await ctx.sla(90, "second")
    await ctx.ask("Well?")
    if ctx.text == "moves later":
        await ctx.sla(90, "second", key="answered")
    await ctx.ask("Again?")
    return "done"


async def sla(host: Host) -> tuple[str, int]:
    """Why a task is to be given up, and when."""
    ((reason, at),) = await rows(host.node.store, "job WHERE kind = 'sla'", "arg, run_at")
    return reason, at


@pytest.mark.parametrize(("word", "reason"), [("stays", "first"), ("moves", "second")])
async def test_a_run_that_comes_again_does_not_move_the_limit(hosting: Hosting, word: str, reason: str) -> None:
    host = await hosting(patient)
    task = await sent(host.default, saying(word), ALICE)
    agreed = await sla(host)
    assert agreed[0] == reason
    task = await sent(host.default, saying("fine", task_id=task.id), ALICE)
    assert said(task) == "Again?"
    assert await sla(host) == agreed
    await sent(host.default, saying("fine", task_id=task.id), ALICE)
    assert await timers(host) == []


async def test_another_call_moves_the_limit(hosting: Hosting) -> None:
    host = await hosting(patient)
    task = await sent(host.default, saying("moves later"), ALICE)
    agreed = await sla(host)
    await sent(host.default, saying("fine", task_id=task.id), ALICE)
    moved = await sla(host)
    assert (agreed[0], moved[0]) == ("first", "second")
    assert moved[1] > agreed[1]


async def test_a_limit_that_was_set_before_a_node_died_holds(hosting: Hosting) -> None:
    began = asyncio.Event()

    @agent
    async def working(ctx: Context) -> None:
        await ctx.sla(60 if ctx.attempt == 1 else 600, "late")
        began.set()
        await asyncio.Event().wait()

    first = await hosting(working)
    await sent(first.default, saying("x", configuration=AT_ONCE), ALICE)
    await began.wait()
    agreed = await sla(first)
    began.clear()
    await first.stop(0)
    second = await hosting(working)
    await began.wait()
    assert await sla(second) == agreed


@agent
async def punctual(ctx: Context) -> str | None:
    await ctx.sla(60, "never")
    await ctx.sla(30, "never")
    if ctx.text == "complete":
        await ctx.complete("done")
        await ctx.flush()
        return None
    return "done"


@pytest.mark.parametrize("word", ["return", "complete"])
async def test_a_task_that_ends_in_time_leaves_no_timer(hosting: Hosting, word: str) -> None:
    host = await hosting(punctual)
    request = saying(word, metadata={"task_config": {"timeout": 60_000}})
    assert state(await sent(host.default, request, ALICE)) is S.COMPLETED
    assert await rows(host.node.store, "job", "kind") == []


# --- deadlines ----------------------------------------------------------------------------------------------------

LATE = "The task did not finish in time"


async def test_a_task_that_works_too_long_fails(hosting: Hosting) -> None:
    stopped, hands = asyncio.Event(), Hands()

    @agent(timeout=0.2)
    async def works(ctx: Context) -> None:
        assert ctx.deadline == hands.at + 0.2
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    host = await hosting(works, clock=hands.clock)
    task = await sent(host.default, saying("x"), ALICE)
    assert (state(task), said(task)) == (S.FAILED, LATE)
    await stopped.wait()
    assert await rows(host.node.store, "job", "kind") == []


@agent
async def asks(ctx: Context) -> str:
    return f"{await ctx.ask('Well?')}"


@pytest.mark.proves("4-15")
async def test_a_caller_may_set_the_deadline_of_a_task_that_waits(hosting: Hosting) -> None:
    host = await hosting(asks)
    task = await sent(host.default, within(0.3), ALICE)
    assert state(task) is S.INPUT_REQUIRED
    late = await reaches(host.default, task.id, S.FAILED, ALICE)
    assert said(late) == LATE
    assert await rows(host.node.store, "job", "kind") == []


@agent
async def blocks(ctx: Context) -> None:
    await asyncio.Event().wait()


async def test_the_deadline_comes_while_a_task_waits_for_its_turn(hosting: Hosting) -> None:
    watch = Watch()
    host = await hosting(blocks, asks, limits=ONE_SLOT, hooks=Hooks((watch,)))
    await host.default.send(saying("x", configuration=AT_ONCE), ALICE)
    with pytest.raises(TaskTimeout) as late:
        await host.services["asks"].send(within(0.2), ALICE)
    task = await host.services["asks"].get(GetRequest(id=late.value.metadata["taskId"]), ALICE)
    assert (state(task), said(task)) == (S.FAILED, LATE)
    assert [detail.agent for detail in watch.of(ExecutionStarted)] == ["blocks"]
