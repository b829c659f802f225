"""Blob stores: the database's own table, a directory, or another backend by address scheme.

A blob outside of the database has a row in its table, written first. New bytes are therefore kept until their reference
is stored, and leftovers of a crash are found again. A backend that is unreachable or full raises the store's own
`StoreUnavailable` and `StoreFull`.
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
    """Stores bytes under their hash, separately for each tenant."""

    async def put(self, tenant: str, data: bytes) -> str:
        """Store bytes durably and return their hash (SHA-256 in hexadecimal). Equal bytes are stored once."""

    async def get(self, tenant: str, hash: str) -> bytes:
        """Return the bytes with this hash, or raise `BlobMissing`."""

    def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        """Yield the bytes with this hash in pieces.

        Raises `BlobMissing`, or `BlobCorrupt` after the last piece.
        """

    async def sizes(self, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
        """Return the sizes of blobs by hash. Unknown hashes are omitted."""

    async def delete(self, tenant: str, hash: str) -> None:
        """Remove a blob, unless a task refers to it or it was stored recently."""

    async def close(self) -> None:
        """Close the store."""


PIECE = 256 * 1024
"""Bytes of a file read at a time."""

RANGE = 1024 * 1024
"""Bytes read at a time where each read is a request."""


class BlobMissing(Exception):
    """The bytes of a large part are missing."""


class BlobCorrupt(BlobMissing):
    """The bytes of a large part differ from the stored ones."""


async def hash_of(data: bytes) -> str:
    """Return the hash of bytes, computed in a thread: megabytes would block the loop."""
    return await asyncio.to_thread(hexdigest, data)


async def verify_blob(data: bytes | None, hash: str) -> bytes:
    """Return a blob's bytes if they match the hash."""
    if data is None:
        raise BlobMissing(f"Nothing is kept with the hash {hash}")
    if await hash_of(data) != hash:
        raise BlobCorrupt(f"What is kept with the hash {hash} has another one")
    return data


def hexdigest(data: bytes) -> str:
    """Return the hash of bytes, computed in this thread."""
    return hashlib.sha256(data).hexdigest()


class TableBlobs:
    """Stores blobs in the database's table."""

    def __init__(self, store: Store, grace_ms: int = commands.GRACE_MS) -> None:
        """Use a store. Bytes stored within `grace_ms` are not removed."""
        self._store = store
        self._grace_ms = grace_ms

    async def put(self, tenant: str, data: bytes) -> str:
        """Store bytes and return their hash."""
        hash = await hash_of(data)
        await self._store.do(commands.put_blob, tenant, hash, data)
        return hash

    async def get(self, tenant: str, hash: str) -> bytes:
        """Return the bytes with this hash."""
        return await verify_blob(await self._store.read(commands.read_blob, tenant, hash), hash)

    async def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        """Yield the bytes as one piece. SQLite reads the whole value for each range of it."""
        yield await self.get(tenant, hash)

    async def sizes(self, tenant: str, hashes: Iterable[str]) -> dict[str, int]:
        """Return the sizes of blobs by hash."""
        return await self._store.read(commands.sizes, tenant, hashes)

    async def delete(self, tenant: str, hash: str) -> None:
        """Remove an unreferenced blob."""
        await self._store.do(commands.delete_blob, tenant, hash, self._grace_ms)

    async def close(self) -> None:
        """Do nothing: the store's opener closes it."""


REMOVAL_SECONDS = REMOVAL_MS / 1000 / 2
"""Timeout of a removal, well before other nodes assume that it failed."""

LOOK_AGAIN_SECONDS = 0.1
"""Polling interval while the same bytes are being removed, which is rare."""

_HASH = re.compile(r"[0-9a-f]{64}")


