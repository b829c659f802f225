"""Clocks that jump and clocks that differ: no deadline moves, nothing runs twice, and operators are warned."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from accord import Context, agent
from accord.engine.clock import Clock
from accord.engine.cluster import SLOW_SECONDS, StoreClock
from accord.engine.hooks import ExecutionStarted, Hooks
from accord.engine.node import LATE
from accord.model import TaskState
from accord.service.host import Host
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, said, saying, state
from tests.engine.doubles import Watch, is_parked, reaches, sent, until

S = TaskState
JUMP = 120
only_postgres = pytest.mark.parametrize("hosting", ["postgres"], indirect=True)

Move = Callable[[int], Awaitable[None]]


@pytest.fixture
async def jump(postgres: str, hosting: Hosting) -> AsyncIterator[Move]:
    """A function that sets the database's clock ahead by so many seconds, for connections that are made later."""
    admin = await asyncpg.connect(postgres)
    await admin.execute(
        """CREATE TABLE ahead AS SELECT 0 AS seconds;
           CREATE FUNCTION statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE AS
               'SELECT pg_catalog.statement_timestamp() + (SELECT seconds FROM public.ahead) * interval ''1 second''';
           DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database());
           END $$"""
    )

    async def move(seconds: int) -> None:
        await admin.execute("UPDATE ahead SET seconds = $1", seconds)

    yield move
    await admin.execute(
        """DO $$ BEGIN EXECUTE format('ALTER DATABASE %I RESET search_path', current_database()); END $$;
           DROP FUNCTION public.statement_timestamp(); DROP TABLE ahead"""
    )
    await admin.close()


@only_postgres
async def test_a_jump_of_the_databases_clock_ends_no_task(hosting: Hosting, jump: Move) -> None:
    go = asyncio.Event()

    @agent(name="patient", timeout=60)
    async def patient(ctx: Context) -> None:
        await ctx.step("wait", go.wait)

    watch = Watch()
    hosts = [await hosting(patient, hooks=Hooks((watch,))) for _ in range(2)]
    task = await sent(hosts[0].default, saying("x", configuration=AT_ONCE), ALICE)
    for seconds in (JUMP, 0):
        await jump(seconds)
        await noticed(seconds, *hosts)
        await hosts[0].node._fire_timers()
        assert await _status(hosts[0], task.id) is S.WORKING
    go.set()
    await reaches(hosts[0].default, task.id, S.COMPLETED, ALICE)
    assert len(watch.of(ExecutionStarted)) == 1


@only_postgres
async def test_a_jump_ends_no_task_that_waits_for_another(hosting: Hosting, jump: Move) -> None:
    """Parent, child and a wait with a timeout have no process that would keep their time."""
    waits: list[str] = []

    @agent(name="child", timeout=60)
    async def child(ctx: Context) -> str:
        waits.append(await ctx.step("begin", lambda: ctx.task_id))
        return str(await ctx.wait("go", timeout=60))

    @agent(name="parent", timeout=60)
    async def parent(ctx: Context) -> str:
        return (await ctx.call("child", "x")).text

    host = await hosting(parent, child)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await until(lambda: _waits(host, waits))
    for seconds in (JUMP, 0):
        await jump(seconds)
        await noticed(seconds, host)
        await host.node._fire_timers()
        assert await _status(host, task.id) is S.WORKING
    assert await host.services["child"].wake("acme", waits[0], "go", "went")
    await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert len(set(waits)) == 1


async def _waits(host: Host, waits: list[str]) -> bool:
    return bool(waits) and await is_parked(host.node.store, waits[0])


async def noticed(seconds: int, *hosts: Host) -> None:
    """Wait until all nodes have seen that the database's clock is so far ahead."""

    async def is_so() -> bool:
        at = time.time() - asyncio.get_running_loop().time()
        offsets = [host.node.membership.clock._offset for host in hosts]
        return all(offset is not None and abs(offset - at - seconds) < JUMP / 2 for offset in offsets)

    await until(is_so)


async def _status(host: Host, task_id: str) -> TaskState:
    found = await host.node.task_store.read("acme", task_id)
    assert found is not None
    return found[1].status.state


