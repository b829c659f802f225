"""A clock that tests advance, so that minutes pass without waiting."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import apsw

from accord.engine.clock import Clock

T = TypeVar("T")

STEP_SECONDS = 1.0
"""Time advances in steps, so that events happen in order: retries wait 1, 2, 4 ... seconds."""

MOST_STEPS = 500
"""A longer time advances in longer steps, because each takes a millisecond or two."""

TURNS = 10
"""Turns of the loop in which a woken task queries the store."""

ROUNDS = 3
"""Times that the store is awaited after each step: a woken task queries, gets its result, and queries again."""

PATIENCE_SECONDS = 10.0
"""Timeout for work that is due but unfinished, in seconds: threads and other processes run in real time."""

Settle = Callable[[], Awaitable[Any]]


class MovableClock:
    """A clock that is ahead of the machine's clock by an offset that tests set."""

    def __init__(self) -> None:
        self._ahead = 0.0
        self._settle: list[Settle] = []
        self._bounds: set[asyncio.Timeout] = set()
        self._uses = 0
        self.clock = Clock(now=self.now, monotonic=self.monotonic)
        """The clock in the form that an application accepts."""

    def now(self) -> float:
        """Return the time of day, in seconds."""
        return time.time() + self._ahead

    def monotonic(self) -> float:
        """Return a monotonic time, in seconds."""
        return time.monotonic() + self._ahead

    async def advance(self, seconds: float, step: float = STEP_SECONDS) -> None:
        """Advance the time in steps.

        After each step, due work is finished as far as it needs only the store. A pending request to another process
        sees the full time pass as well.
        """
        if seconds < 0 or step <= 0:
            raise ValueError("Time only goes forward")
        left, step = seconds, max(step, seconds / MOST_STEPS)
        while left > 0:
            self._move(min(step, left))
            left -= step
            await self._settled()

    async def until(
        self, what: Awaitable[T], *, within: float, step: float = STEP_SECONDS, patience: float = PATIENCE_SECONDS
    ) -> T:
        """Advance the time until an awaitable is done, and return its result.

        Raises TimeoutError if it is not done `within` seconds. Work that is due but unfinished is awaited for
        `patience` seconds of real time.
        """
        happening = asyncio.ensure_future(what)
        try:
            await self._settled()
            passed = 0.0
            while not happening.done() and passed < within:
                self._move(step)
                passed += step
                await self._settled()
            await asyncio.wait({happening}, timeout=patience)
            if not happening.done():
                raise TimeoutError(f"It has not happened within {within:g} seconds")
            return happening.result()
        finally:
            happening.cancel()
            await asyncio.wait({happening})

    @asynccontextmanager
    async def bound(self, seconds: float) -> AsyncIterator[None]:
        """Raise TimeoutError after a real time, regardless of this clock: a hanging test gives no information."""
        async with asyncio.timeout(seconds) as timeout:
            self._bounds.add(timeout)
            try:
                yield
            finally:
                self._bounds.discard(timeout)

    def _move(self, seconds: float) -> None:
        self._ahead += seconds
        for timeout in self._bounds:
            if (when := timeout.when()) is not None and not timeout.expired():
                timeout.reschedule(when + seconds)

    async def _settled(self) -> None:
        for _ in range(ROUNDS):
            for _ in range(TURNS):
                await asyncio.sleep(0)
            for settle in self._settle:
                await settle()

    # --- the clocks that it moves ---------------------------------------------------------------------------------

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Move the clock of the running loop, and of every SQLite database that is opened in the block."""
        loop: Any = asyncio.get_running_loop()  # whose method is replaced
        if asyncio.BaseEventLoop not in type(loop).__mro__:
            raise TypeError(f"The clock of {type(loop).__module__} cannot be moved: use asyncio's own event loop")
        if not self._uses and "time" in vars(loop):
            raise RuntimeError("Another clock moves this loop already: servers of one test share one")
        self._uses += 1
        if self._uses == 1:
            own = loop.time
            loop.time = lambda: own() + self._ahead
            apsw.connection_hooks.append(self._hook)
        try:
            yield
        finally:
            self._uses -= 1
            if not self._uses:
                apsw.connection_hooks.remove(self._hook)
                del loop.time

    def _hook(self, connection: apsw.Connection) -> None:
        """Make a database return this clock's time: `{now}` in its statements is `unixepoch('subsec')`."""
        connection.create_scalar_function("unixepoch", lambda *_: self.now(), 1)

    def settle_with(self, settle: Settle) -> Callable[[], None]:
        """Await `settle` after each step. Returns a function that removes it."""
        self._settle.append(settle)
        return lambda: self._settle.remove(settle)
