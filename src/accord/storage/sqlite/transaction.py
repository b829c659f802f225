"""A SQLite transaction for commands, and the mapping of SQLite's errors to the store's own."""

from collections.abc import Coroutine, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import apsw

from accord.storage.sql import SqlEngine, compile
from accord.storage.store import (
    BadValue,
    NotACommand,
    Row,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    Value,
    refuse_nul,
)

T = TypeVar("T")


class SqliteTx:
    """A transaction on one connection. Its methods are coroutines that never suspend."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self.topics: list[str] = []

    async def one(self, sql: str, /, **values: Value) -> Row | None:
        """Run a statement and return its first row."""
        rows = self._execute(sql, values).fetchall()
        return rows[0] if rows else None

    async def all(self, sql: str, /, **values: Value) -> list[Row]:
        """Run a statement and return its rows."""
        return self._execute(sql, values).fetchall()

    async def run(self, sql: str, /, **values: Value) -> int:
        """Run a statement and return the number of changed rows."""
        self._execute(sql, values).fetchall()
        return self._connection.changes()

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]], /) -> None:
        """Run a statement once per row of values."""
        text, placed = compile(sql, SqlEngine.SQLITE)
        given = [placed(row) for row in rows]
        refuse_nul(chain.from_iterable(given))
        try:
            self._cursor.executemany(text, given)
        except (UnicodeEncodeError, OverflowError) as error:
            raise BadValue(f"SQLite: {error}") from error

    async def lock(self, number: int) -> None:
        """Do nothing: a SQLite writer holds the whole file."""

    def signal(self, *topics: str) -> None:
        """Publish notifications once the transaction is committed."""
        self.topics.extend(topics)

    def _execute(self, sql: str, values: Mapping[str, Value]) -> apsw.Cursor:
        text, placed = compile(sql, SqlEngine.SQLITE)
        given = placed(values)  # by position: SQLite would take twice the time to look up names
        refuse_nul(given)
        try:
            return self._cursor.execute(text, given)
        except (UnicodeEncodeError, OverflowError) as error:
            raise BadValue(f"SQLite: {error}") from error


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends; raises NotACommand otherwise."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise NotACommand("A command may await nothing but its transaction")


def store_error(error: BaseException, path: Path | None = None) -> BaseException:
    """Return the store's error for a SQLite error that makes the store unusable; other errors unchanged."""
    if isinstance(error, apsw.FullError):
        return StoreFull("The disk is full")
    if isinstance(error, apsw.NotADBError | apsw.CorruptError):
        return StoreRefused(f"{path or 'The file'} is no SQLite database, or damaged: {error}")
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.IOError | apsw.CantOpenError | apsw.ReadOnlyError):
        return StoreUnavailable(f"SQLite: {error}")
    return error
