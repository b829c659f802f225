"""Group commit for PostgreSQL: commands that arrive during one transaction share the next.

Items that a batch leaves out run alone, as the portable command in its own transaction. Examples are an item without
matching rows, and every item of a batch that the server refused. So results and exceptions are those of the portable
command. The rows of a batch are one text parameter with one line per row, which the server splits. An array per column
would cost a fifth more here, because asyncpg checks every element.
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
"""Maximum of commands per transaction: enough to hide the fsync, few enough for a short wait."""

FEW_ITEMS = 16
"""Minimum batch worth its own transaction.

Of more commands, half go into a second transaction, which runs while the results of the first are read.
"""

CONCURRENT_TRANSACTIONS = 2
"""Maximum of concurrent transactions. While the server writes one to disk, the next is prepared and sent."""

MAX_CHARACTERS = 4_000_000
"""Approximate maximum text per transaction. Sending holds several copies of it."""

CLOSE_SECONDS = 15.0
"""How long closing waits for accepted commands."""

log = logging.getLogger("accord.postgres")


class BatchItem(Struct, frozen=True):
    """One command, encoded for a batch."""

    keys: tuple[Hashable, ...]
    """Keys that no other item of the same batch shares."""
    row: Any
    line: str
    """The row as text."""
    entries: Sequence[str] = ()
    """Lines of events."""
    result: Any = None
    """The command's result, unless the write returns another."""
    topics: tuple[str, ...] = ()
    """Topics to publish, unless the write returns others."""
    notes: Sequence[str] = ()
    """Lines of journal entries."""

    def characters(self) -> int:
        """Return the size of the text to write."""
        return len(self.line) + sum(map(len, self.entries)) + sum(map(len, self.notes))


class WrittenItem(Struct, frozen=True):
    """The outcome of a written item."""

    result: Any
    topics: tuple[str, ...] = ()


Begin = Callable[[], AbstractAsyncContextManager[Any]]
"""Returns a connection in autocommit mode or in a transaction."""

Write = Callable[[Any, Sequence[BatchItem]], Awaitable[Mapping[int, WrittenItem]]]
"""Writes items on a connection and returns their outcomes by position. It may leave items out."""


class BatchStage(NamedTuple):
    """One way to write items. The next stage gets the items that it leaves out; the rest of the last runs alone."""

    begin: Begin
    write: Write
    takes: Callable[[BatchItem], bool] = lambda _: True
    is_statement: bool = False
    """Whether its write is committed at once, so that results need not wait for the release of the connection."""


class WaitingItem(Struct, frozen=True):
    """An item and the future of its outcome. None makes the caller run the command alone."""

    item: BatchItem
    done: "asyncio.Future[WrittenItem | None]"


