"""The database is gone for a while, or has no room: callers are told to come back, and running work goes on later."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from accord.errors import AgentUnavailable
from accord.model import Task, TaskState
from accord.storage.sqlite import driver
from accord.storage.store import StoreFull, StoreUnavailable, Tx
from tests.crash.agents import whole
from tests.crash.conftest import (
    BOUND_SECONDS,
    Client,
    Node,
    Postgres,
    Start,
    assert_intact,
    connected,
    sqlite_url,
    text,
    until,
)

OUTAGE_SECONDS = 8.0
SHORTER_SECONDS = 6.0
"""Leases that run out meanwhile, and otherwise are long enough for a busy machine."""

BUSY_MS = 200
TASKS = 10


async def test_postgresql_is_gone_for_a_while(mortal: Postgres, start: Start) -> None:
    store_url = await mortal.empty()

    async def begin() -> None:
        await asyncio.to_thread(mortal.kill)

    async def end() -> None:
        await asyncio.to_thread(mortal.start)

    await survives(store_url, start, begin, end)


async def test_postgresql_is_silent_for_a_while(mortal: Postgres, start: Start) -> None:
    store_url = await mortal.empty()
    async with connected(store_url) as client:
        nodes = await asyncio.gather(*(start(store_url, lease=SHORTER_SECONDS) for _ in range(2)))
        task_ids = await asyncio.gather(*(client.send("chunks", "60 0.02") for _ in range(TASKS)))
        await client.reaches(task_ids[0], 5)
        await asyncio.to_thread(mortal.freeze)
        try:
            patient = asyncio.create_task(sent_at_last(client))
            await asyncio.sleep(OUTAGE_SECONDS - 1)  # less than a statement waits for its answer
        finally:
            await asyncio.to_thread(mortal.thaw)
        for task in await asyncio.gather(*map(client.rested, [*task_ids, await patient])):
            assert task.status.state is TaskState.COMPLETED
            assert text(task) in (whole(60), whole(3))
        assert begun_again(nodes) == []


async def sent_at_last(client: Client) -> str:
    """Send a message, again and again if need be."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            with suppress(AgentUnavailable):
                return await client.send("chunks", "3", "again")


async def test_sqlite_is_locked_for_a_while(tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "BUSY_MS", BUSY_MS)
    holder = apsw.Connection(str(tmp_path / "accord.db"))
    holder.set_busy_timeout(BOUND_SECONDS * 1000)

    async def begin() -> None:
        await asyncio.to_thread(holder.execute, "BEGIN EXCLUSIVE")

    async def end() -> None:
        holder.execute("ROLLBACK")
        holder.close()

    await survives(sqlite_url(tmp_path), start, begin, end, "--busy-ms", str(BUSY_MS))
    assert_intact(sqlite_url(tmp_path))


Act = Callable[[], Coroutine[Any, Any, None]]


async def survives(store_url: str, start: Start, begin: Act, end: Act, *arguments: str) -> None:
    """Take the database away from two nodes at work and a client that follows, and give it back."""
    async with connected(store_url) as client:
        nodes = await asyncio.gather(*(start(store_url, *arguments, lease=SHORTER_SECONDS) for _ in range(2)))
        task_ids = await asyncio.gather(*(client.send("chunks", "40 0.03") for _ in range(TASKS)))
        numbers: list[int] = []
        following = asyncio.create_task(follow(client, task_ids[0], numbers))
        await until(lambda: len(numbers) > 5)
        await begin()
        back_at = time.monotonic() + OUTAGE_SECONDS
        refused = 0
        while refused < 3 or time.monotonic() < back_at:  # the test's bound ends this
            with pytest.raises(AgentUnavailable) as refusal:
                await client.send("chunks", "3", "again")
            assert refusal.value.retry_after
            refused += 1
            await asyncio.sleep(0.1)
        await end()
        for task in await asyncio.gather(*map(client.rested, task_ids)):
            assert task.status.state is TaskState.COMPLETED
            assert text(task) == whole(40)
        log = await client.log(task_ids[0])
        async with asyncio.timeout(BOUND_SECONDS):
            await following
        assert numbers == [0, *(event.seq for event in log)]
        repeated = {await client.send("chunks", "3", "again") for _ in range(2)}
        assert await client.store.read(all_tasks) == repeated | set(task_ids), "however often it was sent"
        assert text(await client.rested(*repeated)) == whole(3)
        assert begun_again(nodes) == [], "nobody died"


def begun_again(nodes: list[Node]) -> list[str]:
    """Return the tasks that were run more than once."""
    begun = Counter(fact["task"] for node in nodes for fact in node.said("started"))
    return [task_id for task_id, times in begun.items() if times > 1]


async def all_tasks(tx: Tx) -> set[str]:
    return {row[0] for row in await tx.all("SELECT id FROM task")}


async def follow(client: Client, task_id: str, numbers: list[int]) -> None:
    async for event in client.follow("chunks", task_id):
        numbers.append(event.seq)


# --- no room ----------------------------------------------------------------------------------------------------------


async def test_a_full_disk_delays_work_and_damages_nothing(tmp_path: Path, start: Start) -> None:
    store_url = sqlite_url(tmp_path)
    node = await start(store_url, "--max-bytes", "1000000")
    async with connected(store_url) as client:
        task_ids = [await client.send("large", "100") for _ in range(3)]
        await node.says("logged", message="store.unavailable")
        for _ in range(30):  # together more than there is room for
            node.tell("send", agent="brief", text="0".ljust(40_000))
        refusal = await node.says("unsent")
        assert (refusal["error"], bool(refusal["retry_after"])) == ("AgentUnavailable", True)
        assert_intact(store_url)
        node.signal(signal.SIGUSR1)
        for task in await asyncio.gather(*map(client.rested, task_ids)):
            assert task.status.state is TaskState.COMPLETED
            assert [part[: part.index(".")] for part in parts(text(task))] == [f"{number} " for number in range(100)]
    assert_intact(store_url)


