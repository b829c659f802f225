"""Keys that callers make for themselves: the same keys, hashed in the same table, as `accord apikeys` makes.

There are no accounts and no passwords here: whoever a server lets in is a developer, and a key is a further way in for
the same owner, in the same tenant, with the same roles. It is good no longer than what it was made with: not after that
has expired, and not after the key is revoked that it was made with. Making keys for others is the command line's.
"""

from accord.core.interface import Caller, Ticket
from accord.core.roles import Roles
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

    def __init__(self, store: Store, *, accepts_keys: bool, roles: Roles | None = None) -> None:
        """Keep keys in `store`, if the server lets anybody in who brings one."""
        self._store = store
        self._roles = roles or Roles()
        self._accepts_keys = accepts_keys

    async def create(self, caller: Caller, description: str, days: float | None = None) -> tuple[str, StoredKey]:
        """Make a key, and return it, which nobody can do again, and what is kept of it."""
        if not caller.owner or not self._accepts_keys:
            raise PermissionDenied("This server lets nobody in by an API key, so it makes none (--auth api-keys)")
        if caller.roles is not None and not self._roles.makes_keys(caller.roles):
            raise PermissionDenied("Your roles do not include making keys")
        if len(await self.held(caller)) >= MAX_KEYS:
            raise RateLimited(f"You have {MAX_KEYS} keys already; delete one", metadata={"limit": "keys"})
        ticket = caller.ticket or Ticket(kind="")
        made = new_key(ticket.key_id or "")
        kept = NewKey(
            id=made.id,
            hash=made.hash,
            name=description,
            owner=caller.owner,
            tenant=_tenant(caller),
            roles=sorted(caller.roles or ()),
            lasts_ms=None if days is None else round(days * DAY_MS),
            until=ticket.until,
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
