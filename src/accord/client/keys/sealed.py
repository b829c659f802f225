"""Credentials in a server's database, sealed, by tenant and id.

They are opened only to be used: nothing here shows one to whoever asks for a list. How they are sealed is `sealing`,
the rows are `storage.commands.credentials`.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from accord.client.keys.credential import Credential, KeyManagementError, kinds_of, normalized
from accord.client.keys.sealing import Seals
from accord.storage.commands import credentials
from accord.storage.commands.credentials import NewCredential, StoredCredential
from accord.storage.store import Store

AT_ONCE = 100
"""Credentials that are sealed anew before looking for more."""

_credential = msgspec.json.Decoder(Credential)


class Held(Struct, frozen=True, kw_only=True):
    """What a list says about a credential; times are in milliseconds."""

    id: str
    kinds: tuple[str, ...]
    key_id: str
    created_at: int
    updated_at: int


class Known:
    """Some credentials that were opened, for `client.auth.choose`."""

    def __init__(self, found: Mapping[str, Credential]) -> None:
        """Know these and no others."""
        self._found = found

    def find(self, id: str) -> Credential | None:
        """Return what is known under an id."""
        return self._found.get(normalized(id))

    def __repr__(self) -> str:
        return f"Known({', '.join(self._found)})"


class SealedKeys:
    """The credentials of all tenants of a store."""

    def __init__(self, store: Store, seals: Seals) -> None:
        """Keep them in `store`, under `seals`."""
        self._store = store
        self._seals = seals

    async def put(self, tenant: str, id: str, credential: Credential) -> None:
        """Keep a credential in place of the one with its id."""
        id, kinds = normalized(id), kinds_of(credential)
        if not id or not kinds:
            raise KeyManagementError("A credential has an id and something in it")
        sealed = self._seals.seal(msgspec.json.encode(credential), (tenant, id))
        new = NewCredential(id=id, key_id=self._seals.newest, kinds=kinds, sealed=sealed)
        await self._store.do(credentials.put, tenant, new)

    async def get(self, tenant: str, id: str) -> Credential | None:
        """Return a credential of a tenant."""
        stored = await self._store.read(credentials.find, tenant, normalized(id))
        return None if stored is None else _credential.decode(self._opened(stored))

    async def every(self, tenant: str) -> Known:
        """Return all of a tenant's, to choose from."""
        stored = await self._store.read(credentials.listed, tenant)
        return Known({one.id: _credential.decode(self._opened(one)) for one in stored})

    async def listed(self, tenant: str) -> list[Held]:
        """Return what a tenant has, without the secrets."""
        stored = await self._store.read(credentials.listed, tenant)
        return [
            Held(
                id=one.id,
                kinds=one.kinds,
                key_id=one.key_id,
                created_at=one.created_at,
                updated_at=one.updated_at,
            )
            for one in stored
        ]

    async def remove(self, tenant: str, id: str) -> bool:
        """Forget a credential; false if there is none."""
        return await self._store.do(credentials.remove, tenant, normalized(id))

    async def rotate(self) -> int:
        """Seal everything anew that an older key sealed, and return how much that was; then that key can go."""
        count = 0
        while old := await self._store.read(credentials.sealed_otherwise, self._seals.newest, AT_ONCE):
            for one in old:
                sealed = self._seals.seal(self._opened(one), (one.tenant, one.id))
                # Whoever changed it meanwhile has sealed it with a key of their own, and it is looked at again.
                count += await self._store.do(credentials.reseal, one, self._seals.newest, sealed)
        return count

    def _opened(self, stored: StoredCredential) -> bytes:
        try:
            return self._seals.open(stored.sealed, stored.key_id, (stored.tenant, stored.id))
        except KeyManagementError as error:
            raise KeyManagementError(f"{stored.id}: {error}") from None
