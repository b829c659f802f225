"""SQLite's write-ahead log: its length, its sync to disk and its checkpoints.

Only the connection that writes has one of these, and its user excludes others meanwhile.
"""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import apsw

from accord.storage.store import StoreUnavailable

CHECKPOINT_PAGES = 4_000
"""A log this long (16 MB) is moved into the file as far as readers allow. At SQLite's own 1,000 the ends of the
indexes, which every task changes, were moved after every thirty tasks, and whoever came meanwhile waited."""

LONG_LOG_PAGES = 16_000
"""A log this long (64 MB) is started over: readers that overlap without end would keep it growing for ever."""

READERS_MS = 250
"""How long writing waits for such readers, who do not wait for it; a longer read is given room for another 64 MB."""

_fsync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)

log = logging.getLogger("accord.sqlite")


class WriteAheadLog:
    """The log of one file; a database in memory has none, and nothing happens to it."""

    def __init__(self, path: Path | None, writer: apsw.Connection, may_read: threading.Event) -> None:
        """Look after the log that `writer` writes; `may_read` is cleared while nobody may begin to read."""
        self._path = path
        self._writer = writer
        self._may_read = may_read
        self._pages = 0
        self._too_long = LONG_LOG_PAGES
        self.syncs = True
        self.early_since: float | None = None
        writer.set_wal_hook(self._grown)

    @property
    def is_long(self) -> bool:
        """Whether it is time to move it into the file."""
        return self._pages >= CHECKPOINT_PAGES

    def _grown(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Note the log's length after a commit. Such a hook takes the place of SQLite's own automatic checkpoint."""
        self._pages = pages
        if self.syncs:
            self.early_since = None
        elif self.early_since is None:
            self.early_since = perf_counter()
        return apsw.SQLITE_OK

    # --- onto the disk --------------------------------------------------------------------------------------------

    def sync_commits(self, syncs: bool) -> None:
        """Let the next commits be on the disk when they are done, with all before them, or only in the log."""
        if syncs is not self.syncs and self._path is not None:
            level = "FULL" if syncs else "NORMAL"
            self._writer.execute(f"PRAGMA synchronous = {level}", can_cache=False)  # one that is cached does nothing
            self.syncs = syncs

    def sync(self) -> None:
        """Get on the disk what is only in the log."""
        try:
            file = os.open(f"{self._path}-wal", os.O_RDWR)
            try:
                _fsync(file)
            finally:
                os.close(file)
        except OSError as error:
            raise StoreUnavailable(f"SQLite's log cannot be synced: {error}") from error
        self.early_since = None

    def sync_early(self) -> bool:
        """Do so if there is anything; false if the disk refuses, which a later commit is told as well."""
        if self.early_since is not None:
            try:
                self.sync()
            except StoreUnavailable as error:
                log.warning("log was not synced", extra={"reason": str(error)})
                return False
        return True

    # --- into the file --------------------------------------------------------------------------------------------

    def move(self, busy_ms: int) -> None:
        """Move a long log into the file, now that those who wrote it are not kept waiting. No other connection does.

        The writer waits for locks as long as `busy_ms` says otherwise.
        """
        if not self.is_long:
            return
        start_over = self._pages >= self._too_long
        if start_over:
            self._may_read.clear()  # readers that overlap for ever would keep the log from being started over
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if start_over else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._writer.set_busy_timeout(READERS_MS)
        try:
            self._writer.wal_checkpoint("main", mode)
            if start_over:
                self._pages, self._too_long = 0, LONG_LOG_PAGES
        except apsw.BusyError:
            self._too_long = self._pages + LONG_LOG_PAGES
        except apsw.Error as error:  # the log keeps everything meanwhile
            log.warning("checkpoint failed", extra={"reason": str(error)})
        finally:
            self._may_read.set()
            self._writer.set_busy_timeout(busy_ms)
