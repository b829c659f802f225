"""What every place for large parts promises, and what can go wrong with one.

A place that cannot be reached, or is full, raises the store's own `StoreUnavailable` and `StoreFull`.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Protocol


class Blobs(Protocol):
    """A place for bytes, which are found again by their hash; every tenant has its own."""

    async def put(self, tenant: str, data: bytes) -> str:
        """Keep bytes durably and return their hash (SHA-256 in hexadecimal); the same bytes are kept once."""

    async def get(self, tenant: str, hash: str) -> bytes:
        """Return the bytes with this hash, or raise `BlobMissing`."""

    def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        """Yield the bytes with this hash in pieces, or raise `BlobMissing`, after the last piece `BlobCorrupt`."""

    async def sizes(self, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
        """Return the sizes of bytes by their hashes; unknown ones are left out."""

    async def delete(self, tenant: str, hash: str) -> None:
        """Remove bytes, if there are such, no task refers to them and nobody has put them lately."""

    async def close(self) -> None:
        """Let go of everything."""


PIECE = 256 * 1024
"""Bytes of a file that are read at a time."""

RANGE = 1024 * 1024
"""Bytes that are asked for at a time where each piece is a request."""


class BlobMissing(Exception):
    """The bytes of a large part are not where they were put."""


class BlobCorrupt(BlobMissing):
    """The bytes of a large part are not the ones that were put."""


async def hash_of(data: bytes) -> str:
    """Return the hash of bytes; megabytes of them must not hold up the loop."""
    return await asyncio.to_thread(hexdigest, data)


async def verified(data: bytes | None, hash: str) -> bytes:
    """Return what was found for a hash, if it is what was put."""
    if data is None:
        raise BlobMissing(f"Nothing is kept with the hash {hash}")
    if await hash_of(data) != hash:
        raise BlobCorrupt(f"What is kept with the hash {hash} has another one")
    return data


def hexdigest(data: bytes) -> str:
    """Return the hash of bytes, at once."""
    return hashlib.sha256(data).hexdigest()
