"""Waiting for a database that cannot be used at the moment: that is no fault of whoever needs it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from accord.storage.store import StoreUnavailable

RETRY_SECONDS, MAX_RETRY_SECONDS = 0.05, 2.0
"""How long to wait before turning again to a database that cannot be used."""

T = TypeVar("T")


async def patiently(do: Callable[[], Awaitable[T]], log: logging.Logger, **about: object) -> T:
    """Do something as often as it takes, and note in a log what it is about."""
    delay = RETRY_SECONDS
    while True:
        try:
            return await do()
        except StoreUnavailable as error:
            log.warning("store unavailable", extra={**about, "reason": str(error)})
            await asyncio.sleep(delay)
            delay = min(delay * 2, MAX_RETRY_SECONDS)
