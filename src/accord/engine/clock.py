"""The clock of a process, injected so that tests can move it."""

import time
from collections.abc import Callable

from msgspec import Struct


class Clock(Struct, frozen=True, kw_only=True):
    """The time of day, and a time that is never set back, both in seconds."""

    now: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def now_ms(self) -> int:
        """Return the time of day in milliseconds."""
        return int(self.now() * 1000)


SYSTEM = Clock()
"""That of the machine."""
