"""The SQLite driver: one writer thread with group commit, a few query-only readers.

Commands are coroutines whose awaits never suspend, so the writer thread drives them synchronously: no hop per
statement, and everything that arrived during one commit shares the next. Every commit is fsynced before it is
acknowledged. apsw brings its own SQLite, because the standard library's may have the WAL-reset bug (fixed in 3.51.3).
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

import apsw

from accord.storage.sql import Engine, compile
from accord.storage.store import Command, NotACommand, Row, StoreFull, StoreUnavailable, Value

P = ParamSpec("P")
T = TypeVar("T")

READERS = 3
"""Reads are short; more readers than cores only compete for the interpreter."""

MAX_BATCH = 512
"""Commands in one commit: enough to hide the fsync, few enough that nobody waits long behind them."""

BUSY_MS = 10_000
"""How long to wait for another process that holds the file's write lock."""


class Tx:
    """A transaction on one connection; its methods are coroutines that never suspend."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.topics: list[str] = []

    async def one(self, sql: str, /, **values: Value) -> Row | None:
        """Run a statement and return its first row."""
        rows = self._execute(sql, values).fetchall()
        return rows[0] if rows else None

    async def all(self, sql: str, /, **values: Value) -> list[Row]:
        """Run a statement and return its rows."""
        return self._execute(sql, values).fetchall()

    async def run(self, sql: str, /, **values: Value) -> int:
        """Run a statement and return how many rows it changed."""
        self._execute(sql, values).fetchall()
        return self._connection.changes()

    async def lock(self, number: int) -> None:
        """Do nothing: whoever writes to SQLite holds the whole file."""

    def signal(self, *topics: str) -> None:
        """Publish hints once the transaction is committed."""
        self.topics.extend(topics)

    def _execute(self, sql: str, values: dict[str, Value]) -> apsw.Cursor:
        return self._connection.execute(compile(sql, Engine.SQLITE).text, values)


class Waiting(NamedTuple):
    """A command in the writer's queue, and who waits for it."""

    start: Callable[[Tx], Coroutine[Any, Any, Any]]
    done: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop


class Outcome(NamedTuple):
    """What became of a command."""

    waiting: Waiting
    result: Any
    error: BaseException | None
    topics: list[str]


class SqliteStore:
    """One SQLite file, or memory."""

    def __init__(self, path: Path | None, publish: Callable[[list[str]], None] = lambda _: None) -> None:
        """Open the file, or a database in memory; `publish` gets the hints of committed commands, on the loop."""
        self._path = path
        self._publish = publish
        self.commits = 0
        self._uri = f"file:{path}" if path else f"file:accord-{id(self)}?mode=memory&cache=shared"
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._writer = self._open(writes=True)
        self._readers: queue.LifoQueue[apsw.Connection] = queue.LifoQueue()
        for _ in range(READERS if path else 0):
            self._readers.put(self._open(writes=False))
        self._thread = threading.Thread(target=self._work, name="accord-sqlite", daemon=True)
        self._thread.start()

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._queue.put(Waiting(lambda tx: command(tx, *args, **kwargs), done, loop))
        return await done

    async def read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command that only reads, on one consistent snapshot."""
        if self._path is None:
            return await self.do(command, *args, **kwargs)
        return await asyncio.to_thread(self._read, lambda tx: command(tx, *args, **kwargs))

    async def close(self) -> None:
        """Finish what was accepted and let go of everything."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        while not self._readers.empty():
            self._readers.get_nowait().close()

    # --- the writer thread: startup, loop, shutdown ---------------------------------------------------------------

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            self._resolve(self._commit(batch))
        self._writer.close()

    def _next_batch(self) -> list[Waiting] | None:
        """Wait for a command and take whatever else has arrived; None ends the thread."""
        first = self._queue.get()
        if first is None:
            return None
        batch = [first]
        while len(batch) < MAX_BATCH and not self._queue.empty():
            following = self._queue.get()
            if following is None:
                self._queue.put(None)
                break
            batch.append(following)
        return batch

    def _commit(self, batch: list[Waiting]) -> list[Outcome]:
        """Run every command under a savepoint of its own, then commit them together."""
        outcomes: list[Outcome] = []
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            outcomes = [self._attempt(waiting) for waiting in batch]
            self._writer.execute("COMMIT")
            self.commits += 1
        except apsw.Error as error:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
            return [Outcome(waiting, None, translated(error), []) for waiting in batch]
        return outcomes

    def _attempt(self, waiting: Waiting) -> Outcome:
        tx = Tx(self._writer)
        self._writer.execute("SAVEPOINT command")
        try:
            result = drive(waiting.start(tx))
        except BaseException as error:  # it belongs to whoever awaits the command
            if not self._writer.in_transaction:
                raise  # SQLite rolled everything back by itself (disk full, I/O error): the whole batch fails
            self._writer.execute("ROLLBACK TO command")
            self._writer.execute("RELEASE command")
            return Outcome(waiting, None, translated(error) if isinstance(error, apsw.Error) else error, [])
        self._writer.execute("RELEASE command")
        return Outcome(waiting, result, None, tx.topics)

    def _resolve(self, outcomes: list[Outcome]) -> None:
        """Hand every outcome to the loop that waits for it, in one call per loop."""
        loops: dict[asyncio.AbstractEventLoop, list[Outcome]] = {}
        for outcome in outcomes:
            loops.setdefault(outcome.waiting.loop, []).append(outcome)
        for loop, found in loops.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._deliver, found)

    def _deliver(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            done = outcome.waiting.done
            if done.done():
                continue  # whoever waited gave up; the command is committed all the same
            if outcome.error is None:
                done.set_result(outcome.result)
            else:
                done.set_exception(outcome.error)
        topics = [topic for outcome in outcomes for topic in outcome.topics]
        if topics:
            self._publish(topics)

    # --- readers --------------------------------------------------------------------------------------------------

    def _read(self, start: Callable[[Tx], Coroutine[Any, Any, T]]) -> T:
        connection = self._readers.get()
        try:
            connection.execute("BEGIN")
            try:
                return drive(start(Tx(connection)))
            finally:
                connection.execute("COMMIT")
        except apsw.Error as error:
            raise translated(error) from error
        finally:
            self._readers.put(connection)

    def _open(self, *, writes: bool) -> apsw.Connection:
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_URI
        try:
            connection = apsw.Connection(self._uri, flags=flags)
            connection.set_busy_timeout(BUSY_MS)
            if self._path is not None:
                connection.pragma("journal_mode", "wal")
                connection.pragma("synchronous", "full")
            connection.pragma("foreign_keys", 1)
            if not writes:
                connection.pragma("query_only", 1)
        except apsw.Error as error:
            raise translated(error) from error
        return connection


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends; one that does is no command."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise NotACommand("A command may await nothing but its transaction")


def translated(error: BaseException) -> BaseException:
    """Return our error for one of SQLite's that says the store cannot be used at the moment."""
    if isinstance(error, apsw.FullError):
        return StoreFull("The disk is full")
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.IOError | apsw.CantOpenError | apsw.ReadOnlyError):
        return StoreUnavailable(f"SQLite: {error}")
    return error
