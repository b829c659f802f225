"""What a doctor finds about a PostgreSQL: that it is there, fits, keeps what it is told and goes by the right time."""

from pathlib import Path
from typing import Any

import asyncpg
import pytest

from accord.storage import schema
from accord.storage.address import open_store
from tests.databases import dropped
from tests.ports import free_port
from tests.server.examined import FAILED, OK, WARNING, examined


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def _run(address: str, statement: str) -> None:
    connection = await asyncpg.connect(address)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
async def database(postgres: str) -> str:
    await dropped(postgres)
    return postgres


async def test_postgresql_is_measured_and_compared(database: str) -> None:
    found = await examined(store=database)
    (status, told), *rest = found["store"]
    assert (status, found.failed) == (OK, [])
    assert "PostgreSQL" in told
    assert "schema 0" in told
    assert any(detail.startswith("a write is on the disk after ") for _, detail in rest)
    assert found.one("clock") == (OK, "agrees with the database")
    assert await _tables(database) == 0, "nothing was made"


async def _tables(address: str) -> int:
    connection = await asyncpg.connect(address)
    try:
        found: int = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
        return found
    finally:
        await connection.close()


async def test_postgresql_with_an_older_schema_fails(database: str) -> None:
    async with open_store(database) as store:
        await schema.upgrade_schema(store)
        await store.do(_older)
    status, detail = (await examined(store=database))["store"][0]
    assert status is FAILED
    assert "accord db upgrade" in detail


async def test_a_schema_of_another_program_fails(database: str) -> None:
    await _run(database, "CREATE TABLE customer (id int)")
    status, detail = (await examined(store=database)).one("store")
    assert (status, "belongs to another program" in detail) == (FAILED, True)
    await dropped(database)


async def _older(tx: Any) -> None:
    await tx.run("DELETE FROM schema_version WHERE number > 1")


async def test_postgresql_that_may_lose_commits_is_a_warning(database: str) -> None:
    await _run(database, "ALTER ROLE CURRENT_USER SET synchronous_commit = off")
    try:
        found = await examined(store=database)
    finally:
        await _run(database, "ALTER ROLE CURRENT_USER RESET synchronous_commit")
    assert (WARNING, "synchronous_commit is off: what was answered for may be lost in a crash") in found["store"]


async def test_postgresql_that_is_not_there_fails() -> None:
    found = await examined(store=f"postgresql://nobody@127.0.0.1:{free_port()}/nothing")
    assert found.one("store")[0] is FAILED
    assert "store" in found.failed
