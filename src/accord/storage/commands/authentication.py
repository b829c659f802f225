"""API keys and browser sessions of callers, used signatures, and sealed credentials for other servers.

Only hashes of keys and cookies are stored. Times are by the database's clock, so that all nodes agree on expiry. An API
key created from a parent key is valid as long as both are.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from accord.storage.encoding import from_row
from accord.storage.store import Row, Tx

NEVER = 2**62
"""A time later than any other."""

_ROLES = msgspec.json.Decoder(tuple[str, ...])
_ENCODER = msgspec.json.Encoder()

KEY_ID_LENGTH = 16
"""Length of the ID that every key appends to its parent key's ID."""

MAX_KEY_GENERATIONS = 4
"""Maximum nesting depth of API keys, the first included. Each generation makes the IDs of its descendants longer."""

_KEY_ANCESTORS = ", ".join(
    f"substr(api_key.id, 1, {KEY_ID_LENGTH * number})" for number in range(1, MAX_KEY_GENERATIONS + 1)
)

KEY_REVOKED_AT = f"(SELECT min(made.revoked_at) FROM api_key AS made WHERE made.id IN ({_KEY_ANCESTORS}))"
"""The earliest revocation time of a key and its ancestors."""

KEY_IS_LIVE = f"({KEY_REVOKED_AT} IS NULL AND (api_key.expires_at IS NULL OR api_key.expires_at > {{now}}))"

_KEY_COLUMNS = f"""id, hash, name, owner, tenant, roles, created_at, expires_at, used_at, {KEY_REVOKED_AT},
    CASE WHEN {KEY_IS_LIVE} THEN 1 ELSE 0 END"""


class NewApiKey(Struct, frozen=True, kw_only=True):
    """An API key to store.

    Without a `tenant` its holder may use any tenant. It expires after `lasts_ms`, and no later than `until`.
    """

    id: str
    hash: str
    name: str
    owner: str
    tenant: str | None = ""
    roles: Sequence[str] = ()
    lasts_ms: int | None = None
    until: int | None = None


class StoredApiKey(Struct, frozen=True, kw_only=True):
    """A stored API key. Times are in epoch milliseconds, and `is_live` is as of now."""

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


async def create_api_key(tx: Tx, key: NewApiKey) -> StoredApiKey:
    """Store a new API key."""
    await tx.run(
        """INSERT INTO api_key (id, hash, name, owner, tenant, roles, created_at, expires_at)
           VALUES (:id, :hash, :name, :owner, :tenant, :roles, {now},
                   CASE WHEN {now} + :lasts_ms < :until THEN {now} + :lasts_ms ELSE :until END)""",
        **asdict(key)
        | {
            "roles": _ENCODER.encode(list(key.roles)).decode(),
            "until": NEVER if key.until is None and key.lasts_ms is not None else key.until,
        },
    )
    kept = await find_api_key(tx, key.id)
    if kept is None:
        raise RuntimeError("The key was inserted and is not there")
    return kept


async def find_api_key(tx: Tx, id: str) -> StoredApiKey | None:
    """Return an API key, or None."""
    row = await tx.one("SELECT " + _KEY_COLUMNS + " FROM api_key WHERE id = :id", id=id)
    return None if row is None else _api_key(row)


async def list_api_keys(tx: Tx) -> list[StoredApiKey]:
    """Return all API keys, newest first."""
    rows = await tx.all("SELECT " + _KEY_COLUMNS + " FROM api_key ORDER BY created_at DESC, id")
    return [_api_key(row) for row in rows]


async def list_owner_api_keys(tx: Tx, owner: str, tenant: str | None) -> list[StoredApiKey]:
    """Return an owner's live API keys in a tenant, newest first."""
    rows = await tx.all(
        "SELECT " + _KEY_COLUMNS + " FROM api_key WHERE owner = :owner ORDER BY created_at DESC, id", owner=owner
    )
    return [key for key in map(_api_key, rows) if key.is_live and key.tenant == tenant]


