"""The PostgreSQL store: commands on a pool of connections, combined reads and LISTEN/NOTIFY.

An unreachable or silent server raises an error, never a hang. A lost connection is replaced with the next command.
Simultaneous reads of tasks by key share a statement. NOTIFY never runs inside a writing transaction: it takes a
database-wide lock until the commit. It needs a direct connection to the server, because a session-sharing pooler drops
LISTEN.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

import asyncpg

from accord.retries import RetryPolicy
from accord.storage.commands import tasks
from accord.storage.commands.tasks import StoredTask
from accord.storage.notifications import Carrier, Hear
from accord.storage.postgres.batch import BatchedCommand
from accord.storage.postgres.connections import Connections, LentConnection
from accord.storage.postgres.task_batches import BatchedCommands
from accord.storage.sql import SqlEngine, compile
from accord.storage.store import (
    RESTARTED,
    BadValue,
    Command,
    Row,
    StoreInterrupted,
    StoreRefused,
    StoreUnavailable,
    Tx,
    Value,
    refuse_nul,
)

CHANNEL = "accord"
NOTIFY_TIMEOUT_SECONDS = 5.0
"""Timeout for connecting and for one NOTIFY. After it the connection counts as lost."""


class PostgresSignals(Carrier):
    """Carries notifications through the database itself."""

    name = "postgresql"
    payload_bytes = 7_500  # NOTIFY carries less than 8,000

    def __init__(self, dsn: str, heard: Hear) -> None:
        """Connect to a database; see `Carrier`."""
        super().__init__(heard)
        self._dsn = dsn

    async def _talk(self) -> None:
        connection = await asyncpg.connect(
            self._dsn, timeout=NOTIFY_TIMEOUT_SECONDS, command_timeout=NOTIFY_TIMEOUT_SECONDS
        )
        try:
            connection.add_termination_listener(lambda _: self._wake.set())
            await connection.execute("SET synchronous_commit = off")  # a notification is not worth an fsync
            await connection.add_listener(CHANNEL, partial(self._receive, connection.get_server_pid()))
            self._is_up()
            while True:
                found = await self._next()
                for payload in found:
                    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
                if not found:
                    await connection.execute("SELECT 1")  # fails if the connection is lost
        finally:
            connection.terminate()

    def _receive(self, own: int, _connection: Any, sender: int, _channel: str, payload: object) -> None:
        if sender != own:  # local topics were handled before they were sent
            self._arrived(str(payload))


CONCURRENT_READS = 2
"""Maximum of concurrent reads. While the result of one is read, the server works on the next."""

MAX_TASKS = 256
"""Maximum of tasks per read."""

TaskKey = tuple[str, str]
Waiters = list["asyncio.Future[StoredTask | None]"]
Connect = Callable[[], AbstractAsyncContextManager[Any]]

_READ_TASKS = f"""SELECT found.* FROM unnest($1::text[], $2::text[]) AS wanted(tenant, id),
            LATERAL (SELECT task.tenant, {tasks.COLUMNS}
                     WHERE task.tenant = wanted.tenant AND task.id = wanted.id OFFSET 0) AS found"""
"""Reads each task by key. Without OFFSET the planner may read the whole table instead."""


class TaskReads:
    """Combines reads of tasks from one database."""

    def __init__(self, connect: Connect, transaction: Callable[[Any], Tx]) -> None:
        """Read on connections from `connect`. `transaction` wraps one for commands."""
        self._connect = connect
        self._transaction = transaction
        self._wanted: dict[TaskKey, Waiters] = {}
        self._workers: set[asyncio.Task[None]] = set()

    async def task(self, tenant: str, task_id: str) -> StoredTask | None:
        """Return a task's snapshot and the later events; raises TornRead."""
        refuse_nul((tenant, task_id))
        try:  # in a combined read this error would fail every task
            (tenant + task_id).encode()
        except UnicodeEncodeError as error:
            raise BadValue(f"PostgreSQL: {error}") from error
        done: asyncio.Future[StoredTask | None] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault((tenant, task_id), []).append(done)
        if len(self._workers) < CONCURRENT_READS:
            self._workers.add(asyncio.create_task(self._work(), name="accord-reads"))
        return await done

    async def close(self) -> None:
        """Fail all waiting reads."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        left, self._wanted = self._wanted, {}
        _fail_waiters(left, StoreUnavailable("The store was closed"))

    async def _work(self) -> None:
        try:
            while self._wanted:
                taken = {key: self._wanted.pop(key) for key in list(self._wanted)[:MAX_TASKS]}
                await self._answer(taken)
        finally:  # a callback would run later, and reads arriving until then would wait for a finished worker
            self._workers.discard(asyncio.current_task())

    async def _answer(self, taken: dict[TaskKey, Waiters]) -> None:
        try:
            await self._look(taken)
        except Exception as error:  # it is raised in the waiting callers
            _fail_waiters(taken, error)
        except BaseException:
            _fail_waiters(taken, StoreUnavailable("The store was closed"))
            raise

    async def _look(self, taken: dict[TaskKey, Waiters]) -> None:
        async with self._connect() as connection:
            tenants, ids = zip(*taken, strict=True)
            rows: Sequence[Row] = await connection.fetch(_READ_TASKS, tenants, ids)
            found = {(row[0], row[1]): tuple(row)[1:] for row in rows}
            for key, waiting in taken.items():
                row = found.get(key)
                try:
                    stored = None if row is None else await self._whole(connection, key, row)
                except tasks.TornRead as error:
                    _fail_waiters({key: waiting}, error)
                    continue
                for done in waiting:
                    if not done.done():
                        done.set_result(stored)

    async def _whole(self, connection: Any, key: TaskKey, row: Row) -> StoredTask | None:
        """Return a task. Events after its snapshot are read separately, with the task's state at that time."""
        if not tasks.count_events_after_snapshot(row):
            return tasks.stored_task(row)
        return await tasks.read_task(self._transaction(connection), *key)


