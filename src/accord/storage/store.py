"""Interfaces of a store and of the transactions in which commands run.

A command is `async def command(tx, ...)` that awaits only `tx.one`, `tx.all` and `tx.run`. It is written once and runs
on every engine through a driver. Notifications are lossy: correctness never depends on one.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Row = tuple[Any, ...]
Value = str | int | bytes | None
P = ParamSpec("P")
T = TypeVar("T")


class Tx(Protocol):
    """The transaction of a command."""

    async def one(self, sql: str, /, **values: Value) -> Row | None:
        """Run a statement and return its first row."""

    async def all(self, sql: str, /, **values: Value) -> list[Row]:
        """Run a statement and return its rows."""

    async def run(self, sql: str, /, **values: Value) -> int:
        """Run a statement and return the number of changed rows."""

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]], /) -> None:
        """Run a statement once per row of values."""

    async def lock(self, number: int) -> None:
        """Acquire a lock, held until this transaction ends."""

    def signal(self, *topics: str) -> None:
        """Publish notifications once the transaction is committed."""


Command = Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]]


ARRIVALS = 20
"""Loop turns in which simultaneous requests are read before tasks are accepted.

A task accepted earlier would take the processor from requests that are still being read, and delay all of them.
"""

FEW_ARRIVALS = 10
"""Loop turns to wait for other commands whose callers get the result at once.

Of many, the first need not wait for the last.
"""


RESTARTED = "store:restarted"
"""Topic published when the database may have lost acknowledged writes.

Its server was restarted, promoted or restored. The node must compare its memory with the database.
"""


class Store(Protocol):
    """Runs commands durably."""

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction."""

    async def do_early(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command whose result stays private until a later command is durable.

        Its transaction survives this process. It may become durable later, with the next durable command.
        """

    async def read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a read-only command on one consistent snapshot."""

    async def close(self) -> None:
        """Finish accepted commands and close all connections."""


class StoreUnavailable(Exception):
    """The database is unreachable or currently refuses to write.

    Nothing was committed. If the connection broke during the commit itself, the outcome is unknown.
    """


class StoreFull(StoreUnavailable):
    """The disk is full; nothing was committed."""


class StoreInterrupted(StoreUnavailable):
    """The server aborted a valid statement: an administrator, a time limit or a lost race.

    The transaction is rolled back. A retry may succeed.
    """


class StoreRefused(Exception):
    """The store must not be used in its current state.

    The message gives the reason and the fix. Waiting does not help.
    """


class NotACommand(TypeError):
    """A command awaited something other than its transaction."""


class BadValue(ValueError):
    """A value that some engine cannot store.

    Text with a NUL or half a surrogate pair, or a number beyond 64 bits.
    """


def refuse_nul(values: Iterable[Value]) -> None:
    """Refuse text with a NUL.

    PostgreSQL cannot store it. SQLite stores it, but some of its functions stop at the NUL.
    """
    for value in values:  # a plain loop: it runs for every parameter of every statement
        if type(value) is str and "\0" in value:
            raise BadValue("Text with a NUL character cannot be kept")
