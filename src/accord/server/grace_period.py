"""The one deadline of a server that stops: requests, calls and executions share it."""

import asyncio
from collections.abc import Callable


class GracePeriod:
    """The time that is left to what is still being done."""

    def __init__(self, seconds: float) -> None:
        """Leave so many seconds, which begin when somebody says so."""
        self.is_over = False
        self.at_end: list[Callable[[], None]] = []
        self._seconds = seconds
        self._alarm: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Let the time run; it does so once."""
        if self._alarm is None:
            self._alarm = asyncio.get_running_loop().call_later(self._seconds, self.end)

    def left(self) -> float:
        """Return how many seconds there still are."""
        if self._alarm is None:
            return self._seconds
        return 0.0 if self.is_over else max(0.0, self._alarm.when() - asyncio.get_running_loop().time())

    def end(self) -> None:
        """Have everything end that still goes on."""
        if self._alarm is not None:
            self._alarm.cancel()
        self.is_over = True
        for tell in self.at_end:
            tell()
