"""Keys that callers authenticate with: who holds them, and until when.

Only the hash of a key's secret is kept. The id of a key that was made with another begins with the id of that one: a
key is good as long as it and all that it comes from are. Making and comparing secrets is `core.schemes.apikeys`; times
are by the database's clock, so that all nodes agree on what has expired.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from accord.storage.store import Row, Tx

NEVER = 2**62
"""Later than any time."""

_ROLES = msgspec.json.Decoder(tuple[str, ...])
_ENCODER = msgspec.json.Encoder()

ID = 16
"""Characters of an id that every key adds to that of the key it was made with."""

GENERATIONS = 4
"""How many keys one may come from, with itself: each makes all that come of it longer."""

_LINE = ", ".join(f"substr(api_key.id, 1, {ID * number})" for number in range(1, GENERATIONS + 1))

REVOKED_AT = f"(SELECT min(made.revoked_at) FROM api_key AS made WHERE made.id IN ({_LINE}))"
"""When a key was revoked, or one that it comes from."""

IS_LIVE = f"({REVOKED_AT} IS NULL AND (api_key.expires_at IS NULL OR api_key.expires_at > {{now}}))"

_COLUMNS = f"""id, hash, name, owner, tenant, roles, created_at, expires_at, used_at, {REVOKED_AT},
    CASE WHEN {IS_LIVE} THEN 1 ELSE 0 END"""


class NewKey(Struct, frozen=True, kw_only=True):
    """A key to keep; without a `tenant` its holder may name any. It ends after `lasts_ms`, at the latest at `until`."""

    id: str
    hash: str
    name: str
    owner: str
    tenant: str | None = ""
    roles: Sequence[str] = ()
    lasts_ms: int | None = None
    until: int | None = None


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
    await tx.run(
        """INSERT INTO api_key (id, hash, name, owner, tenant, roles, created_at, expires_at)
           VALUES (:id, :hash, :name, :owner, :tenant, :roles, {now},
                   CASE WHEN {now} + :lasts_ms < :until THEN {now} + :lasts_ms ELSE :until END)""",
        id=key.id,
        hash=key.hash,
        name=key.name,
        owner=key.owner,
        tenant=key.tenant,
        roles=_ENCODER.encode(list(key.roles)).decode(),
        lasts_ms=key.lasts_ms,
        until=NEVER if key.until is None and key.lasts_ms is not None else key.until,
    )
    kept = await find(tx, key.id)
    if kept is None:
        raise RuntimeError("The key was inserted and is not there")
    return kept


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
    """End a key for good, and with it those that were made with it; false if there is no such key.

    One that is revoked already stays as it is.
    """
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