@only_postgres
async def test_a_clock_that_jumps_back_prolongs_no_deadline(hosting: Hosting, jump: Move) -> None:
    @agent(name="endless", timeout=3)
    async def endless(ctx: Context) -> None:
        await asyncio.Event().wait()

    await jump(JUMP)
    host = await hosting(endless)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await jump(0)
    failed = await reaches(host.default, task.id, S.FAILED, ALICE)
    assert said(failed) == LATE


@only_postgres
async def test_a_jump_of_the_databases_clock_makes_no_task_unknown(hosting: Hosting, jump: Move) -> None:
    @agent(name="agreed")
    async def agreed(ctx: Context) -> str:
        await ctx.sla(1, "first")
        await ctx.sla(60, "second")
        return str(await ctx.wait("go"))

    host = await hosting(agreed)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await until(lambda: is_parked(host.node.store, task.id))
    for seconds in (JUMP, 0):
        await jump(seconds)
        await noticed(seconds, host)
        await host.node._fire_timers()
        assert await _status(host, task.id) is S.WORKING
    assert await host.default.wake("acme", task.id, "go", "went")
    await reaches(host.default, task.id, S.COMPLETED, ALICE)


@only_postgres
async def test_a_clock_that_jumps_back_prolongs_no_sla(hosting: Hosting, jump: Move) -> None:
    @agent(name="agreed")
    async def agreed(ctx: Context) -> None:
        await ctx.sla(3, "silent")
        await ctx.wait("go")

    await jump(JUMP)
    host = await hosting(agreed)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await until(lambda: is_parked(host.node.store, task.id))
    await jump(0)
    assert said(await reaches(host.default, task.id, S.UNKNOWN, ALICE)) == "silent"


class SlowStore:
    """A store that answers late, whose clock is that of the event loop and so much ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.seconds = 0.0
        self.aligned = 0

    async def read(self, _command: object) -> int:
        loop = asyncio.get_running_loop()
        at = loop.time() + self.ahead
        await asyncio.sleep(self.seconds)
        return round(at * 1000)

    async def do(self, _command: object, _now_ms: int) -> None:
        self.aligned += 1


async def test_a_jump_is_noticed_by_a_slow_answer() -> None:
    store = SlowStore()
    clock = StoreClock(store, lambda: round(asyncio.get_running_loop().time() * 1000))  # type: ignore[arg-type]
    await clock.compare()
    store.seconds = SLOW_SECONDS + 0.2
    await clock.compare()
    assert not clock.has_jumped
    store.ahead = JUMP
    await clock.compare()
    assert (clock.has_jumped, store.aligned) == (True, 1)


@only_postgres
async def test_a_sleep_takes_as_long_as_it_should(hosting: Hosting, jump: Move) -> None:
    @agent(name="sleeper")
    async def sleeper(ctx: Context) -> None:
        await ctx.sleep(6)

    await jump(JUMP)
    host = await hosting(sleeper)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await reaches(host.default, task.id, S.WORKING, ALICE)
    await until(lambda: is_parked(host.node.store, task.id))
    await jump(0)
    await reaches(host.default, task.id, S.COMPLETED, ALICE)


@pytest.mark.parametrize("minutes", [-5, 5])
async def test_clock_skew_is_reported_and_harmless(
    hosting: Hosting, minutes: int, caplog: pytest.LogCaptureFixture
) -> None:
    off = Clock(now=lambda: time.time() + 60 * minutes)

    @agent(name="brief", timeout=30)
    async def brief(ctx: Context) -> str:
        await ctx.sleep(0.1)
        return "done"

    @agent(name="endless", timeout=2)
    async def endless(ctx: Context) -> None:
        await asyncio.Event().wait()

    with caplog.at_level(logging.WARNING, "accord.engine"):
        host = await hosting(brief, endless, clock=off)
        await hosting(brief, endless)
        late = await sent(host.services["endless"], saying("x", configuration=AT_ONCE), ALICE)
        assert state(await sent(host.default, saying("x"), ALICE)) is S.COMPLETED
        assert said(await reaches(host.services["endless"], late.id, S.FAILED, ALICE)) == LATE
    records = [record for record in caplog.records if record.message == "store.clock_differs"]
    assert [vars(record)["seconds"] for record in records] == [pytest.approx(60 * minutes, abs=2)]