class Batcher:
    """Writes the waiting items in transactions, one after another."""

    def __init__(self, stages: Sequence[BatchStage], publish: Callable[[list[str]], None], turns: int = 0) -> None:
        """Wait up to `turns` loop turns for more items before a transaction."""
        self._stages = stages
        self._publish = publish
        self._turns = turns
        self._gathered: list[WaitingItem] = []
        self._held: set[Hashable] = set()
        self._under_way = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._closed = False

    def put(self, item: BatchItem) -> "asyncio.Future[WrittenItem | None]":
        """Write an item with others. Without a result the command must run alone.

        Canceling the future is safe: an item in a transaction is still written, a waiting one is dropped.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed")
        done: asyncio.Future[WrittenItem | None] = asyncio.get_running_loop().create_future()
        self._gathered.append(WaitingItem(item, done))
        # A second transaction starts once it has half as many items as the first. So both keep a similar size.
        if len(self._gathered) >= self._under_way // 2:
            self._begin()
        return done

    def _begin(self) -> None:
        if len(self._workers) < CONCURRENT_TRANSACTIONS:
            self._workers.add(asyncio.create_task(self._work(), name="accord-batch"))

    async def close(self) -> None:
        """Finish accepted items and refuse new ones."""
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
                await asyncio.sleep(0)  # callers with a result can submit their next command
        finally:  # a callback would run later, and items arriving until then would wait for a finished worker
            self._workers.discard(asyncio.current_task())

    async def _next_calm(self) -> list[WaitingItem]:
        """Take a batch once no more items arrive.

        Otherwise the first of many simultaneous items would be written alone.
        """
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
        """Write a stage's items, deliver their outcomes, and return the remaining items."""
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
        """Run each item alone if the server may have refused only one of them, or the batch's size."""
        if isinstance(error, asyncpg.PostgresError | BadValue | StoreInterrupted):
            log.warning("store.batch_refused", extra={"reason": str(error)})
            self._leave(batch)
        else:
            self._fail(batch, error)

    def _next(self) -> list[WaitingItem]:
        """Take the next batch. Items that share a key with it or exceed its size wait."""
        batch: list[WaitingItem] = []
        left: list[WaitingItem] = []
        taken = self._held
        characters = 0
        most = min(MAX_ITEMS, max(FEW_ITEMS, (len(self._gathered) + self._under_way + 1) // 2))
        for waiting in self._gathered:
            if waiting.done.done():
                continue  # its caller was canceled
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
        """Make each caller run its command alone."""
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_result(None)

    def _fail(self, batch: list[WaitingItem], error: Exception) -> None:
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_exception(error)


class BatchedCommand(NamedTuple):
    """A batched command: encodes its arguments as an item for a batcher."""

    item: Callable[..., BatchItem]
    batcher: Batcher

    def put(self, *args: Any, **kwargs: Any) -> "asyncio.Future[WrittenItem | None] | None":
        """Submit the command to its batcher. Return None if it cannot be encoded: the portable command handles it."""
        try:
            item = self.item(*args, **kwargs)
        except ValueError:
            return None
        return self.batcher.put(item)


VALUE_SEPARATOR, NULL_VALUE, LINE_SEPARATOR = "\x1f", "\x1e", "\x1d"
"""Separators of values and of lines, and the mark for NULL.

JSON contains none of them. The portable commands handle other text that does.
"""


class EventLine(NamedTuple):
    """An event, the number of its item, and its place there."""

    item: int
    place: int
    kind: str
    data: str


class JournalLine(NamedTuple):
    """A journal entry and the number of its item."""

    note_item: int
    note_key: str
    note: str


def table_sql(kind: type[Any], name: str) -> str:
    """Return the SQL of a table with the columns of a row type.

    It is read from the parameter `name`. `n` counts from 1.
    """
    columns = (
        f"value[{place}]{'::bigint' if int in (hint, *get_args(hint)) else ''} AS {column}"
        for place, (column, hint) in enumerate(get_type_hints(kind).items(), 1)
    )
    # OFFSET 0: each line is split once, not once per column.
    return f"""(SELECT {", ".join(columns)}, n FROM (
        SELECT string_to_array(line, {_literal(VALUE_SEPARATOR)}, {_literal(NULL_VALUE)}) AS value, n
        FROM unnest(string_to_array(:{name}, {_literal(LINE_SEPARATOR)})) WITH ORDINALITY AS given(line, n) OFFSET 0
    ) AS cut) AS {name}"""


def _literal(character: str) -> str:
    return f"E'\\x{ord(character):02x}'"


def ordered_items_sql(kind: type[Any]) -> str:
    """Return the SQL of a table of items, ordered as their tasks are locked."""
    return f"""(SELECT * FROM {table_sql(kind, "item")} ORDER BY tenant COLLATE "C", task_id COLLATE "C") AS item"""


INSERT_EVENTS = f"""
    INSERT INTO event (tenant, task_id, seq, kind, data, at)
    SELECT item.tenant, item.task_id, item.after + entry.place, entry.kind, entry.data, item.at
    FROM {table_sql(EventLine, "entry")} JOIN item ON item.n = entry.item"""
"""Appends the events of the table `item` to the logs of its tasks."""

UPDATE_TASKS = """
    UPDATE task SET last_seq = item.last, bytes = task.bytes + item.bytes, state = COALESCE(item.state, task.state),
                    updated_at = CASE WHEN item.state IS NULL THEN task.updated_at ELSE item.at END
    FROM item WHERE task.tenant = item.tenant AND task.id = item.task_id"""
"""Updates the last sequence number and the state of the tasks."""

UPDATE_SNAPSHOTS = """
    UPDATE snapshot SET seq = item.last, doc = item.doc FROM item
    WHERE item.doc IS NOT NULL AND snapshot.tenant = item.tenant AND snapshot.task_id = item.task_id"""
"""Writes the snapshots of the items that have one."""


INSERT_STEPS = f"""
    INSERT INTO step (tenant, task_id, key, output, at)
    SELECT item.tenant, item.task_id, note.note_key, note.note, item.at
    FROM {table_sql(JournalLine, "note")} JOIN item ON item.n = note.note_item
    ON CONFLICT (tenant, task_id, key) DO NOTHING"""
"""Adds the journal entries of the table `item` to the steps of its tasks."""


def encode_line(values: Sequence[Value]) -> str:
    """Encode a row as a line; raises if it cannot be sent or split again."""
    found = [NULL_VALUE if value is None else value if type(value) is str else str(value) for value in values]
    joined = VALUE_SEPARATOR.join(found)
    if joined.count(VALUE_SEPARATOR) >= len(found) or found.count(NULL_VALUE) > values.count(None):
        raise BadValue("Text with a character that stands between values, or for none")
    if LINE_SEPARATOR in joined or "\0" in joined:
        raise BadValue("Text with a NUL character, or with one that stands between lines")
    if not joined.isascii():
        joined.encode()  # so that half a surrogate pair fails its own row, not the batch
    return joined


def event_lines(encoded: Iterable[tuple[str, str]]) -> list[str]:
    """Encode events as lines, each with its place, but without the number of its item."""
    return [f"{place}{VALUE_SEPARATOR}{kind}{VALUE_SEPARATOR}{data}" for place, (kind, data) in enumerate(encoded, 1)]


async def fetch_rows(connection: Any, sql: str, items: Sequence[BatchItem]) -> list[Any]:
    """Run a statement with the lines of these items as its parameters, and return its rows."""
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
