"""SQLite's write-ahead log: its length, its sync to disk and its checkpoints.

Only the writing connection has one. Its user must prevent concurrent use.
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
"""Log length (16 MB) that triggers a checkpoint as far as readers allow.

SQLite's default of 1,000 moved the ends of the indexes, which every task changes, after every thirty tasks, and
concurrent commands waited.
"""

LONG_LOG_PAGES = 16_000
"""Log length (64 MB) that triggers a restart of the log.

Otherwise overlapping readers would let it grow without limit.
"""

READERS_MS = 250
"""How long a restart waits for such readers; new readers wait for it. After a longer read the limit grows by 64 MB."""

_fsync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)

log = logging.getLogger("accord.sqlite")


class WriteAheadLog:
    """The log of one file. A database in memory has no log, and its methods do nothing."""

    def __init__(self, path: Path | None, writer: apsw.Connection, may_read: threading.Event) -> None:
        """Manage the log of `writer`. `may_read` is cleared while no read may start."""
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
        """Whether the log should be moved into the file."""
        return self._pages >= CHECKPOINT_PAGES

    def _grown(self, _connection: apsw.Connection, _name: str, pages: int) -> int:
        """Record the log's length after a commit. This hook replaces SQLite's automatic checkpoint."""
        self._pages = pages
        if self.syncs:
            self.early_since = None
        elif self.early_since is None:
            self.early_since = perf_counter()
        return apsw.SQLITE_OK

    # --- sync to disk ---------------------------------------------------------------------------------------------

    def sync_commits(self, syncs: bool) -> None:
        """Select whether later commits are synced to disk, or only written to the log.

        A synced commit also syncs all commits before it.
        """
        if syncs is not self.syncs and self._path is not None:
            level = "FULL" if syncs else "NORMAL"
            self._writer.execute(f"PRAGMA synchronous = {level}", can_cache=False)  # a cached one has no effect
            self.syncs = syncs

    def sync(self) -> None:
        """Sync the log to disk."""
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
        """Sync early commits, if any. Return false if that fails; a later commit raises the error too."""
        if self.early_since is not None:
            try:
                self.sync()
            except StoreUnavailable as error:
                log.warning("store.log_not_synced", extra={"reason": str(error)})
                return False
        return True

    # --- checkpoints ----------------------------------------------------------------------------------------------

    def move(self, busy_ms: int) -> None:
        """Move a long log into the file, after its commands have completed. Other connections never do this.

        `busy_ms` is the writer's usual busy timeout, restored afterwards.
        """
        if not self.is_long:
            return
        start_over = self._pages >= self._too_long
        if start_over:
            self._may_read.clear()  # overlapping readers would prevent the restart of the log
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if start_over else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._writer.set_busy_timeout(READERS_MS)
        try:
            self._writer.wal_checkpoint("main", mode)
            if start_over:
                self._pages, self._too_long = 0, LONG_LOG_PAGES
        except apsw.BusyError:
            self._too_long = self._pages + LONG_LOG_PAGES
        except apsw.Error as error:  # the log keeps all changes meanwhile
            log.warning("store.checkpoint_failed", extra={"reason": str(error)})
        finally:
            self._may_read.set()
            self._writer.set_busy_timeout(busy_ms)
