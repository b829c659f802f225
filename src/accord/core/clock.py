"""What time it is, for everything in a process that asks: given from above, so that tests can have their own.

The store has a clock of its own, which timers and expiry go by, because nodes' clocks differ; and what only
waits goes by that of the event loop. `accord.testing` moves all three together.
"""

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
