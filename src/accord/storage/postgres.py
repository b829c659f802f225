"""The PostgreSQL driver: commands awaited on the loop, hints by LISTEN and NOTIFY on connections of their own.

NOTIFY never runs inside a writing transaction: it takes a database-wide lock until that commits, so commits would queue
up behind each other's fsync. Hints are coalesced instead: the next NOTIFY carries whatever gathered during the last.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ParamSpec, TypeVar

import asyncpg

from accord.storage.sql import Engine, compile
from accord.storage.store import Command, Row, StoreFull, StoreUnavailable, Value

P = ParamSpec("P")
T = TypeVar("T")

CHANNEL = "accord"
POOL_SIZE = 8
"""Connections for commands; the hot ones are batched onto fewer, so more would only queue in the server."""

PAYLOAD_BYTES = 7_500
"""NOTIFY carries less than 8,000 bytes."""

RECONNECT_SECONDS = 1.0
RETRIES = 5
"""How often a command is tried again that lost a deadlock or a serialization race."""

log = logging.getLogger("accord.postgres")


class Tx:
    """A transaction on one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.topics: list[str] = []

    async def one(self, sql: str, /, **values: Value) -> Row | None:
        """Run a statement and return its first row."""
        text, arguments = _bound(sql, values)
        found = await self._connection.fetchrow(text, *arguments)
        return None if found is None else tuple(found)

    async def all(self, sql: str, /, **values: Value) -> list[Row]:
        """Run a statement and return its rows."""
        text, arguments = _bound(sql, values)
        return [tuple(row) for row in await self._connection.fetch(text, *arguments)]

    async def run(self, sql: str, /, **values: Value) -> int:
        """Run a statement and return how many rows it changed."""
        text, arguments = _bound(sql, values)
        status: str = await self._connection.execute(text, *arguments)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def lock(self, number: int) -> None:
        """Wait until no other transaction holds this lock, and hold it until the end of this one."""
        await self._connection.execute("SELECT pg_advisory_xact_lock($1)", number)

    def signal(self, *topics: str) -> None:
        """Publish hints once the transaction is committed."""
        self.topics.extend(topics)


def _bound(sql: str, values: dict[str, Value]) -> tuple[str, list[Value]]:
    statement = compile(sql, Engine.POSTGRES)
    return statement.text, [values[name] for name in statement.names]


class PostgresStore:
    """One PostgreSQL database."""

    def __init__(self, dsn: str, publish: Callable[[list[str]], None] = lambda _: None, *, listen: bool = True) -> None:
        """Use a database; `publish` gets the hints of every node. Without `listen` followers only poll."""
        self._dsn = dsn
        self._publish = publish
        self._listens = listen
        self._pool: asyncpg.Pool[Any] | None = None
        self._outgoing: dict[str, None] = {}
        self._pending = asyncio.Event()
        self._listening = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def open(self) -> None:
        """Connect, and start listening."""
        with _translating():
            self._pool = await asyncpg.create_pool(self._dsn, min_size=1, max_size=POOL_SIZE)
        if self._listens:
            self._tasks = [
                asyncio.create_task(self._keep_listening(), name="accord-listen"),
                asyncio.create_task(self._keep_notifying(), name="accord-notify"),
            ]

    async def listening(self) -> None:
        """Wait until hints of other nodes arrive."""
        await self._listening.wait()

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction; one that lost a race is run again."""
        for _ in range(RETRIES):
            try:
                return await self._attempt(command, *args, **kwargs)
            except (asyncpg.DeadlockDetectedError, asyncpg.SerializationError) as error:
                log.info("command lost a race", extra={"reason": str(error)})
        return await self._attempt(command, *args, **kwargs)

    async def _attempt(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._connection() as connection, connection.transaction():
            tx = Tx(connection)
            result = await command(tx, *args, **kwargs)
        if tx.topics:
            self._announce(tx.topics)
        return result

    async def read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command that only reads, on one consistent snapshot."""
        snapshot = {"isolation": "repeatable_read", "readonly": True}
        async with self._connection() as connection, connection.transaction(**snapshot):
            return await command(Tx(connection), *args, **kwargs)

    async def close(self) -> None:
        """Finish what was accepted and let go of everything."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._pool is not None:
            await self._pool.close()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        if self._pool is None:
            raise StoreUnavailable("The store is not open")
        with _translating():
            async with self._pool.acquire() as connection:
                yield connection

    # --- hints ----------------------------------------------------------------------------------------------------

    def _announce(self, topics: list[str]) -> None:
        """Wake followers here at once and those on other nodes with the next NOTIFY."""
        self._publish(topics)
        if self._listens:
            self._outgoing.update(dict.fromkeys(topics))
            self._pending.set()

    async def _keep_listening(self) -> None:
        while True:
            try:
                await self._listen()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                log.warning("not listening", extra={"reason": str(error)})
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _listen(self) -> None:
        """Listen on a connection of its own until it is lost; whoever follows polls meanwhile."""
        connection = await asyncpg.connect(self._dsn)
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._heard)
            self._listening.set()
            await lost.wait()
        finally:
            self._listening.clear()
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self._publish(str(payload).split("\n"))

    async def _keep_notifying(self) -> None:
        while True:
            await self._pending.wait()
            self._pending.clear()
            topics, self._outgoing = list(self._outgoing), {}
            try:
                async with self._connection() as connection:
                    for payload in _payloads(topics):
                        await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
            except StoreUnavailable as error:
                log.warning("hints were lost", extra={"reason": str(error)})


def _payloads(topics: list[str]) -> list[str]:
    """Put topics together into as few payloads as their size allows."""
    found: list[str] = []
    for topic in topics:
        if found and len(found[-1].encode()) + len(topic.encode()) < PAYLOAD_BYTES:
            found[-1] += "\n" + topic
        else:
            found.append(topic)
    return found


class _translating:
    """Turns what says that the database cannot be used at the moment into our errors."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: Any, error: BaseException | None, _trace: Any) -> None:
        if isinstance(error, asyncpg.DiskFullError):
            raise StoreFull("The database's disk is full") from error
        if isinstance(error, _UNAVAILABLE):
            raise StoreUnavailable(f"PostgreSQL: {error}") from error


_UNAVAILABLE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
)
