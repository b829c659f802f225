"""Large parts in the store's own table: nothing to set up, and they are backed up with everything else."""

from collections.abc import AsyncIterator, Iterable

from accord.storage.blobs.base import hash_of, verified
from accord.storage.commands import blobs as commands
from accord.storage.store import Store


class TableBlobs:
    """The store's table as a place for bytes."""

    def __init__(self, store: Store, grace_ms: int = commands.GRACE_MS) -> None:
        """Use a store; bytes that were put within `grace_ms` are not removed."""
        self._store = store
        self._grace_ms = grace_ms

    async def put(self, tenant: str, data: bytes) -> str:
        """Keep bytes and return their hash."""
        hash = await hash_of(data)
        await self._store.do(commands.keep, tenant, hash, data)
        return hash

    async def get(self, tenant: str, hash: str) -> bytes:
        """Return the bytes with this hash."""
        return await verified(await self._store.read(commands.fetch, tenant, hash), hash)

    async def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        """Yield the bytes with this hash as one piece: SQLite reads a value as a whole for each range of it."""
        yield await self.get(tenant, hash)

    async def sizes(self, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
        """Return the sizes of bytes by their hashes."""
        return await self._store.read(commands.sizes, tenant, hashes)

    async def delete(self, tenant: str, hash: str) -> None:
        """Remove bytes that nobody needs."""
        await self._store.do(commands.discard, tenant, hash, self._grace_ms)

    async def close(self) -> None:
        """Do nothing: the store is closed by whoever opened it."""