def _fail_waiters(taken: dict[TaskKey, Waiters], error: Exception) -> None:
    for waiting in taken.values():
        for done in waiting:
            if not done.done():
                done.set_exception(error)


P = ParamSpec("P")
T = TypeVar("T")

OLDEST = 15
"""The oldest PostgreSQL major version that the tests cover."""

LOCKED_SECONDS = 3_600.0
"""Statement timeout after an advisory lock was taken. Migrations wait for each other and may rewrite large tables."""

RETRIES = RetryPolicy(first_seconds=0.02, attempts=6, jitter=(1.0, 1.0))
"""Attempts of a command that lost a deadlock or a serialization race, or that the server interrupted.

The first retry is immediate.
"""

log = logging.getLogger("accord.postgres")


class PostgresTx:
    """A transaction on one connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._seconds: float | None = None  # the pool's timeout
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
        """Run a statement and return the number of changed rows."""
        text, arguments = _bound(sql, values)
        status: str = await self._connection.execute(text, *arguments, timeout=self._seconds)
        count = status.rpartition(" ")[2]
        return int(count) if count.isdigit() else 0

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]], /) -> None:
        """Run a statement once per row of values, in one round trip."""
        statement = compile(sql, SqlEngine.POSTGRES)
        arguments = [statement.placed(row) for row in rows]
        await self._connection.executemany(statement.text, arguments, timeout=self._seconds)

    async def lock(self, number: int) -> None:
        """Acquire a lock, held until this transaction ends."""
        self._seconds = LOCKED_SECONDS
        await self._connection.execute("SELECT pg_advisory_xact_lock($1)", number, timeout=self._seconds)

    def signal(self, *topics: str) -> None:
        """Publish notifications once the transaction is committed."""
        self.topics.extend(topics)


def _bound(sql: str, values: dict[str, Value]) -> tuple[str, tuple[Value, ...]]:
    statement = compile(sql, SqlEngine.POSTGRES)
    return statement.text, statement.placed(values)


class PostgresStore:
    """One PostgreSQL database."""

    def __init__(self, dsn: str, publish: Callable[[list[str]], None] = lambda _: None, *, listen: bool = True) -> None:
        """Use a database. `publish` receives the notifications of all nodes. Without `listen` subscribers only poll."""
        self._signals = PostgresSignals(dsn, publish) if listen else None
        self._publish = self._signals.publish if self._signals else publish
        self._connections = Connections(dsn, partial(publish, [RESTARTED]))
        self._overrides = BatchedCommands(self._statement, self._transaction, self._publish)
        self._reads = TaskReads(self._connections.lend, PostgresTx)
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
        """Wait until notifications of other nodes arrive, if they are enabled."""
        if self._signals is not None:
            await self._signals.connected()

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction.

        Frequent commands share it with others that arrive at the same time.
        """
        return await self._do(self._overrides.get(command), command, *args, **kwargs)

    async def do_early(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction, shared with more commands than in `do`."""
        return await self._do(self._overrides.get(command, is_early=True), command, *args, **kwargs)

    async def _do(
        self, override: BatchedCommand | None, command: Command[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        done = None if override is None else override.put(*args, **kwargs)
        written = None if done is None else await done
        if written is None:
            return await self._alone(command, *args, **kwargs)
        result: T = written.result
        return result

    async def _alone(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in its own transaction."""
        return await _with_retries(lambda: self._attempt(command, *args, **kwargs))

    async def _attempt(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        async with self._transaction() as connection:
            tx = PostgresTx(connection)
            result = await command(tx, *args, **kwargs)
        if tx.topics:
            self._publish(tx.topics)
        return result

    async def read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read-only command on one consistent snapshot."""
        return await _with_retries(lambda: self._attempt_read(command, *args, **kwargs))

    async def _attempt_read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        looking = self._looking.get(command)  # it needs no transaction, which saves two round trips
        if looking is not None:
            with suppress(tasks.TornRead):
                found: T = await looking(*args, **kwargs)
                return found
        async with self._connections.transaction(isolation="repeatable_read", readonly=True) as connection:
            return await command(PostgresTx(connection), *args, **kwargs)

    async def close(self) -> None:
        """Finish accepted commands and close all connections."""
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

    def _statement(self) -> LentConnection:
        """Lend a connection for one statement in autocommit mode."""
        self.commits += 1
        return self._connections.lend()


async def _with_retries(attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry after a lost race or an interruption. Both were rolled back."""
    failures = 0
    while True:
        try:
            return await attempt()
        except (*_RACES, StoreInterrupted) as error:
            failures += 1
            is_race = isinstance(error, _RACES)
            if RETRIES.is_exhausted(failures):
                raise StoreInterrupted(f"PostgreSQL: {error}") if is_race else error from error
            if is_race:
                log.info("store.race_lost", extra={"reason": str(error)})
            else:
                log.warning("store.command_interrupted", extra={"reason": str(error)})
                await asyncio.sleep(RETRIES.delay(failures - 1) if failures > 1 else 0)


_RACES = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.InvalidCachedStatementError)
"""Errors that a second attempt solves. The last one is caused by a concurrent migration."""
