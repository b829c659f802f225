"""What is special about the SQLite driver: giving up, closing, and a write-ahead log that stays short."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest

from accord.storage import schema
from accord.storage.sqlite import driver, write_ahead_log
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import StoreUnavailable, Tx
from tests.storage.conftest import Heard

BOUND_SECONDS = 60


async def make(tx: Tx) -> None:
    await tx.run("CREATE TABLE thing (id {identity}, data {bytes}) {strict}")


async def put(tx: Tx, size: int = 1) -> None:
    await tx.run("INSERT INTO thing (data) VALUES (:data)", data=b"x" * size)
    tx.signal("put")


async def count(tx: Tx) -> int:
    row = await tx.one("SELECT count(*) FROM thing")
    assert row is not None
    return int(row[0])


@pytest.fixture
async def store(tmp_path: Path, heard: Heard) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(tmp_path / "accord.db", heard)
    await opened.do(make)
    yield opened
    await opened.close()


class Pause:
    """Something in the store's threads that waits until it is told to go on, for a bounded time."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self.go_on.wait(BOUND_SECONDS)

    async def until_reached(self) -> None:
        assert await asyncio.to_thread(self.reached.wait, BOUND_SECONDS)


async def stop_at(tx: Tx, pause: Callable[[], None]) -> int:
    found = await count(tx)
    pause()
    return found


# Giving up


async def test_hints_of_a_command_whose_caller_gave_up_are_published(store: SqliteStore, heard: Heard) -> None:
    pause = Pause()
    before = asyncio.create_task(store.do(stop_at, pause))
    await pause.until_reached()
    impatient = asyncio.create_task(store.do(put))
    await asyncio.sleep(0)  # it is in the queue now
    impatient.cancel()
    with pytest.raises(asyncio.CancelledError):
        await impatient
    pause.go_on.set()
    await before
    assert await store.do(count) == 1
    assert heard == ["put"]


async def test_callers_with_a_closed_loop_block_nothing(store: SqliteStore) -> None:
    pause = Pause()

    def elsewhere() -> None:
        async def ask() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(store.do(stop_at, pause), 0.01)

        asyncio.run(ask())

    await asyncio.to_thread(elsewhere)
    await pause.until_reached()
    pause.go_on.set()
    await store.do(put)
    assert await store.read(count) == 1


async def test_an_error_that_ends_the_transaction_does_not_end_the_writer(store: SqliteStore) -> None:
    async def rolls_back(tx: Tx) -> None:
        await tx.run("ROLLBACK")
        raise LookupError("which the others in the batch must not get")

    async def commits_alone(tx: Tx) -> None:
        await tx.run("COMMIT")

    with pytest.raises(StoreUnavailable, match="rolled the transaction back"):
        await store.do(rolls_back)
    with pytest.raises(apsw.SQLError):
        await store.do(commits_alone)
    await store.do(put)
    assert await store.read(count) == 1


async def test_commits_are_durable_before_notification(store: SqliteStore) -> None:
    """Killing a process cannot show it: what the system has, it still writes. Only the loss of power would."""

    async def pragmas(tx: Tx) -> list[object]:
        found = [await tx.one(f"PRAGMA {name}") for name in ("synchronous", "journal_mode")]
        return [row[0] for row in found if row is not None]

    full = 2
    assert await store.do(pragmas) == [full, "wal"]


# Closing


@pytest.mark.parametrize("in_memory", [True, False])
async def test_closed_stores_fail_at_once(in_memory: bool, tmp_path: Path) -> None:
    store = SqliteStore(None if in_memory else tmp_path / "accord.db")
    await store.do(make)
    await store.close()
    async with asyncio.timeout(BOUND_SECONDS):
        for ask in (store.do, store.read):
            with pytest.raises(StoreUnavailable, match="closed"):
                await ask(count)
        await store.close()


async def test_closing_waits_for_reads_and_leaves_one_file(store: SqliteStore, tmp_path: Path) -> None:
    await store.do(put)
    pauses = [Pause() for _ in range(driver.READERS)]
    reading = [asyncio.create_task(store.read(stop_at, pause)) for pause in pauses]
    for pause in pauses:
        await pause.until_reached()
    queued = [asyncio.create_task(store.read(count)) for _ in range(5)]
    await asyncio.sleep(0)
    closing = asyncio.create_task(store.close())
    for pause in pauses:
        pause.go_on.set()
    async with asyncio.timeout(BOUND_SECONDS):
        assert await asyncio.gather(*reading, *queued) == [1] * (driver.READERS + 5)
        await closing
    assert sorted(path.name for path in await asyncio.to_thread(lambda: list(tmp_path.iterdir()))) == ["accord.db"]


# Partial indexes


@pytest.mark.parametrize(
    "write",
    [
        """INSERT INTO task (tenant, id, context_id, agent, owner, state, updated_at)
           VALUES ('', 'a', '', '', '', 'failed', 1)""",
        "UPDATE task SET state = 'failed', updated_at = 2 WHERE tenant = '' AND id = 'a'",
    ],
    ids=["insert", "update"],
)
async def test_partial_indexes_need_no_table_access(tmp_path: Path, write: str) -> None:
    store = SqliteStore(tmp_path / "accord.db")
    await schema.upgrade_schema(store)
    await store.close()
    with contextlib.closing(apsw.Connection(str(tmp_path / "accord.db"))) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%task (%WHERE%'")
        ]
        done = [operation for _, operation, *_ in connection.execute(f"EXPLAIN {write}")]
    assert {"task_open", "task_amiss", "task_ended", "task_with_log"} <= set(names)
    assert "IdxInsert" in done
    assert "OpenEphemeral" not in done


# The write-ahead log


