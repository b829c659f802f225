"""Portable SQL: statements with named parameters and a few macros, compiled once per engine.

Statements are written as plain SQL, without a query builder. Both engines run the same text except for the macros.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple


class SqlEngine(Enum):
    """The supported databases."""

    __hash__ = object.__hash__  # members are singletons; Enum's own hash costs more than the lookup

    SQLITE = "sqlite"
    POSTGRES = "postgresql"


def _one_of(column: str, *values: str) -> tuple[str, str]:
    """Return both engines' conditions that a column has one of these values."""
    each = [f"'{value}'" for value in values]
    return f"({' OR '.join(f'{column} = {one}' for one in each)})", f"{column} IN ({', '.join(each)})"


MACROS: Mapping[str, tuple[str, str]] = {
    "now": (
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)",
        "(extract(epoch FROM statement_timestamp()) * 1000)::bigint",
    ),
    "int": ("INTEGER", "bigint"),
    "text": ("TEXT", 'text COLLATE "C"'),
    "bytes": ("BLOB", "bytea"),
    "identity": ("INTEGER PRIMARY KEY AUTOINCREMENT", "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    "strict": ("STRICT", ""),
    "clustered": ("STRICT, WITHOUT ROWID", ""),
    "hot": ("STRICT", "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02)"),
    "each": ("SELECT value FROM json_each(", "SELECT value::bigint FROM json_array_elements_text(("),
    "pairs": ("json_each(", "json_each_text(("),
    "end": (")", ")::json)"),
    "engine": ("'SQLite ' || sqlite_version()", "'PostgreSQL ' || current_setting('server_version')"),
    "tables": (
        "(SELECT name FROM sqlite_schema WHERE type = 'table') AS found",
        "(SELECT relname::text AS name FROM pg_class WHERE relkind = 'r' AND pg_table_is_visible(oid)) AS found",
    ),
    "own_tables": (
        "(SELECT name FROM sqlite_schema WHERE type = 'table' AND substr(name, 1, 7) <> 'sqlite_') AS found",
        "(SELECT relname::text AS name FROM pg_class WHERE relkind IN ('r', 'p', 'f')"
        " AND relnamespace = to_regnamespace(quote_ident(current_schema())) AND NOT EXISTS"
        " (SELECT 1 FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e'))"
        " AS found",
    ),
    "version_columns": (
        "(SELECT name FROM pragma_table_info('schema_version')) AS found",
        "(SELECT attname::text AS name FROM pg_attribute"
        " WHERE attrelid = to_regclass('schema_version') AND attnum > 0 AND NOT attisdropped) AS found",
    ),
    "on_postgres": ("--", ""),
    "on_sqlite": ("", "SELECT 1 --"),
    "for_update": ("", "FOR UPDATE"),
    "skip_locked": ("", "FOR UPDATE SKIP LOCKED"),
    "open": _one_of("state", "submitted", "working", "input_required", "auth_required"),
    "amiss": _one_of("state", "failed", "canceled", "rejected", "unknown"),
    "terminal": _one_of("state", "completed", "failed", "canceled", "rejected"),
    "ended": _one_of("state", "completed", "failed", "canceled", "rejected", "unknown"),
}
"""Macro -> its text in SQLite and in PostgreSQL.

`now` is the database's clock in epoch milliseconds: nodes' clocks differ, leases must not. `text` is compared byte by
byte in both engines, which keeps order equal and survives upgrades of the system's collations. `hot` is for tables
whose rows change often, `clustered` for tables read in key order. `{each} :list {end}` are the integers of a JSON
array, `{pairs} :object {end}` the keys and texts of a JSON object. `engine` is the database and its version. `tables`
are all tables, `own_tables` those of the current schema that neither the engine nor an extension created.
`version_columns` are the columns of `schema_version`. A line after `on_postgres` is a comment in SQLite, one after
`on_sqlite` in PostgreSQL.

`open`, `amiss`, `terminal` and `ended` are the conditions of partial indexes on tasks. Neither engine uses such an
index for a different condition. SQLite compares the text, and for a list it would fill a temporary table with every
written task (decision 14).
"""

_TOKEN = re.compile(r"\{(?P<macro>\w+)\}|(?<![:\w]):(?P<name>[a-z_]\w*)|'(?:[^']|'')*'")


class Statement(NamedTuple):
    """A statement for one engine. `placed` puts its parameters into that engine's order."""

    text: str
    placed: Callable[[Mapping[str, Any]], tuple[Any, ...]]


@cache
def compile(sql: str, engine: SqlEngine) -> Statement:
    """Compile a portable statement for an engine."""
    names: list[str] = []

    def replaced(match: re.Match[str]) -> str:
        if macro := match["macro"]:
            return MACROS[macro][engine is SqlEngine.POSTGRES]
        name = match["name"]
        if name is None:
            return match[0]
        if name not in names:
            names.append(name)
        return f":{name}" if engine is SqlEngine.SQLITE else f"${names.index(name) + 1}"

    text = _TOKEN.sub(replaced, sql)
    return Statement(text, _placing(names))


def _placing(names: Sequence[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    """Return a function that extracts the values of these names in order.

    `itemgetter` does several in C, as every statement needs it.
    """
    match names:
        case []:
            return lambda _: ()
        case [name]:
            return lambda values: (values[name],)
    return itemgetter(*names)
