"""Blobs in the table, rows of blobs in a backend, references of tasks, and removal.

Bytes are stored before the transaction that refers to them, and equal bytes are stored once. An unreferenced blob may
therefore be about to be referenced: it is removed only after a grace period.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from accord.storage.store import Tx

GRACE_MS = 3_600_000
"""Grace period for a reference to newly stored bytes: far longer than any request lasts."""

REMOVAL_MS = 60_000
"""Time limit of a removal from a backend. Its node has given up an older removal."""

RELEASES = 4_711_002
"""Advisory lock that serializes releases. Two at once would each see the other's reference to the same bytes."""

_UNREFERRED = "NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.tenant = blob.tenant AND r.hash = blob.hash)"
_FREED = """SELECT hash FROM blob_ref mine WHERE tenant = :tenant AND task_id = :task_id AND NOT EXISTS (
    SELECT 1 FROM blob_ref r WHERE r.tenant = :tenant AND r.hash = mine.hash AND r.task_id <> :task_id)"""


class BlobPlace(Enum):
    """Where the bytes of a blob are, or must be written."""

    HERE = "here"
    """The table has the bytes already, from before a backend was configured."""
    ELSEWHERE = "elsewhere"
    LEAVING = "leaving"
    """The same bytes are being removed. Writing them now could lose them."""


async def reference_secret(tx: Tx, fresh: str) -> str:
    """Return the secret that marks this store's references. The first call stores `fresh`."""
    await tx.run(
        "INSERT INTO meta (key, value) VALUES ('blob_secret', :fresh) ON CONFLICT (key) DO NOTHING", fresh=fresh
    )
    row = await tx.one("SELECT value FROM meta WHERE key = 'blob_secret'")
    return str(row[0]) if row else fresh


async def put_blob(tx: Tx, tenant: str, hash: str, data: bytes) -> None:
    """Store bytes in the table."""
    await tx.run(
        """INSERT INTO blob (tenant, hash, size, at, data) VALUES (:tenant, :hash, :size, {now}, :data)
           ON CONFLICT (tenant, hash) DO UPDATE SET at = excluded.at, data = coalesce(blob.data, excluded.data)""",
        tenant=tenant,
        hash=hash,
        size=len(data),
        data=data,
    )


async def read_blob(tx: Tx, tenant: str, hash: str) -> bytes | None:
    """Return bytes from the table, or None."""
    row = await tx.one("SELECT data FROM blob WHERE tenant = :tenant AND hash = :hash", tenant=tenant, hash=hash)
    return None if row is None or row[0] is None else bytes(row[0])