@runtime_checkable
class PiecewiseBackend(Protocol):
    """A backend that supports reading in pieces.

    Blobs of other backends are held in memory while they are sent.
    """

    def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the bytes of this name in pieces, or nothing if the name is unknown."""


class Shelf(Protocol):
    """Backend for files or objects by name.

    A name is a path of three plain segments. Its bytes never change.
    """

    async def write(self, name: str, data: bytes, hash: str) -> None:
        """Write bytes durably, unless the name exists."""

    async def read(self, name: str) -> bytes | None:
        """Return the bytes of this name, or None."""

    async def remove(self, name: str) -> None:
        """Remove the bytes of this name."""

    async def close(self) -> None:
        """Close the backend."""


class BackendBlobs:
    """Stores blobs in a backend, with a row for each in the database."""

    def __init__(self, store: Store, shelf: Shelf, grace_ms: int = GRACE_MS) -> None:
        """Use a backend, with rows in a store. Bytes stored within `grace_ms` are not removed."""
        self._store = store
        self._shelf = shelf
        self._grace_ms = grace_ms

    async def put(self, tenant: str, data: bytes) -> str:
        """Store bytes and return their hash."""
        hash = await hash_of(data)
        if await self._note(tenant, hash, len(data)) is BlobPlace.ELSEWHERE:
            await self._shelf.write(blob_path(tenant, hash), data, hash)
        return hash

    async def get(self, tenant: str, hash: str) -> bytes:
        """Return the bytes with this hash. Blobs from before the backend was configured are read from the table."""
        found = await self._shelf.read(blob_path(tenant, hash))
        if found is None:
            found = await self._store.read(commands.read_blob, tenant, hash)
        return await verify_blob(found, hash)

    async def pieces(self, tenant: str, hash: str) -> AsyncIterator[bytes]:
        """Yield the bytes in pieces where supported, and verify the hash at the end."""
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
        """Return the sizes of blobs by hash, as recorded in the database."""
        return await self._store.read(commands.sizes, tenant, hashes)

    async def delete(self, tenant: str, hash: str) -> None:
        """Remove an unreferenced blob."""
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
        """Close the backend."""
        await self._shelf.close()

    async def _note(self, tenant: str, hash: str, size: int) -> BlobPlace:
        """Record a blob. If the same bytes are being removed, wait for the removal to end."""
        for _ in range(int(REMOVAL_SECONDS / LOOK_AGAIN_SECONDS)):
            noted = await self._store.do(commands.put_blob_row, tenant, hash, size)
            if noted is not BlobPlace.LEAVING:
                return noted
            await asyncio.sleep(LOOK_AGAIN_SECONDS)
        raise StoreUnavailable("The same bytes are still being removed")


def blob_path(tenant: str, hash: str) -> str:
    """Return the path of a tenant's blob in a backend.

    The tenant's name is hashed too: it may contain any character, and file systems fold case and forbid characters.
    """
    if not _HASH.fullmatch(hash):
        raise BlobMissing(f"{hash!r} is not a hash")
    return f"{hashlib.sha256(tenant.encode()).hexdigest()}/{hash[:2]}/{hash[2:]}"


class BlobStoreType(Struct, frozen=True, kw_only=True):
    """A type of blob backend.

    `open` returns the backend or raises StoreRefused. `options` are the options of its address. `open` is called
    without a running loop, so create loop-bound objects with the first request.
    """

    open: Callable[[Location], Shelf]
    options: type[Struct] = NoOptions


BLOBS = Group(
    "accord.blobs",
    "place for large parts",
    BlobStoreType,
    {
        "az": "accord.storage.blobs.object_storage:AZURE",
        "dir": "accord.storage.blobs.blob_store:DIRECTORY",
        "gs": "accord.storage.blobs.object_storage:GOOGLE",
        "s3": "accord.storage.blobs.object_storage:S3",
    },
    taken=("table",),
)
"""All backend types by address scheme."""


T = TypeVar("T")

OWNER_ONLY = 0o700
"""Mode of a directory that only its owner may access."""

LEFTOVER_SECONDS = 86_400
"""Age after which an unfinished file is the leftover of a crash."""


class DirectoryBackend:
    """Stores files below a directory."""

    def __init__(self, root: Path) -> None:
        """Use a directory. It is created if missing."""
        self._root = root
        self._unfinished = root / "unfinished"
        with _translating(root):
            root.mkdir(mode=OWNER_ONLY, parents=True, exist_ok=True)
            self._unfinished.mkdir(mode=OWNER_ONLY, exist_ok=True)
            _sync(root.parent)
            self._remove_leftovers()

    async def write(self, name: str, data: bytes, hash: str) -> None:
        """Write a file durably, unless it exists."""
        await self._in_thread(lambda: self._write(self._root / name, data))

    async def read(self, name: str) -> bytes | None:
        """Return the content of a file, or None."""
        return await self._in_thread(lambda: self._read(self._root / name))

    async def pieces(self, name: str) -> AsyncIterator[bytes]:
        """Yield the content of a file in pieces."""
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
        # Also for an existing file: its concurrent writer may not have reached this step.
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
                raise  # the disk is gone, rather than the file
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


DIRECTORY = BlobStoreType(open=_open_directory)


TABLE = "table:"
BLOB_ADDRESS_FORMS = (
    "`table:`, `dir:///path`, a path, `s3://bucket/prefix?endpoint=http://host:port&region=name`, `gs://bucket/prefix`,"
    " and `az://container/prefix?account=name`"
)
ADDRESS_PURPOSE = "large parts"

_SCHEME = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*):.*", re.DOTALL)


def open_blobs(url: str, store: Store, env: Mapping[str, str], grace_ms: int = GRACE_MS) -> Blobs:
    """Open the blob store for large parts.

    `env` has the credentials of object storage under the names of its vendor's own tools. Bytes stored within
    `grace_ms` are not removed, because the reference to them may be pending.
    """
    return TableBlobs(store, grace_ms) if url == TABLE else BackendBlobs(store, open_backend(url, env), grace_ms)


def open_backend(url: str, env: Mapping[str, str]) -> Shelf:
    """Open a blob backend outside of the store."""
    match = _SCHEME.fullmatch(url)
    scheme = match["scheme"] if match else "dir"
    if not url or scheme not in BLOBS:
        raise StoreRefused(f"The address of large parts cannot be understood; known are {BLOB_ADDRESS_FORMS}")
    try:
        kind = BLOBS.load(scheme)
    except ImportError as error:
        raise StoreRefused(str(error)) from error
    except Unusable as error:
        raise StoreRefused(f"Large parts cannot be kept at {scheme}://: {error}") from error
    where = (
        read_location(url, kind.options, env, ADDRESS_PURPOSE) if match else Location(scheme=scheme, path=url, env=env)
    )
    return kind.open(where)


SWEEP_BATCH = 1000
"""Maximum number of blobs removed at a time."""


async def sweep(store: Store, blobs: Blobs, grace_ms: int = GRACE_MS) -> int:
    """Remove blobs unreferenced for `grace_ms`, and return how many removals were attempted."""
    found = await store.read(list_unreferenced, SWEEP_BATCH, grace_ms)
    for tenant, hash in found:
        await blobs.delete(tenant, hash)
    return len(found)
