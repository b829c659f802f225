"""What tasks store: `task.bytes` is what was written, on every engine and whichever command wrote it."""

import pytest

from accord.model import TaskState
from accord.protocol import lifecycle
from accord.storage.commands import blobs, monitoring, retention, task_lifecycle, tasks, webhooks
from accord.storage.commands.monitoring import OwnerTotal, StoredTotal
from accord.storage.store import Tx
from tests.storage.conftest import (
    OTHER,
    TENANT,
    AnyStore,
    accepting,
    appending,
    chunk,
    claimed,
    new,
    settling,
    status,
    webhook,
)

WORKING, COMPLETED = TaskState.WORKING, TaskState.COMPLETED


async def size(store: AnyStore, tenant: str | None = TENANT, owner: str | None = "alice") -> int:
    return (await store.read(monitoring.stored_total, tenant, owner)).bytes


async def events(tx: Tx) -> int:
    row = await tx.one("SELECT sum(octet_length(data)) FROM event")
    return int(row[0] or 0) if row else 0


async def configs(tx: Tx) -> int:
    row = await tx.one("SELECT sum(octet_length(config)) FROM push")
    return int(row[0] or 0) if row else 0


async def snapshots(tx: Tx) -> int:
    row = await tx.one("SELECT sum(octet_length(doc)) FROM snapshot")
    return int(row[0] or 0) if row else 0


@pytest.mark.parametrize("with_webhook", [False, True], ids=["quiet", "with-webhook"])
async def test_every_write_counts(ready: AnyStore, with_webhook: bool) -> None:
    """A webhook sends PostgreSQL's batches through their other statement."""
    push = webhook() if with_webhook else None
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(push=push))
    first = await ready.read(snapshots) + await ready.read(configs)
    assert await size(ready) == first > 0
    job = await claimed(ready)
    await ready.do(tasks.append, TENANT, appending("t-1", status(WORKING), epoch=job.epoch))
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("ein Stück: äöü"), epoch=job.epoch, after=1))
    snapshot = new(state=WORKING).task
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("b"), epoch=job.epoch, after=2, snapshot=snapshot))
    assert await size(ready) == first + await ready.read(events)
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(job, COMPLETED, after=3))
    assert await size(ready) == first + await ready.read(events)


async def test_a_task_that_starts_at_once_counts_its_first_event(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node="n-1", working=status(WORKING)))
    assert await size(ready) == await ready.read(snapshots) + await ready.read(events)


async def test_files_count_once_for_each_task_that_needs_them(ready: AnyStore) -> None:
    await ready.do(blobs.put_blob, TENANT, "h", bytes(1000))
    await ready.do(tasks.create_task, TENANT, new("t-1", blobs=("h",)))
    await ready.do(tasks.create_task, TENANT, new("t-2"))
    docs = await ready.read(snapshots)
    assert await size(ready) == docs + 1000
    await ready.do(blobs.add_references, TENANT, "t-1", ["h"])
    assert await size(ready) == docs + 1000
    await ready.do(blobs.add_references, TENANT, "t-2", ["h"])
    assert await size(ready) == docs + 2000


async def test_webhooks_count_until_they_are_removed(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    before = await size(ready)
    large = webhook(url=f"https://example.com/{'x' * 5000}")
    for config in (webhook(), large):  # the second replaces the first
        assert await ready.do(webhooks.put, TENANT, "t-1", config, "v1")
        assert await size(ready) == before + await ready.read(configs)
    assert await size(ready) > before + 5000
    assert await ready.read(monitoring.stored_by_owner, TENANT, 1) == [
        OwnerTotal(tenant=TENANT, owner="alice", tasks=1, bytes=await size(ready))
    ]
    assert await ready.do(webhooks.delete, TENANT, "t-1") == 1
    assert await size(ready) == before


async def test_compacted_tasks_count_their_snapshot(ready: AnyStore) -> None:
    await ready.do(blobs.put_blob, TENANT, "h", bytes(1000))
    await ready.do(tasks.create_task, TENANT, new(blobs=("h",)))
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("x" * 5000)))
    ended = lifecycle.apply(new().task, status(COMPLETED))
    await ready.do(tasks.append, TENANT, appending("t-1", status(COMPLETED), after=1, snapshot=ended))
    before = await size(ready)
    assert await ready.do(retention.compact, 0, 10) == 1
    assert await size(ready) == await ready.read(snapshots) + 1000 < before
    assert await ready.do(retention.purge, 0, 10) == 1
    assert await ready.read(monitoring.stored_total, TENANT, "alice") == StoredTotal(tasks=0, bytes=0)


async def test_tasks_of_earlier_releases_count_snapshot_and_files(ready: AnyStore) -> None:
    async def forget(tx: Tx) -> None:
        await tx.run("UPDATE task SET bytes = NULL")

    await ready.do(blobs.put_blob, TENANT, "h", bytes(1000))
    await ready.do(tasks.create_task, TENANT, new(blobs=("h",)))
    await ready.do(forget)
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("x")))
    assert await ready.read(monitoring.stored_total, TENANT, "alice") == StoredTotal(
        tasks=1, bytes=await ready.read(snapshots) + 1000
    )


async def test_sums_are_of_an_owner_of_a_tenant_or_of_all(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new("t-1"))
    await ready.do(tasks.create_task, TENANT, new("t-2", owner="bob"))
    await ready.do(tasks.append, TENANT, appending("t-2", chunk("x" * 1000)))
    await ready.do(tasks.create_task, OTHER, new("t-3"))
    alice, bob = await size(ready), await size(ready, owner="bob")
    assert bob > alice
    assert await ready.read(monitoring.stored_total, TENANT, None) == StoredTotal(tasks=2, bytes=alice + bob)
    assert await ready.read(monitoring.stored_total, None, "alice") == StoredTotal(tasks=2, bytes=2 * alice)
    assert await ready.read(monitoring.stored_total, None, None) == StoredTotal(tasks=3, bytes=2 * alice + bob)
    assert await ready.read(monitoring.stored_by_owner, None, 2) == [
        OwnerTotal(tenant=TENANT, owner="bob", tasks=1, bytes=bob),
        OwnerTotal(tenant=TENANT, owner="alice", tasks=1, bytes=alice),
    ]
    assert [one.tenant for one in await ready.read(monitoring.stored_by_owner, OTHER, 9)] == [OTHER]
