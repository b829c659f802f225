"""Keys that callers authenticate with: who holds them, and until when.

Only the hash of a key's secret is kept. Making and comparing secrets is `core.schemes.apikeys`; times are by the
database's clock, so that all nodes agree on what has expired.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from accord.storage.store import Row, Tx

_ROLES = msgspec.json.Decoder(tuple[str, ...])
_ENCODER = msgspec.json.Encoder()

_COLUMNS = """id, hash, name, owner, tenant, roles, created_at, expires_at, used_at, revoked_at,
    CASE WHEN revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now}) THEN 1 ELSE 0 END"""


class NewKey(Struct, frozen=True, kw_only=True):
    """A key to keep; without a `tenant` its holder may name any."""

    id: str
    hash: str
    name: str
    owner: str
    tenant: str | None = ""
    roles: Sequence[str] = ()
    lasts_ms: int | None = None


class StoredKey(Struct, frozen=True, kw_only=True):
    """A key as it is kept; times are in milliseconds, and `is_live` is as of now."""

    id: str
    hash: str
    name: str
    owner: str
    tenant: str | None
    roles: tuple[str, ...]
    created_at: int
    expires_at: int | None
    used_at: int | None
    revoked_at: int | None
    is_live: bool

    def __repr__(self) -> str:
        return f"StoredKey(id={self.id!r}, owner={self.owner!r}, tenant={self.tenant!r})"


async def create(tx: Tx, key: NewKey) -> StoredKey:
    """Keep a new key."""
    row = await tx.one(
        """INSERT INTO api_key (id, hash, name, owner, tenant, roles, created_at, expires_at)
           VALUES (:id, :hash, :name, :owner, :tenant, :roles, {now}, {now} + :lasts_ms)
           RETURNING """
        + _COLUMNS,
        id=key.id,
        hash=key.hash,
        name=key.name,
        owner=key.owner,
        tenant=key.tenant,
        roles=_ENCODER.encode(list(key.roles)).decode(),
        lasts_ms=key.lasts_ms,
    )
    if row is None:
        raise RuntimeError("The key was inserted and is not there")
    return _stored(row)


async def find(tx: Tx, id: str) -> StoredKey | None:
    """Return a key."""
    row = await tx.one("SELECT " + _COLUMNS + " FROM api_key WHERE id = :id", id=id)
    return None if row is None else _stored(row)


async def listed(tx: Tx) -> list[StoredKey]:
    """Return all keys, the newest first."""
    rows = await tx.all("SELECT " + _COLUMNS + " FROM api_key ORDER BY created_at DESC, id")
    return [_stored(row) for row in rows]


async def held(tx: Tx, owner: str, tenant: str | None) -> list[StoredKey]:
    """Return the live keys of an owner in a tenant, the newest first."""
    rows = await tx.all(
        "SELECT " + _COLUMNS + " FROM api_key WHERE owner = :owner ORDER BY created_at DESC, id", owner=owner
    )
    return [key for key in map(_stored, rows) if key.is_live and key.tenant == tenant]


async def revoke_held(tx: Tx, id: str, owner: str, tenant: str | None) -> bool:
    """End a key for good if it is this owner's; false if there is no such live key."""
    key = await find(tx, id)
    if key is None or not key.is_live or (key.owner, key.tenant) != (owner, tenant):
        return False
    return await revoke(tx, id)


async def revoke(tx: Tx, id: str) -> bool:
    """End a key for good; false if there is no such key. One that is revoked already stays as it is."""
    await tx.run("UPDATE api_key SET revoked_at = {now} WHERE id = :id AND revoked_at IS NULL", id=id)
    return await find(tx, id) is not None


async def touch(tx: Tx, id: str, within_ms: int) -> None:
    """Note that a key is in use, unless that was noted a short time ago."""
    await tx.run(
        "UPDATE api_key SET used_at = {now} WHERE id = :id AND (used_at IS NULL OR used_at < {now} - :within_ms)",
        id=id,
        within_ms=within_ms,
    )


def _stored(row: Row) -> StoredKey:
    id, hash, name, owner, tenant, roles, created_at, expires_at, used_at, revoked_at, is_live = row
    return StoredKey(
        id=id,
        hash=hash,
        name=name,
        owner=owner,
        tenant=tenant,
        roles=_ROLES.decode(roles),
        created_at=created_at,
        expires_at=expires_at,
        used_at=used_at,
        revoked_at=revoked_at,
        is_live=bool(is_live),
    )
