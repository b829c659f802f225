"""Stores of blobs: the database's own table, a directory, or another backend by the scheme of its address.

A blob outside of the database has a row in its table, written first. So bytes that were just put are not removed before
the reference to them is stored, and what a crash leaves behind is found again. A place that cannot be reached, or is
full, raises the store's own `StoreUnavailable` and `StoreFull`.
"""

import asyncio
import errno
import hashlib
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from accord.entries import Group, Unusable
from accord.storage.address import Location, NoOptions, read_location
from accord.storage.commands import blobs as commands
from accord.storage.commands.blobs import GRACE_MS, REMOVAL_MS, BlobPlace, list_unreferenced
from accord.storage.store import Store, StoreFull, StoreRefused, StoreUnavailable


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


async def verify_blob(data: bytes | None, hash: str) -> bytes:
    """Return what was found for a hash, if it is what was put."""
    if data is None:
        raise BlobMissing(f"Nothing is kept with the hash {hash}")
    if await hash_of(data) != hash:
        raise BlobCorrupt(f"What is kept with the hash {hash} has another one")
    return data


def hexdigest(data: bytes) -> str:
    """Return the hash of bytes, at once."""
    return hashlib.sha256(data).hexdigest()


class TableBlobs:
    """The store's table as a place for bytes."""

    def __init__(self, store: Store, grace_ms: int = commands.GRACE_MS) -> None:
        """Use a store; bytes that were put within `grace_ms` are not removed."""
        self._store = store
        self._grace_ms = grace_ms

    async def put(self, tenant: str, data: bytes) -> str:
        """Keep bytes and return their hash."""
        hash = await hash_of(data)
        await self._store.do(commands.put_blob, tenant, hash, data)
        return hash

    async def get(self, tenant: str, hash: str) -> bytes:
        """Return the bytes with this hash."""
        return await verify_blob(await self._store.read(commands.read_blob, tenant, hash), hash)

    async def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        """Yield the bytes with this hash as one piece: SQLite reads a value as a whole for each range of it."""
        yield await self.get(tenant, hash)

    async def sizes(self, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
        """Return the sizes of bytes by their hashes."""
        return await self._store.read(commands.sizes, tenant, hashes)

    async def delete(self, tenant: str, hash: str) -> None:
        """Remove bytes that nobody needs."""
        await self._store.do(commands.delete_blob, tenant, hash, self._grace_ms)

    async def close(self) -> None:
        """Do nothing: the store is closed by whoever opened it."""


REMOVAL_SECONDS = REMOVAL_MS / 1000 / 2
"""When a removal gives up: well before others may think that it did."""

LOOK_AGAIN_SECONDS = 0.1
"""How soon to look again whether bytes that are being removed are gone; nearly nobody ever waits for that."""

_HASH = re.compile(r"[0-9a-f]{64}")


@runtime_checkable
class PiecewiseBackend(Protocol):
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


class BackendBlobs:
    """A shelf as a place for bytes."""

    def __init__(self, store: Store, shelf: Shelf, grace_ms: int = GRACE_MS) -> None:
        """Use a shelf, with notes in a store; bytes that were put within `grace_ms` are not removed."""
        self._store = store
        self._shelf = shelf
        self._grace_ms = grace_ms

    async def put(self, tenant: str, data: bytes) -> str:
        """Keep bytes and return their hash."""
        hash = await hash_of(data)
        if await self._note(tenant, hash, len(data)) is BlobPlace.ELSEWHERE:
            await self._shelf.write(blob_path(tenant, hash), data, hash)
        return hash

    async def get(self, tenant: str, hash: str) -> bytes:
        """Return the bytes with this hash, also those that the table has from before a shelf was used."""
        found = await self._shelf.read(blob_path(tenant, hash))
        if found is None:
            found = await self._store.read(commands.read_blob, tenant, hash)
        return await verify_blob(found, hash)

    async def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        """Yield the bytes with this hash in pieces, if the shelf has them so, and check them at the end."""
        digest, is_there = hashlib.sha256(), False
        if isinstance(self._shelf, PiecewiseBackend):
            async for piece in self._shelf.pieces(blob_path(tenant, hash)):
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
                await self._shelf.remove(blob_path(tenant, hash))
        except TimeoutError as error:
            raise StoreUnavailable(f"Removing a blob took longer than {REMOVAL_SECONDS:g} s") from error
        await self._store.do(commands.end_removal, tenant, hash, mark)

    async def close(self) -> None:
        """Let go of the shelf."""
        await self._shelf.close()

    async def _note(self, tenant: str, hash: str, size: int) -> BlobPlace:
        """Note bytes; if the same ones are just being removed, wait until that is over."""
        for _ in range(int(REMOVAL_SECONDS / LOOK_AGAIN_SECONDS)):
            noted = await self._store.do(commands.put_blob_row, tenant, hash, size)
            if noted is not BlobPlace.LEAVING:
                return noted
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        raise StoreUnavailable("The same bytes are still being removed")


def blob_path(tenant: str, hash: str) -> str:
    """Return where a tenant's bytes are on a shelf.

    The tenant's name is hashed as well: it may hold anything, and file systems fold case and forbid characters.
    """
    if not _HASH.fullmatch(hash):
        raise BlobMissing(f"{hash!r} is not a hash")
    return f"{hashlib.sha256(tenant.encode()).hexdigest()}/{hash[:2]}/{hash[2:]}"


class BlobsKind(Struct, frozen=True, kw_only=True):
    """A place for large parts: `open` gives its shelf, or raises StoreRefused; `options` are those of its address.

    It is called on no loop that runs, so what belongs to one is made with the first request.
    """

    open: Callable[[Location], Shelf]
    options: type[Struct] = NoOptions


BLOBS = Group(
    "accord.blobs",
    "place for large parts",
    BlobsKind,
    {"dir": "accord.storage.blobs.blob_store:DIRECTORY", "s3": "accord.storage.blobs.s3:KIND"},
    taken=("table",),
)
"""All of them, by the scheme of their address."""


T = TypeVar("T")

OWNER_ONLY = 0o700
"""The mode of a directory for its owner only."""

LEFTOVER_SECONDS = 86_400
"""A file that is still being written after a day was left behind by a crash."""


class DirectoryBackend:
    """Files below a directory."""

    def __init__(self, root: Path) -> None:
        """Use a directory; it is created if it is not there."""
        self._root = root
        self._unfinished = root / "unfinished"
        with _translating(root):
            root.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
            self._unfinished.mkdir(mode=OWNER_ONLY, exist_ok=True)
            _sync(root.parent)
            self._remove_leftovers()

    async def write(self, name: str, data: bytes, hash: str) -> None:
        """Write a file durably, unless it is there."""
        await self._in_thread(lambda: self._write(self._root / name, data))

    async def read(self, name: str) -> bytes | None:
        """Return what a file holds."""
        return await self._in_thread(lambda: self._read(self._root / name))

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield what a file holds."""
        file = await self._in_thread(lambda: self._opened(self._root / name))
        if file is None:
            return
        try:
            while piece := await self._in_thread(lambda: file.read(PIECE)):
                yield piece
        finally:
            file.close()

    async def remove(self, name: str) -> None:
        """Remove a file."""
        await self._in_thread(lambda: (self._root / name).unlink(missing_ok=True))

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def translated() -> T:
            with _translating(self._root):
                return work()

        return await asyncio.to_thread(translated)

    def _write(self, path: Path, data: bytes) -> None:
        if not (path.is_file() and path.stat().st_size == len(data)):
            for folder in (path.parent.parent, path.parent):
                folder.mkdir(mode=OWNER_ONLY, exist_ok=True)
            self._create(path, data)
        # Also for a file that was there: whoever is writing it may not have come this far.
        for folder in (path.parent, path.parent.parent, self._root):
            _sync(folder)

    def _create(self, path: Path, data: bytes) -> None:
        descriptor, unfinished = tempfile.mkstemp(dir=self._unfinished)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(descriptor)
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(unfinished)
            raise

    def _read(self, path: Path) -> bytes | None:
        file = self._opened(path)
        if file is None:
            return None
        with file:
            return file.read()

    def _opened(self, path: Path) -> BinaryIO | None:
        try:
            return path.open("rb")
        except FileNotFoundError:
            if not self._unfinished.is_dir():
                raise  # not the file but the disk is gone
            return None

    def _remove_leftovers(self) -> None:
        for path in self._unfinished.iterdir():
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < time.time() - LEFTOVER_SECONDS:
                    path.unlink()


def _sync(folder: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _translating(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreFull(f"The disk of {root} is full") from error
        raise StoreUnavailable(f"The directory {root} cannot be used: {error}") from error


def _open_directory(where: Location) -> DirectoryBackend:
    if where.host or not where.path:
        raise StoreRefused("The address of a directory has three slashes before an absolute path: dir:///var/blobs")
    return DirectoryBackend(Path(where.path))


DIRECTORY = BlobsKind(open=_open_directory)


TABLE = "table:"
BLOB_ADDRESS_FORMS = "`table:`, `dir:///path`, a path, and `s3://bucket/prefix?endpoint=http://host:port&region=name`"
ADDRESS_PURPOSE = "large parts"

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):.*", re.DOTALL)


def open_blobs(url: str, store: Store, env: Mapping[str, str], grace_ms: int = GRACE_MS) -> Blobs:
    """Open the place for large parts.

    `env` has the credentials of S3 under the names that AWS's own tools use. Bytes that were put within `grace_ms` are
    not removed, because the reference to them may be on its way.
    """
    return TableBlobs(store, grace_ms) if url == TABLE else BackendBlobs(store, open_backend(url, env), grace_ms)


def open_backend(url: str, env: Mapping[str, str]) -> Shelf:
    """Open a place outside of the store."""
    match = _SCHEME.fullmatch(url)
    scheme = match["scheme"] if match else "dir"
    if not url or scheme not in BLOBS:
        raise StoreRefused(f"The address of large parts cannot be understood; known are {BLOB_ADDRESS_FORMS}")
    try:
        kind = BLOBS.load(scheme)
    except Unusable as error:
        raise StoreRefused(f"Large parts cannot be kept at {scheme}://: {error}") from error
    where = (
        read_location(url, kind.options, env, ADDRESS_PURPOSE) if match else Location(scheme=scheme, path=url, env=env)
    )
    return kind.open(where)


SWEEP_BATCH = 1000
"""Blobs that are removed at a time."""


async def sweep(store: Store, blobs: Blobs, grace_ms: int = GRACE_MS) -> int:
    """Remove blobs that nobody has needed for a while, and return how many were tried."""
    found = await store.read(list_unreferenced, SWEEP_BATCH, grace_ms)
    for tenant, hash in found:
        await blobs.delete(tenant, hash)
    return len(found)
