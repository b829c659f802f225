"""Nodes that share a store: who runs what, in which order, and who takes over."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from accord import Context, agent
from accord.a2a import Caller
from accord.engine.execution import Execution
from accord.engine.hooks import EventsAppended, ExecutionEnded, ExecutionStarted, Hooks
from accord.engine.log_writer import LogWriter
from accord.engine.node import Limits
from accord.model import CancelRequest, GetRequest, Task, TaskFilter, TaskState
from accord.service.host import Host
from accord.storage.commands import jobs
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, said, saying, state, text
from tests.engine.doubles import Meddler, Watch, change, reaches, rows, sent, until

S = TaskState


def quick(**limits: Any) -> Limits:
    return Limits(lease_seconds=3.0, poll_seconds=0.2, **limits)


class Crowd:
    """An agent whose runs note that they began, and then wait until they are let go."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.now = self.most = 0
        self.stopped: list[str] = []
        self._gates: dict[str, asyncio.Event] = {}
        self._more = asyncio.Event()

    async def __call__(self, ctx: Context) -> str:
        name = ctx.text
        self.began.append(name)
        self.now += 1
        self.most = max(self.most, self.now)
        self._more.set()
        try:
            await self._gate(name).wait()
        except asyncio.CancelledError:
            self.stopped.append(name)
            self._more.set()
            raise
        finally:
            self.now -= 1
        return f"{name} {ctx.attempt}"

    def _gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    def let_go(self, *names: str) -> None:
        for name in names:
            self._gate(name).set()

    async def until(self, check: Callable[[], bool]) -> None:
        while not check():
            self._more.clear()
            await self._more.wait()

    async def holds(self, *names: str) -> None:
        """Wait until these have begun."""
        await self.until(lambda: set(names) <= set(self.began))


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


async def put(host: Host, name: str, caller: Caller = ALICE, **hints: Any) -> Task:
    """Send without waiting."""
    request = saying(name, configuration=AT_ONCE, metadata={"task_config": hints} if hints else None)
    return await sent(host.default, request, caller)


async def done(host: Host, task: Task, caller: Caller = ALICE) -> str:
    return text(await reaches(host.default, task.id, S.COMPLETED, caller))


async def dies(host: Host) -> None:
    """Let a node look dead: it says nothing any more and its lease runs out, while its runs go on."""
    for loop in host.node._loops:
        loop.cancel()
    await asyncio.gather(*host.node._loops, return_exceptions=True)
    await change(host.node.store, f"UPDATE node SET expires_at = 1 WHERE id = '{host.node.node_id}'")


def alive() -> list[object]:
    return [found for found in gc.get_objects() if type(found) in (Execution, LogWriter)]


async def test_a_run_that_is_over_is_not_garbage_to_be_searched_for(hosting: Hosting) -> None:
    async def shout(ctx: Context) -> AsyncIterator[str]:
        yield ctx.text.upper()

    host = await hosting(agent(name="shout")(shout))
    others = alive()
    gc.disable()
    try:
        for word in ("one", "two"):
            assert text(await sent(host.default, saying(word), ALICE)) == word.upper()
        for _ in range(10):  # its own task is over a turn after its outcome is known
            await asyncio.sleep(0)
        assert [found for found in alive() if not any(found is other for other in others)] == []
    finally:
        gc.enable()


# --- who runs what ------------------------------------------------------------------------------------------------


async def test_a_full_node_leaves_work_to_others(hosting: Hosting, crowd: Crowd) -> None:
    one, two = Watch(), Watch()
    first = await hosting(agent(name="crowd")(crowd), limits=quick(slots=1), hooks=Hooks((one,)))
    second = await hosting(agent(name="crowd")(crowd), hooks=Hooks((two,)))
    await put(first, "a")
    await crowd.holds("a")
    crowd.let_go("b")
    assert text(await sent(first.default, saying("b"), ALICE)) == "b 1"
    assert (len(one.of(ExecutionStarted)), len(two.of(ExecutionStarted))) == (1, 1)
    assert second.node._executions == {}


@pytest.mark.proves("4-15")
async def test_higher_priority_jobs_run_first(hosting: Hosting, crowd: Crowd) -> None:
    host = await hosting(agent(name="crowd")(crowd), limits=quick(slots=1))
    await put(host, "first")
    await crowd.holds("first")
    for name in ("low", "normal", "high"):
        await put(host, name, priority=name)
    crowd.let_go("first", "low", "normal", "high")
    await crowd.holds("low")
    assert crowd.began == ["first", "high", "normal", "low"]


