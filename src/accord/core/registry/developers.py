"""Keys that callers make for themselves: the same keys, hashed in the same table, as `accord apikeys` makes.

There are no accounts and no passwords here: whoever a server lets in is a developer, and a key is a further way in for
the same owner, in the same tenant, with the same roles. Making keys for others is the command line's.
"""

from accord.core.interface import Caller
from accord.core.schemes.apikeys import new_key
from accord.errors import PermissionDenied, RateLimited
from accord.storage.commands import apikeys
from accord.storage.commands.apikeys import NewKey, StoredKey
from accord.storage.store import Store

MAX_KEYS = 50
"""Live keys of one owner."""

MAX_DESCRIPTION = 256
DAY_MS = 24 * 3600 * 1000


class Developers:
    """The keys of those who are let in."""

    def __init__(self, store: Store, *, accepts_keys: bool) -> None:
        """Keep keys in `store`, if the server lets anybody in who brings one."""
        self._store = store
        self._accepts_keys = accepts_keys

    async def create(self, caller: Caller, description: str, days: float | None = None) -> tuple[str, StoredKey]:
        """Make a key, and return it, which nobody can do again, and what is kept of it."""
        if not caller.owner or not self._accepts_keys:
            raise PermissionDenied("This server lets nobody in by an API key, so it makes none (--auth api-keys)")
        if len(await self.held(caller)) >= MAX_KEYS:
            raise RateLimited(f"You have {MAX_KEYS} keys already; delete one", metadata={"limit": "keys"})
        made = new_key()
        kept = NewKey(
            id=made.id,
            hash=made.hash,
            name=description,
            owner=caller.owner,
            tenant=_tenant(caller),
            roles=sorted(caller.roles or ()),
            lasts_ms=None if days is None else round(days * DAY_MS),
        )
        return made.key, await self._store.do(apikeys.create, kept)

    async def held(self, caller: Caller) -> list[StoredKey]:
        """Return the live keys of the caller."""
        return await self._store.read(apikeys.held, caller.owner, _tenant(caller)) if caller.owner else []

    async def revoke(self, caller: Caller, id: str) -> bool:
        """End a key of the caller; false if it has none with this id."""
        return bool(caller.owner) and await self._store.do(apikeys.revoke_held, id, caller.owner, _tenant(caller))


def _tenant(caller: Caller) -> str | None:
    return None if caller.roams else caller.tenant
