"""Coarse timers for timeouts that almost never fire.

Setting and clearing a timer costs a dictionary entry. Timers fire up to `TICK_SECONDS` late. Code that needs exact
times uses the loop.
"""

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from itertools import count

TICK_SECONDS = 0.25

TimerCallback = Callable[[], None]


class CoarseTimers:
    """The timers of one event loop; while none is set, the loop is not woken."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        """Fire in `loop`."""
        self.loop = loop
        self._numbers = count()
        self._set: dict[int, tuple[float, TimerCallback]] = {}
        self._tick: TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._set)

    def set(self, seconds: float, ring: TimerCallback) -> int:
        """Call `ring` after `seconds`, unless `clear` is called with the returned number."""
        number = next(self._numbers)
        self._set[number] = (self.loop.time() + seconds, ring)
        if self._tick is None:
            self._tick = self.loop.call_later(TICK_SECONDS, self._fire_due)
        return number

    def clear(self, number: int) -> None:
        """Remove a timer, whether it has fired or not."""
        self._set.pop(number, None)

    def _fire_due(self) -> None:
        now = self.loop.time()
        for number, (at, ring) in list(self._set.items()):
            if at <= now and number in self._set:  # an earlier callback may have cleared it
                del self._set[number]
                ring()
        self._tick = self.loop.call_later(TICK_SECONDS, self._fire_due) if self._set else None


_last: CoarseTimers | None = None


def timers_of(loop: AbstractEventLoop) -> CoarseTimers:
    """Return the timers of a loop; a process has one loop, except in tests."""
    global _last  # noqa: PLW0603  # the cached value only saves construction
    if _last is None or _last.loop is not loop:
        _last = CoarseTimers(loop)
    return _last