async def sizes(tx: Tx, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
    """Return the sizes of a tenant's blobs by hash."""
    rows = await tx.all(
        """SELECT blob.hash, blob.size FROM {pairs} :wanted {end} AS wanted
           JOIN blob ON blob.tenant = :tenant AND blob.hash = wanted.key""",
        wanted=msgspec.json.encode(dict.fromkeys(hashes, "")).decode(),
        tenant=tenant,
    )
    return {hash: size for hash, size in rows}


async def delete_blob(tx: Tx, tenant: str, hash: str, grace_ms: int = GRACE_MS) -> bool:
    """Delete bytes from the table if they are unreferenced and old enough. Return whether they were deleted."""
    removed = await tx.run(
        f"""DELETE FROM blob
            WHERE tenant = :tenant AND hash = :hash AND at <= {{now}} - :grace_ms AND {_UNREFERRED}""",
        tenant=tenant,
        hash=hash,
        grace_ms=grace_ms,
    )
    return removed == 1


async def put_blob_row(tx: Tx, tenant: str, hash: str, size: int) -> BlobPlace:
    """Insert the row of a blob before its bytes are written to a backend.

    So no bytes lack a row.
    """
    row = await tx.one(
        """INSERT INTO blob (tenant, hash, size, at) VALUES (:tenant, :hash, :size, {now})
           ON CONFLICT (tenant, hash) DO UPDATE SET at = excluded.at
           WHERE blob.at > 0 OR -blob.at < {now} - :removal_ms
           RETURNING data IS NOT NULL""",
        tenant=tenant,
        hash=hash,
        size=size,
        removal_ms=REMOVAL_MS,
    )
    if row is None:
        return BlobPlace.LEAVING
    return BlobPlace.HERE if row[0] else BlobPlace.ELSEWHERE


async def begin_removal(tx: Tx, tenant: str, hash: str, grace_ms: int = GRACE_MS) -> int | None:
    """Claim the removal of a blob from a backend. Return the claim's mark, or None if the blob is in use."""
    row = await tx.one(
        f"""UPDATE blob SET at = -{{now}}
            WHERE tenant = :tenant AND hash = :hash AND at <= {{now}} - :grace_ms AND {_UNREFERRED}
            RETURNING at""",
        tenant=tenant,
        hash=hash,
        grace_ms=grace_ms,
    )
    return None if row is None else int(row[0])


async def end_removal(tx: Tx, tenant: str, hash: str, mark: int) -> None:
    """Delete the row of a removed blob, unless another node has claimed the removal since."""
    await tx.run(
        "DELETE FROM blob WHERE tenant = :tenant AND hash = :hash AND at = :mark", tenant=tenant, hash=hash, mark=mark
    )


async def add_references(tx: Tx, tenant: str, task_id: str, hashes: Iterable[str]) -> None:
    """Add references from a task to blobs, and add their sizes to the task's stored bytes."""
    referred = await tx.all(
        "SELECT hash FROM blob_ref WHERE tenant = :tenant AND task_id = :task_id", tenant=tenant, task_id=task_id
    )
    hashes = sorted(set(hashes).difference(hash for (hash,) in referred))
    await tx.many(
        """INSERT INTO blob_ref (tenant, task_id, hash) VALUES (:tenant, :task_id, :hash)
           ON CONFLICT (tenant, task_id, hash) DO NOTHING""",
        [{"tenant": tenant, "task_id": task_id, "hash": hash} for hash in hashes],
    )
    await tx.many(
        """UPDATE task SET bytes = bytes + COALESCE((SELECT size FROM blob WHERE tenant = :tenant AND hash = :hash), 0)
           WHERE tenant = :tenant AND id = :task_id""",
        [{"tenant": tenant, "task_id": task_id, "hash": hash} for hash in hashes],
    )


async def release_references(tx: Tx, tenant: str, task_id: str, grace_ms: int = GRACE_MS) -> list[str]:
    """Delete a task's references and return the hashes that became unreferenced.

    Bytes in the table are deleted at once.
    """
    await tx.lock(RELEASES)
    freed = [row[0] for row in await tx.all(f"{_FREED} ORDER BY hash", tenant=tenant, task_id=task_id)]
    await tx.run(
        f"""DELETE FROM blob WHERE tenant = :tenant AND data IS NOT NULL AND at <= {{now}} - :grace_ms
            AND hash IN ({_FREED})""",
        tenant=tenant,
        task_id=task_id,
        grace_ms=grace_ms,
    )
    await tx.run("DELETE FROM blob_ref WHERE tenant = :tenant AND task_id = :task_id", tenant=tenant, task_id=task_id)
    return freed


async def list_unreferenced(tx: Tx, limit: int, grace_ms: int = GRACE_MS) -> list[tuple[str, str]]:
    """Return tenant and hash of unreferenced blobs: leftovers of failed requests or unfinished removals."""
    rows = await tx.all(
        f"SELECT tenant, hash FROM blob WHERE at <= {{now}} - :grace_ms AND {_UNREFERRED} ORDER BY at LIMIT :limit",
        grace_ms=grace_ms,
        limit=limit,
    )
    return [(tenant, hash) for tenant, hash in rows]
