"""The long snapshots that were read last, decoded: a long talk is read with every turn, and seldom written down anew.

It is no store: a snapshot is known by its whole text, which is read all the same, so nothing here can be out of date.
"""

from accord.model import Task
from accord.storage.commands.tasks import Stored
from accord.storage.records import decode_task

REMEMBERED = 2_000_000
"""Characters of all snapshots that are remembered; decoded they take a few times as much memory."""

SHORT = 4096
"""Characters that are decoded about as fast as they are looked up."""


class Snapshots:
    """Puts tasks together, and decodes the same long snapshot once."""

    def __init__(self, most: int = REMEMBERED) -> None:
        """Remember so many characters."""
        self._most = most
        self._known: dict[tuple[str, str], tuple[str, Task]] = {}
        self.characters = 0

    def task(self, tenant: str, stored: Stored) -> Task:
        """Put a stored task together."""
        if len(stored.doc) <= SHORT:
            return stored.task()
        key = (tenant, stored.id)
        doc, snapshot = self._known.pop(key, ("", None))
        if snapshot is None or doc != stored.doc:
            snapshot = decode_task(stored.doc)
        self._known[key] = (stored.doc, snapshot)
        self.characters += len(stored.doc) - len(doc)
        while self.characters > self._most:
            oldest, _ = self._known.pop(next(iter(self._known)))
            self.characters -= len(oldest)
        return stored.folded(snapshot)