async def test_a_backlog_is_served_in_order(hosting: Hosting, crowd: Crowd) -> None:
    host = await hosting(agent(name="crowd")(crowd), limits=quick(slots=1))
    names = [f"n{at}" for at in range(6)]
    tasks = [await put(host, name) for name in names]
    crowd.let_go(*names)
    for task in tasks:
        await done(host, task)
    assert crowd.began == names
    assert crowd.most == 1


async def test_tenants_take_turns(hosting: Hosting, crowd: Crowd) -> None:
    host = await hosting(agent(name="crowd")(crowd), limits=quick(slots=2))
    busy, quiet, other = (Caller(tenant=name, owner="x") for name in ("busy", "quiet", "other"))
    await put(host, "x1", other)
    await put(host, "x2", other)
    await crowd.holds("x1", "x2")
    for name in ("b1", "b2", "b3"):
        await put(host, name, busy)
    await put(host, "q1", quiet)
    crowd.let_go("x1")
    await crowd.until(lambda: len(crowd.began) >= 3)
    crowd.let_go("x2")
    await crowd.until(lambda: len(crowd.began) >= 4)
    assert crowd.began[2:] == ["b1", "q1"]


async def test_a_tenant_runs_only_so_much_on_all_nodes(hosting: Hosting, crowd: Crowd) -> None:
    hosts = [await hosting(agent(name="crowd")(crowd), limits=quick(tenant_runs=2)) for _ in range(2)]
    names = [f"n{at}" for at in range(6)]
    tasks = [await put(hosts[at % 2], name) for at, name in enumerate(names)]
    other = await put(hosts[0], "other", Caller(tenant="globex"))
    await crowd.until(lambda: len(crowd.began) >= 3)
    assert "other" in crowd.began
    crowd.let_go("other")
    await done(hosts[0], other, Caller(tenant="globex"))
    crowd.let_go(*names)
    for task in tasks:
        await done(hosts[0], task)
    assert sorted(crowd.began) == sorted([*names, "other"])
    assert crowd.most <= 3


@pytest.mark.parametrize("limits", [quick(slots=2), quick()], ids=["slots", "concurrency"])
async def test_a_node_takes_no_more_than_it_has_room_for(hosting: Hosting, crowd: Crowd, limits: Limits) -> None:
    made = agent(name="crowd", concurrency=2 if limits.slots > 2 else None)(crowd)
    host = await hosting(made, limits=limits)
    names = [f"n{at}" for at in range(8)]
    tasks = await asyncio.gather(*(put(host, name) for name in names))
    await crowd.until(lambda: len(crowd.began) >= 2)
    assert (await host.default.list(TaskFilter(status=S.WORKING), ALICE)).total_size == 2
    crowd.let_go(*names)
    for task in tasks:
        await done(host, task)
    assert crowd.most == 2
    assert sorted(crowd.began) == names


async def test_no_agent_waits_for_the_backlog_of_another(hosting: Hosting, crowd: Crowd) -> None:
    @agent
    async def rare(ctx: Context) -> str:
        crowd.began.append("rare")
        return "rare"

    host = await hosting(agent(name="crowd")(crowd), rare, limits=quick(slots=1))
    names = [f"n{at}" for at in range(6)]
    tasks = [await put(host, name) for name in names]
    await crowd.holds("n0")
    asked = await sent(host.services["rare"], saying("x", configuration=AT_ONCE), ALICE)
    crowd.let_go(*names)
    await reaches(host.services["rare"], asked.id, S.COMPLETED, ALICE)
    await done(host, tasks[-1])
    assert crowd.began.index("rare") <= 3


async def test_a_task_that_cannot_be_read_holds_up_no_other(
    hosting: Hosting, crowd: Crowd, caplog: pytest.LogCaptureFixture
) -> None:
    host = await hosting(agent(name="crowd")(crowd), limits=quick(slots=3))
    for name in ("x1", "x2", "x3"):
        await put(host, name)
    await crowd.holds("x1", "x2", "x3")
    tasks = [await put(host, name) for name in ("broken", "a", "b")]
    await change(host.node.store, f"UPDATE snapshot SET doc = '{{' WHERE task_id = '{tasks[0].id}'")
    crowd.let_go("x1", "x2", "x3", "a", "b")
    assert [await done(host, task) for task in tasks[1:]] == ["a 1", "b 1"]
    assert "job.not_begun" in caplog.text


# --- stopping -----------------------------------------------------------------------------------------------------


async def test_cancelling_reaches_a_run_on_another_node(hosting: Hosting, crowd: Crowd) -> None:
    first, second = [await hosting(agent(name="crowd")(crowd)) for _ in range(2)]
    task = await put(first, "a")
    await crowd.holds("a")
    assert state(await second.default.cancel(CancelRequest(id=task.id), ALICE)) is S.CANCELED
    await crowd.until(lambda: crowd.stopped == ["a"])
    assert state(await first.default.get(GetRequest(id=task.id), ALICE)) is S.CANCELED
    assert await rows(first.node.store, "job", "kind") == []


