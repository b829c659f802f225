"""The SQLite store: one writer thread with group commit, a few query-only readers, and backup."""

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple, ParamSpec, TypeVar

import apsw

from accord.storage import schema
from accord.storage.commands import task_lifecycle, tasks, workflow_runs
from accord.storage.sqlite.transaction import SqliteTx, run_coroutine, store_error
from accord.storage.sqlite.write_ahead_log import WriteAheadLog
from accord.storage.store import (
    ARRIVALS,
    FEW_ARRIVALS,
    Command,
    StoreRefused,
    StoreUnavailable,
)

P = ParamSpec("P")
T = TypeVar("T")

READERS = 3
"""Number of reader threads. Reads are short; more readers than cores only compete for the interpreter."""

QUICK: frozenset[Callable[..., Any]] = frozenset({tasks.read_task})
"""Reads by key that run on the loop, which takes less time than handing them to a thread.

They detect an inconsistent second read themselves, and so need no transaction.
"""

MAX_BATCH = 512
"""Maximum of commands per commit: enough to hide the fsync, few enough for a short wait."""

CACHE_KIB = 16 * 1024
"""Page cache of each connection: the ends of all indexes, where almost every access is, and more."""

BUSY_MS = 10_000
"""How long to wait for another process that holds the file's write lock."""

WAITED_FOR: frozenset[Callable[..., Any]] = frozenset(
    {task_lifecycle.accept_task, task_lifecycle.settle_execution, workflow_runs.write_journal}
)
"""Commands that a caller of a single send waits for, or an execution before each step.

Chunks of a stream are excluded: more follow, and they would wait for the loop.
"""

QUICK_SECONDS = 0.002
"""Commit time of a quick disk, for which the loop may wait. Waking a thread takes half as long."""

UNKNOWN_SECONDS = 0.01
"""Assumed commit time of a disk before the first measurement."""

SOON_SECONDS = 0.01
"""Maximum delay between the write of an early command and its sync to disk."""

AGAIN_SECONDS = 1.0
"""Delay before the retry of a failed sync."""

NEWS = 0.1
"""Weight of the latest commit in the moving average, so that one slow commit changes little."""

MOST_HERE = 32
"""Maximum of commands that the loop commits at once. More would block it for too long."""


class QueuedCommand(NamedTuple):
    """A command in the writer's queue and its future. With `is_early` it completes before it is synced to disk."""

    start: Callable[[SqliteTx], Coroutine[Any, Any, Any]]
    done: "asyncio.Future[Any]"
    loop: asyncio.AbstractEventLoop
    is_waited_for: bool = False
    is_early: bool = False


class CommandOutcome(NamedTuple):
    """The outcome of a command."""

    waiting: QueuedCommand
    result: Any
    error: BaseException | None
    topics: list[str]


