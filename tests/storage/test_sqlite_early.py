"""What is on the disk when: everything that anybody is told of, and soon also what nobody is.

Killing a process cannot show it, as the system still writes what it has. So SQLite's own file system is watched: each
write to the log, and each sync of it.
"""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import apsw
import pytest

from accord.storage.sqlite import driver, write_ahead_log
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import StoreUnavailable, Tx
from tests.storage.conftest import Heard

BOUND_SECONDS = 60

_names = itertools.count()


class File(apsw.VFSFile):
    """A file that tells what is done to the log."""

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], told: list[str]) -> None:
        self._told = told
        self._is_log = str(name.filename() if isinstance(name, apsw.URIFilename) else name).endswith("-wal")
        super().__init__("unix", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        if self._is_log:
            self._told.append("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        if self._is_log:
            self._told.append("sync")


class Files(apsw.VFS):
    """The file system, watched; the one that is used by whoever names none."""

    def __init__(self, told: list[str]) -> None:
        self._told = told
        super().__init__(f"watched-{next(_names)}", "unix", makedefault=True)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> File:
        return File(name, flags, self._told)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """What is done to the log, by SQLite and by us."""
    done: list[str] = []
    really = write_ahead_log._fsync

    def fsync(file: int) -> None:
        really(file)
        assert os.path.samestat(os.fstat(file), os.stat(tmp_path / "accord.db-wal"))
        done.append("sync")

    monkeypatch.setattr(write_ahead_log, "_fsync", fsync)
    files = Files(done)
    yield done
    files.unregister()


async def make(tx: Tx) -> None:
    await tx.run("CREATE TABLE thing (id {identity}) {strict}")


async def put(tx: Tx) -> None:
    await tx.run("INSERT INTO thing DEFAULT VALUES")
    tx.signal("put")


async def put_early(tx: Tx) -> None:
    await tx.run("INSERT INTO thing DEFAULT VALUES")
    tx.signal("put early")


async def count(tx: Tx) -> int:
    row = await tx.one("SELECT count(*) FROM thing")
    assert row is not None
    return int(row[0])


@pytest.fixture
async def store(
    told: list[str], tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SqliteStore]:
    """A store on a disk that counts as quick whatever this machine's is like, where nothing is synced by the way."""
    monkeypatch.setattr(driver, "QUICK_SECONDS", 3600.0)
    monkeypatch.setattr(driver, "SOON_SECONDS", 3600.0)
    monkeypatch.setattr(driver, "WAITED_FOR", frozenset({put, put_early}))
    opened = SqliteStore(tmp_path / "accord.db", heard)
    await opened.do(make)
    await at_rest(opened)
    heard.clear()
    told.clear()
    yield opened
    await opened.close()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        while not is_so():  # noqa: ASYNC110  # the writer's thread tells nobody
            await asyncio.sleep(0.005)


async def at_rest(store: SqliteStore) -> None:
    """Wait until the writer's thread has nothing to do, so that the loop commits."""
    await until(lambda: not store._handed_over)


def seen_by_others(path: Path) -> int:
    other = apsw.Connection(str(path / "accord.db"))
    found = int(other.execute("SELECT count(*) FROM thing").get)
    other.close()
    return found


async def test_completed_writes_are_on_disk(store: SqliteStore, told: list[str], heard: Heard) -> None:
    await store.do(put)
    assert told[-1] == "sync"
    assert heard == ["put"]
    told.clear()
    await asyncio.gather(*(store.do(put) for _ in range(driver.MOST_HERE + 1)))
    assert told[-1] == "sync"
    assert "write" in told


async def test_unreported_writes_share_the_next_sync(
    store: SqliteStore, told: list[str], heard: Heard, tmp_path: Path
) -> None:
    await store.do_early(put_early)
    assert set(told) == {"write"}
    assert seen_by_others(tmp_path) == 1
    assert heard == [], "a hint would tell of it"
    await store.do_early(put_early)
    assert "sync" not in told
    await store.do(put)
    assert told.count("sync") == 1
    assert told[-1] == "sync"
    assert sorted(heard) == ["put", "put early", "put early"]
    told.clear()
    await store.do(put)
    assert told[-1] == "sync"


async def test_writes_beside_reported_ones_are_synced(store: SqliteStore, told: list[str], heard: Heard) -> None:
    await asyncio.gather(store.do_early(put_early), store.do(put))
    assert told[-1] == "sync"
    assert told.count("sync") == 1
    assert sorted(heard) == ["put", "put early"]


async def test_unsynced_writes_are_not_reported(store: SqliteStore, told: list[str], heard: Heard) -> None:
    """A command that is durable may have read it, even if it has nothing to write itself."""
    await store.do_early(put_early)
    assert await store.do(count) == 1
    assert told[-1] == "sync"
    await until(lambda: "put early" in heard)


async def test_it_is_on_the_disk_soon_if_nothing_follows(
    store: SqliteStore, told: list[str], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "SOON_SECONDS", 0.02)
    for _ in range(3):
        told.clear()
        await store.do_early(put_early)
        assert "sync" not in told
        await until(lambda: "sync" in told)
        await until(lambda: "put early" in heard)
        heard.clear()
        await at_rest(store)


async def test_failed_syncs_are_retried(
    store: SqliteStore, told: list[str], heard: Heard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_file: int) -> None:
        raise OSError(5, "Input/output error")

    works = write_ahead_log._fsync
    monkeypatch.setattr(driver, "SOON_SECONDS", 0.01)
    monkeypatch.setattr(driver, "AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(write_ahead_log, "_fsync", refuse)
    await store.do_early(put_early)
    await until(lambda: caplog.messages.count("store.log_not_synced") > 1)
    with pytest.raises(StoreUnavailable, match="cannot be synced"):
        await store.do(count)
    assert heard == []
    monkeypatch.setattr(write_ahead_log, "_fsync", works)
    await until(lambda: "sync" in told)
    await until(lambda: "put early" in heard)


async def test_closing_leaves_nothing_that_is_not_on_the_disk(
    told: list[str], store: SqliteStore, tmp_path: Path
) -> None:
    other = apsw.Connection(str(tmp_path / "accord.db"))  # with which closing does not end the log
    assert other.execute("SELECT count(*) FROM thing").get == 0
    await store.do_early(put_early)
    assert "sync" not in told
    await store.close()
    assert told[-1] == "sync"
    other.close()


async def test_in_the_thread_it_is_durable_at_once(
    store: SqliteStore, told: list[str], heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread is for disks that are slow; there the sync is shared by whatever came during the last."""
    monkeypatch.setattr(driver, "QUICK_SECONDS", 0.0)
    await store.do_early(put_early)
    assert told[-1] == "sync"
    assert heard == ["put early"]


async def test_memory_has_no_disk(heard: Heard) -> None:
    store = SqliteStore(None, heard)
    await store.do(make)
    await store.do_early(put_early)
    assert heard == ["put early"]
    await store.close()


async def test_failed_commands_leave_nothing(
    store: SqliteStore, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(tx: Tx) -> None:
        await put_early(tx)
        raise LookupError("and nothing of it stays")

    monkeypatch.setattr(driver, "WAITED_FOR", frozenset({put_early, fail}))
    with pytest.raises(LookupError):
        await store.do_early(fail)
    found = await asyncio.gather(store.do_early(put_early), store.do_early(fail), return_exceptions=True)
    assert [type(one) for one in found] == [type(None), LookupError]
    assert await store.do(count) == 1
    assert told[-1] == "sync"
