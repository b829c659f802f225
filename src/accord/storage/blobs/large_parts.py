"""Moves the bytes of large parts between messages or artifacts and blobs."""

import asyncio
import hmac
import secrets
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from accord.model import ArtifactUpdate, Part
from accord.model.task import Holder, parts_of, with_parts
from accord.storage.blobs.blob_store import BlobMissing, Blobs, hexdigest
from accord.storage.commands.blobs import reference_secret
from accord.storage.store import Store

T = TypeVar("T")

Link = Callable[[Part, str], Part]
"""Returns the replacement of a detached part, given its hash."""

THRESHOLD = 64 * 1024
"""Largest size stored inline. Looking up a smaller blob would cost more than carrying it."""

SECRET_BYTES = 33
"""A multiple of three, so that every reference begins with the same base64 text."""

HASH_BYTES = 32


class LargeParts:
    """Moves large parts between model values and a blob store."""

    def __init__(self, blobs: Blobs, secret: bytes, threshold: int = THRESHOLD) -> None:
        """Prefer `open` unless you have the store's secret. Parts of more than `threshold` bytes are large."""
        self._blobs = blobs
        self._secret = secret
        self._threshold = threshold
        self.marker = b64encode(secret).decode()
        """Text found in a value's JSON if and only if one of its parts is detached."""

    @classmethod
    async def open(cls, store: Store, blobs: Blobs, threshold: int = THRESHOLD) -> "LargeParts":
        """Use the store's secret, which is created if missing."""
        fresh = b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
        return cls(blobs, b64decode(await store.do(reference_secret, fresh)), threshold)

    def key(self, purpose: str) -> bytes:
        """Derive a key for another purpose. All nodes of this store get the same key, also after a restart."""
        return hmac.digest(self._secret, purpose.encode(), "sha256")

    def has_large(self, body: Holder) -> bool:
        """Whether `detach` would move any part."""
        parts = body.artifact.parts if isinstance(body, ArtifactUpdate) else parts_of(body)
        for part in parts:  # noqa: SIM110  # every event passes here, and `any` takes twice as long
            if part.raw is not None and self._is_large(part):
                return True
        return False

    async def detach(self, tenant: str, body: Holder) -> tuple[Holder, tuple[str, ...]]:
        """Store the bytes of large parts. Return the value to store and the hashes of all blobs it refers to."""
        large = {part.raw for part in parts_of(body) if part.raw is not None and self._is_large(part)}
        hashes = dict(zip(large, await _gather(self._blobs.put(tenant, raw) for raw in large), strict=True))

        def detached(part: Part) -> Part:
            hash = hashes.get(part.raw) if part.raw is not None else None
            return part if hash is None else replace(part, raw=self._secret + bytes.fromhex(hash))

        stored = with_parts(body, detached)
        return stored, tuple(sorted(self._references(stored)))

    async def attach(self, tenant: str, body: Holder, link: Link | None = None, most: int = 0) -> Holder:
        """Put the bytes of detached parts back; raises `BlobMissing` if any are missing.

        With `link`, parts beyond a total of `most` bytes are replaced by its result, without reading them.
        """
        linked = await self._beyond(tenant, body, most) if link is not None else frozenset[str]()
        wanted = self._references(body) - linked
        found = dict(zip(wanted, await _gather(self._blobs.get(tenant, hash) for hash in wanted), strict=True))

        def attached(part: Part) -> Part:
            hash = self._reference(part)
            if hash is None:
                return part
            return link(part, hash) if link is not None and hash in linked else replace(part, raw=found[hash])

        return with_parts(body, attached)

    async def _beyond(self, tenant: str, body: Holder, most: int) -> frozenset[str]:
        """Return the hashes of the detached parts beyond their first `most` bytes."""
        wanted = dict.fromkeys(hash for part in parts_of(body) if (hash := self._reference(part)) is not None)
        if not wanted:
            return frozenset()
        sizes, held, beyond = await self._blobs.sizes(tenant, wanted), 0, set[str]()
        for hash in wanted:
            if held + sizes.get(hash, 0) > most:
                beyond.add(hash)
            else:
                held += sizes.get(hash, 0)
        return frozenset(beyond)

    async def opened(self, tenant: str, part: Part) -> tuple[int, AsyncIterator[bytes]]:
        """Return the size of a part's bytes, detached or not, and an iterator of the bytes."""
        hash = self._reference(part)
        if hash is None:
            raw = part.raw or b""
            return len(raw), _pieces(raw)
        size = (await self._blobs.sizes(tenant, [hash])).get(hash)
        if size is None:
            raise BlobMissing(f"Nothing is kept with the hash {hash}")
        return size, self._blobs.pieces(tenant, hash)

    def hash_of(self, part: Part) -> str | None:
        """Return the hash of a part's bytes, detached or not; None without bytes."""
        return self._reference(part) or (None if part.raw is None else hexdigest(part.raw))

    def _is_large(self, part: Part) -> bool:
        return part.raw is not None and len(part.raw) > self._threshold and self._reference(part) is None

    def _reference(self, part: Part) -> str | None:
        """Return the hash of a detached part, or None."""
        raw = part.raw
        if raw is None or len(raw) != SECRET_BYTES + HASH_BYTES or not raw.startswith(self._secret):
            return None
        return raw[SECRET_BYTES:].hex()

    def _references(self, body: Holder) -> set[str]:
        return {hash for part in parts_of(body) if (hash := self._reference(part)) is not None}


async def _pieces(raw: bytes) -> AsyncIterator[bytes]:
    yield raw  # which is small


async def _gather(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all coroutines at once. After an error, wait for the others, so that none outlives the call."""
    done = await asyncio.gather(*work, return_exceptions=True)
    results: list[T] = []
    for result in done:
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