def parts(text: str) -> list[str]:
    return [text[at : at + 10_000] for at in range(0, len(text), 10_000)]


@pytest.fixture
async def crowded(tmp_path: Path) -> AsyncIterator[Client]:
    """A client of a file that must not have many pages."""

    def limit(connection: apsw.Connection) -> None:
        connection.pragma("max_page_count", 110)

    apsw.connection_hooks.append(limit)
    try:
        async with connected(sqlite_url(tmp_path)) as client:
            yield client
    finally:
        apsw.connection_hooks.remove(limit)


async def test_full_disks_are_distinguished_and_recovered(crowded: Client, tmp_path: Path) -> None:
    await crowded.host.start()
    fitting = await crowded.rested(await crowded.send("large", "2"))
    assert fitting.status.state is TaskState.COMPLETED
    growing = await crowded.send("large", "60")
    with pytest.raises(AgentUnavailable) as refusal:
        await fill(crowded)
    assert isinstance(refusal.value.__cause__, StoreFull)
    assert refusal.value.retry_after
    assert_intact(sqlite_url(tmp_path))
    await crowded.store.do(make_room)
    grown = await crowded.rested(growing)
    assert grown.status.state is TaskState.COMPLETED
    assert len(text(grown)) == 60 * 10_000
    await crowded.host.stop()
    assert_intact(sqlite_url(tmp_path))


async def fill(client: Client) -> None:
    for _ in range(100):
        await client.send("chunks", "3 " + " " * 20_000)


async def make_room(tx: Tx) -> None:
    await tx.all("PRAGMA max_page_count = 1000000")


# --- statements that the server ends ----------------------------------------------------------------------------------

STORM_SECONDS = 8.0
STATEMENT_MS = 100
LOCKED_SECONDS = 0.3
"""How long a table is locked each time: statements that need it are canceled, and so is their first retry."""


async def test_canceled_statements_fail_no_task(mortal: Postgres, start: Start) -> None:
    store_url = await mortal.empty()
    async with connected(store_url) as client:
        nodes = await asyncio.gather(*(start(store_url, lease=SHORTER_SECONDS) for _ in range(2)))
        storm = asyncio.create_task(cancel_backends(store_url))
        kept = await asyncio.gather(*(sends_on(client, agent) for agent in ("chunks", "parent", "careful")))
        canceled = await storm
        assert canceled > 100, "there was a storm"
        await all_complete(client, [task_id for ids in kept for task_id in ids])
        assert begun_again(nodes) == []


async def test_a_statement_timeout_fails_no_task(mortal: Postgres, start: Start) -> None:
    store_url = await mortal.empty()
    async with connected(store_url) as client:
        await start(store_url, lease=SHORTER_SECONDS)
        admin = await asyncpg.connect(store_url)
        try:
            await admin.execute(f"ALTER ROLE CURRENT_USER SET statement_timeout = {STATEMENT_MS}")
            await cut_connections(admin)
            *kept, _ = await asyncio.gather(
                *(sends_on(client, agent) for agent in ("chunks", "parent", "careful")), lock_table(store_url)
            )
        finally:
            await admin.execute("ALTER ROLE CURRENT_USER RESET statement_timeout")
            await cut_connections(admin)
            await admin.close()
        await all_complete(client, [task_id for ids in kept for task_id in ids])


async def sends_on(client: Client, agent: str) -> list[str]:
    """Send for a while; a refusal says when to retry. Returns the tasks that were accepted."""
    accepted, delays = list[str](), list[float | None]()
    until_at = time.monotonic() + STORM_SECONDS
    while time.monotonic() < until_at:  # ends by itself
        try:
            accepted.append(await client.send(agent, "6 0.05"))
        except AgentUnavailable as error:
            delays.append(error.retry_after)
        await asyncio.sleep(0.02)
    assert all(delays)
    return accepted


async def cancel_backends(store_url: str) -> int:
    """Cancel what every connection runs, again and again, and return how often that hit a statement."""
    connection = await asyncpg.connect(store_url)
    canceled = 0
    until_at = time.monotonic() + STORM_SECONDS
    while time.monotonic() < until_at:  # ends by itself
        canceled += await connection.fetchval(
            """SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity
               WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND state <> 'idle'"""
        )
        await asyncio.sleep(0.005)
    await connection.close()
    return canceled


async def lock_table(store_url: str) -> list[str]:
    """Lock the tasks for a moment, again and again."""
    connection = await asyncpg.connect(store_url)
    await connection.execute("SET statement_timeout = 0")
    until_at = time.monotonic() + STORM_SECONDS
    while time.monotonic() < until_at:  # ends by itself
        async with connection.transaction():
            await connection.execute("LOCK TABLE task IN ACCESS EXCLUSIVE MODE")
            await asyncio.sleep(LOCKED_SECONDS)
        await asyncio.sleep(LOCKED_SECONDS)
    await connection.close()
    return []


async def cut_connections(admin: asyncpg.Connection) -> None:
    """Reopen every other connection, with the settings of its role."""
    await admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()")


async def rested(client: Client, task_id: str) -> Task:
    """Return a task at rest, over connections of this process that were cut with all others."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            try:
                return await client.rested(task_id)
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def all_complete(client: Client, task_ids: list[str]) -> None:
    assert task_ids
    for task in await asyncio.gather(*(rested(client, task_id) for task_id in task_ids)):
        assert task.status.state is TaskState.COMPLETED, task.status
