"""Rows as lines: the server makes of them what was given."""

from typing import NamedTuple

import asyncpg
import pytest

from accord.storage.postgres.batch import (
    LINE_SEPARATOR,
    NULL_VALUE,
    VALUE_SEPARATOR,
    BatchItem,
    encode_line,
    fetch_rows,
    table_sql,
)
from accord.storage.store import BadValue


class Row(NamedTuple):
    text: str
    number: int
    maybe: str | None
    many: int | None
    last: str


ROWS = [
    Row("", 0, None, None, ""),
    Row("a", -(2**63), "", 2**63 - 1, "z"),
    Row("NULL", 1, "null", None, "\\N"),
    Row('{"quoted",\'},{', 2, "\\x1f \\", 3, "$1 :item ::text"),
    Row("line\nbreak\r\t", 4, "\x01\x1c\x7f", 5, "ünïcode \N{GRINNING FACE} \u2028"),
    Row(f"{NULL_VALUE} within", 6, f"{NULL_VALUE}{NULL_VALUE}", 7, "e\u0301"),
]


async def test_rows_are_read_as_they_were_given(postgres: str) -> None:
    connection = await asyncpg.connect(postgres)
    try:
        found = await fetch_rows(
            connection,
            f"SELECT * FROM {table_sql(Row, 'item')}",
            [BatchItem((), row, encode_line(row)) for row in ROWS],
        )
        assert await fetch_rows(connection, f"SELECT * FROM {table_sql(Row, 'item')}", []) == []
    finally:
        await connection.close()
    assert [tuple(row) for row in found] == [(*row, place) for place, row in enumerate(ROWS, 1)]


REFUSED = {
    "between": f"a{VALUE_SEPARATOR}b",
    "only": VALUE_SEPARATOR,
    "nothing": NULL_VALUE,
    "after": f"a{LINE_SEPARATOR}",
    "nul": "\0",
}


@pytest.mark.parametrize("text", REFUSED.values(), ids=REFUSED)
def test_values_with_separators_are_refused(text: str) -> None:
    with pytest.raises(BadValue):
        encode_line(Row("a", 1, None, 2, text))


def test_half_a_pair_is_refused_before_it_is_sent_with_others() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_line(Row("a", 1, None, 2, "\ud800"))
