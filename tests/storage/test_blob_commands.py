"""Large parts in the table: kept once, under one secret, and removed only if nobody needs them or is putting them."""

from accord.storage.commands import blobs, tasks
from accord.storage.commands.blobs import BlobPlace
from accord.storage.store import Tx
from tests.storage.conftest import OTHER, TENANT, AnyStore, new


async def age(tx: Tx) -> None:
    """Make all bytes as old as if nobody could be putting them any more."""
    await tx.run("UPDATE blob SET at = at - :ms", ms=2 * blobs.GRACE_MS)


async def test_the_first_secret_is_everybodys(ready: AnyStore) -> None:
    assert [await ready.do(blobs.reference_secret, fresh) for fresh in ("one", "two")] == ["one", "one"]


async def test_bytes_are_kept_by_tenant_and_go_when_they_are_old(ready: AnyStore) -> None:
    for tenant in (TENANT, OTHER):
        await ready.do(blobs.put_blob, tenant, "h", b"large")
    assert not await ready.do(blobs.delete_blob, TENANT, "h")  # somebody may be about to refer to them
    assert await ready.do(blobs.delete_blob, TENANT, "h", 0)
    assert not await ready.do(blobs.delete_blob, TENANT, "h", 0)
    assert await ready.read(blobs.read_blob, TENANT, "h") is None
    assert await ready.read(blobs.read_blob, OTHER, "h") == b"large"


async def test_bytes_that_a_task_needs_stay(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(blobs.put_blob, TENANT, "h", b"large")
    await ready.do(blobs.add_references, TENANT, "t-1", ["h"])
    await ready.do(age)
    assert not await ready.do(blobs.delete_blob, TENANT, "h")
    assert await ready.do(blobs.release_references, TENANT, "t-1") == ["h"]
    assert await ready.read(blobs.read_blob, TENANT, "h") is None


async def test_a_removal_ends_with_its_own_mark_only(ready: AnyStore) -> None:
    assert await ready.do(blobs.put_blob_row, TENANT, "h", 5) is BlobPlace.ELSEWHERE
    await ready.do(age)
    mark = await ready.do(blobs.begin_removal, TENANT, "h")
    assert mark is not None
    assert await ready.do(blobs.put_blob_row, TENANT, "h", 5) is BlobPlace.LEAVING
    await ready.do(blobs.end_removal, TENANT, "h", mark - 1)
    assert await ready.do(blobs.put_blob_row, TENANT, "h", 5) is BlobPlace.LEAVING
    await ready.do(blobs.end_removal, TENANT, "h", mark)
    assert await ready.do(blobs.put_blob_row, TENANT, "h", 5) is BlobPlace.ELSEWHERE
