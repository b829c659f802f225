"""Retries calls to a store that is unavailable."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from accord.storage.store import StoreInterrupted, StoreUnavailable

RETRY_SECONDS, MAX_RETRY_SECONDS = 0.05, 2.0
"""How long to wait before turning again to a database that cannot be used."""

INTERRUPTIONS = 20
"""How often in a row the server may interrupt a command: over half a minute. One that always is would wait forever."""

T = TypeVar("T")


class StorePatience:
    """Waits between two tries, each time longer, and notes in a log what that is about."""

    def __init__(self, log: logging.Logger, **about: object) -> None:
        """Begin with the first try."""
        self.tries = 1
        self._interruptions = 0
        self._log, self._about = log, about
        self._delay = RETRY_SECONDS

    async def wait(self, error: Exception) -> None:
        """Wait for the next try, after one that failed; raises the error of a command that is always interrupted."""
        self._interruptions = self._interruptions + 1 if isinstance(error, StoreInterrupted) else 0
        if self._interruptions > INTERRUPTIONS:
            raise error
        self._log.warning("store unavailable", extra={**self._about, "reason": str(error)})
        await asyncio.sleep(self._delay)
        self._delay = min(self._delay * 2, MAX_RETRY_SECONDS)
        self.tries += 1


async def retry_until_available(do: Callable[[], Awaitable[T]], log: logging.Logger, **about: object) -> T:
    """Do something as often as it takes, and note in a log what it is about."""
    patience = StorePatience(log, **about)
    while True:
        try:
            return await do()
        except StoreUnavailable as error:
            await patience.wait(error)
