"""The clock of a process, injected so that tests can move it."""

import time
from collections.abc import Callable

from msgspec import Struct


class Clock(Struct, frozen=True, kw_only=True):
    """The wall clock and a monotonic clock, both in seconds."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch."""
        return int(self.now() * 1000)


SYSTEM = Clock()
"""The system clock."""
