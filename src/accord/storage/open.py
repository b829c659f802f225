"""Opening the store at an address, and closing everything that belongs to it.

What cannot work is refused here with the reason, before the first command: SQLite on a network's file system, hints
through a package that is not installed. A driver is loaded when it is used: PostgreSQL's takes as long as SQLite.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

from accord.storage.address import Address, PostgresAddress, SqliteAddress, parse
from accord.storage.carriers import carrier
from accord.storage.store import Store, StoreRefused, StoreUnavailable

NETWORK = re.compile(
    r"nfs\d*|cifs|smb\w*|afs|ceph|lustre|gpfs|glusterfs|beegfs|fuse\.(sshfs|glusterfs|ceph\S*|s3fs|rclone)"
)
"""File systems whose locks or shared memory SQLite cannot trust. Not 9p: virtual machines use it for their own disk."""

MOUNTS = Path("/proc/mounts")
_ESCAPE = re.compile(r"\\([0-7]{3})")


@asynccontextmanager
async def open_store(
    where: str | Address, publish: Callable[[list[str]], None] = lambda _: None, *, read_only: bool = False
) -> AsyncIterator[Store]:
    """Open the store at an address or its URL; `publish` gets the hints of every process that uses it.

    `read_only` is for looking: a SQLite file must exist and is left as it is.
    """
    address = parse(where) if isinstance(where, str) else where
    async with AsyncExitStack() as stack:
        if isinstance(address, SqliteAddress):
            store: Store = await _sqlite(address, publish, read_only=read_only)
        else:
            store = await _postgres(address, publish, stack)
        stack.push_async_callback(store.close)
        yield store


async def _sqlite(address: SqliteAddress, publish: Callable[[list[str]], None], *, read_only: bool) -> Store:
    from accord.storage.sqlite import SqliteStore

    if address.path is not None:
        refuse_network(address.path)
        if not read_only:
            _make(address.path, with_directory=address.own_directory)
    return await asyncio.to_thread(SqliteStore, address.path, publish, read_only=read_only)


def _make(path: Path, *, with_directory: bool) -> None:
    """Make a file that only its owner reads, as tasks are nobody else's; SQLite gives its log the file's own mode.

    One that is there stays as its owner has it, and what cannot be made is for SQLite to refuse.
    """
    if with_directory:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


async def _postgres(address: PostgresAddress, publish: Callable[[list[str]], None], stack: AsyncExitStack) -> Store:
    from accord.storage.postgres import PostgresStore

    if address.signals:
        signals = carrier(address.signals, publish)
        await signals.open()
        stack.push_async_callback(signals.close)
        publish = signals.publish
    store = PostgresStore(address.dsn, publish, listen=address.listen)
    try:
        await store.open()
    except StoreUnavailable as error:
        remedy = "see that the server runs, and that the address and the password are right"
        raise StoreUnavailable(f"{address} cannot be used: {error}; {remedy}") from error
    return store


def refuse_network(path: Path) -> None:
    """Refuse a file on a network's file system, where this machine says what it has mounted."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return  # only Linux says it this way
    kind = file_system(path.resolve(), mounts)
    if NETWORK.fullmatch(kind):
        raise StoreRefused(
            f"{path} is on a network file system ({kind}), whose locks and shared memory SQLite cannot rely on:"
            " choose a local disk, or PostgreSQL"
        )


def file_system(path: Path, mounts: str) -> str:
    """Return the kind of file system that holds an absolute path, given the text of the table of mounts."""
    found, depth = "", 0
    for line in mounts.splitlines():
        _, point, kind, *_ = line.split(" ")
        mounted = Path(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), point))
        if len(mounted.parts) >= depth and path.is_relative_to(mounted):  # a later mount hides an earlier one
            found, depth = kind, len(mounted.parts)
    return found
