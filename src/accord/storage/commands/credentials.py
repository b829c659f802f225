"""Credentials for agents elsewhere, sealed: bytes under a tenant and the id of a service.

What is in them is never known here; sealing and opening is `client.keys.sealed`. A tenant sees none but its own.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from accord.storage.store import Row, Tx

_KINDS = msgspec.json.Decoder(tuple[str, ...])
_ENCODER = msgspec.json.Encoder()

_COLUMNS = "tenant, id, key_id, kinds, sealed, created_at, updated_at"


class NewCredential(Struct, frozen=True, kw_only=True):
    """A credential to keep; `key_id` names the key that it is sealed with."""

    id: str
    key_id: str
    kinds: Sequence[str]
    sealed: bytes


class StoredCredential(Struct, frozen=True, kw_only=True):
    """A credential as it is kept; times are in milliseconds."""

    tenant: str
    id: str
    key_id: str
    kinds: tuple[str, ...]
    sealed: bytes
    created_at: int
    updated_at: int


async def put(tx: Tx, tenant: str, new: NewCredential) -> None:
    """Keep a credential in place of the one with its id."""
    await tx.run(
        """INSERT INTO credential (tenant, id, key_id, kinds, sealed, created_at, updated_at)
           VALUES (:tenant, :id, :key_id, :kinds, :sealed, {now}, {now})
           ON CONFLICT (tenant, id) DO UPDATE SET key_id = excluded.key_id, kinds = excluded.kinds,
               sealed = excluded.sealed, updated_at = excluded.updated_at""",
        tenant=tenant,
        id=new.id,
        key_id=new.key_id,
        kinds=_ENCODER.encode(list(new.kinds)).decode(),
        sealed=new.sealed,
    )


async def find(tx: Tx, tenant: str, id: str) -> StoredCredential | None:
    """Return a credential of a tenant."""
    row = await tx.one(f"SELECT {_COLUMNS} FROM credential WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id)
    return None if row is None else _stored(row)


async def listed(tx: Tx, tenant: str) -> list[StoredCredential]:
    """Return the credentials of a tenant by their ids."""
    rows = await tx.all(f"SELECT {_COLUMNS} FROM credential WHERE tenant = :tenant ORDER BY id", tenant=tenant)
    return [_stored(row) for row in rows]


async def remove(tx: Tx, tenant: str, id: str) -> bool:
    """Forget a credential; false if there is none."""
    return await tx.run("DELETE FROM credential WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id) > 0


async def sealed_otherwise(tx: Tx, key_id: str, limit: int) -> list[StoredCredential]:
    """Return credentials of any tenant that another key than this one sealed."""
    rows = await tx.all(
        f"SELECT {_COLUMNS} FROM credential WHERE key_id <> :key_id ORDER BY key_id, tenant, id LIMIT :limit",
        key_id=key_id,
        limit=limit,
    )
    return [_stored(row) for row in rows]


async def reseal(tx: Tx, old: StoredCredential, key_id: str, sealed: bytes) -> bool:
    """Put the same credential under another key, unless somebody has changed it since."""
    changed = await tx.run(
        """UPDATE credential SET key_id = :key_id, sealed = :sealed
           WHERE tenant = :tenant AND id = :id AND sealed = :old""",
        key_id=key_id,
        sealed=sealed,
        tenant=old.tenant,
        id=old.id,
        old=old.sealed,
    )
    return changed > 0


def _stored(row: Row) -> StoredCredential:
    tenant, id, key_id, kinds, sealed, created_at, updated_at = row
    return StoredCredential(
        tenant=tenant,
        id=id,
        key_id=key_id,
        kinds=_KINDS.decode(kinds),
        sealed=sealed,
        created_at=created_at,
        updated_at=updated_at,
    )
