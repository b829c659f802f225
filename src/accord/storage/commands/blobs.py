"""Blobs: bytes in the table or the row of a blob elsewhere, references of tasks, and removal.

Bytes are put before the transaction that refers to them, and the same bytes are stored once. So an unreferenced blob
may be about to be referenced: it is removed only after a grace period.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from accord.storage.store import Tx

GRACE_MS = 3_600_000
"""How long after bytes were put a reference to them may come: far longer than any request lasts."""

REMOVAL_MS = 60_000
"""How long a removal of bytes kept elsewhere may take; one that began earlier was given up by whoever began it."""

RELEASES = 4_711_002
"""The lock that releases take turns with: of two at once, each would see the other's reference to the same bytes."""

_UNREFERRED = "NOT EXISTS (SELECT 1 FROM blob_ref r WHERE r.tenant = blob.tenant AND r.hash = blob.hash)"
_FREED = """SELECT hash FROM blob_ref mine WHERE tenant = :tenant AND task_id = :task_id AND NOT EXISTS (
    SELECT 1 FROM blob_ref r WHERE r.tenant = :tenant AND r.hash = mine.hash AND r.task_id <> :task_id)"""


class BlobPlace(Enum):
    """What a note about bytes that are to be kept elsewhere found."""

    HERE = "here"
    """The table has the bytes already: it was used before."""
    ELSEWHERE = "elsewhere"
    LEAVING = "leaving"
    """The same bytes are being removed: writing them now could lose them."""


async def reference_secret(tx: Tx, fresh: str) -> str:
    """Return the secret that marks this store's references; the first to ask makes it."""
    await tx.run(
        "INSERT INTO meta (key, value) VALUES ('blob_secret', :fresh) ON CONFLICT (key) DO NOTHING", fresh=fresh
    )
    row = await tx.one("SELECT value FROM meta WHERE key = 'blob_secret'")
    return str(row[0]) if row else fresh


async def put_blob(tx: Tx, tenant: str, hash: str, data: bytes) -> None:
    """Keep bytes in the table."""
    await tx.run(
        """INSERT INTO blob (tenant, hash, size, at, data) VALUES (:tenant, :hash, :size, {now}, :data)
           ON CONFLICT (tenant, hash) DO UPDATE SET at = excluded.at, data = coalesce(blob.data, excluded.data)""",
        tenant=tenant,
        hash=hash,
        size=len(data),
        data=data,
    )


async def read_blob(tx: Tx, tenant: str, hash: str) -> bytes | None:
    """Return bytes that the table has."""
    row = await tx.one("SELECT data FROM blob WHERE tenant = :tenant AND hash = :hash", tenant=tenant, hash=hash)
    return None if row is None or row[0] is None else bytes(row[0])


async def sizes(tx: Tx, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
    """Return the sizes of bytes that a tenant has, by their hashes."""
    rows = await tx.all(
        """SELECT blob.hash, blob.size FROM {pairs} :wanted {end} AS wanted
           JOIN blob ON blob.tenant = :tenant AND blob.hash = wanted.key""",
        wanted=msgspec.json.encode(dict.fromkeys(hashes, "")).decode(),
        tenant=tenant,
    )
    return {hash: size for hash, size in rows}


async def delete_blob(tx: Tx, tenant: str, hash: str, grace_ms: int = GRACE_MS) -> bool:
    """Remove bytes from the table, unless somebody needs them; say whether they went."""
    removed = await tx.run(
        f"""DELETE FROM blob
            WHERE tenant = :tenant AND hash = :hash AND at <= {{now}} - :grace_ms AND {_UNREFERRED}""",
        tenant=tenant,
        hash=hash,
        grace_ms=grace_ms,
    )
    return removed == 1


async def put_blob_row(tx: Tx, tenant: str, hash: str, size: int) -> BlobPlace:
    """Say that bytes are about to be written elsewhere. It comes first, so that nothing is there without a note."""
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
    """Claim the removal of bytes kept elsewhere and return its mark; None if somebody needs them."""
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
    """Forget bytes that were removed, unless somebody else has begun to remove them as well and is not done."""
    await tx.run(
        "DELETE FROM blob WHERE tenant = :tenant AND hash = :hash AND at = :mark", tenant=tenant, hash=hash, mark=mark
    )


async def add_references(tx: Tx, tenant: str, task_id: str, hashes: Iterable[str]) -> None:
    """Note that a task needs these bytes, which count as stored by it from then on."""
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
    """Forget what a task needs and return what nobody needs any more; the table's bytes are removed at once."""
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
    """Return tenant and hash of bytes that nobody needs: put by a request that failed, or never quite removed."""
    rows = await tx.all(
        f"SELECT tenant, hash FROM blob WHERE at <= {{now}} - :grace_ms AND {_UNREFERRED} ORDER BY at LIMIT :limit",
        grace_ms=grace_ms,
        limit=limit,
    )
    return [(tenant, hash) for tenant, hash in rows]
