"""Who has signed in: sessions, each known by a secret in a cookie of which the store has only the SHA-256.

A session is good on every node and after a restart. It ends by its time, by hand, and with what it was begun with: a
key that is revoked, a user or a secret or an issuer that the settings have no more. How one signs in is
`console.entry.api`, where a session counts is `console.entry.gate`.
"""

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping

from accord.a2a import Admission, Caller
from accord.auth.recent import ExpiringCache
from accord.errors import AgentUnavailable
from accord.storage.commands import sessions
from accord.storage.commands.sessions import NewSession, StoredSession
from accord.storage.store import Store, StoreUnavailable

KIND = "session"
"""What the tickets are called of those who have signed in."""

BYTES = 32
"""Random bytes of a session: 256 bits, so that a fast hash is enough."""

REMEMBERED, REMEMBER_SECONDS = 10_000, 5.0
"""Sessions that are remembered, and for how long: so much later other nodes know that one has ended."""

RETRY_SECONDS = 1

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


class Sessions:
    """The sessions of a server's people."""

    def __init__(
        self,
        store: Store,
        grounds: Mapping[str, Collection[str]],
        hours: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Keep them in `store`, each for so many `hours`.

        `grounds` is what sessions may rest on, by the scheme: whatever it is, a session rests on one of them as long as
        the settings have it. Sessions of keys need none, the store knows which keys there are.
        """
        self._store = store
        self._grounds = grounds
        self.seconds = round(hours * 3600)
        self._known: ExpiringCache[str, StoredSession] = ExpiringCache(REMEMBERED, REMEMBER_SECONDS, clock)

    async def begin(self, caller: Caller, *, key_id: str | None = None, ground: str = "") -> str:
        """Begin a session of somebody who was let in just now, and return what its cookie holds."""
        token = secrets.token_urlsafe(BYTES)
        session = NewSession(
            hash=_hash(token),
            owner=caller.owner,
            tenant=None if caller.roams else caller.tenant,
            roles=sorted(caller.roles or ()),
            scheme=caller.scheme or "",
            key_id=key_id,
            proof=None if key_id else _proof(token, ground),
            lasts_ms=self.seconds * 1000,
        )
        await self._store.do(sessions.begin, session)
        return token

    async def find(self, token: str, peer: str) -> Caller | None:
        """Return whose session it is, at this address; None if it is none, or has ended."""
        if not _TOKEN.fullmatch(token):
            return None
        hash = _hash(token)
        found = await self._stored(hash)
        if found is None or not self._rests(found, token):
            return None
        return Caller(
            owner=found.owner,
            tenant=found.tenant or "",
            roams=found.tenant is None,
            roles=frozenset(found.roles),
            ticket=Admission(kind=KIND, id=hash, until=found.expires_at, key_id=found.key_id),
            scheme=found.scheme,
            peer=peer or None,
        )

    async def is_good(self, hash: str) -> bool:
        """Whether a session has not ended, by the hash of what its cookie holds."""
        return await self._stored(hash) is not None

    async def end(self, token: str) -> None:
        """End a session for good."""
        hash = _hash(token)
        await self._store.do(sessions.end, hash)
        self._known.forget(hash)

    async def _stored(self, hash: str) -> StoredSession | None:
        found = self._known.get(hash)
        if found is not None:
            return found
        try:
            found = await self._store.read(sessions.find, hash)
        except StoreUnavailable as error:
            raise AgentUnavailable("Sessions cannot be looked up at the moment", retry_after=RETRY_SECONDS) from error
        if found is not None:
            self._known.put(hash, found)
        return found

    def _rests(self, session: StoredSession, token: str) -> bool:
        """Whether what a session was begun with is still there."""
        grounds = self._grounds.get(session.scheme)
        if grounds is None:
            return False
        if session.key_id is not None:
            return True
        return any(hmac.compare_digest(_proof(token, ground), session.proof or "") for ground in grounds)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("latin-1")).hexdigest()


def _proof(token: str, ground: str) -> str:
    """Return what is kept of a ground: nothing that says anything to somebody who has the store but not the cookie."""
    return hmac.digest(token.encode("latin-1"), ground.encode(), "sha256").hex()
