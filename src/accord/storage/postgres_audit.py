"""The audit log by sets, for PostgreSQL: every request writes an entry, and one by one they cost as much as a task.

It does what `commands.audit.append` does; the same tests run against both.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import astuple

from accord.storage.commands.audit import COLUMNS, Entry
from accord.storage.postgres_batch import Item, Written
from accord.storage.postgres_rows import AFTER, fetched, given, line

_APPENDED = f"INSERT INTO audit ({COLUMNS}) SELECT {COLUMNS} FROM {given(Entry, 'item')} ORDER BY n"


def audit_item(entries: Sequence[Entry]) -> Item:
    """Return entries as one item: they are kept in their order."""
    return Item(keys=(), row=None, line=AFTER.join([line(astuple(entry)) for entry in entries]))


async def write_audit(connection: Any, items: Sequence[Item]) -> dict[int, Written]:
    """Keep the entries of items."""
    await fetched(connection, _APPENDED, items)
    return {position: Written(None) for position in range(len(items))}
