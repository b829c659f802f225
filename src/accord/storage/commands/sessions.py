"""Sessions of people who have signed in with a browser: whose they are, and until when.

Only the hash of what a cookie holds is kept. Making cookies and saying who may sign in is `console.sessions`;
times are by the database's clock, so that all nodes agree on what has expired.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from accord.storage.commands.apikeys import IS_LIVE
from accord.storage.store import Tx

_ROLES = msgspec.json.Decoder(tuple[str, ...])
_ENCODER = msgspec.json.Encoder()


class NewSession(Struct, frozen=True, kw_only=True):
    """A session to keep; without a `tenant` its owner may name any. It ends with the key of `key_id`, if it has one."""

    hash: str
    owner: str
    tenant: str | None
    roles: Sequence[str]
    scheme: str
    key_id: str | None = None
    proof: str | None = None
    lasts_ms: int


class StoredSession(Struct, frozen=True, kw_only=True):
    """A session that is good now."""

    owner: str
    tenant: str | None
    roles: tuple[str, ...]
    scheme: str
    key_id: str | None
    proof: str | None
    expires_at: int


async def begin(tx: Tx, session: NewSession) -> None:
    """Keep a new session."""
    await tx.run(
        """INSERT INTO session (hash, owner, tenant, roles, scheme, key_id, proof, created_at, expires_at)
           VALUES (:hash, :owner, :tenant, :roles, :scheme, :key_id, :proof, {now}, {now} + :lasts_ms)""",
        hash=session.hash,
        owner=session.owner,
        tenant=session.tenant,
        roles=_ENCODER.encode(list(session.roles)).decode(),
        scheme=session.scheme,
        key_id=session.key_id,
        proof=session.proof,
        lasts_ms=session.lasts_ms,
    )


async def find(tx: Tx, hash: str) -> StoredSession | None:
    """Return a session, unless it has ended: by itself, or with its key."""
    row = await tx.one(
        """SELECT owner, tenant, roles, scheme, key_id, proof, expires_at FROM session
           WHERE hash = :hash AND expires_at > {now} AND (key_id IS NULL OR EXISTS (
               SELECT 1 FROM api_key WHERE api_key.id = session.key_id AND """
        + IS_LIVE
        + "))",
        hash=hash,
    )
    if row is None:
        return None
    owner, tenant, roles, scheme, key_id, proof, expires_at = row
    return StoredSession(
        owner=owner,
        tenant=tenant,
        roles=_ROLES.decode(roles),
        scheme=scheme,
        key_id=key_id,
        proof=proof,
        expires_at=expires_at,
    )


async def end(tx: Tx, hash: str) -> None:
    """End a session for good, if there is such a one."""
    await tx.run("DELETE FROM session WHERE hash = :hash", hash=hash)


async def purge(tx: Tx, limit: int) -> int:
    """Forget sessions that have expired, at most so many, and return how many."""
    rows = await tx.all(
        """DELETE FROM session WHERE hash IN (
               SELECT hash FROM session WHERE expires_at <= {now} ORDER BY expires_at LIMIT :limit {skip_locked})
           RETURNING hash""",
        limit=limit,
    )
    return len(rows)