async def revoke_owner_api_key(tx: Tx, id: str, owner: str, tenant: str | None) -> bool:
    """Revoke a live API key of this owner. Return false if the owner has none."""
    key = await find_api_key(tx, id)
    if key is None or not key.is_live or (key.owner, key.tenant) != (owner, tenant):
        return False
    return await revoke_api_key(tx, id)


async def revoke_api_key(tx: Tx, id: str) -> bool:
    """Revoke an API key and its descendants. Return false if the key does not exist.

    An earlier revocation time is kept.
    """
    await tx.run("UPDATE api_key SET revoked_at = {now} WHERE id = :id AND revoked_at IS NULL", id=id)
    return await find_api_key(tx, id) is not None


async def touch_api_key(tx: Tx, id: str, within_ms: int) -> None:
    """Record that an API key is in use, at most once per `within_ms`."""
    await tx.run(
        "UPDATE api_key SET used_at = {now} WHERE id = :id AND (used_at IS NULL OR used_at < {now} - :within_ms)",
        id=id,
        within_ms=within_ms,
    )


def _api_key(row: Row) -> StoredApiKey:
    return from_row(StoredApiKey, row, roles=_ROLES.decode, is_live=bool)


class NewSession(Struct, frozen=True, kw_only=True):
    """A session to store.

    Without a `tenant` its owner may use any tenant. It also ends with the API key `key_id`, if set.
    """

    hash: str
    owner: str
    tenant: str | None
    roles: Sequence[str]
    scheme: str
    key_id: str | None = None
    proof: str | None = None
    lasts_ms: int


class StoredSession(Struct, frozen=True, kw_only=True):
    """A session that is currently valid."""

    owner: str
    tenant: str | None
    roles: tuple[str, ...]
    scheme: str
    key_id: str | None
    proof: str | None
    expires_at: int


async def create_session(tx: Tx, session: NewSession) -> None:
    """Store a new session."""
    await tx.run(
        """INSERT INTO session (hash, owner, tenant, roles, scheme, key_id, proof, created_at, expires_at)
           VALUES (:hash, :owner, :tenant, :roles, :scheme, :key_id, :proof, {now}, {now} + :lasts_ms)""",
        **asdict(session) | {"roles": _ENCODER.encode(list(session.roles)).decode()},
    )


async def find_session(tx: Tx, hash: str) -> StoredSession | None:
    """Return a session unless it has expired or its API key has ended."""
    row = await tx.one(
        """SELECT owner, tenant, roles, scheme, key_id, proof, expires_at FROM session
           WHERE hash = :hash AND expires_at > {now} AND (key_id IS NULL OR EXISTS (
               SELECT 1 FROM api_key WHERE api_key.id = session.key_id AND """
        + KEY_IS_LIVE
        + "))",
        hash=hash,
    )
    return None if row is None else from_row(StoredSession, row, roles=_ROLES.decode)


async def end_session(tx: Tx, hash: str) -> None:
    """Delete a session if it exists."""
    await tx.run("DELETE FROM session WHERE hash = :hash", hash=hash)


async def purge_sessions(tx: Tx, limit: int) -> int:
    """Delete up to `limit` expired sessions and return their number."""
    rows = await tx.all(
        """DELETE FROM session WHERE hash IN (
               SELECT hash FROM session WHERE expires_at <= {now} ORDER BY expires_at LIMIT :limit {skip_locked})
           RETURNING hash""",
        limit=limit,
    )
    return len(rows)


async def use_signature(tx: Tx, digest: str, lasts_ms: int) -> bool:
    """Record a used signature for as long as it is valid. Return false if it was used before."""
    noted = await tx.run(
        """INSERT INTO idempotency (tenant, key, task_id, expires_at) VALUES ('', :key, '', {now} + :lasts_ms)
           ON CONFLICT (tenant, key) DO NOTHING""",
        key=f"signature {digest}",
        lasts_ms=lasts_ms,
    )
    return noted > 0


