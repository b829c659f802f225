"""Tables for people and JSON for programs."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any

import typer

_UNSEEN = re.compile(r"[^\x00-\x7e]")
"""Characters that JSON has only in strings and need not escape."""

Rows = Sequence[Mapping[str, Any]]


class OutputFormat(Enum):
    """Format of the output."""

    TEXT = "text"
    JSON = "json"


OutputOption = Annotated[OutputFormat, typer.Option("-o", "--output", help="Output format.")]
RowsOption = Annotated[OutputFormat, typer.Option("-o", "--output", help="Output format.")]


def print_rows(rows: Rows, columns: Sequence[str], output: OutputFormat) -> None:
    """Print rows, as a table with these columns or as JSON with all members."""
    if output is OutputFormat.JSON:
        echo_json(rows)
        return
    table = [[name.upper() for name in columns]]
    table += [[cell_text(row[name]) for name in columns] for row in rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(columns))]
    for row in table:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


def print_page(rows: Rows, limit: int, columns: Sequence[str], output: OutputFormat, hint: str) -> None:
    """Print at most `limit` rows, and a hint if there are more."""
    print_rows(rows[:limit], columns, output)
    if len(rows) > limit:
        typer.echo(f"There are more than {limit}: {hint}", err=True)


def echo_json(value: Any, *, indent: int = 0) -> None:
    """Print a value as JSON."""
    from msgspec.json import encode, format

    document = encode(value)
    typer.echo(escape_json((format(document, indent=indent) if indent else document).decode()))


def escape_json(document: str) -> str:
    """Return JSON for standard output. On a terminal, control and direction characters are escaped."""
    return _UNSEEN.sub(_escaped, document) if sys.stdout.isatty() else document


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1]


def cell_text(value: Any) -> str:
    """Return a value as text for people."""
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)
    return printable(text)


def time_of(at: int | None) -> str | None:
    """Return a time in milliseconds as text for people."""
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")


def printable(text: str) -> str:
    """Return foreign text without terminal control characters."""
    return "".join(character if character.isprintable() else "?" for character in text) or "-"


def webhook_url(url: str) -> str:
    """Return a webhook's URL for display, without its query, which may be a secret."""
    address, asks, _ = url.partition("?")
    return f"{address}?..." if asks else address
