"""What is special about the PostgreSQL driver: a server that goes away and comes back, or only seems to be there."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import nullcontext
from typing import Any

import asyncpg
import pytest

from accord.storage import notifications
from accord.storage.notifications import pack_topics
from accord.storage.postgres import connections, driver
from accord.storage.postgres.driver import CONCURRENT_READS, PostgresStore, TaskReads
from accord.storage.store import StoreRefused, StoreUnavailable, Tx
from tests.databases import served
from tests.storage.conftest import TENANT, Heard

BOUND_SECONDS = 60


async def shout(tx: Tx, topic: str) -> None:
    tx.signal(topic)


async def one(tx: Tx) -> int:
    row = await tx.one("SELECT 1")
    assert row is not None
    return int(row[0])


class Ear:
    """Hears hints, and lets somebody wait for one."""

    def __init__(self) -> None:
        self.topics: list[str] = []
        self._heard = asyncio.Event()

    def __call__(self, topics: list[str]) -> None:
        self.topics.extend(topics)
        self._heard.set()

    async def until(self, topic: str) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            while topic not in self.topics:
                self._heard.clear()
                await self._heard.wait()


# A server of its own, to be stopped and frozen


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with served() as found:
        yield found


@pytest.fixture
async def ear() -> Ear:
    return Ear()


@pytest.fixture
async def store(server: Any, ear: Ear) -> AsyncIterator[PostgresStore]:
    found = PostgresStore(server.get_uri(), ear)
    await found.open()
    await listening(found)
    yield found
    await found.close()


async def listening(store: PostgresStore) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        await store.listening()


async def test_a_server_that_was_stopped_is_an_error_and_then_used_again(
    server: Any, store: PostgresStore, ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(server.stop)
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            outcomes = await asyncio.gather(
                *(ask(one) for ask in (store.do, store.read) for _ in range(20)), return_exceptions=True
            )
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
    finally:
        await asyncio.to_thread(server.start)
    assert await store.do(one) == await store.read(one) == 1
    await listening(store)
    other = PostgresStore(server.get_uri())
    await other.open()
    await other.do(shout, "back")
    await ear.until("back")
    await other.close()
    said = [record.message for record in caplog.records if record.name == "accord.signals"]
    assert said.count("signals.down") == 1, "once, however often it tries"


async def test_a_server_that_fell_silent_is_given_up(
    server: Any, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(connections, "STATEMENT_SECONDS", 0.5)
    monkeypatch.setattr(driver, "NOTIFY_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr(notifications, "ALIVE_SECONDS", 0.5)
    impatient = PostgresStore(server.get_uri())
    await impatient.open()
    await impatient.do(one)  # leaves a connection in the pool
    await listening(impatient)
    noticed = asyncio.Event()
    monkeypatch.setattr(notifications.log, "warning", lambda *_, **__: noticed.set())
    main = server.get_postmaster_info().process
    processes = [main, *main.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        async with asyncio.timeout(BOUND_SECONDS):
            outcomes = await asyncio.gather(*(impatient.do(one) for _ in range(10)), return_exceptions=True)
            assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}
            await noticed.wait()
    finally:
        for process in processes:
            process.resume()
    await listening(impatient)
    assert await impatient.do(one) == 1
    await impatient.close()


async def test_connections_that_are_cut_are_replaced(server: Any, store: PostgresStore) -> None:
    cutter = await asyncpg.connect(server.get_uri())
    for _ in range(10):
        await asyncio.gather(*(store.do(one) for _ in range(5)), return_exceptions=True)
        await cutter.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        outcomes = await asyncio.gather(*(store.do(one) for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} <= {int, StoreUnavailable}
    await cutter.close()
    assert await store.do(one) == 1


async def test_closed_stores_fail_at_once(server: Any) -> None:
    store = PostgresStore(server.get_uri())
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.do(one)
    await store.open()
    await store.close()
    for ask in (store.do, store.read):
        with pytest.raises(StoreUnavailable):
            await ask(one)
    await store.close()


async def test_connection_waits_time_out(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "POOL_SIZE", 1)
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.2)
    store = PostgresStore(server.get_uri(), listen=False)
    await store.open()
    held, go_on = asyncio.Event(), asyncio.Event()

    async def hold(tx: Tx) -> None:
        held.set()
        await go_on.wait()

    holding = asyncio.create_task(store.do(hold))
    async with asyncio.timeout(BOUND_SECONDS):
        await held.wait()
        with pytest.raises(StoreUnavailable, match="no answer in time"):
            await store.do(one)
        go_on.set()
        await holding
        assert await store.do(one) == 1
    await store.close()


async def test_canceled_callers_leave_a_working_connection(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "POOL_SIZE", 1)
    store = PostgresStore(server.get_uri(), listen=False)
    await store.open()

    async def slow(tx: Tx) -> None:
        await tx.one("SELECT pg_sleep(60)")

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.do(slow), 0.1)
    assert await asyncio.wait_for(store.do(one), BOUND_SECONDS) == 1
    await store.close()


async def test_a_migration_may_take_longer_than_a_command(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STATEMENT_SECONDS", 0.2)
    store = PostgresStore(server.get_uri(), listen=False)
    await store.open()

    async def slow(tx: Tx, *, locked: bool) -> None:
        if locked:
            await tx.lock(1)
        await tx.one("SELECT pg_sleep(0.5)")

    with pytest.raises(StoreUnavailable, match="no answer in time"):
        await store.do(slow, locked=False)
    await store.do(slow, locked=True)
    await store.close()


async def test_missing_privileges_are_named(server: Any) -> None:
    owner = await asyncpg.connect(server.get_uri())
    await owner.execute("DROP ROLE IF EXISTS guest")
    await owner.execute("CREATE ROLE guest LOGIN")
    store = PostgresStore(server.get_uri().replace("postgres:@", "guest@"), listen=False)
    await store.open()

    async def make(tx: Tx) -> None:
        await tx.run("CREATE TABLE thing (name text)")

    with pytest.raises(StoreRefused, match="permission denied for schema public"):
        await store.do(make)
    await store.close()
    await owner.execute("DROP ROLE guest")
    await owner.close()


# Tasks that are read together


async def test_an_immediate_retry_is_answered() -> None:
    """The first asks again when all who looked have just ended, before anything else happens, and nobody after it."""
    answers = asyncio.Event()

    class Silent:
        async def fetch(self, *_asked: object) -> list[Any]:
            await answers.wait()
            return []

    reads = TaskReads(lambda: nullcontext(Silent()), lambda _: pytest.fail("nothing is there to be read whole"))

    async def ask(task_id: str, times: int) -> None:
        for _ in range(times):
            assert await reads.task(TENANT, task_id) is None

    asking = []
    for number in range(CONCURRENT_READS):
        asking.append(asyncio.create_task(ask(f"t-{number}", times=1 if number else 2)))
        await asyncio.sleep(0.01)  # so that each has somebody to look for it
    answers.set()
    async with asyncio.timeout(BOUND_SECONDS):
        await asyncio.gather(*asking)


# Hints


async def test_nodes_get_their_own_notifications_once(server: Any, store: PostgresStore, ear: Ear) -> None:
    other_ear = Ear()
    other = PostgresStore(server.get_uri(), other_ear)
    await other.open()
    await listening(other)
    await store.do(shout, "mine")
    await other_ear.until("mine")
    await other.do(shout, "theirs")
    await ear.until("theirs")  # was sent after ours, so ours would have come back by now
    assert ear.topics == ["mine", "theirs"]
    assert other_ear.topics == ["mine", "theirs"]
    await other.close()


async def test_hints_before_the_connection_are_carried_when_it_is_there(server: Any, ear: Ear, store: Any) -> None:
    other = PostgresStore(server.get_uri())
    await other.open()
    await asyncio.gather(*(other.do(shout, f"early-{at}") for at in range(30)))
    for at in range(30):
        await ear.until(f"early-{at}")
    await other.close()


async def test_a_store_that_does_not_listen_polls(server: Any, store: PostgresStore, heard: Heard, ear: Ear) -> None:
    quiet = PostgresStore(server.get_uri(), heard, listen=False)
    await quiet.open()
    await quiet.listening()
    await quiet.do(shout, "quiet")
    await store.do(shout, "loud")
    assert heard == ["quiet"]
    assert ear.topics == ["loud"]
    await quiet.close()


def test_payloads_are_few_and_none_is_too_long() -> None:
    topics = [f"task:acme:{at:04}" for at in range(1000)] + ["ä" * 60, "x" * 200, "last"]
    found = pack_topics(topics, 100)
    assert all(len(payload.encode()) <= 100 for payload in found)
    assert "\n".join(found).split("\n") == [topic for topic in topics if len(topic.encode()) < 100]
    assert len(found) < 1000 / 5
    assert pack_topics([], 100) == []