async def claim_signed_delivery(tx: Tx, delivery: str, lasts_ms: int) -> str | None:
    """Claim a signed delivery and return None.

    For a claimed delivery, return its workflow run, or an empty string while another request holds the claim.
    """
    key = f"delivery {delivery}"
    claimed = await tx.run(
        """INSERT INTO idempotency (tenant, key, task_id, expires_at) VALUES ('', :key, '', {now} + :lasts_ms)
           ON CONFLICT (tenant, key) DO UPDATE SET task_id = excluded.task_id, expires_at = excluded.expires_at
           WHERE idempotency.expires_at < {now}""",
        key=key,
        lasts_ms=lasts_ms,
    )
    if claimed:
        return None
    row = await tx.one("SELECT task_id FROM idempotency WHERE tenant = '' AND key = :key", key=key)
    return "" if row is None else str(row[0])


async def put_delivery_run(tx: Tx, delivery: str, run: str, lasts_ms: int) -> None:
    """Record the workflow run that a claimed delivery started."""
    await tx.run(
        "UPDATE idempotency SET task_id = :run, expires_at = {now} + :lasts_ms WHERE tenant = '' AND key = :key",
        key=f"delivery {delivery}",
        run=run,
        lasts_ms=lasts_ms,
    )


_CREDENTIAL_KINDS = msgspec.json.Decoder(tuple[str, ...])

_CREDENTIAL_FIELDS = "tenant, id, key_id, kinds, sealed, created_at, updated_at"


class NewCredential(Struct, frozen=True, kw_only=True):
    """A credential to store. `key_id` names the key that seals it."""

    id: str
    key_id: str
    kinds: Sequence[str]
    sealed: bytes


class StoredCredential(Struct, frozen=True, kw_only=True):
    """A stored credential. Times are in epoch milliseconds."""

    tenant: str
    id: str
    key_id: str
    kinds: tuple[str, ...]
    sealed: bytes
    created_at: int
    updated_at: int


async def put_credential(tx: Tx, tenant: str, new: NewCredential) -> None:
    """Store a credential, replacing the one with the same ID."""
    await tx.run(
        """INSERT INTO credential (tenant, id, key_id, kinds, sealed, created_at, updated_at)
           VALUES (:tenant, :id, :key_id, :kinds, :sealed, {now}, {now})
           ON CONFLICT (tenant, id) DO UPDATE SET key_id = excluded.key_id, kinds = excluded.kinds,
               sealed = excluded.sealed, updated_at = excluded.updated_at""",
        tenant=tenant,
        **asdict(new) | {"kinds": _ENCODER.encode(list(new.kinds)).decode()},
    )


async def find_credential(tx: Tx, tenant: str, id: str) -> StoredCredential | None:
    """Return a tenant's credential, or None."""
    row = await tx.one(
        f"SELECT {_CREDENTIAL_FIELDS} FROM credential WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id
    )
    return None if row is None else _credential(row)


async def list_credentials(tx: Tx, tenant: str) -> list[StoredCredential]:
    """Return a tenant's credentials, ordered by ID."""
    rows = await tx.all(
        f"SELECT {_CREDENTIAL_FIELDS} FROM credential WHERE tenant = :tenant ORDER BY id", tenant=tenant
    )
    return [_credential(row) for row in rows]


async def remove_credential(tx: Tx, tenant: str, id: str) -> bool:
    """Delete a credential. Return false if it does not exist."""
    return await tx.run("DELETE FROM credential WHERE tenant = :tenant AND id = :id", tenant=tenant, id=id) > 0


async def list_credentials_to_reseal(tx: Tx, key_id: str, limit: int) -> list[StoredCredential]:
    """Return credentials of any tenant that are sealed with a different key."""
    rows = await tx.all(
        f"SELECT {_CREDENTIAL_FIELDS} FROM credential WHERE key_id <> :key_id ORDER BY key_id, tenant, id LIMIT :limit",
        key_id=key_id,
        limit=limit,
    )
    return [_credential(row) for row in rows]


async def reseal_credential(tx: Tx, old: StoredCredential, key_id: str, sealed: bytes) -> bool:
    """Store a credential sealed with another key, unless it has changed since it was read."""
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


def _credential(row: Row) -> StoredCredential:
    return from_row(StoredCredential, row, kinds=_CREDENTIAL_KINDS.decode)
