"""Large parts outside of the database, with a note in the store's table about each.

The note makes two things certain that files and objects alone cannot: bytes that somebody has just put are not removed
before the reference to them is stored, and whatever a crash leaves behind is found again.
"""

import asyncio
import hashlib
import re
from collections.abc import AsyncIterator, Iterable
from typing import Protocol, runtime_checkable

from accord.storage.blobs.base import BlobCorrupt, BlobMissing, hash_of, verified
from accord.storage.commands import blobs as commands
from accord.storage.commands.blobs import GRACE_MS, REMOVAL_MS, Noted
from accord.storage.store import Store, StoreUnavailable

REMOVAL_SECONDS = REMOVAL_MS / 1000 / 2
"""When a removal gives up: well before others may think that it did."""

LOOK_AGAIN_SECONDS = 0.1
"""How soon to look again whether bytes that are being removed are gone; nearly nobody ever waits for that."""

_HASH = re.compile(r"[0-9a-f]{64}")


@runtime_checkable
class InPieces(Protocol):
    """A shelf that can be read in pieces; the bytes of others are in memory while they are sent."""

    def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield what is there; nothing if nothing is."""


class Shelf(Protocol):
    """Files or objects by name. A name is a path of three plain segments, and stands for the same bytes forever."""

    async def write(self, name: str, data: bytes, hash: str) -> None:
        """Write bytes durably, unless they are there."""

    async def read(self, name: str) -> bytes | None:
        """Return what is there."""

    async def remove(self, name: str) -> None:
        """Remove what is there."""

    async def close(self) -> None:
        """Let go of everything."""


class OutsideBlobs:
    """A shelf as a place for bytes."""

    def __init__(self, store: Store, shelf: Shelf, grace_ms: int = GRACE_MS) -> None:
        """Use a shelf, with notes in a store; bytes that were put within `grace_ms` are not removed."""
        self._store = store
        self._shelf = shelf
        self._grace_ms = grace_ms

    async def put(self, tenant: str, data: bytes) -> str:
        """Keep bytes and return their hash."""
        hash = await hash_of(data)
        if await self._note(tenant, hash, len(data)) is Noted.ELSEWHERE:
            await self._shelf.write(name_of(tenant, hash), data, hash)
        return hash

    async def get(self, tenant: str, hash: str) -> bytes:
        """Return the bytes with this hash, also those that the table has from before a shelf was used."""
        found = await self._shelf.read(name_of(tenant, hash))
        if found is None:
            found = await self._store.read(commands.fetch, tenant, hash)
        return await verified(found, hash)

    async def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        """Yield the bytes with this hash in pieces, if the shelf has them so, and check them at the end."""
        digest, is_there = hashlib.sha256(), False
        if isinstance(self._shelf, InPieces):
            async for piece in self._shelf.pieces(name_of(tenant, hash)):
                is_there = True
                digest.update(piece)
                yield piece
        if not is_there:
            yield await self.get(tenant, hash)
        elif digest.hexdigest() != hash:
            raise BlobCorrupt(f"What is kept with the hash {hash} has another one")

    async def sizes(self, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
        """Return the sizes of bytes by their hashes, as they were noted."""
        return await self._store.read(commands.sizes, tenant, hashes)

    async def delete(self, tenant: str, hash: str) -> None:
        """Remove bytes that nobody needs."""
        mark = await self._store.do(commands.begin_removal, tenant, hash, self._grace_ms)
        if mark is None:
            return
        try:
            async with asyncio.timeout(REMOVAL_SECONDS):
                await self._shelf.remove(name_of(tenant, hash))
        except TimeoutError as error:
            raise StoreUnavailable(f"Removing a blob took longer than {REMOVAL_SECONDS:g} s") from error
        await self._store.do(commands.end_removal, tenant, hash, mark)

    async def close(self) -> None:
        """Let go of the shelf."""
        await self._shelf.close()

    async def _note(self, tenant: str, hash: str, size: int) -> Noted:
        """Note bytes; if the same ones are just being removed, wait until that is over."""
        for _ in range(int(REMOVAL_SECONDS / LOOK_AGAIN_SECONDS)):
            noted = await self._store.do(commands.note, tenant, hash, size)
            if noted is not Noted.LEAVING:
                return noted
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        raise StoreUnavailable("The same bytes are still being removed")


def name_of(tenant: str, hash: str) -> str:
    """Return where a tenant's bytes are on a shelf.

    The tenant's name is hashed as well: it may hold anything, and file systems fold case and forbid characters.
    """
    if not _HASH.fullmatch(hash):
        raise BlobMissing(f"{hash!r} is not a hash")
    return f"{hashlib.sha256(tenant.encode()).hexdigest()}/{hash[:2]}/{hash[2:]}"
