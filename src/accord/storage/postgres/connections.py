"""Connections to one PostgreSQL database: lent for a statement or a transaction, then reused."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

import asyncpg

from accord.storage.store import BadValue, StoreFull, StoreInterrupted, StoreRefused, StoreUnavailable

POOL_SIZE = 8
"""Connections for commands. Frequent commands are batched onto fewer, so more would only queue in the server."""

CONNECT_SECONDS = 5.0
"""How long a command waits for a connection, new or free."""

STATEMENT_SECONDS = 10.0
"""Statement timeout: far longer than Accord's statements take, so it only ends the wait for a silent server."""

CLOSE_SECONDS = 15.0

AT_HAND_SECONDS = 0.1
"""How long an idle connection is kept for reuse.

A busy node reuses it within a hundredth of that time. Reuse concentrates on a few connections, because each server
process makes and keeps its own plans.
"""

FIRST_LOOK, LATER_LOOKS = 16, 4
"""Number of loans before the first check for grown tables, and the growth factor of that number."""

_GROWN_TABLES = """
    SELECT quote_ident(relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = current_schema() AND relkind = 'r'
      AND pg_relation_size(pg_class.oid) > 2 * greatest(relpages, 1) * current_setting('block_size')::bigint
"""
"""Tables that are twice as large as the planner's statistics."""

_INCARNATION = "SELECT concat(pg_postmaster_start_time(), ' ', to_regclass('task')::oid)"
"""Identifies a server's data.

It is the start time of the server's process and the OID of the table. The first also differs for a promoted standby,
the second after a restored dump. Only another incarnation may lack acknowledged writes.
"""

log = logging.getLogger("accord.postgres")


class Connections:
    """A pool of up to `POOL_SIZE` connections."""

    def __init__(self, dsn: str, on_restart: Callable[[], None] = lambda: None) -> None:
        """Prepare a pool for a database. `on_restart` is called when the database has another incarnation."""
        self._dsn = dsn
        self._on_restart = on_restart
        self._incarnation: str | None = None
        self._pool: asyncpg.Pool[Any] | None = None
        self._at_hand: list[Any] = []
        self._unused = 0  # of the connections at hand, how many were not used since the last check
        self._asking = 0
        self._lent, self._until_look = 0, FIRST_LOOK
        self._clearing: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Open the pool."""
        try:
            self._pool = await asyncpg.create_pool(
                self._dsn,
                min_size=0,
                max_size=POOL_SIZE,
                timeout=CONNECT_SECONDS,
                command_timeout=STATEMENT_SECONDS,
                init=self._identify,
                reset=_reset,
            )
        except Exception as error:
            _raise_ours(error)
            raise

    async def _identify(self, connection: Any) -> None:
        """Compare the incarnation of a new connection's server with the previous one."""
        incarnation: str = await connection.fetchval(_INCARNATION)
        known, self._incarnation = self._incarnation, incarnation
        if known is not None and known != incarnation:
            self._on_restart()

    def lend(self) -> "LentConnection":
        """Return a connection in autocommit mode, for use in a block."""
        return LentConnection(self)

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[Any]:
        """Lend a connection in a transaction."""
        async with LentConnection(self) as connection, connection.transaction(**options):
            yield connection

    async def take(self) -> Any:
        """Return a connection for exclusive use. The caller must give it back."""
        self._lent += 1
        if self._lent >= self._until_look:
            self._until_look *= LATER_LOOKS
            self._in_background(self._analyse())
        return await self._any()

    async def _analyse(self) -> None:
        """Update the planner's statistics of tables that have grown.

        The planner keeps a plan made for an empty table. Where several indexes contain a key, that plan may read all of
        one. The server's own check runs once a minute.
        """
        try:
            async with LentConnection(self) as connection:
                for (name,) in await connection.fetch(_GROWN_TABLES):
                    await connection.execute(f"ANALYZE {name}")
        except (StoreUnavailable, StoreRefused, asyncpg.PostgresError) as error:
            log.info("store.not_analysed", extra={"reason": str(error)})

    async def _any(self) -> Any:
        if self._pool is None:
            raise StoreUnavailable("The store is not open")
        while self._at_hand:
            connection = self._at_hand.pop()
            self._unused = min(self._unused, len(self._at_hand))
            if is_ready(connection):
                return connection
            await self._pool.release(connection)
        self._asking += 1
        try:
            async with asyncio.timeout(CONNECT_SECONDS):  # the pool's own timeout would need a task for every command
                return await self._pool.acquire()
        except asyncpg.ClientConfigurationError as error:
            raise StoreRefused(f"PostgreSQL cannot be reached as the address says: {error}") from error
        except _NO_CONNECTION as error:
            raise StoreUnavailable(_reason(error)) from error
        finally:
            self._asking -= 1

    async def give_back(self, connection: Any) -> None:
        """Return a connection to the pool, in any state."""
        if self._pool is not None:
            await self._pool.release(connection)

    def keep(self, connection: Any) -> bool:
        """Keep a connection for reuse, unless a command waits for one from the pool."""
        if self._asking or not is_ready(connection):
            return False
        self._at_hand.append(connection)
        if self._clearing is None:
            self._clearing = asyncio.get_running_loop().call_later(AT_HAND_SECONDS, self._clear)
        return True

    def _clear(self) -> None:
        """Return connections to the pool that were not used recently."""
        for connection in self._at_hand[: self._unused]:
            self._in_background(self.give_back(connection))
        del self._at_hand[: self._unused]
        self._unused = len(self._at_hand)
        loop = asyncio.get_running_loop()
        self._clearing = loop.call_later(AT_HAND_SECONDS, self._clear) if self._at_hand else None

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="accord-connection")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def terminate(self) -> None:
        """Cut all connections."""
        if self._pool is not None:
            self._pool.terminate()

    async def close(self) -> None:
        """Close all connections."""
        if self._pool is None:
            return
        if self._clearing is not None:
            self._clearing.cancel()
        self._unused = len(self._at_hand)
        self._clear()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*self._background, return_exceptions=True)
                await self._pool.close()
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("store.connections_cut", extra={"reason": str(error)})  # by the pool itself