class SqliteStore:
    """One SQLite file, or a database in memory."""

    def __init__(
        self, path: Path | None, publish: Callable[[list[str]], None] = lambda _: None, *, read_only: bool = False
    ) -> None:
        """Open the file, or a database in memory. `publish` receives the topics of committed commands, on the loop.

        With `read_only` the file must exist and is not modified, including its journal mode.
        """
        self._path = path
        self._publish = publish
        self._read_only = read_only
        self.commits = 0
        self._gate = threading.Lock()
        self._closed = False
        self._may_read = threading.Event()
        self._may_read.set()
        self._said: dict[asyncio.AbstractEventLoop, list[QueuedCommand]] = {}
        self._handed_over = 0
        self._usual = UNKNOWN_SECONDS
        self._watching: asyncio.AbstractEventLoop | None = None
        self._is_late = False
        self._untold: dict[asyncio.AbstractEventLoop, list[str]] = {}
        self._queue: queue.SimpleQueue[list[QueuedCommand] | None] = queue.SimpleQueue()
        self._writer = self._open(writes=not read_only)
        self._log = WriteAheadLog(path, self._writer, self._may_read)
        self._readers: queue.SimpleQueue[apsw.Connection] = queue.SimpleQueue()
        for _ in range(READERS if path else 0):
            self._readers.put(self._open(writes=False))
        self._nearest = self._open(writes=False) if path else self._writer
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="accord-sqlite-read")
        self._thread = threading.Thread(target=self._work, name="accord-sqlite", daemon=True)
        self._thread.start()

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction."""
        return await self._asked(lambda tx: command(tx, *args, **kwargs), command, is_early=False)

    async def do_early(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one transaction that survives the process.

        It is synced with the next commit or shortly after.
        """
        return await self._asked(lambda tx: command(tx, *args, **kwargs), command, is_early=True)

    def _asked(
        self, start: Callable[[SqliteTx], Coroutine[Any, Any, T]], command: Callable[..., Any], *, is_early: bool
    ) -> "asyncio.Future[T]":
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        with self._gate:
            self._refuse_when_closed()
            said = self._said.get(loop)
            if said is None:
                said = self._said[loop] = []
                turns = 0 if command is not task_lifecycle.accept_task else ARRIVALS if is_early else FEW_ARRIVALS
                loop.call_soon(self._hand_over, loop, 0, turns)
            said.append(QueuedCommand(start, done, loop, command in WAITED_FOR, is_early))
        return done

    def _hand_over(self, loop: asyncio.AbstractEventLoop, seen: int, turns: int) -> None:
        """Pass queued commands to the writer once no more arrive in a loop turn.

        So they share a commit. Commands that callers wait for are committed on the loop if the disk is quick and the
        writer is idle.
        """
        outcomes = None
        with self._gate:
            if not (said := self._said.get(loop)):
                return
            if len(said) > seen and turns:
                loop.call_soon(self._hand_over, loop, len(said), turns - 1)
                return
            del self._said[loop]
            if not self._handed_over and self._usual < QUICK_SECONDS and _is_for_here(said):
                outcomes = self._commit_here(said)
            if outcomes is None or self._log.is_long:
                self._handed_over += 1
                self._queue.put(said if outcomes is None else [])
            if self._log.early_since is not None and self._watching is None:
                self._watching = loop
                loop.call_later(SOON_SECONDS, self._watch, loop)
        if outcomes is not None:
            self._deliver(outcomes)

    def _commit_here(self, said: list[QueuedCommand]) -> list[CommandOutcome] | None:
        """Commit on the loop if the write lock is free. Return None if another process is writing."""
        self._writer.set_busy_timeout(0)
        try:
            self._begin(syncs=not all(waiting.is_early for waiting in said))
        except apsw.BusyError:
            return None
        except apsw.Error as error:
            return _failed(said, error)
        finally:
            self._writer.set_busy_timeout(BUSY_MS)
        return self._commit(said)

    async def read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read-only command on one consistent snapshot."""
        if self._path is None:
            return await self.do(command, *args, **kwargs)
        if command in QUICK and self._may_read.is_set():
            with self._gate:
                self._refuse_when_closed()
                return _looked(self._nearest, lambda tx: command(tx, *args, **kwargs))
        loop = asyncio.get_running_loop()
        with self._gate:
            self._refuse_when_closed()
            done = loop.run_in_executor(self._threads, self._read, lambda tx: command(tx, *args, **kwargs))
        return await done

    async def close(self) -> None:
        """Finish accepted commands and close all connections."""
        with self._gate:
            self._closed = True
            for loop in list(self._said):
                self._handed_over += 1
                self._queue.put(self._said.pop(loop))
        await asyncio.to_thread(self._finish)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store is closed")

    def _finish(self) -> None:
        """Close the readers first. The last connection checkpoints the file, which only the writer may do."""
        self._threads.shutdown()
        while not self._readers.empty():
            self._readers.get().close()
        if self._path is not None:
            self._nearest.close()
        self._queue.put(None)
        self._thread.join()

    # --- the writer thread: startup, loop, shutdown ---------------------------------------------------------------

    def _work(self) -> None:
        while turns := self._next_turns():
            if batch := [waiting for turn in turns for waiting in turn]:
                self._resolve(self._commit(batch))
            self._log.move(BUSY_MS)
            self._sync_late()
            with self._gate:
                self._handed_over -= len(turns)
        self._log.sync_early()
        self._writer.close()

    def _next_turns(self) -> list[list[QueuedCommand]]:
        """Wait for a turn's commands, and take other queued turns. An empty list ends the thread.

        A turn without commands only requests a check of the log.
        """
        turns: list[list[QueuedCommand]] = []
        commands = 0
        while not turns or (commands < MAX_BATCH and not self._queue.empty()):
            turn = self._queue.get()
            if turn is None:
                if turns:
                    self._queue.put(None)
                break
            turns.append(turn)
            commands += len(turn)
        return turns

    def _commit(self, batch: list[QueuedCommand]) -> list[CommandOutcome]:
        """Run all commands and commit them together. If one fails, all run again with separate outcomes."""
        try:
            return self._transact(self._run, batch)
        except BaseException as error:  # all errors are raised in the waiting callers: this thread must continue
            if not self._roll_back() or len(batch) == 1:
                return _failed(batch, error)
        try:
            return self._transact(self._attempt, batch)
        except BaseException as error:  # likewise
            self._roll_back()
            return _failed(batch, error)

    def _transact(
        self, run: Callable[[QueuedCommand], CommandOutcome], batch: list[QueuedCommand]
    ) -> list[CommandOutcome]:
        if not self._writer.in_transaction:
            self._begin()
        outcomes = [run(waiting) for waiting in batch]
        start = perf_counter()
        self._writer.execute("COMMIT")
        if self._log.syncs:
            self._usual += NEWS * (perf_counter() - start - self._usual)
            if self._log.early_since is not None:  # this wrote nothing, but may have read unsynced changes
                self._log.sync()
        self.commits += 1
        return outcomes

    def _begin(self, *, syncs: bool = True) -> None:
        """Begin a transaction. `syncs` selects whether its commit is fsynced."""
        self._log.sync_commits(syncs)
        self._writer.execute("BEGIN IMMEDIATE")

    def _run(self, waiting: QueuedCommand) -> CommandOutcome:
        tx = SqliteTx(self._writer)
        try:
            return CommandOutcome(waiting, run_coroutine(waiting.start(tx)), None, tx.topics)
        except BaseException as error:
            if self._writer.in_transaction or isinstance(error, apsw.Error):
                raise
            raise StoreUnavailable("SQLite rolled the transaction back") from error  # disk full, I/O error

    def _attempt(self, waiting: QueuedCommand) -> CommandOutcome:
        """Run a command in a savepoint, so that others survive its failure.

        That costs two more statements, and few commands fail.
        """
        self._writer.execute("SAVEPOINT command")
        try:
            outcome = self._run(waiting)
        except BaseException as error:  # it is raised in the waiting caller
            if not self._writer.in_transaction:
                raise
            self._writer.execute("ROLLBACK TO command")
            outcome = CommandOutcome(waiting, None, store_error(error), [])
        self._writer.execute("RELEASE command")
        return outcome

    def _roll_back(self) -> bool:
        """Roll back uncommitted changes. Return false without an open transaction."""
        if not self._writer.in_transaction:
            return False
        with suppress(apsw.Error):
            self._writer.execute("ROLLBACK")
        return True

    def _resolve(self, outcomes: list[CommandOutcome]) -> None:
        """Pass each outcome to the loop that waits for it, in one call per loop."""
        loops: dict[asyncio.AbstractEventLoop, list[CommandOutcome]] = {}
        for outcome in outcomes:
            loops.setdefault(outcome.waiting.loop, []).append(outcome)
        for loop, found in loops.items():
            with suppress(RuntimeError):  # the loop was closed, with all its callers
                loop.call_soon_threadsafe(self._deliver, found)

    def _deliver(self, outcomes: list[CommandOutcome]) -> None:
        for outcome in outcomes:
            done = outcome.waiting.done
            if done.done():
                continue  # its caller was canceled; the command is committed anyway
            if outcome.error is None:
                done.set_result(outcome.result)
            else:
                done.set_exception(outcome.error)
        self._tell(outcomes[0].waiting.loop, outcomes)

    def _tell(self, loop: asyncio.AbstractEventLoop, outcomes: Sequence[CommandOutcome] = ()) -> None:
        """Publish the topics of synced commands, and keep those of unsynced ones."""
        topics: list[str] = []
        early: list[str] = []
        for outcome in outcomes:
            (early if outcome.waiting.is_early else topics).extend(outcome.topics)
        if self._log.early_since is None:
            topics += self._untold.pop(loop, []) + early
        elif early:
            self._untold.setdefault(loop, []).extend(early)
        if topics:
            self._publish(topics)

    # --- sync of early commands -----------------------------------------------------------------------------------

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the writer sync early commands after a delay, unless a later commit has.

        The writer then calls this again.
        """
        with self._gate:
            since = None if self._closed else self._log.early_since
            if since is None:
                self._watching = None
            elif (left := since + SOON_SECONDS - perf_counter()) > 0:
                loop.call_later(left, self._watch, loop)
            else:
                self._is_late = True
                self._handed_over += 1
                self._queue.put([])
        if since is None:
            self._tell(loop)

    def _sync_late(self) -> None:
        """Sync overdue early commands, in the writer's thread."""
        if not self._is_late or (loop := self._watching) is None:
            return
        self._is_late = False
        again = 0.0 if self._log.sync_early() else AGAIN_SECONDS
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(loop.call_later, again, self._watch, loop)

    # --- readers --------------------------------------------------------------------------------------------------

    def _read(self, start: Callable[[SqliteTx], Coroutine[Any, Any, T]]) -> T:
        self._may_read.wait()
        connection = self._readers.get()  # never blocks: one per thread
        try:
            return _snapshot(connection, start)
        finally:
            self._readers.put(connection)

    def _open(self, *, writes: bool) -> apsw.Connection:
        # SQLite's own read-only mode would leave log files behind. `query_only` removes them.
        flags = apsw.SQLITE_OPEN_READWRITE | (0 if self._read_only else apsw.SQLITE_OPEN_CREATE)
        try:
            connection = apsw.Connection(":memory:" if self._path is None else str(self._path), flags=flags)
            connection.set_busy_timeout(BUSY_MS)
            if self._path is not None and not self._read_only:
                if writes:
                    _refuse_foreign(connection)
                _use_log(connection)
            connection.pragma("foreign_keys", 1)
            connection.pragma("temp_store", "memory")  # the undo data of savepoints would go to files
            connection.pragma("cache_size", -CACHE_KIB)
            if not writes:
                connection.pragma("query_only", 1)
        except (apsw.CantOpenError, apsw.ReadOnlyError) as error:
            remedy = "see that its directory is there, and that this user may write to both"
            raise StoreUnavailable(f"SQLite cannot open {self._path}: {error}; {remedy}") from error
        except apsw.Error as error:
            raise store_error(error, self._path) from error
        except schema.ForeignDatabase as error:
            raise schema.ForeignDatabase(f"{self._path}: {error}") from None
        return connection