@pytest.fixture
def small_log(monkeypatch: pytest.MonkeyPatch) -> int:
    """Make logs long sooner; return the size in bytes at which one is started over."""
    monkeypatch.setattr(write_ahead_log, "CHECKPOINT_PAGES", 20)
    monkeypatch.setattr(write_ahead_log, "LONG_LOG_PAGES", 100)
    return 100 * (4096 + 24)


def log_size(folder: Path) -> int:
    return (folder / "accord.db-wal").stat().st_size


async def test_only_the_writer_checkpoints(small_log: int, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "accord.db")
    await store.do(make)
    for _ in range(100):
        await store.do(put, 20_000)
    assert log_size(tmp_path) < small_log, "without readers the log is used again as soon as it was moved"
    await store.close()


async def test_readers_that_always_overlap_do_not_keep_the_log_growing(
    small_log: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead_log, "READERS_MS", 5_000)  # however busy the machine is
    store = SqliteStore(tmp_path / "accord.db")
    await store.do(make)
    done, sizes = asyncio.Event(), list[int]()

    async def read_on() -> int:
        turns = 0
        while not done.is_set():
            await store.read(busy)
            turns += 1
        return turns

    readers = [asyncio.create_task(read_on()) for _ in range(driver.READERS)]
    for _ in range(300):
        await store.do(put, 20_000)
        sizes.append(log_size(tmp_path))
    done.set()
    assert all(await asyncio.gather(*readers))
    assert max(sizes) < 3 * small_log, "300 commits of 20 kB are seven times as much"
    await store.close()


async def busy(tx: Tx) -> None:
    """Read for a few milliseconds."""
    await tx.one(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT sum(i) FROM n, (SELECT"
        " count(*) FROM thing)"
    )


async def test_a_long_read_delays_the_log_s_end_and_no_writer_for_long(
    small_log: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_ahead_log, "READERS_MS", 1)
    store = SqliteStore(tmp_path / "accord.db")
    await store.do(make)
    pause = Pause()
    reading = asyncio.create_task(store.read(stop_at, pause))
    await pause.until_reached()
    for _ in range(50):
        await store.do(put, 20_000)
    grown = log_size(tmp_path)
    assert grown > small_log
    pause.go_on.set()
    assert await reading == 0
    for _ in range(100):
        await store.do(put, 20_000)
    assert log_size(tmp_path) < grown + small_log, "a hundred commits more are seven times as much"
    assert await store.read(count) == 150
    await store.close()


# --- a quick disk -----------------------------------------------------------------------------------------------------


async def where(tx: Tx) -> str:
    await put(tx)
    return threading.current_thread().name


HERE = threading.main_thread().name


async def fail(tx: Tx) -> None:
    await put(tx)
    raise LookupError(threading.current_thread().name)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that counts as quick whatever this machine's is like, and callers who wait for the commands here."""
    monkeypatch.setattr(driver, "QUICK_SECONDS", 3600.0)
    monkeypatch.setattr(driver, "UNKNOWN_SECONDS", 4000.0)
    monkeypatch.setattr(driver, "WAITED_FOR", frozenset({where, fail, put}))


async def settle_in(store: SqliteStore) -> None:
    """Commit until it is known what the disk usually needs."""
    for _ in range(20):
        await store.do(put)


async def test_fast_disks_commit_awaited_writes_on_the_loop(
    quick: None, store: SqliteStore, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await store.do(where) != HERE
    await settle_in(store)
    await asyncio.to_thread(_idle, store)
    assert await store.do(where) == HERE
    assert set(await asyncio.gather(store.do(where), store.do(where))) == {HERE}
    too_many = await asyncio.gather(*(store.do(where) for _ in range(driver.MOST_HERE + 1)))
    assert HERE not in too_many
    await asyncio.to_thread(_idle, store)
    monkeypatch.setattr(driver, "WAITED_FOR", frozenset())
    assert await store.do(where) != HERE
    assert (
        store.commits == await store.read(count) - driver.MOST_HERE
    )  # those that went together, but for the table's own
    assert heard == ["put"] * await store.read(count)


def _idle(store: SqliteStore) -> None:
    """Wait until the writer is done with the log as well."""
    until = threading.Event()
    for _ in range(BOUND_SECONDS * 100):
        if not store._handed_over:
            return
        until.wait(0.01)
    pytest.fail("The writer never came to rest")


async def test_a_slow_disk_is_waited_for_in_the_thread(
    quick: None, monkeypatch: pytest.MonkeyPatch, store: SqliteStore
) -> None:
    monkeypatch.setattr(driver, "QUICK_SECONDS", 0.0)
    await settle_in(store)
    await asyncio.to_thread(_idle, store)
    assert await store.do(where) != HERE


async def test_the_loop_does_not_wait_for_another_process_that_writes(
    quick: None, store: SqliteStore, tmp_path: Path
) -> None:
    await settle_in(store)
    await asyncio.to_thread(_idle, store)
    other = apsw.Connection(str(tmp_path / "accord.db"))
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(store.do(where))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()
    assert await asyncio.wait_for(waiting, BOUND_SECONDS) != HERE


async def test_a_command_that_fails_on_the_loop_leaves_nothing(quick: None, store: SqliteStore) -> None:
    await settle_in(store)
    before = await store.read(count)
    await asyncio.to_thread(_idle, store)
    with pytest.raises(LookupError, match=HERE):
        await store.do(fail)
    assert await store.read(count) == before
    assert await store.do(where) == HERE


async def test_loop_commits_are_checkpointed_in_the_thread(
    quick: None, small_log: int, store: SqliteStore, tmp_path: Path
) -> None:
    for _ in range(100):
        await store.do(put, 20_000)
        await asyncio.to_thread(_idle, store)
    assert log_size(tmp_path) < small_log
