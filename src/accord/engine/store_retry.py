"""Retries with backoff for an unavailable store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from accord.storage.store import StoreInterrupted, StoreUnavailable

RETRY_SECONDS, MAX_RETRY_SECONDS = 0.05, 2.0
"""Initial and maximum delay between retries, in seconds."""

INTERRUPTIONS = 20
"""Maximum consecutive interruptions of a command by the server, over half a minute. More would retry forever."""

T = TypeVar("T")


class StorePatience:
    """Waits with backoff between attempts, and logs the reason."""

    def __init__(self, log: logging.Logger, **about: object) -> None:
        """Start with the first attempt."""
        self.tries = 1
        self._interruptions = 0
        self._log, self._about = log, about
        self._delay = RETRY_SECONDS

    async def wait(self, error: Exception) -> None:
        """Wait before the next attempt. Raises the error of a command that is always interrupted."""
        self._interruptions = self._interruptions + 1 if isinstance(error, StoreInterrupted) else 0
        if self._interruptions > INTERRUPTIONS:
            raise error
        self._log.warning("store.unavailable", extra={**self._about, "reason": str(error)})
        await asyncio.sleep(self._delay)
        self._delay = min(self._delay * 2, MAX_RETRY_SECONDS)
        self.tries += 1


async def retry_until_available(do: Callable[[], Awaitable[T]], log: logging.Logger, **about: object) -> T:
    """Call a function, and retry it while the store is unavailable. `about` is logged."""
    patience = StorePatience(log, **about)
    while True:
        try:
            return await do()
        except StoreUnavailable as error:
            await patience.wait(error)
