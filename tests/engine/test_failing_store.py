"""A database that cannot be used for a while: work goes on when it can, and nothing happens twice."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from accord import Context, agent
from accord.a2a import Caller
from accord.agents.echo import echo
from accord.engine import node, task_store
from accord.engine.hooks import ExecutionStarted, Hooks
from accord.engine.node import Limits
from accord.engine.outcome import Failed
from accord.errors import AgentUnavailable
from accord.model import Event, GetRequest, SubscribeRequest, Task, TaskState
from accord.retries import RetryPolicy
from accord.server.pipeline import pipeline
from accord.service.host import Host
from accord.storage.commands.tasks import read_task
from accord.storage.store import Store, StoreInterrupted
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, said, saying, state, states, text
from tests.engine.doubles import Meddler, Says, Watch, reaches, rows, sent, times, until

S = TaskState
BRISK = Limits(lease_seconds=0.9, poll_seconds=0.1)


class Between:
    """Puts a meddler between a host and its store."""

    store: Meddler

    def __call__(self, store: Store) -> Meddler:
        self.store = Meddler(store)
        return self.store


@pytest.fixture
def between() -> Between:
    return Between()


async def log(host: Host, task: Task) -> list[Event]:
    """Everything that happened to a task."""
    return await host.node.task_store.events("acme", task.id, 0)


@agent
async def steady(ctx: Context) -> AsyncIterator[str]:
    yield "one "
    await ctx.flush()
    number = await ctx.step("number", lambda: 2)
    yield f"{number} "
    await ctx.flush()
    yield "three"


# --- the node -----------------------------------------------------------------------------------------------------


async def test_a_node_outlives_its_database(
    hosting: Hosting, between: Between, caplog: pytest.LogCaptureFixture
) -> None:
    host = await hosting(echo, wrap=between, limits=BRISK)
    is_down = [True]
    between.store.refuses = lambda _: is_down[0]
    with pytest.raises(AgentUnavailable) as refused:
        await host.default.send(saying("x"), ALICE)
    assert refused.value.retry_after
    await until(lambda: _has_logged(caplog, "_beat", "_claim"))
    is_down[0] = False
    assert text(await sent(host.default, saying("still here"), ALICE)) == "still here"


async def _has_logged(caplog: pytest.LogCaptureFixture, *doing: str) -> bool:
    found = {getattr(record, "doing", "") for record in caplog.records if record.message == "store.unavailable"}
    return set(doing) <= found


async def test_unstarted_jobs_are_not_lost(hosting: Hosting, between: Between) -> None:
    watch = Watch()
    host = await hosting(steady, wrap=between, limits=Limits(lease_seconds=3, poll_seconds=0.1, tenant_runs=9))
    host.node.hooks = Hooks((watch,))
    between.store.refuses = times("steps.load_steps", 5)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    assert text(await reaches(host.default, task.id, S.COMPLETED, ALICE)) == "one 2 three"
    assert [detail.attempt for detail in watch.of(ExecutionStarted)] == [1]


async def test_a_send_that_broke_off_finds_its_task_again(hosting: Hosting, between: Between) -> None:
    host = await hosting(steady, wrap=between, limits=BRISK)
    between.store.loses = times("task_lifecycle.accept_task", 1)
    request = saying("x", "same")
    with pytest.raises(AgentUnavailable):
        await host.default.send(request, ALICE)
    assert text(await sent(host.default, request, ALICE)) == "one 2 three"
    assert await rows(host.node.store, "task", "count(*)") == [(1,)]


# --- a run --------------------------------------------------------------------------------------------------------

FAILING = [
    "tasks.append",
    "task_lifecycle.settle_execution",
    "steps.commit_step",
]


@pytest.mark.parametrize("is_done", [False, True], ids=["refused", "done-but-lost"])
@pytest.mark.parametrize("command", FAILING)
async def test_a_run_writes_again_and_nothing_twice(
    hosting: Hosting, between: Between, command: str, is_done: bool
) -> None:
    host = await hosting(steady, wrap=between)
    await sent(host.default, saying("undisturbed"), ALICE)
    says: Says = times(command, 3)
    if is_done:
        between.store.loses = says
    else:
        between.store.refuses = says
    task = await sent(host.default, saying("x"), ALICE)
    assert (state(task), text(task)) == (S.COMPLETED, "one 2 three")
    events = await log(host, task)
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert await host.default.get(GetRequest(id=task.id), ALICE) == task
    assert await rows(host.node.store, "job", "kind") == []


@agent
async def asks(ctx: Context) -> str:
    await ctx.artifact("draft", id="draft")
    return f"{await ctx.ask('Well?')}"


@pytest.mark.parametrize("command", ["task_lifecycle.settle_execution", "tasks.append"])
async def test_questions_are_asked_once(hosting: Hosting, between: Between, command: str) -> None:
    host = await hosting(asks, wrap=between)
    between.store.loses = times(command, 1)
    task = await sent(host.default, saying("x"), ALICE)
    assert state(task) is S.INPUT_REQUIRED
    assert len(await log(host, task)) == 3
    between.store.loses = times(command, 1)
    assert text(await sent(host.default, saying("good", task_id=task.id), ALICE)) == "draftgood"


async def test_a_message_in_between_is_read_when_that_is_possible(hosting: Hosting, between: Between) -> None:
    started, gate = asyncio.Event(), asyncio.Event()

    @agent
    async def busy(ctx: Context) -> str:
        started.set()
        await gate.wait()
        await ctx.artifact("so far", id="a")
        return f"{await ctx.ask('Well?')}"

    host = await hosting(busy, wrap=between)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await started.wait()
    await host.default.send(saying("early", task_id=task.id, configuration=AT_ONCE), ALICE)
    between.store.refuses = times("tasks.events_after", 2)
    gate.set()
    assert text(await reaches(host.default, task.id, S.COMPLETED, ALICE)) == "so farearly"


async def test_a_call_outlives_the_database(hosting: Hosting, between: Between) -> None:
    started, call, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @agent
    async def child(ctx: Context) -> str:
        started.set()
        await gate.wait()
        return "done"

    @agent
    async def parent(ctx: Context) -> str:
        await call.wait()
        return (await ctx.call("child", "x")).text

    host = await hosting(parent, child, wrap=between, limits=BRISK)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    between.store.loses = times("task_lifecycle.accept_task", 1)
    between.store.refuses = times("tasks.read_task", 2)
    call.set()
    await started.wait()
    between.store.refuses = times("", 20)
    gate.set()
    await until(lambda: _has_completed(between.store.real, task))
    assert text(await reaches(host.default, task.id, S.COMPLETED, ALICE)) == "done"
    assert await rows(host.node.store, "task", "count(*)") == [(2,)]


async def _has_completed(store: Store, task: Task) -> bool:
    found = await store.read(read_task, "acme", task.id)
    return found is not None and found.state == "completed"


async def test_a_command_that_is_always_interrupted_ends_its_task(
    hosting: Hosting, between: Between, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_store, "RETRIES", RetryPolicy(first_seconds=0.0))
    monkeypatch.setattr(node, "BROKEN_MS", 0)
    host = await hosting(steady, wrap=between, limits=BRISK)
    between.store.refusal = StoreInterrupted("statement timeout")
    between.store.refuses = lambda name: name == "steps.commit_step"
    task = await sent(host.default, saying("x"), ALICE)
    assert state(task) is S.FAILED
    assert said(task) == "The agent's process was lost 3 times; the task was given up"
    tries = between.store.begun.count("steps.commit_step")
    assert tries == 3 * (task_store.INTERRUPTIONS + 1), "the bound, in each attempt"


async def test_store_outages_are_not_internal_errors(hosting: Hosting, between: Between) -> None:
    await hosting(steady, wrap=between, limits=BRISK)
    between.store.refusal = StoreInterrupted("canceling statement due to user request")
    between.store.refuses = lambda _: True

    async def look(_request: GetRequest, _caller: Caller) -> Task:
        raise AssertionError(await read_again(between.store))

    class Raw:
        get = staticmethod(look)

    with pytest.raises(AgentUnavailable) as refused:
        await pipeline(Raw(), "steady").get(GetRequest(id="t-1"), ALICE)  # type: ignore[arg-type]  # all that is asked
    assert refused.value.retry_after


async def read_again(store: Store) -> object:
    return await store.read(read_task, "acme", "t-1")


# --- those who follow ---------------------------------------------------------------------------------------------


async def test_streams_resume_with_the_database(hosting: Hosting, between: Between) -> None:
    first = await hosting(asks)
    second = await hosting(asks, wrap=between)
    task = await sent(first.default, saying("x"), ALICE)
    stream = second.default.subscribe(SubscribeRequest(id=task.id), ALICE)
    assert isinstance((await anext(stream)).body, Task)
    between.store.refuses = times("tasks.events_after", 3)
    await first.default.send(saying("good", task_id=task.id), ALICE)
    assert states(await all_of(stream))[-1] is S.COMPLETED
    assert second.node.hub._channels == {}


# --- what an agent sees meanwhile ---------------------------------------------------------------------------------


async def test_tasks_show_pending_commits(hosting: Hosting, between: Between) -> None:
    seen: list[str] = []

    @agent
    async def talker(ctx: Context) -> None:
        await ctx.artifact("one ", id="a")
        held = between.store.waits["tasks.append"] = asyncio.Event()
        await ctx.artifact("two ", id="a", append=True)
        await until(is_held)
        seen.append(text(ctx.task))
        await ctx.artifact("three", id="a", append=True)
        seen.append(text(ctx.task))
        held.set()
        await ctx.flush()
        seen.append(text(ctx.task))

    async def is_held() -> bool:
        return between.store.begun.count("tasks.append") > between.store.done.count("tasks.append")

    host = await hosting(talker, wrap=between)
    assert text(await sent(host.default, saying("x"), ALICE)) == "one two three"
    assert seen == ["one two ", "one two three", "one two three"]


async def test_tasks_hide_failed_commits(hosting: Hosting) -> None:
    seen: list[str] = []

    @agent
    async def clumsy(ctx: Context) -> None:
        await ctx.artifact("kept", id="a")
        await ctx.flush()
        await ctx.artifact("\udcff", id="b")
        try:
            await ctx.flush()
        except Failed:
            seen.append(text(ctx.task))

    host = await hosting(clumsy)
    assert text(await sent(host.default, saying("x"), ALICE)) == "kept"
    assert seen == ["kept"]
