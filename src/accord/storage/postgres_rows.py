"""Many rows as one parameter of a statement, for PostgreSQL: a text with a line for each, which the server cuts.

An array for each column, as is usual, costs this side a fifth more: asyncpg looks at every member. It only writes SQL
and lines; the statements are in `postgres_overrides` and the modules below it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

from accord.storage.postgres_batch import Item
from accord.storage.sql import Engine, compile
from accord.storage.store import BadValue, Value

BETWEEN, NOTHING, AFTER = "\x1f", "\x1e", "\x1d"
"""What stands between the values of a line, for one that is NULL, and between lines. JSON has none of them; other text
that does is left to the portable commands."""


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
    """Return the SQL of a table with the columns of a row type, from the lines of that name; `n` counts from 1."""
    columns = (
        f"value[{place}]{'::bigint' if int in (hint, *get_args(hint)) else ''} AS {column}"
        for place, (column, hint) in enumerate(get_type_hints(kind).items(), 1)
    )
    # OFFSET 0: a line is cut once, not for each of its columns.
    return f"""(SELECT {", ".join(columns)}, n FROM (
        SELECT string_to_array(line, {_literal(BETWEEN)}, {_literal(NOTHING)}) AS value, n
        FROM unnest(string_to_array(:{name}, {_literal(AFTER)})) WITH ORDINALITY AS given(line, n) OFFSET 0
    ) AS cut) AS {name}"""


def _literal(character: str) -> str:
    return f"E'\\x{ord(character):02x}'"


def in_order(kind: type[Any]) -> str:
    """Return the SQL of a table of items in the order in which their tasks are locked."""
    return f"""(SELECT * FROM {given(kind, "item")} ORDER BY tenant COLLATE "C", task_id COLLATE "C") AS item"""


ADDED = f"""
    INSERT INTO event (tenant, task_id, seq, kind, data, at)
    SELECT item.tenant, item.task_id, item.after + entry.place, entry.kind, entry.data, item.at
    FROM {given(Entry, "entry")} JOIN item ON item.n = entry.item"""
"""Adds the entries of the items in the table `item` to the logs of their tasks."""

MOVED = """
    UPDATE task SET last_seq = item.last, bytes = task.bytes + item.bytes, state = COALESCE(item.state, task.state),
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


def line(values: Sequence[Value]) -> str:
    """Return a row as a line; raises if it cannot be sent, or not be cut again."""
    found = [NOTHING if value is None else value if type(value) is str else str(value) for value in values]
    joined = BETWEEN.join(found)
    if joined.count(BETWEEN) >= len(found) or found.count(NOTHING) > values.count(None):
        raise BadValue("Text with a character that stands between values, or for none")
    if AFTER in joined or "\0" in joined:
        raise BadValue("Text with a NUL character, or with one that stands between lines")
    if not joined.isascii():
        joined.encode()  # half a surrogate pair is the fault of one row, not of the batch
    return joined


def entries(encoded: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines of events, each with its place, but for the item they belong to."""
    return [f"{place}{BETWEEN}{kind}{BETWEEN}{data}" for place, (kind, data) in enumerate(encoded, 1)]


async def fetched(connection: Any, sql: str, items: Sequence[Item]) -> list[Any]:
    """Run a statement with the lines of these items, as many of them as it names, and return its rows."""
    statement = compile(sql, Engine.POSTGRES)
    entered = [f"{number}{BETWEEN}{one}" for number, item in enumerate(items, 1) for one in item.entries]
    noted = [f"{number}{BETWEEN}{one}" for number, item in enumerate(items, 1) for one in item.notes]
    lines = {
        "item": AFTER.join([item.line for item in items]),
        "entry": AFTER.join(entered),
        "note": AFTER.join(noted),
    }
    found: list[Any] = await connection.fetch(statement.text, *statement.placed(lines))
    return found
