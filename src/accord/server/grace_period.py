"""The one deadline of a server that stops: requests, calls and executions share it."""

import asyncio
from collections.abc import Callable


class GracePeriod:
    """The time limit for work in progress of a stopping server."""

    def __init__(self, seconds: float) -> None:
        """Create a period of so many seconds, which starts with `begin`."""
        self.is_over = False
        self.at_end: list[Callable[[], None]] = []
        self._seconds = seconds
        self._alarm: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Start the period. Later calls have no effect."""
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._seconds, self.end)

    def left(self) -> float:
        """Return the remaining seconds."""
        if self._alarm is None:
            return self._seconds
        return 0.0 if self.is_over else max(0.0, self._alarm.when() - asyncio.get_running_loop().time())

    def end(self) -> None:
        """End the period, and call `at_end`."""
        if self._alarm is not None:
            self._alarm.cancel()
        self.is_over = True
        for tell in self.at_end:
            tell()
