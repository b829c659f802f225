"""What every store promises, on SQLite (file and memory) and PostgreSQL alike."""

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from accord.storage import schema
from accord.storage.postgres.driver import PostgresStore
from accord.storage.sql import SqlEngine, compile
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import NotACommand, StoreFull, StoreUnavailable, Tx
from tests.databases import dropped
from tests.storage.conftest import AnyStore, Heard

BOUND_SECONDS = 60


async def make(tx: Tx) -> None:
    await tx.run("CREATE TABLE thing (name {text} PRIMARY KEY, size {int} NOT NULL, data {bytes}) {strict}")


async def put(tx: Tx, name: str, size: int, data: bytes | None = None, *, fail: bool = False) -> int:
    changed = await tx.run(
        "INSERT INTO thing (name, size, data) VALUES (:name, :size, :data)", name=name, size=size, data=data
    )
    tx.signal(f"thing:{name}")
    if fail:
        raise RuntimeError(f"no {name}")
    return changed


async def names(tx: Tx) -> list[str]:
    return [row[0] for row in await tx.all("SELECT name FROM thing ORDER BY name")]


async def find(tx: Tx, name: str) -> Any:
    return await tx.one("SELECT name, size, data FROM thing WHERE name = :name OR name = upper(:name)", name=name)


async def test_values_come_back_as_they_went(store: AnyStore) -> None:
    await store.do(make)
    assert await store.do(put, "a", 2**53, b"\x00\xff") == 1
    assert await store.read(find, "a") == ("a", 2**53, b"\x00\xff")
    await store.do(put, "b", 0)
    assert await store.read(find, "b") == ("b", 0, None)
    assert await store.read(find, "nobody") is None


async def put_many(tx: Tx, things: list[tuple[str, int]]) -> None:
    await tx.many(
        "INSERT INTO thing (size, name) VALUES (:size, :name)", [{"name": name, "size": size} for name, size in things]
    )


async def names_of_sizes(tx: Tx, sizes: str) -> list[str]:
    rows = await tx.all("SELECT name FROM thing WHERE size IN ({each} :sizes {end}) ORDER BY name", sizes=sizes)
    return [row[0] for row in rows]


async def test_a_statement_runs_once_for_each_row_of_values(store: AnyStore) -> None:
    await store.do(make)
    await store.do(put_many, [])
    assert await store.read(names) == []
    await store.do(put_many, [("b", 2), ("a", 1), ("c", 3)])
    assert [await store.read(find, name) for name in "abc"] == [("a", 1, None), ("b", 2, None), ("c", 3, None)]
    with pytest.raises(Exception, match=r"(?i)unique"):
        await store.do(put_many, [("d", 4), ("a", 5)])
    assert await store.read(names) == ["a", "b", "c"]


async def test_a_list_of_integers_is_one_parameter(store: AnyStore) -> None:
    await store.do(make)
    await store.do(put_many, [("a", 1), ("b", 2**53), ("c", -3)])
    assert await store.read(names_of_sizes, f"[1, {2**53}, 7]") == ["a", "b"]
    assert await store.read(names_of_sizes, "[-3]") == ["c"]
    assert await store.read(names_of_sizes, "[]") == []


async def test_order_is_by_bytes_on_every_engine(store: AnyStore) -> None:
    await store.do(make)
    for name in ["b", "B", "ä", "a", "_", "Z"]:
        await store.do(put, name, 1)
    assert await store.read(names) == sorted(["b", "B", "ä", "a", "_", "Z"], key=str.encode)


async def test_failed_commands_roll_back_alone(store: AnyStore, heard: Heard) -> None:
    await store.do(make)
    outcomes = await asyncio.gather(
        *(store.do(put, f"n{at:03}", at, fail=at % 3 == 0) for at in range(60)), return_exceptions=True
    )
    assert [isinstance(outcome, RuntimeError) for outcome in outcomes] == [at % 3 == 0 for at in range(60)]
    kept = [f"n{at:03}" for at in range(60) if at % 3]
    assert await store.read(names) == kept
    assert {topic.removeprefix("thing:") for topic in heard} == set(kept)


