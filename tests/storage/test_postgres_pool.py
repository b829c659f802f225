"""Connections to PostgreSQL: kept at hand for whoever comes next, given back if nobody does, never handed out dead."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from accord.engine.ids import new_id
from accord.model import TaskState
from accord.storage.commands import task_lifecycle
from accord.storage.postgres import connections as postgres_pool
from accord.storage.postgres.connections import FIRST_LOOK, Connections, is_ready
from accord.storage.postgres.driver import PostgresStore
from accord.storage.store import BadValue, StoreUnavailable, Tx
from tests.databases import emptied
from tests.storage.conftest import TENANT, accepting, new, settling

BOUND_SECONDS = 60.0


@pytest.fixture
async def connections(postgres: str) -> AsyncIterator[Connections]:
    found = Connections(postgres)
    await found.open()
    yield found
    await found.close()


async def process(connections: Connections) -> int:
    async with connections.lend() as connection:
        found: int = await connection.fetchval("SELECT pg_backend_pid()")
        return found


async def test_one_after_the_other_uses_the_same(connections: Connections) -> None:
    assert len({await process(connections) for _ in range(5)}) == 1


async def test_waiters_get_a_connection_at_once(
    postgres: str, connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "POOL_SIZE", 1)
    monkeypatch.setattr(postgres_pool, "AT_HAND_SECONDS", 3600.0)
    alone = Connections(postgres)
    await alone.open()
    async with alone.lend():
        waiting = asyncio.create_task(process(alone))
        await asyncio.sleep(0.01)  # until it has asked
    await asyncio.wait_for(waiting, BOUND_SECONDS)
    await asyncio.wait_for(process(alone), BOUND_SECONDS)
    await alone.close()


@pytest.fixture
def given_back(connections: Connections, monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[Any]":
    """Connections that are no longer at hand."""
    found: asyncio.Queue[Any] = asyncio.Queue()
    give_back = connections.give_back

    async def noting(connection: Any) -> None:
        await give_back(connection)
        found.put_nowait(connection)

    monkeypatch.setattr(connections, "give_back", noting)
    return found


async def test_idle_connections_are_closed(
    connections: Connections, given_back: "asyncio.Queue[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "AT_HAND_SECONDS", 0.0)
    await process(connections)
    await asyncio.wait_for(given_back.get(), BOUND_SECONDS)


async def test_used_connections_stay_open(
    connections: Connections, given_back: "asyncio.Queue[Any]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_pool, "AT_HAND_SECONDS", 3600.0)  # the test looks itself
    async with connections.lend() as first, connections.lend() as second, connections.lend() as third:
        pass
    connections._clear()
    async with connections.lend() as used:
        pass
    connections._clear()
    others = {first, second, third} - {used}
    assert {await asyncio.wait_for(given_back.get(), BOUND_SECONDS) for _ in others} == others
    async with connections.lend() as again:
        assert again is used
    assert given_back.empty()


async def test_dead_idle_connections_are_not_lent(postgres: str, connections: Connections) -> None:
    async with connections.lend() as connection:
        pid = await connection.fetchval("SELECT pg_backend_pid()")
    assassin = await asyncpg.connect(postgres)
    await assassin.execute("SELECT pg_terminate_backend($1)", pid)
    await assassin.close()
    async with asyncio.timeout(BOUND_SECONDS):
        while is_ready(connection):  # noqa: ASYNC110 - the driver tells nobody
            await asyncio.sleep(0.01)
    assert await process(connections) != pid


async def test_after_a_failure_it_is_made_ready_again(connections: Connections) -> None:
    async def fail() -> None:
        async with connections.lend() as connection:
            await connection.execute("BEGIN")
            await connection.execute("SELECT 1/0")

    with pytest.raises(BadValue, match="division by zero"):
        await fail()
    async with connections.lend() as connection:
        assert not connection.is_in_transaction()


async def test_a_transaction_that_was_left_open_is_not_the_next_ones(connections: Connections) -> None:
    async with connections.lend() as connection:
        await connection.execute("BEGIN")
    async with connections.lend() as connection:
        assert not connection.is_in_transaction()


async def test_an_unopened_pool_is_an_error() -> None:
    with pytest.raises(StoreUnavailable, match="not open"):
        await process(Connections("postgresql://nobody@localhost/nothing"))


async def test_a_task_is_found_by_its_key_however_many_there_are(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An index that has the key at its end looks as good to a planner that knows an empty table, and is read whole."""
    monkeypatch.setattr(postgres_pool, "POOL_SIZE", 1)  # others would tell late what they have read
    store = PostgresStore(await emptied(postgres), listen=False)
    await store.open()

    async def tell_soon(tx: Tx) -> None:
        await tx.one("SELECT pg_stat_force_next_flush()")

    async def others_read(tx: Tx) -> int:
        found = await tx.one(
            """SELECT sum(idx_scan)::bigint FROM pg_stat_user_indexes WHERE indexrelname IN
               ('task_by_time', 'task_by_owner', 'task_by_context')"""
        )
        return int(found[0] or 0) if found else 0

    async def go_through(rounds: int) -> None:
        for _ in range(rounds):
            sends = [accepting(new_id(), node="n-1", new=new(new_id(), owner="")) for _ in range(16)]
            made = await asyncio.gather(*(store.do(task_lifecycle.accept_task, TENANT, send) for send in sends))
            ends = [settling(one.job, TaskState.COMPLETED) for one in made if one.job]
            await asyncio.gather(*(store.do(task_lifecycle.settle_execution, TENANT, end) for end in ends))

    await go_through(2 * FIRST_LOOK)
    await store.do(tell_soon)
    before = await store.do(others_read)
    await go_through(2 * FIRST_LOOK)
    await store.do(tell_soon)
    assert await store.do(others_read) == before
    await store.close()