class LentConnection:
    """A connection used in a block. A generator as context manager would add a third to a small statement."""

    __slots__ = ("_connection", "_connections")

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def __aenter__(self) -> Any:
        self._connection = await self._connections.take()
        return self._connection

    async def __aexit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if error is None and self._connections.keep(self._connection):
            return
        try:
            await self._connections.give_back(self._connection)
        except Exception as late:
            _raise_ours(late)
            raise
        if error is not None:
            _raise_ours(error)


def is_ready(connection: Any) -> bool:
    """Whether a connection is alive and outside a transaction. A connection that asyncpg has reclaimed is not."""
    try:
        return not connection.is_closed() and not connection.is_in_transaction()
    except asyncpg.InterfaceError:
        return False


async def _reset(connection: Any) -> None:
    """Reset a connection for the next command. A command leaves at most an aborted transaction behind."""
    if connection.is_in_transaction():
        await connection.reset()


def _raise_ours(error: BaseException) -> None:
    """Raise the store's error for an unavailable or refusing database. Does nothing for other errors."""
    if isinstance(error, asyncpg.DiskFullError):
        raise StoreFull("The database's disk is full") from error
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        raise StoreRefused(f"PostgreSQL: {error}: grant the user what accord needs") from error
    unsent = isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    if unsent or isinstance(error, asyncpg.DataError):
        raise BadValue(f"PostgreSQL: {error}") from error
    if isinstance(error, asyncpg.LockNotAvailableError):  # only migrations set a lock timeout
        raise StoreUnavailable("PostgreSQL: a table is in use, by a backup perhaps: try again later") from error
    if isinstance(error, _INTERRUPTED):
        raise StoreInterrupted(_reason(error)) from error
    if isinstance(error, _UNAVAILABLE):
        raise StoreUnavailable(_reason(error)) from error


def _reason(error: BaseException) -> str:
    return f"PostgreSQL: {str(error) or 'no answer in time'}"


_INTERRUPTED = (
    asyncpg.QueryCanceledError,  # pg_cancel_backend, statement_timeout
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
    asyncpg.OutOfMemoryError,
)
_UNAVAILABLE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutdowns, crashes, a starting server
    asyncpg.InsufficientResourcesError,  # connections, configured limits
    asyncpg.PostgresIOError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # may result from a connection that was just cut
)
_NO_CONNECTION = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors before a command runs. A wrong password counts too: it may be right again in a minute."""
