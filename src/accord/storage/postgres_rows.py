"""Many rows as the parameters of one statement, for PostgreSQL: an array for each column of a row type.

It only writes SQL and arrays; which statements there are is `postgres_overrides` and `postgres_relay`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

from accord.storage.postgres_batch import Item
from accord.storage.sql import Engine, compile


class Entry(NamedTuple):
    """An event: the item it belongs to, its place there, and what it says."""

    item: int
    place: int
    kind: str
    data: str


class Note(NamedTuple):
    """An entry of a journal, and the item it belongs to."""

    note_item: int
    note_key: str
    note: str


def given(kind: type[Any], name: str) -> str:
    """Return the SQL of a table with the columns of a row type, from one array for each; `n` counts from 1."""
    hints = get_type_hints(kind)
    columns = (
        f":{column}::{'bigint' if int in (hint, *get_args(hint)) else 'text'}[]" for column, hint in hints.items()
    )
    return f"unnest({', '.join(columns)}) WITH ORDINALITY AS {name}({', '.join(hints)}, n)"


def in_order(kind: type[Any]) -> str:
    """Return the SQL of a table of items in the order in which their tasks are locked."""
    return f"""(SELECT * FROM {given(kind, "item")} ORDER BY tenant COLLATE "C", task_id COLLATE "C") AS item"""


ADDED = f"""
    INSERT INTO event (tenant, task_id, seq, kind, data, at)
    SELECT item.tenant, item.task_id, item.after + entry.place, entry.kind, entry.data, item.at
    FROM {given(Entry, "entry")} JOIN item ON item.n = entry.item"""
"""Adds the entries of the items in the table `item` to the logs of their tasks."""

MOVED = """
    UPDATE task SET last_seq = item.last, state = COALESCE(item.state, task.state),
                    updated_at = CASE WHEN item.state IS NULL THEN task.updated_at ELSE item.at END
    FROM item WHERE task.tenant = item.tenant AND task.id = item.task_id"""
"""Lets their tasks know the last of them, and the state that they lead to."""

KEPT = """
    UPDATE snapshot SET seq = item.last, doc = item.doc FROM item
    WHERE item.doc IS NOT NULL AND snapshot.tenant = item.tenant AND snapshot.task_id = item.task_id"""
"""Writes the snapshots of those tasks that get one."""


NOTED = f"""
    INSERT INTO step (tenant, task_id, key, output, at)
    SELECT item.tenant, item.task_id, note.note_key, note.note, item.at
    FROM {given(Note, "note")} JOIN item ON item.n = note.note_item
    ON CONFLICT (tenant, task_id, key) DO NOTHING"""
"""Adds the notes of the items in the table `item` to the journals of their tasks."""


def entries_of(items: Iterable[Item]) -> Iterator[Entry]:
    """Return the entries of all items, each with the number of its item."""
    for number, item in enumerate(items, 1):
        for place, (kind, data) in enumerate(item.entries, 1):
            yield Entry(number, place, str(kind), str(data))


def notes_of(items: Iterable[Item]) -> Iterator[Note]:
    """Return the notes of all items, each with the number of its item."""
    for number, item in enumerate(items, 1):
        for key, note in item.notes:
            yield Note(number, str(key), str(note))


def arrays(kind: type[Any], rows: Iterable[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Return rows of a type as an array for each column."""
    found: dict[str, Sequence[Any]] = dict.fromkeys(kind._fields, ())
    found.update(zip(kind._fields, zip(*rows, strict=True), strict=False))  # without rows there are no columns
    return found


async def fetched(connection: Any, sql: str, columns: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Run a statement with these arrays and return its rows."""
    statement = compile(sql, Engine.POSTGRES)
    found: list[Any] = await connection.fetch(statement.text, *statement.placed(columns))
    return found
