"""What the runs of one workflow have in common, by namespace and key: the latest value counts, until it is too old.

It belongs to the tenant and the caller whose runs they are. Unlike `states` it belongs to no conversation and outlives
the tasks that it comes from.
"""

from msgspec import Struct

from accord.storage.store import Tx


class Shelf(Struct, frozen=True):
    """Whose values they are, and of which workflows."""

    owner: str
    namespace: str


async def load(tx: Tx, tenant: str, shelf: Shelf) -> dict[str, str]:
    """Return the values that are not too old."""
    rows = await tx.all(
        """SELECT key, value FROM shared_value WHERE tenant = :tenant AND owner = :owner AND namespace = :namespace
           AND (expires_at IS NULL OR expires_at > {now})""",
        tenant=tenant,
        owner=shelf.owner,
        namespace=shelf.namespace,
    )
    return dict(rows)


async def put(tx: Tx, tenant: str, shelf: Shelf, values: dict[str, str], at: int, ttl_ms: int | None) -> None:
    """Keep values from a time, unless there are later ones; those that are too old go."""
    whose = {"tenant": tenant, "owner": shelf.owner, "namespace": shelf.namespace}
    await tx.run(
        """DELETE FROM shared_value WHERE tenant = :tenant AND owner = :owner AND namespace = :namespace
           AND expires_at <= {now}""",
        **whose,
    )
    await tx.many(
        """INSERT INTO shared_value (tenant, owner, namespace, key, value, at, expires_at)
           VALUES (:tenant, :owner, :namespace, :key, :value, :at, :expires_at)
           ON CONFLICT (tenant, owner, namespace, key) DO UPDATE
           SET value = excluded.value, at = excluded.at, expires_at = excluded.expires_at
           WHERE excluded.at >= shared_value.at""",
        [
            {**whose, "key": key, "value": value, "at": at, "expires_at": None if ttl_ms is None else at + ttl_ms}
            for key, value in sorted(values.items())
        ],
    )
