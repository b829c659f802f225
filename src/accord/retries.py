"""The retry policy: how often a failed operation is repeated, and after which delays.

Nothing waits here. The owner of an operation sleeps, or schedules the next attempt.
"""

import random
from collections.abc import Callable

from msgspec import Struct

MAX_EXPONENT = 64
"""Failures after which a delay grows no further, so that it never overflows."""


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The number of attempts, and delays that grow from the first to the maximum."""

    first_seconds: float
    """Delay after the first failure."""

    max_seconds: float = float("inf")
    """Maximum delay, before jitter."""

    attempts: int | None = None
    """Maximum number of attempts, or None without a limit."""

    factor: float = 2.0
    """Growth of the delay with each failure."""

    jitter: tuple[float, float] = (0.5, 1.0)
    """Range of the random factor of a delay. It spreads operations that failed together."""

    def delay(self, failures: int = 1, *, draw: Callable[[], float] = random.random) -> float:
        """Return the seconds before the next attempt, after this many failures."""
        seconds = min(self.max_seconds, self.first_seconds * self.factor ** min(failures - 1, MAX_EXPONENT))
        low, high = self.jitter
        return seconds if low == high == 1.0 else seconds * (low + (high - low) * draw())

    def is_exhausted(self, failures: int) -> bool:
        """Whether no attempt is left after this many failures."""
        return self.attempts is not None and failures >= self.attempts
