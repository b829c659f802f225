"""A place for large parts: a directory of compressed files, `deflated:///var/lib/accord/parts?level=9`."""

import asyncio
import os
import zlib
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from accord.api import BlobStoreType, Location, NoOptions, StoreRefused, StoreUnavailable


class Options(NoOptions, frozen=True, kw_only=True):
    """What the address may say."""

    level: Annotated[int, Meta(ge=0, le=9)] = 6


class Deflated:
    """Compressed files below a directory."""

    def __init__(self, root: Path, level: int) -> None:
        self._root = root
        self._level = level

    async def write(self, name: str, data: bytes, hash: str) -> None:
        """Write bytes durably, unless they are there."""
        await asyncio.to_thread(self._write, self._root / name, data)

    async def read(self, name: str) -> bytes | None:
        """Return what is there."""
        try:
            return zlib.decompress(await asyncio.to_thread((self._root / name).read_bytes))
        except FileNotFoundError:
            return None
        except (OSError, zlib.error) as error:
            raise StoreUnavailable(f"{self._root} cannot be read: {error}") from error

    async def remove(self, name: str) -> None:
        """Remove what is there."""
        await asyncio.to_thread((self._root / name).unlink, missing_ok=True)

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    def _write(self, path: Path, data: bytes) -> None:
        try:
            if path.is_file():
                return
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(f".{os.getpid()}")
            with unfinished.open("wb") as file:
                file.write(zlib.compress(data, self._level))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
            for folder in (path.parent, *path.parent.parents[:2]):
                _sync(folder)
        except OSError as error:
            raise StoreUnavailable(f"{self._root} cannot be written: {error}") from error


def _sync(folder: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _opened(where: Location) -> Deflated:
    if where.host or not where.path:
        raise StoreRefused("Compressed parts need an absolute path: deflated:///var/lib/accord/parts")
    return Deflated(Path(where.path), where.options.level)


BLOBS = BlobStoreType(open=_opened, options=Options)