async def test_violated_constraints_fail_only_their_command(store: AnyStore) -> None:
    await store.do(make)
    await store.do(put, "a", 1)
    with pytest.raises(Exception, match=r"(?i)unique"):
        await store.do(put, "a", 2)
    await store.do(put, "b", 2)
    assert await store.read(names) == ["a", "b"]


@pytest.mark.parametrize("store", ["sqlite-file", "postgres"], indirect=True)  # memory has one connection, which writes
async def test_a_reader_cannot_write(store: AnyStore) -> None:
    await store.do(make)
    with pytest.raises(Exception, match=r"(?i)read.?only"):
        await store.read(put, "a", 1)
    assert await store.read(names) == []


async def test_hints_are_published_after_the_commit(store: AnyStore, heard: Heard) -> None:
    await store.do(make)

    async def quiet_until_committed(tx: Tx) -> list[str]:
        await put(tx, "a", 1)
        return list(heard)

    assert await store.do(quiet_until_committed) == []
    assert "thing:a" in heard


async def test_canceled_callers_do_not_stop_others(store: AnyStore) -> None:
    await store.do(make)
    impatient = asyncio.create_task(store.do(put, "a", 1))
    await asyncio.sleep(0)
    impatient.cancel()
    await store.do(put, "b", 2)
    assert "b" in await store.read(names)


async def test_closing_finishes_accepted_commands(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "accord.db")
    await first.do(make)
    writing = [asyncio.create_task(first.do(put, f"n{at}", at)) for at in range(500)]
    await asyncio.sleep(0)
    await first.close()
    await asyncio.gather(*writing)
    second = SqliteStore(tmp_path / "accord.db", read_only=True)
    assert len(await second.read(names)) == 500
    await second.close()


async def test_many_commands_share_few_commits(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "accord.db")
    await store.do(make)
    before = store.commits
    await asyncio.gather(*(store.do(put, f"n{at}", at) for at in range(400)))
    assert store.commits - before < 100
    await store.close()


async def test_two_processes_may_share_a_file(tmp_path: Path) -> None:
    one, other = SqliteStore(tmp_path / "accord.db"), SqliteStore(tmp_path / "accord.db")
    await one.do(make)
    await asyncio.gather(*(store.do(put, f"{at}-{store is one}", at) for at in range(50) for store in (one, other)))
    assert len(await other.read(names)) == 100
    await one.close()
    await other.close()


async def test_a_command_awaits_nothing_but_its_transaction(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "accord.db")

    async def waits(tx: Tx) -> None:
        await asyncio.sleep(0)

    with pytest.raises(NotACommand):
        await store.do(waits)
    await store.do(make)
    await store.close()


async def test_a_full_disk_is_a_clear_error_and_nothing_is_lost(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "accord.db")
    await store.do(make)
    await store.do(put, "before", 1)

    async def limit(tx: Tx, pages: int) -> None:
        await tx.run(f"PRAGMA max_page_count = {pages}")

    await store.do(limit, 8)
    with pytest.raises(StoreFull, match="full"):
        await store.do(put, "big", 1, b"x" * 1_000_000)
    await store.do(limit, 100_000)
    await store.do(put, "after", 1)
    assert await store.read(names) == ["after", "before"]
    await store.close()
    connection = apsw.Connection(str(tmp_path / "accord.db"))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


async def test_a_database_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable):
        await PostgresStore("postgresql://nobody@127.0.0.1:1/nothing").open()
    with pytest.raises(StoreUnavailable):
        SqliteStore(tmp_path / "no" / "such" / "folder" / "accord.db")


