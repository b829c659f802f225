"""Tasks that are read together: each gets its own, whoever else asks at the same time."""

import asyncio
from typing import Any

import pytest

from accord.storage.commands import tasks
from accord.storage.postgres import driver
from accord.storage.postgres.driver import PostgresStore
from accord.storage.store import BadValue, StoreUnavailable, Tx
from tests.storage.conftest import BOUND_SECONDS, OTHER, TENANT, appending, chunk, new, postgres_only

pytestmark = postgres_only


async def test_callers_get_their_own_reads(ready: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MAX_TASKS", 7)
    for number in range(30):
        await ready.do(tasks.create_task, TENANT, new(f"t-{number}"))
    await ready.do(tasks.create_task, OTHER, new("t-3"))
    await ready.do(tasks.append, TENANT, appending("t-5", chunk("a", "t-5"), chunk("b", "t-5")))
    asked = [(TENANT, f"t-{number % 30}") for number in range(90)] + [(OTHER, "t-3"), (OTHER, "t-4"), (TENANT, "none")]
    async with asyncio.timeout(BOUND_SECONDS):
        found = await asyncio.gather(*(ready.read(tasks.read_task, *key) for key in asked))
    assert [None if one is None else one.id for one in found] == [f"t-{n % 30}" for n in range(90)] + [
        "t-3",
        None,
        None,
    ]
    read = found[5]
    assert read is not None
    assert [row[0] for row in read.events] == [1, 2]
    assert read.task().artifacts[0].parts[1].text == "b"


async def test_canceled_readers_do_not_affect_others(ready: PostgresStore) -> None:
    await ready.do(tasks.create_task, TENANT, new("t-1"))
    reading = [asyncio.create_task(ready.read(tasks.read_task, TENANT, "t-1")) for _ in range(3)]
    await asyncio.sleep(0)
    reading[0].cancel()
    async with asyncio.timeout(BOUND_SECONDS):
        gone, *found = await asyncio.gather(*reading, return_exceptions=True)
    assert isinstance(gone, asyncio.CancelledError)
    assert [getattr(one, "id", None) for one in found] == ["t-1", "t-1"]


async def test_torn_reads_are_repeated_in_one_snapshot(ready: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    for id in ("t-1", "t-2"):
        await ready.do(tasks.create_task, TENANT, new(id))
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("a", "t-1")))
    real = tasks.read_task

    async def read_task(tx: Tx, tenant: str, task_id: str) -> Any:
        row = await tx.one("SELECT current_setting('transaction_isolation')")
        assert row is not None
        looks.append(row[0])
        if len(looks) == 1:
            raise tasks.TornRead
        return await real(tx, tenant, task_id)

    monkeypatch.setitem(ready._looking, read_task, ready._reads.task)
    monkeypatch.setattr(tasks, "read_task", read_task)
    async with asyncio.timeout(BOUND_SECONDS):
        torn, whole = await asyncio.gather(*(ready.read(read_task, TENANT, id) for id in ("t-1", "t-2")))
    assert (torn.id, whole.id) == ("t-1", "t-2")
    assert looks == ["read committed", "repeatable read"]


@pytest.mark.parametrize("id", ["nul\0", "half \ud800"], ids=["nul", "surrogate"])
async def test_invalid_reads_fail_alone(ready: PostgresStore, id: str) -> None:
    await ready.do(tasks.create_task, TENANT, new("t-1"))
    async with asyncio.timeout(BOUND_SECONDS):
        bad, found = await asyncio.gather(
            ready.read(tasks.read_task, TENANT, id),
            ready.read(tasks.read_task, TENANT, "t-1"),
            return_exceptions=True,
        )
    assert isinstance(bad, BadValue)
    assert getattr(found, "id", None) == "t-1"


async def test_closed_stores_are_errors(ready: PostgresStore) -> None:
    await ready.close()
    async with asyncio.timeout(BOUND_SECONDS):
        with pytest.raises(StoreUnavailable):
            await ready.read(tasks.read_task, TENANT, "t-1")


async def test_waiters_get_an_error_on_close(ready: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MAX_TASKS", 1)
    reading = [asyncio.create_task(ready.read(tasks.read_task, TENANT, f"t-{number}")) for number in range(20)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    async with asyncio.timeout(BOUND_SECONDS):
        await ready.close()
        found = await asyncio.gather(*reading, return_exceptions=True)
    assert all(one is None or isinstance(one, StoreUnavailable) for one in found)
    assert any(isinstance(one, StoreUnavailable) for one in found)