async def test_a_run_that_is_stopped_may_clean_up(hosting: Hosting) -> None:
    started, stopping, gate, cleaned = (asyncio.Event() for _ in range(4))

    @agent
    async def tidy(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopping.set()
            await gate.wait()
            cleaned.set()

    host = await hosting(tidy)
    task = await put(host, "a")
    await started.wait()
    await host.default.cancel(CancelRequest(id=task.id), ALICE)
    await stopping.wait()
    for _ in range(2):
        await host.node._beat()
    gate.set()
    await cleaned.wait()


async def test_a_node_that_leaves_finishes_short_work(hosting: Hosting, crowd: Crowd) -> None:
    host = await hosting(agent(name="crowd")(crowd))
    task = await put(host, "a")
    await crowd.holds("a")
    leaving = asyncio.create_task(host.stop(20))
    await until(lambda: _is_draining(host))
    late = await put(host, "late")
    crowd.let_go("a", "late")
    await leaving
    assert text(await host.default.get(GetRequest(id=task.id), ALICE)) == "a 1"
    assert state(await host.default.get(GetRequest(id=late.id), ALICE)) is S.SUBMITTED
    assert await rows(host.node.store, "node", "id") == []


async def _is_draining(host: Host) -> bool:
    return not host.node.slots.is_open


async def test_a_node_that_leaves_hands_long_work_over(hosting: Hosting, crowd: Crowd) -> None:
    one = Watch()
    first = await hosting(agent(name="crowd", attempts=1)(crowd), hooks=Hooks((one,)))
    tasks = [await put(first, name) for name in ("a", "b")]
    await crowd.holds("a", "b")
    await first.stop(0)
    assert sorted(crowd.stopped) == ["a", "b"]
    assert {detail.state for detail in one.of(ExecutionEnded)} == {None}
    second = await hosting(agent(name="crowd", attempts=1)(crowd))
    crowd.let_go("a", "b")
    assert [await done(second, task) for task in tasks] == ["a 1", "b 1"]


async def test_work_that_cannot_be_repeated_fails_when_its_node_leaves(hosting: Hosting) -> None:
    started = asyncio.Event()

    @agent(on_crash="fail")
    async def once(ctx: Context) -> AsyncIterator[str]:
        yield "partial"
        started.set()
        await asyncio.Event().wait()

    host = await hosting(once)
    task = await put(host, "a")
    await started.wait()
    await host.stop(0)
    found = await host.default.get(GetRequest(id=task.id), ALICE)
    assert (state(found), said(found), text(found)) == (S.FAILED, "The server was stopped", "partial")
    assert await rows(host.node.store, "job", "kind") == []


async def test_agents_that_are_hard_to_stop_are_handed_over_too(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("accord.engine.node.STOP_SECONDS", 0.2)
    started, slow, gate = asyncio.Event(), asyncio.Event(), asyncio.Event()
    begun: list[str] = []

    @agent
    async def stubborn(ctx: Context) -> str:
        begun.append(ctx.text)
        if begun.count(ctx.text) > 1:
            return "second"
        if len(begun) == 4:
            started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ctx.text == "fails":
                raise RuntimeError("while stopping") from None
            if ctx.text == "slow":
                slow.set()
                await asyncio.sleep(0.05)
            if ctx.text == "ignores":
                await gate.wait()
        return "first"

    first = await hosting(stubborn)
    tasks = [await put(first, name) for name in ("slow", "swallows", "fails", "ignores")]
    await started.wait()
    await first.stop(0)
    assert slow.is_set()
    second = await hosting(stubborn)
    assert [await done(second, task) for task in tasks] == ["second"] * 4
    gate.set()


# --- taking over --------------------------------------------------------------------------------------------------


async def test_a_dead_node_loses_its_work_and_cannot_write(hosting: Hosting) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    begun: list[int] = []
    lost = asyncio.Event()

    @agent
    async def works(ctx: Context) -> AsyncIterator[str]:
        begun.append(ctx.attempt)
        yield f"begun {ctx.attempt} "
        await gates[ctx.attempt - 1].wait()
        try:
            for at in range(1000):
                yield f"{ctx.attempt}.{at} " if at < 3 else ""
                await ctx.flush()
                if ctx.attempt == 2 and at == 3:
                    return
        finally:
            if ctx.attempt == 1 and ctx.cancelled:
                lost.set()

    one, two = Watch(), Watch()
    first = await hosting(works, hooks=Hooks((one,)))
    task = await put(first, "a")
    await one.until(EventsAppended)
    second = await hosting(works, hooks=Hooks((two,)))
    await dies(first)
    await two.until(ExecutionStarted)
    gates[0].set()
    await lost.wait()
    gates[1].set()
    assert (await done(second, task)).startswith("begun 2 2.0 2.1 2.2 ")
    assert begun == [1, 2]
    assert [detail.state for detail in await one.until(ExecutionEnded)] == [None]
    kept = await second.default.get(GetRequest(id=task.id), ALICE)
    assert "1." not in text(kept)


async def test_nodes_stop_a_lost_execution_before_restarting_it(hosting: Hosting, crowd: Crowd) -> None:
    host = await hosting(agent(name="crowd")(crowd))
    task = await put(host, "a")
    await crowd.holds("a")
    await host.node.store.do(jobs.forget_node, host.node.node_id, counts=True)
    await crowd.until(lambda: crowd.began == ["a", "a"] and crowd.stopped == ["a"])
    crowd.let_go("a")
    assert await done(host, task) == "a 2"


async def test_work_that_is_lost_too_often_is_given_up(hosting: Hosting, crowd: Crowd) -> None:
    made = agent(name="crowd", attempts=2)(crowd)
    hosts = [await hosting(made)]
    task = await put(hosts[0], "a")
    for attempt in (1, 2):
        await crowd.until(lambda wanted=attempt: len(crowd.began) == wanted)  # type: ignore[misc]
        hosts.append(await hosting(made))
        await dies(hosts[-2])
    failed = await reaches(hosts[-1].default, task.id, S.FAILED, ALICE)
    assert said(failed) == "The agent's process was lost 2 times; the task was given up"
    assert await rows(hosts[-1].node.store, "job", "kind") == []


async def test_jobs_with_too_many_attempts_fail_at_claim(hosting: Hosting, crowd: Crowd) -> None:
    host = await hosting(agent(name="crowd")(crowd), limits=quick(slots=1))
    await put(host, "first")
    await crowd.holds("first")
    task = await put(host, "unlucky")
    await change(host.node.store, f"UPDATE job SET attempts = 3 WHERE key = '{task.id}'")
    crowd.let_go("first")
    failed = await reaches(host.default, task.id, S.FAILED, ALICE)
    assert said(failed) == "The agent's process was lost 3 times; the task was given up"
    assert crowd.began == ["first"]


def meddling() -> tuple[list[Meddler], Callable[[Any], Meddler]]:
    """Meddlers, and what puts one in the place of each store."""
    made: list[Meddler] = []

    def wrap(store: Any) -> Meddler:
        made.append(Meddler(store))
        return made[-1]

    return made, wrap


async def beats_late(host: Host) -> None:
    """Let a node beat as if its last beat had been long ago."""
    host.node._orphans = dict.fromkeys(host.node._orphans, 0.0)
    await host.node._beat()


async def test_starting_jobs_are_not_orphans(hosting: Hosting, crowd: Crowd) -> None:
    meddlers, wrap = meddling()
    watch = Watch()
    made = agent(name="crowd", on_crash="fail")(crowd)
    host = await hosting(made, limits=quick(tenant_runs=9), wrap=wrap, hooks=Hooks((watch,)))
    gate = meddlers[0].waits["steps.load_steps"] = asyncio.Event()
    crowd.let_go("a", "b")
    tasks = [await put(host, name) for name in ("a", "b")]
    await until(lambda: _is_held(host))
    for _ in range(3):
        await beats_late(host)
    assert await _is_held(host)
    gate.set()
    assert [await done(host, task) for task in tasks] == ["a 1", "b 1"]
    assert len(watch.of(ExecutionStarted)) == 2
    assert "jobs.release_id" not in meddlers[0].begun


async def test_orphaned_jobs_are_released(hosting: Hosting, crowd: Crowd) -> None:
    meddlers, wrap = meddling()
    host = await hosting(agent(name="crowd")(crowd), limits=quick(tenant_runs=9), wrap=wrap)
    meddlers[0].loses = lambda name: name == "jobs.claim" and meddlers[0].given[-1][1][1] == "crowd"
    crowd.let_go("a")
    task = await put(host, "a")
    await until(lambda: _is_held(host))
    assert crowd.began == []
    meddlers[0].loses = lambda _: False
    for _ in range(2):
        await beats_late(host)
    assert await done(host, task) == "a 1"
    assert "jobs.release_id" in meddlers[0].done


async def _is_held(host: Host) -> bool:
    return (host.node.node_id,) in await rows(host.node.store, "job", "node")
