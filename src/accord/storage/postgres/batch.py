"""Group commit for PostgreSQL: commands that arrive during one transaction share the next.

What a batch does not do runs alone, as the portable command in a transaction of its own: an item that it found no rows
for, and every item of a batch that the server refused. So results and exceptions are those of the portable command. The
rows of a batch are one text parameter with a line for each, which the server cuts: an array for each column costs this
side a fifth more, because asyncpg looks at every member.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple, get_args, get_type_hints

import asyncpg
from msgspec import Struct

from accord.storage.sql import SqlEngine, compile
from accord.storage.store import BadValue, StoreInterrupted, StoreUnavailable, Value

MAX_ITEMS = 512
"""Commands in one transaction: enough to hide the fsync, few enough that nobody waits long behind them."""

FEW_ITEMS = 16
"""Commands that are worth a transaction: of more, half go with a second one, so that one is under way while the answers
to the other are read."""

CONCURRENT_TRANSACTIONS = 2
"""Transactions under way at a time: while the server writes one to its disk, the next is prepared and sent."""

MAX_CHARACTERS = 4_000_000
"""Text in one transaction, give or take an item: it is held several times over while it is sent."""

CLOSE_SECONDS = 15.0
"""How long closing waits for what was accepted."""

log = logging.getLogger("accord.postgres")


class BatchItem(Struct, frozen=True):
    """One command, ready to be written with others.

    No two items of a batch share any of the `keys`. What is written is `line`, which is `row` as text, and the lines of
    its `entries` and `notes`; `result` and `topics` are returned and published for it, unless writing finds out better.
    """

    keys: tuple[Hashable, ...]
    row: Any
    line: str
    entries: Sequence[str] = ()
    result: Any = None
    topics: tuple[str, ...] = ()
    notes: Sequence[str] = ()

    def characters(self) -> int:
        """Return how much text there is to write."""
        return len(self.line) + sum(map(len, self.entries)) + sum(map(len, self.notes))


class WrittenItem(Struct, frozen=True):
    """What became of an item that was written."""

    result: Any
    topics: tuple[str, ...] = ()


Begin = Callable[[], AbstractAsyncContextManager[Any]]
"""Gives a connection, on which each statement is a transaction by itself or all together are one."""

Write = Callable[[Any, Sequence[BatchItem]], Awaitable[Mapping[int, WrittenItem]]]
"""Writes items on a connection and returns what became of each, by position; some it may leave out."""


class BatchStage(NamedTuple):
    """A way to write items that it takes: the next gets those that it leaves out, and what the last does runs alone."""

    begin: Begin
    write: Write
    takes: Callable[[BatchItem], bool] = lambda _: True
    is_statement: bool = False
    """Whether what it has written is committed at once: nobody waits until the connection is given back."""


class WaitingItem(Struct, frozen=True):
    """An item and who waits for it: None tells them to run it alone."""

    item: BatchItem
    done: "asyncio.Future[WrittenItem | None]"


class Batcher:
    """Writes what has gathered, a transaction while the one before it is being committed."""

    def __init__(self, stages: Sequence[BatchStage], publish: Callable[[list[str]], None], turns: int = 0) -> None:
        """Wait for so many turns of the loop, at most, until nobody else comes."""
        self._stages = stages
        self._publish = publish
        self._turns = turns
        self._gathered: list[WaitingItem] = []
        self._held: set[Hashable] = set()
        self._under_way = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._closed = False

    def put(self, item: BatchItem) -> "asyncio.Future[WrittenItem | None]":
        """Write an item together with others; what is returned becomes None if it has to run alone.

        Whoever stops waiting disturbs nobody: what is in a transaction by then is written, what is not is left out.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed")
        done: asyncio.Future[WrittenItem | None] = asyncio.get_running_loop().create_future()
        self._gathered.append(WaitingItem(item, done))
        # A second transaction begins once it is worth one: with half as much as the first, both stay of like size.
        if len(self._gathered) >= self._under_way // 2:
            self._begin()
        return done

    def _begin(self) -> None:
        if len(self._workers) < CONCURRENT_TRANSACTIONS:
            self._workers.add(asyncio.create_task(self._work(), name="accord-batch"))

    async def close(self) -> None:
        """Finish what was accepted, and accept no more."""
        self._closed = True
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=CLOSE_SECONDS)
            for worker in late:
                worker.cancel()

    async def _work(self) -> None:
        try:
            while batch := await self._next_calm():
                if self._gathered:
                    self._begin()
                await self._write(batch)
                await asyncio.sleep(0)  # whoever got an answer can come back with what is next
        finally:  # not by a callback: until that is called, whoever comes would wait for a worker that has ended
            self._workers.discard(asyncio.current_task())

    async def _next_calm(self) -> list[WaitingItem]:
        """Take what has gathered once nobody else comes: of many who come at once none goes ahead alone."""
        seen = 0
        for _ in range(self._turns):
            if len(self._gathered) <= seen:
                break
            seen = len(self._gathered)
            await asyncio.sleep(0)
        return self._next()

    async def _write(self, batch: list[WaitingItem]) -> None:
        left = batch
        try:
            for stage in self._stages:
                left = await self._through(stage, left)
            self._leave(left)
        except Exception as error:
            self._refuse(left, error)
        except BaseException:
            self._fail([*left, *self._gathered], StoreUnavailable("The store was closed"))
            raise
        finally:
            self._under_way -= len(batch)
            for waiting in batch:
                self._held.difference_update(waiting.item.keys)

    async def _through(self, stage: BatchStage, batch: list[WaitingItem]) -> list[WaitingItem]:
        """Write what a stage can, tell those who wait for it, and return the rest."""
        taken = [waiting for waiting in batch if stage.takes(waiting.item)]
        if not taken:
            return batch
        async with stage.begin() as connection:
            written = await stage.write(connection, [waiting.item for waiting in taken])
            if stage.is_statement:
                self._deliver(taken, written)
        if not stage.is_statement:
            self._deliver(taken, written)
        done = {id(taken[position]) for position in written}
        return [waiting for waiting in batch if id(waiting) not in done]

    def _refuse(self, batch: list[WaitingItem], error: Exception) -> None:
        """Let each run alone if what the server refused may be the fault of one, or passes when it is less."""
        if isinstance(error, asyncpg.PostgresError | BadValue | StoreInterrupted):
            log.warning("a batch was refused, its commands run alone", extra={"reason": str(error)})
            self._leave(batch)
        else:
            self._fail(batch, error)

    def _next(self) -> list[WaitingItem]:
        """Take some of what has gathered; what shares a key with it, and what is too much, waits for the next."""
        batch: list[WaitingItem] = []
        left: list[WaitingItem] = []
        taken = self._held
        characters = 0
        most = min(MAX_ITEMS, max(FEW_ITEMS, (len(self._gathered) + self._under_way + 1) // 2))
        for waiting in self._gathered:
            if waiting.done.done():
                continue  # whoever waited gave up
            full = len(batch) >= most or characters >= MAX_CHARACTERS
            if full or not taken.isdisjoint(waiting.item.keys):
                left.append(waiting)
            else:
                batch.append(waiting)
                taken.update(waiting.item.keys)
                characters += waiting.item.characters()
        self._gathered = left
        self._under_way += len(batch)
        return batch

    def _deliver(self, batch: list[WaitingItem], written: Mapping[int, WrittenItem]) -> None:
        topics: list[str] = []
        for position, outcome in written.items():
            topics += outcome.topics
            done = batch[position].done
            if not done.done():
                done.set_result(outcome)
        if topics:
            self._publish(topics)

    def _leave(self, batch: list[WaitingItem]) -> None:
        """Let each run alone."""
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_result(None)

    def _fail(self, batch: list[WaitingItem], error: Exception) -> None:
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_exception(error)


class BatchedCommand(NamedTuple):
    """A command by sets: how its arguments become an item, and the batcher that takes it."""

    item: Callable[..., BatchItem]
    batcher: Batcher

    def put(self, *args: Any, **kwargs: Any) -> "asyncio.Future[WrittenItem | None] | None":
        """Run the command with others; what cannot even be written down is the portable command's to refuse."""
        try:
            item = self.item(*args, **kwargs)
        except ValueError:
            return None
        return self.batcher.put(item)


VALUE_SEPARATOR, NULL_VALUE, LINE_SEPARATOR = "\x1f", "\x1e", "\x1d"
"""What stands between the values of a line, for one that is NULL, and between lines. JSON has none of them; other text
that does is left to the portable commands."""


class EventLine(NamedTuple):
    """An event: the item it belongs to, its place there, and what it says."""

    item: int
    place: int
    kind: str
    data: str


class JournalLine(NamedTuple):
    """An entry of a journal, and the item it belongs to."""

    note_item: int
    note_key: str
    note: str


def table_sql(kind: type[Any], name: str) -> str:
    """Return the SQL of a table with the columns of a row type, from the lines of that name; `n` counts from 1."""
    columns = (
        f"value[{place}]{'::bigint' if int in (hint, *get_args(hint)) else ''} AS {column}"
        for place, (column, hint) in enumerate(get_type_hints(kind).items(), 1)
    )
    # OFFSET 0: a line is cut once, not for each of its columns.
    return f"""(SELECT {", ".join(columns)}, n FROM (
        SELECT string_to_array(line, {_literal(VALUE_SEPARATOR)}, {_literal(NULL_VALUE)}) AS value, n
        FROM unnest(string_to_array(:{name}, {_literal(LINE_SEPARATOR)})) WITH ORDINALITY AS given(line, n) OFFSET 0
    ) AS cut) AS {name}"""


def _literal(character: str) -> str:
    return f"E'\\x{ord(character):02x}'"


def ordered_items_sql(kind: type[Any]) -> str:
    """Return the SQL of a table of items in the order in which their tasks are locked."""
    return f"""(SELECT * FROM {table_sql(kind, "item")} ORDER BY tenant COLLATE "C", task_id COLLATE "C") AS item"""


INSERT_EVENTS = f"""
    INSERT INTO event (tenant, task_id, seq, kind, data, at)
    SELECT item.tenant, item.task_id, item.after + entry.place, entry.kind, entry.data, item.at
    FROM {table_sql(EventLine, "entry")} JOIN item ON item.n = entry.item"""
"""Adds the entries of the items in the table `item` to the logs of their tasks."""

UPDATE_TASKS = """
    UPDATE task SET last_seq = item.last, bytes = task.bytes + item.bytes, state = COALESCE(item.state, task.state),
                    updated_at = CASE WHEN item.state IS NULL THEN task.updated_at ELSE item.at END
    FROM item WHERE task.tenant = item.tenant AND task.id = item.task_id"""
"""Lets their tasks know the last of them, and the state that they lead to."""

UPDATE_SNAPSHOTS = """
    UPDATE snapshot SET seq = item.last, doc = item.doc FROM item
    WHERE item.doc IS NOT NULL AND snapshot.tenant = item.tenant AND snapshot.task_id = item.task_id"""
"""Writes the snapshots of those tasks that get one."""


INSERT_STEPS = f"""
    INSERT INTO step (tenant, task_id, key, output, at)
    SELECT item.tenant, item.task_id, note.note_key, note.note, item.at
    FROM {table_sql(JournalLine, "note")} JOIN item ON item.n = note.note_item
    ON CONFLICT (tenant, task_id, key) DO NOTHING"""
"""Adds the notes of the items in the table `item` to the journals of their tasks."""


def encode_line(values: Sequence[Value]) -> str:
    """Return a row as a line; raises if it cannot be sent, or not be cut again."""
    found = [NULL_VALUE if value is None else value if type(value) is str else str(value) for value in values]
    joined = VALUE_SEPARATOR.join(found)
    if joined.count(VALUE_SEPARATOR) >= len(found) or found.count(NULL_VALUE) > values.count(None):
        raise BadValue("Text with a character that stands between values, or for none")
    if LINE_SEPARATOR in joined or "\0" in joined:
        raise BadValue("Text with a NUL character, or with one that stands between lines")
    if not joined.isascii():
        joined.encode()  # half a surrogate pair is the fault of one row, not of the batch
    return joined


def event_lines(encoded: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines of events, each with its place, but for the item they belong to."""
    return [f"{place}{VALUE_SEPARATOR}{kind}{VALUE_SEPARATOR}{data}" for place, (kind, data) in enumerate(encoded, 1)]


async def fetch_rows(connection: Any, sql: str, items: Sequence[BatchItem]) -> list[Any]:
    """Run a statement with the lines of these items, as many of them as it names, and return its rows."""
    statement = compile(sql, SqlEngine.POSTGRES)
    entered = [f"{number}{VALUE_SEPARATOR}{one}" for number, item in enumerate(items, 1) for one in item.entries]
    noted = [f"{number}{VALUE_SEPARATOR}{one}" for number, item in enumerate(items, 1) for one in item.notes]
    lines = {
        "item": LINE_SEPARATOR.join([item.line for item in items]),
        "entry": LINE_SEPARATOR.join(entered),
        "note": LINE_SEPARATOR.join(noted),
    }
    found: list[Any] = await connection.fetch(statement.text, *statement.placed(lines))
    return found
