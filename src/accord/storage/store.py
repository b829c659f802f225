"""The narrow waist: what a command may do, and what a store promises.

A command is `async def command(tx, ...)` that awaits nothing but `tx.one`, `tx.all` and `tx.run`. It is written once
and runs on every engine; a driver decides how. Signals are lossy hints: correctness never depends on one.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

Row = tuple[Any, ...]
Value = str | int | bytes | None
P = ParamSpec("P")
T = TypeVar("T")


class Tx(Protocol):
    """One transaction, as a command sees it."""

    async def one(self, sql: str, /, **values: Value) -> Row | None:
        """Run a statement and return its first row."""

    async def all(self, sql: str, /, **values: Value) -> list[Row]:
        """Run a statement and return its rows."""

    async def run(self, sql: str, /, **values: Value) -> int:
        """Run a statement and return how many rows it changed."""

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]], /) -> None:
        """Run a statement once for each row of values."""

    async def lock(self, number: int) -> None:
        """Wait until no other transaction holds this lock, and hold it until the end of this one."""

    def signal(self, *topics: str) -> None:
        """Publish hints once the transaction is committed."""


Command = Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]]


ARRIVALS = 20
"""Turns of the loop in which requests that arrive together are read. Tasks are accepted once these are over: one that
went ahead would take the processor from those that are still being read, and hold all others up behind it."""

FEW_ARRIVALS = 10
"""The same for those whose callers hear of them at once: of many, the first need not wait for the last."""


RESTARTED = "store:restarted"
"""The topic of hints that the database may have lost what it acknowledged: its server was restarted, promoted or
restored. What the node remembers must be compared with what the database has."""


class Store(Protocol):
    """A place where commands run."""

    async def do(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command in one durable transaction."""

    async def do_early(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command that nobody is told of before a later one is done.

        It is in a transaction that outlives this process, and may be durable a little later: with the next that is.
        """

    async def read(self, command: Command[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a command that only reads, on one consistent snapshot."""

    async def close(self) -> None:
        """Finish what was accepted and let go of everything."""


class StoreUnavailable(Exception):
    """The database cannot be reached or refuses to write at the moment.

    Nothing was committed, unless the connection broke during the commit itself: then nobody can know.
    """


class StoreFull(StoreUnavailable):
    """There is no room left on the disk; nothing was committed."""


class StoreInterrupted(StoreUnavailable):
    """The server ended a statement that was not at fault: an administrator, a time limit or a lost race.

    The transaction is rolled back. The same command may pass the next time.
    """


class StoreRefused(Exception):
    """The store must not be used as it is; the message says why and what to do, waiting does not help."""


class NotACommand(TypeError):
    """A command awaited something that is not its transaction."""


class BadValue(ValueError):
    """A value that not every engine can keep: text with a NUL or half a surrogate pair, a number beyond 64 bits."""


def refuse_nul(values: Iterable[Value]) -> None:
    """Refuse text with a NUL: PostgreSQL cannot keep it, and SQLite keeps it but does not see past it everywhere."""
    for value in values:  # a plain loop: every parameter of every statement passes here
        if type(value) is str and "\0" in value:
            raise BadValue("Text with a NUL character cannot be kept")
