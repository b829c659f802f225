"""Bytes and tasks that owners and tenants store: sums over `task.bytes`, which every write keeps, and of webhooks.

A task from before that column, or of a node of an earlier release, counts with its snapshot and its files until its log
is compacted. The quotas that use these sums are `core.storage_quotas`.
"""

from msgspec import Struct

from accord.storage.store import Tx, Value

SNAPSHOT = """COALESCE((SELECT octet_length(doc) FROM snapshot
                        WHERE snapshot.tenant = task.tenant AND snapshot.task_id = task.id), 0)"""
"""The bytes of a task's snapshot: both engines read them off the row's header."""

FILES = """COALESCE((SELECT sum(blob.size) FROM blob_ref JOIN blob
                         ON blob.tenant = blob_ref.tenant AND blob.hash = blob_ref.hash
                     WHERE blob_ref.tenant = task.tenant AND blob_ref.task_id = task.id), 0)"""
"""The bytes of its files."""

WEBHOOKS = """CASE WHEN pushes > 0 THEN COALESCE((SELECT sum(octet_length(config)) FROM push
                                                 WHERE push.tenant = task.tenant AND push.task_id = task.id), 0)
                   ELSE 0 END"""
"""The bytes of its webhooks: up to 20 of 20 KB, also on ended tasks."""

_SUMS = f"count(*), CAST(COALESCE(sum(COALESCE(bytes, {SNAPSHOT} + {FILES}) + {WEBHOOKS}), 0) AS {{int}})"


class Stored(Struct, frozen=True, kw_only=True):
    """What is stored."""

    tasks: int
    bytes: int


class OwnerStored(Stored, frozen=True, kw_only=True):
    """What an owner stores in a tenant."""

    tenant: str
    owner: str


async def stored(tx: Tx, tenant: str | None, owner: str | None) -> Stored:
    """Return what an owner stores, or with None all owners; in a tenant, or with None in all."""
    conditions, values = ["1 = 1"], dict[str, Value]()
    for column, value in (("tenant", tenant), ("owner", owner)):
        if value is not None:
            conditions.append(f"{column} = :{column}")
            values[column] = value
    row = await tx.one(f"SELECT {_SUMS} FROM task WHERE {' AND '.join(conditions)}", **values)
    tasks, size = row or (0, 0)
    return Stored(tasks=tasks, bytes=size)


async def by_owner(tx: Tx, tenant: str | None, limit: int) -> list[OwnerStored]:
    """Return the owners who store most bytes, most first; in a tenant, or with None in all."""
    where, values = ("", {}) if tenant is None else ("WHERE tenant = :tenant", {"tenant": tenant})
    rows = await tx.all(
        f"""SELECT tenant, owner, {_SUMS} AS size FROM task {where}
            GROUP BY tenant, owner ORDER BY size DESC, tenant, owner LIMIT :limit""",
        **values,
        limit=limit,
    )
    return [OwnerStored(tenant=tenant, owner=owner, tasks=tasks, bytes=size) for tenant, owner, tasks, size in rows]
