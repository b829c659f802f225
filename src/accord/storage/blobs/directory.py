"""A directory as a shelf: one file per blob, which gets its name only when its bytes are on the disk.

Nodes may share the directory; it knows nothing of tenants or references.
"""

import asyncio
import errno
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TypeVar

from accord.storage.blobs.base import PIECE
from accord.storage.blobs.kinds import BlobsKind
from accord.storage.located import Location
from accord.storage.store import StoreFull, StoreRefused, StoreUnavailable

T = TypeVar("T")

OWNER = 0o700
"""The mode of a directory for its owner only."""

LEFTOVER_SECONDS = 86_400
"""A file that is still being written after a day was left behind by a crash."""


class Directory:
    """Files below a directory."""

    def __init__(self, root: Path) -> None:
        """Use a directory; it is created if it is not there."""
        self._root = root
        self._unfinished = root / "unfinished"
        with _translating(root):
            root.mkdir(mode=OWNER, parents=True, exist_ok=True)
            self._unfinished.mkdir(mode=OWNER, exist_ok=True)
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
                folder.mkdir(mode=OWNER, exist_ok=True)
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


def _opened(where: Location) -> Directory:
    if where.host or not where.path:
        raise StoreRefused("The address of a directory has three slashes before an absolute path: dir:///var/blobs")
    return Directory(Path(where.path))


DIRECTORY = BlobsKind(open=_opened)
