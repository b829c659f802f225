"""A clock that tests move: minutes pass as fast as the work that is done in them."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import apsw

from accord.engine.clock import Clock

T = TypeVar("T")

STEP_SECONDS = 1.0
"""Time passes in steps, so that what is due within it happens in its order: retries wait 1, 2, 4 ... seconds."""

MOST_STEPS = 500
"""A longer time passes in longer steps: each takes a millisecond or two."""

TURNS = 10
"""Turns of the loop in which whoever was woken asks the store for something."""

ROUNDS = 3
"""How often the store is waited for after each step: who was woken asks, is answered, and asks again."""

PATIENCE_SECONDS = 10.0
"""How long to wait for what is due and not done yet: threads and other processes have their own pace."""

Settle = Callable[[], Awaitable[Any]]


class MovableClock:
    """A clock that is ahead of the machine's by as much as tests say."""

    def __init__(self) -> None:
        """Begin with the machine's time."""
        self._ahead = 0.0
        self._settle: list[Settle] = []
        self._bounds: set[asyncio.Timeout] = set()
        self._uses = 0
        self.clock = Clock(now=self.now, monotonic=self.monotonic)
        """It, as an application takes it."""

    def now(self) -> float:
        """Return the time of day, in seconds."""
        return time.time() + self._ahead

    def monotonic(self) -> float:
        """Return a time that is never set back, in seconds."""
        return time.monotonic() + self._ahead

    async def advance(self, seconds: float, step: float = STEP_SECONDS) -> None:
        """Let time pass, in steps after each of which what is due is done, as far as it needs nothing but the store.

        A request to another process that is under way meanwhile sees all of this time pass as well.
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
        """Let time pass until something has happened, and return what came of it; TimeoutError if it has not `within`.

        What takes its time although it is due by then is waited for with `patience`, in the machine's time.
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
        """Raise TimeoutError after a time of the machine's, whatever passes here: a test that hangs says nothing."""
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
        """Move the clock of the running loop, and of every SQLite database that is opened while the block runs."""
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
        """Have a database say our time: `{now}` in its statements is `unixepoch('subsec')`."""
        connection.create_scalar_function("unixepoch", lambda *_: self.now(), 1)

    def settle_with(self, settle: Settle) -> Callable[[], None]:
        """Wait with `settle` after each step; returns what ends that."""
        self._settle.append(settle)
        return lambda: self._settle.remove(settle)
