"""Lists as commands print them: a table for people, or JSON for programs.

What the rows mean is each command's business.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import typer

Rows = Sequence[Mapping[str, Any]]


class Output(Enum):
    """How a list is printed."""

    TEXT = "text"
    JSON = "json"


def show(rows: Rows, columns: Sequence[str], output: Output) -> None:
    """Print rows, as a table with these columns or as JSON with everything."""
    _PRINT[output](rows, columns)


def _json(rows: Rows, _: Sequence[str]) -> None:
    from msgspec.json import encode

    typer.echo(encode(rows))


def _text(rows: Rows, columns: Sequence[str]) -> None:
    table = [[name.upper() for name in columns]]
    table += [[cell(row[name]) for name in columns] for row in rows]
    widths = [max(len(row[at]) for row in table) for at in range(len(columns))]
    for row in table:
        typer.echo("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())


_PRINT = {Output.TEXT: _text, Output.JSON: _json}


def cell(value: Any) -> str:
    """Return a value as people read it."""
    text = " ".join(map(str, value)) if isinstance(value, list | tuple) else "" if value is None else str(value)
    return plain(text)


def time_of(at: int | None) -> str | None:
    """Return a time in milliseconds as people read it."""
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds")


def plain(text: str) -> str:
    """Return what strangers wrote without what a terminal would obey."""
    return "".join(character if character.isprintable() else "?" for character in text) or "-"


def address_of(url: str) -> str:
    """Return what is shown of a webhook's address, whatever somebody wrote there: its query may be a secret."""
    address, asks, _ = url.partition("?")
    return f"{address}?..." if asks else address