async def test_hints_reach_other_nodes(postgres: str) -> None:
    reached = asyncio.Event()

    def listen(topics: list[str]) -> None:
        if "task:42" in topics:
            reached.set()

    one, other = PostgresStore(postgres), PostgresStore(postgres, listen)
    await one.open()
    await other.open()
    await other.listening()

    async def shout(tx: Tx) -> None:
        tx.signal("task:42")

    await one.do(shout)
    await asyncio.wait_for(reached.wait(), BOUND_SECONDS)
    await one.close()
    await other.close()


# Migrations


async def columns(tx: Tx) -> list[Any]:
    """Every table with its columns, however the engine keeps them."""
    return await tx.all(
        "SELECT m.name, p.name FROM sqlite_schema m JOIN pragma_table_info(m.name) p"
        " WHERE m.type = 'table' AND m.name <> 'sqlite_sequence' ORDER BY 1, 2"
    )


async def columns_of_postgres(tx: Tx) -> list[Any]:
    return await tx.all(
        'SELECT table_name::text COLLATE "C", column_name::text COLLATE "C" FROM information_schema.columns'
        " WHERE table_schema = 'public' ORDER BY 1, 2"
    )


@pytest.mark.proves("0-06")
async def test_an_empty_database_is_brought_to_the_newest_schema_once(store: AnyStore) -> None:
    with pytest.raises(schema.SchemaTooOld, match="db upgrade"):
        await schema.check_schema(store)
    assert await schema.upgrade_schema(store) == schema.known_migrations()
    assert await schema.upgrade_schema(store) == []
    assert await schema.check_schema(store) == schema.known_migrations()[-1].number


async def test_a_newer_schema_is_refused(store: AnyStore) -> None:
    await schema.upgrade_schema(store)

    async def from_the_future(tx: Tx) -> None:
        await tx.run("INSERT INTO schema_version (number, at) VALUES (9999, {now})")

    await store.do(from_the_future)
    with pytest.raises(schema.SchemaTooNew, match="9999"):
        await schema.check_schema(store)


async def test_nodes_that_start_together_migrate_once(store: AnyStore) -> None:
    done = await asyncio.gather(*(schema.upgrade_schema(store) for _ in range(4)))
    assert sum(len(applied) for applied in done) == len(schema.known_migrations())


@pytest.mark.proves("0-06")
async def test_both_engines_have_the_same_tables(postgres: str, tmp_path: Path) -> None:
    await dropped(postgres)
    file = SqliteStore(tmp_path / "accord.db")
    await schema.upgrade_schema(file)
    server = PostgresStore(postgres, listen=False)
    await server.open()
    await schema.upgrade_schema(server)
    assert await file.read(columns) == await server.read(columns_of_postgres)
    await file.close()
    await server.close()


# Portable statements


def test_statements_are_compiled_for_each_engine() -> None:
    sql = "UPDATE t SET a = :a, at = {now} WHERE b = :b AND a <> :a AND c = ':not' AND d::text = 'x'"
    sqlite, postgres = compile(sql, SqlEngine.SQLITE), compile(sql, SqlEngine.POSTGRES)
    assert sqlite.placed({"b": 2, "a": 1}) == postgres.placed({"b": 2, "a": 1}) == (1, 2)
    assert "a = :a" in sqlite.text
    assert "a = $1" in postgres.text
    assert "a <> $1" in postgres.text
    assert "':not'" in postgres.text
    assert "d::text" in postgres.text
    assert "unixepoch" in sqlite.text
    assert "statement_timestamp" in postgres.text


@pytest.mark.parametrize(("sql", "placed"), [("SELECT 1", ()), ("SELECT :b", (2,)), ("SELECT :b, :a", (2, 1))])
def test_parameters_are_put_into_their_places(sql: str, placed: tuple[int, ...]) -> None:
    assert compile(sql, SqlEngine.SQLITE).placed({"a": 1, "b": 2}) == placed


def test_an_unknown_macro_is_an_error() -> None:
    with pytest.raises(KeyError):
        compile("SELECT {whatever}", SqlEngine.SQLITE)
