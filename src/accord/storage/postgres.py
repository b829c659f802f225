"""The PostgreSQL driver: commands awaited on the loop, on a small pool of connections (`postgres_pool`).

A server that is gone, or silent, is an error and never a hang; a lost connection is replaced with the next command.
Hints travel on a connection of their own (`notify`), or as the caller carries them.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

import asyncpg

from accord.storage.commands import tasks
from accord.storage.notify import PostgresSignals
from accord.storage.postgres_batch import Override
from accord.storage.postgres_overrides import Overrides
from accord.storage.postgres_pool import Connections, Lent
from accord.storage.postgres_reads import Reads
from accord.storage.sql import Engine, compile
from accord.storage.store import RESTARTED, Command, Row, StoreInterrupted, StoreRefused, Value

P = ParamSpec("P")
T = TypeVar("T")

OLDEST = 15
"""The oldest major version that the tests cover."""

LOCKED_SECONDS = 3_600.0
"""How long a statement may take once an advisory lock was taken: migrations wait for each other and may rewrite large
tables."""

RETRIES = 5
"""How often a command is retried that lost a deadlock or a serialization race, or that the server interrupted."""

RETRY_SECONDS = 0.02
"""The delay before the second retry of an interrupted command. It doubles with each retry; the first comes at once."""

log = logging.getLogger("accord.postgres")


class Tx:
    """A transaction on one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._seconds: float | None = None  # the pool's
        self.topics: list[str] = []

    async def one(self, sql: str, /, **values: Value) -> Row | None:
        """Run a statement and return its first row."""
        text, arguments = _bound(sql, values)
        found = await self._connection.fetchrow(text, *arguments, timeout=self._seconds)
        return None if found is None else tuple(found)

    async def all(self, sql: str, /, **values: Value) -> list[Row]:
        """Run a statement and return its rows."""
        text, arguments = _bound(sql, values)
        return [tuple(row) for row in await self._connection.fetch(text, *arguments, timeout=self._seconds)]

    async def run(self, sql: str, /, **values: Value) -> int:
        """Run a statement and return how many rows it changed."""
        text, arguments = _bound(sql, values)
        status: str = await self._connection.execute(text, *arguments, timeout=self._seconds)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]], /) -> None:
        """Run a statement once for each row of values, in one round trip."""
        statement = compile(sql, Engine.POSTGRES)
        arguments = [statement.placed(row) for row in rows]
        await self._connection.executemany(statement.text, arguments, timeout=self._seconds)

    async def lock(self, number: int) -> None:
        """Wait until no other transaction holds this lock, and hold it until the end of this one."""
        self._seconds = LOCKED_SECONDS
        await self._connection.execute("SELECT pg_advisory_xact_lock($1)", number, timeout=self._seconds)

    def signal(self, *topics: str) -> None:
        """Publish hints once the transaction is committed."""
        self.topics.extend(topics)


def _bound(sql: str, values: dict[str, Value]) -> tuple[str, tuple[Value, ...]]:
    statement = compile(sql, Engine.POSTGRES)
    return statement.text, statement.placed(values)


class PostgresStore:
    """One PostgreSQL database."""

    def __init__(self, dsn: str, publish: Callable[[list[str]], None] = lambda _: None, *, listen: bool = True) -> None:
        """Use a database; `publish` gets the hints of every node. Without `listen` followers only poll."""
        self._signals = PostgresSignals(dsn, publish) if listen else None
        self._publish = self._signals.publish if self._signals else publish
        self._connections = Connections(dsn, partial(publish, [RESTARTED]))
        self._overrides = Overrides(self._statement, self._transaction, self._publish)
        self._reads = Reads(self._connections.lend, Tx)
        self._looking: dict[Callable[..., Any], Callable[..., Awaitable[Any]]] = {tasks.read_task: self._reads.task}
        self.commits = 0

    async def open(self) -> None:
        """Connect, refuse a server that is too old, and start listening."""
        await self._connections.open()
        try:
            async with self._connections.lend() as connection:
                found = connection.get_server_version()
            if found.major < OLDEST:
                raise StoreRefused(
                    f"The server is PostgreSQL {found.major}, accord needs {OLDEST} or newer: upgrade it"
                )
        except BaseException:
            self._connections.terminate()
            raise
        if self._signals is not None:
            await self._signals.open()

    async def listening(self) -> None:
        """Wait until hints of other nodes arrive, if they do at all."""
        if self._signals is not None:
            await self._signals.connected()

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction; hot ones share theirs with whatever arrives at the same time."""
        return await self._do(self._overrides.get(command), command, *args, **kwargs)

    async def do_early(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction, which it shares with more others than it otherwise would."""
        return await self._do(self._overrides.get(command, is_early=True), command, *args, **kwargs)

    async def _do(self, override: Override | None, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        done = None if override is None else override.put(*args, **kwargs)
        written = None if done is None else await done
        if written is None:
            return await self._alone(command, *args, **kwargs)
        result: T = written.result
        return result

    async def _alone(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in a transaction of its own."""
        return await _with_retries(lambda: self._attempt(command, *args, **kwargs))

    async def _attempt(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._transaction() as connection:
            tx = Tx(connection)
            result = await command(tx, *args, **kwargs)
        if tx.topics:
            self._publish(tx.topics)
        return result

    async def read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command that only reads, on one consistent snapshot."""
        return await _with_retries(lambda: self._attempt_read(command, *args, **kwargs))

    async def _attempt_read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        looking = self._looking.get(command)  # which needs no transaction around it: that would be two more round trips
        if looking is not None:
            with suppress(tasks.Torn):
                found: T = await looking(*args, **kwargs)
                return found
        async with self._connections.transaction(isolation="repeatable_read", readonly=True) as connection:
            return await command(Tx(connection), *args, **kwargs)

    async def close(self) -> None:
        """Finish what was accepted and let go of everything."""
        await self._overrides.close()
        await self._reads.close()
        if self._signals is not None:
            await self._signals.close()
        await self._connections.close()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        async with self._connections.transaction() as connection:
            yield connection
        self.commits += 1

    def _statement(self) -> Lent:
        """Lend a connection for one statement, which is a transaction by itself."""
        self.commits += 1
        return self._connections.lend()


async def _with_retries(attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry what lost a race or was interrupted; both were rolled back."""
    for retry in range(RETRIES):
        try:
            return await attempt()
        except _RACES as error:
            log.info("command lost a race", extra={"reason": str(error)})
        except StoreInterrupted as error:
            log.warning("command interrupted", extra={"reason": str(error)})
            await asyncio.sleep(RETRY_SECONDS * 2 ** (retry - 1) if retry else 0)
    try:
        return await attempt()
    except _RACES as error:
        raise StoreInterrupted(f"PostgreSQL: {error}") from error


_RACES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.InvalidCachedStatementError)
"""What a second attempt cures; the last is a migration that happened meanwhile."""
