"""A copy of a SQLite file that is in use: whole, as of one moment, and without its log.

It reads as any other reader does, so nodes go on writing meanwhile. A PostgreSQL has tools of its own for this
(`pg_dump`), and parts that are kept outside of the store are not its concern. `accord db backup` is above.
"""

import os
from pathlib import Path

import apsw

from accord.storage import sqlite
from accord.storage.store import StoreRefused, StoreUnavailable


def back_up(source: Path, target: Path) -> int:
    """Write a copy that only its owner reads, and return its size; a file that is there is not replaced."""
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise StoreRefused(f"{target} is there already: name a file that is not") from None
    try:
        connection = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.set_busy_timeout(sqlite.BUSY_MS)
            connection.execute("VACUUM INTO ?", (str(target),))
        finally:
            connection.close()
    except apsw.Error as error:
        target.unlink()
        raise StoreUnavailable(f"{source} cannot be copied: {error}") from error
    return target.stat().st_size
