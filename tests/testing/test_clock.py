"""A clock that is moved: everything that waits goes by it, and nothing else does."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
import uvloop

from accord.a2a import Caller
from accord.agents.function import agent
from accord.agents.loader import load
from accord.client import Retries
from accord.engine.context import Context
from accord.engine.node import LATE
from accord.errors import RateLimited
from accord.model import PushConfig, TaskFilter, TaskState
from accord.testing import MovableClock, assert_task, catching, running, scripted
from accord.testing.inprocess import application
from accord.testing.scripts import artifact, hang, sleep, wait_for

HOUR = 3600.0

FLOW = """
version: "1"
name: nightly
swarm: dag
on:
  schedule: [{ cron: "0 6 * * *" }]
workflows:
  - name: nightly
    steps: [{ name: a, type: wait, for: 1h }]
"""


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


async def test_time_moves_only_on_request(clock: MovableClock) -> None:
    began = time.monotonic()
    async with running(scripted(sleep(HOUR), artifact("good morning")), clock=clock) as a2a:
        task = await a2a.send_text("wake me", at_once=True)
        await clock.advance(HOUR - 60)
        assert_task(await a2a.get(task), state="working")
        assert_task(await clock.until(a2a.reaches(task, TaskState.COMPLETED), within=120), text="good morning")
    assert time.monotonic() - began < HOUR


async def test_events_have_the_test_clock_s_time(clock: MovableClock) -> None:
    async with running(scripted(artifact("x")), clock=clock) as a2a:
        first = await a2a.send_text("one")
        await clock.advance(24 * HOUR)
        second = await a2a.send_text("two")
    assert first.status.timestamp is not None
    assert second.status.timestamp is not None
    assert first.status.timestamp[:10] < second.status.timestamp[:10], "it is another day"


async def test_a_task_has_its_time_and_no_more(clock: MovableClock) -> None:
    async with running(scripted(hang(), timeout=600.0), clock=clock) as a2a:
        task = await a2a.send_text("go", at_once=True)
        await a2a.reaches(task, TaskState.WORKING)
        await clock.advance(500)
        assert_task(await a2a.get(task), state="working")
        assert_task(await clock.until(a2a.reaches(task, TaskState.FAILED), within=200), text=LATE)


async def test_missing_signals_time_out(clock: MovableClock) -> None:
    async with running(scripted(wait_for("go", seconds=HOUR), artifact("went")), clock=clock) as a2a:
        late = await a2a.send_text("go", at_once=True)
        await clock.until(a2a.reaches(late, TaskState.FAILED), within=HOUR + 60, step=30)
        early = await a2a.send_text("go", at_once=True)
        await clock.advance(60)
        assert await a2a.hand_in(early, "go")
        assert_task(await a2a.reaches(early, TaskState.COMPLETED), text="went")
        assert not await a2a.hand_in(early, "go")


async def test_webhooks_are_tried_again_when_their_time_has_come(clock: MovableClock) -> None:
    async with (
        catching(clock=clock) as hooks,
        running(scripted(artifact("x")), clock=clock) as a2a,
        a2a.client() as client,
    ):
        hooks.fail(4)
        await client.start("go", push=PushConfig(url=hooks.url))
        await hooks.wait_for_any(1)
        await clock.until(hooks.wait(1), within=300, step=0.25)
        assert [one.status for one in hooks.all][:4] == [503] * 4


async def test_a_schedule_comes_within_a_day(clock: MovableClock, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    async with running(load(str(tmp_path / "flow.yaml")), clock=clock) as a2a:
        await clock.advance(24 * HOUR)
        page = await a2a.service.list(TaskFilter(), Caller())
        assert len(page.tasks) == 1, "the day has one morning"
        await clock.advance(2 * HOUR)
        assert_task(await a2a.get(page.tasks[0]), state="completed")


async def test_the_work_of_a_node_that_died_is_taken_over(clock: MovableClock, tmp_path: Path) -> None:
    began: list[int] = []

    @agent
    async def slow(ctx: Context) -> str:
        began.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return "done by another"

    async with running(slow, store=tmp_path / "a.db", clock=clock) as first:
        task = await first.send_text("go", at_once=True)
        await first.reaches(task, TaskState.WORKING)
        async with running(slow, store=tmp_path / "a.db", clock=clock) as second:
            for loop in first.app.host.node._loops:  # it lives no longer, as far as others can see
                loop.cancel()
            done = await clock.until(second.reaches(task, TaskState.COMPLETED), within=120)
            assert_task(done, text="done by another")
    assert began == [1, 2]


async def test_a_limit_of_requests_is_by_it_as_well(clock: MovableClock) -> None:
    async with (
        running(scripted(artifact("x")), clock=clock, limits={"open_rate": 0.1, "burst": 1}) as a2a,
        a2a.client(retries=Retries(attempts=0)) as client,
    ):
        await client.send_text("one")
        with pytest.raises(RateLimited, match="requests per second"):
            await client.send_text("two")
        await clock.advance(60)
        await client.send_text("three")


async def test_other_clocks_are_unaffected(clock: MovableClock) -> None:
    async with running(scripted(artifact("x")), clock=clock):
        await clock.advance(HOUR)
        assert clock.now() - time.time() > HOUR - 1
        assert clock.monotonic() - time.monotonic() > HOUR - 1
        assert time.time() - clock.now() < -HOUR + 1
    loop = asyncio.get_running_loop()
    assert abs(loop.time() - time.monotonic()) < HOUR, "the loop has its own again"


async def test_hanging_tests_end_in_real_time(clock: MovableClock) -> None:
    async with running(scripted(hang()), clock=clock, bound=0.5) as a2a:
        task = await a2a.send_text("go", at_once=True)
        with pytest.raises(TimeoutError):
            await a2a.reaches(task, TaskState.COMPLETED)
        with pytest.raises(TimeoutError, match="within 30 seconds"):
            await clock.until(asyncio.Event().wait(), within=30, patience=0.1)


async def test_time_goes_forward_and_one_clock_moves_a_loop(clock: MovableClock) -> None:
    with pytest.raises(ValueError, match="forward"):
        await clock.advance(-1)
    other = MovableClock()
    with clock.moving(), clock.moving(), pytest.raises(RuntimeError, match="Another clock"), other.moving():
        pass


def test_the_clock_of_another_database_cannot_be_moved(clock: MovableClock) -> None:
    with pytest.raises(ValueError, match="Only SQLite's clock"):
        application([scripted()], "postgresql://localhost/x", clock)


def test_uvloop_s_clock_cannot_be_moved(clock: MovableClock) -> None:
    async def tries() -> Any:
        with clock.moving():
            pass

    loop = uvloop.new_event_loop()
    try:
        with pytest.raises(TypeError, match="asyncio's own event loop"):
            loop.run_until_complete(tries())
    finally:
        loop.close()