def _is_for_here(said: list[QueuedCommand]) -> bool:
    """Whether the loop may commit these commands: few, and all awaited by callers."""
    if len(said) > MOST_HERE:
        return False
    for waiting in said:  # noqa: SIM110  # every command passes here, and `all` takes twice as long
        if not waiting.is_waited_for:
            return False
    return True


def _failed(batch: list[QueuedCommand], error: BaseException) -> list[CommandOutcome]:
    return [CommandOutcome(waiting, None, store_error(error), []) for waiting in batch]


def _looked(connection: apsw.Connection, start: Callable[[SqliteTx], Coroutine[Any, Any, T]]) -> T:
    """Run a command that detects changes between two reads. After a change it runs again on one snapshot."""
    try:
        return run_coroutine(start(SqliteTx(connection)))
    except tasks.TornRead:
        return _snapshot(connection, start)
    except apsw.Error as error:
        raise store_error(error) from error


def _snapshot(connection: apsw.Connection, start: Callable[[SqliteTx], Coroutine[Any, Any, T]]) -> T:
    """Run a read-only command on a snapshot of the file."""
    try:
        connection.execute("BEGIN")
        try:
            return run_coroutine(start(SqliteTx(connection)))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
    except apsw.Error as error:
        raise store_error(error) from error


def _refuse_foreign(connection: apsw.Connection) -> None:
    """Refuse another program's file before any write to it, including its journal mode."""
    try:
        run_coroutine(schema.schema_version(SqliteTx(connection)))
    except schema.ForeignDatabase:
        connection.close()
        raise


def _use_log(connection: apsw.Connection) -> None:
    """Enable the write-ahead log, and make every commit durable."""
    if connection.pragma("journal_mode", "wal") != "wal":
        raise StoreRefused("SQLite cannot keep a write-ahead log here: choose a file on a local disk")
    connection.pragma("synchronous", "full")


def back_up(source: Path, target: Path) -> int:
    """Write a copy readable only by its owner, and return its size. An existing file is not replaced."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StoreRefused(f"{target} is there already: name a file that is not") from None
    try:
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(BUSY_MS)
            connection.execute("VACUUM INTO ?", (str(target),))
        finally:
            connection.close()
    except apsw.Error as error:
        target.unlink()
        raise StoreUnavailable(f"{source} cannot be copied: {error}") from error
    return target.stat().st_size
