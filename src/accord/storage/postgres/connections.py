"""The connections to one PostgreSQL database: lent for a statement or a transaction, then kept for the next."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

import asyncpg

from accord.storage.store import BadValue, StoreFull, StoreInterrupted, StoreRefused, StoreUnavailable

POOL_SIZE = 8
"""Connections for commands; the hot ones are batched onto fewer, so more would only queue in the server."""

CONNECT_SECONDS = 5.0
"""How long a command waits for a connection, new or free."""

STATEMENT_SECONDS = 10.0
"""How long a statement may take: far longer than ours need, so it ends only the wait for a server that went silent."""

CLOSE_SECONDS = 15.0

AT_HAND_SECONDS = 0.1
"""How long a connection is kept that nobody uses; whoever is busy comes back in a hundredth of that. Those in use stay
the same few: each of the server's processes makes and keeps its own plans."""

FIRST_LOOK, LATER_LOOKS = 16, 4
"""After how often lending it is looked for tables that have grown, and after how many times as much each time."""

_GROWN_TABLES = """
    SELECT quote_ident(relname) FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = current_schema() AND relkind = 'r'
      AND pg_relation_size(pg_class.oid) > 2 * greatest(relpages, 1) * current_setting('block_size')::bigint
"""
"""Tables that are twice as large as the planner knows."""

_INCARNATION = "SELECT concat(pg_postmaster_start_time(), ' ', to_regclass('task')::oid)"
"""The start of the server's process, which differs for a promoted standby as well, and the table's number, which
differs after a dump was restored. Only another incarnation may lack what was acknowledged."""

log = logging.getLogger("accord.postgres")


class Connections:
    """Up to `POOL_SIZE` connections."""

    def __init__(self, dsn: str, on_restart: Callable[[], None] = lambda: None) -> None:
        """Connect to a database, once it is opened; call `on_restart` when it has another incarnation."""
        self._dsn = dsn
        self._on_restart = on_restart
        self._incarnation: str | None = None
        self._pool: asyncpg.Pool[Any] | None = None
        self._at_hand: list[Any] = []
        self._unused = 0  # of those at hand, the first so many, since the last look
        self._asking = 0
        self._lent, self._until_look = 0, FIRST_LOOK
        self._clearing: asyncio.TimerHandle | None = None
        self._background: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Connect."""
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
        """Compare the server behind a new connection with the one before."""
        incarnation: str = await connection.fetchval(_INCARNATION)
        known, self._incarnation = self._incarnation, incarnation
        if known is not None and known != incarnation:
            self._on_restart()

    def lend(self) -> "LentConnection":
        """Return a connection to be used in a block; each statement is a transaction by itself."""
        return LentConnection(self)

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncIterator[Any]:
        """Lend a connection in a transaction."""
        async with LentConnection(self) as connection, connection.transaction(**options):
            yield connection

    async def take(self) -> Any:
        """Return a connection that nobody else has; it must be given back."""
        self._lent += 1
        if self._lent >= self._until_look:
            self._until_look *= LATER_LOOKS
            self._in_background(self._analyse())
        return await self._any()

    async def _analyse(self) -> None:
        """Let the planner know tables that have grown: it keeps a plan that it made for an empty one.

        Where several indexes have a key in them that plan may read all of one, and the server itself looks once a
        minute.
        """
        try:
            async with LentConnection(self) as connection:
                for (name,) in await connection.fetch(_GROWN_TABLES):
                    await connection.execute(f"ANALYZE {name}")
        except (StoreUnavailable, StoreRefused, asyncpg.PostgresError) as error:
            log.info("tables were not analysed", extra={"reason": str(error)})

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
            async with asyncio.timeout(CONNECT_SECONDS):  # the pool's own would be a task for every command
                return await self._pool.acquire()
        except asyncpg.ClientConfigurationError as error:
            raise StoreRefused(f"PostgreSQL cannot be reached as the address says: {error}") from error
        except _NO_CONNECTION as error:
            raise StoreUnavailable(_reason(error)) from error
        finally:
            self._asking -= 1

    async def give_back(self, connection: Any) -> None:
        """Let others have a connection, in whatever state it is."""
        if self._pool is not None:
            await self._pool.release(connection)

    def keep(self, connection: Any) -> bool:
        """Keep a connection at hand, unless somebody waits for one to be given back."""
        if self._asking or not is_ready(connection):
            return False
        self._at_hand.append(connection)
        if self._clearing is None:
            self._clearing = asyncio.get_running_loop().call_later(AT_HAND_SECONDS, self._clear)
        return True

    def _clear(self) -> None:
        """Give back what nobody has used for a while."""
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
        """Let go of all connections."""
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
            log.warning("connections were cut", extra={"reason": str(error)})  # by the pool itself


class LentConnection:
    """A connection while a block uses it. Generators as context managers would cost a third of a small statement."""

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
    """Whether a connection is alive, with no transaction begun; what asyncpg has taken back by itself is not."""
    try:
        return not connection.is_closed() and not connection.is_in_transaction()
    except asyncpg.InterfaceError:
        return False


async def _reset(connection: Any) -> None:
    """Prepare a connection for the next command: no command leaves more behind than a transaction that it broke off."""
    if connection.is_in_transaction():
        await connection.reset()


def _raise_ours(error: BaseException) -> None:
    """Raise our error for one that says that the database cannot be used at the moment, and nothing for others."""
    if isinstance(error, asyncpg.DiskFullError):
        raise StoreFull("The database's disk is full") from error
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        raise StoreRefused(f"PostgreSQL: {error}: grant the user what accord needs") from error
    unsent = isinstance(error, asyncpg.InterfaceError) and isinstance(error, ValueError)
    if unsent or isinstance(error, asyncpg.DataError):
        raise BadValue(f"PostgreSQL: {error}") from error
    if isinstance(error, asyncpg.LockNotAvailableError):  # only migrations wait no longer than they say
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
    asyncpg.OperatorInterventionError,  # shutdowns, crashes, a server that starts
    asyncpg.InsufficientResourcesError,  # connections, configured limits
    asyncpg.PostgresIOError,
    asyncpg.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # how a connection that was cut just now may show
)
_NO_CONNECTION = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Whatever goes wrong before a command runs: a wrong password, too, may be right again in a minute."""
