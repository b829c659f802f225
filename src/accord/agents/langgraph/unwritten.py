"""What a graph has given to be kept and is not committed yet: a step and what its nodes gave are one commit.

It decides when, not what: what must be durable now is waited for, and takes along all that came before it; anything
else is committed with that, or by itself a moment later. Whoever cannot write once never writes again, because a step
says only what it has changed. Above is `checkpoints`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from accord.storage.commands.checkpoints import Given, Step

SOON_SECONDS = 0.02
"""How long what a node gave may wait for its step: longer than a step takes to end whose nodes have all ended, and
little beside what a node does that is worth keeping while others of the step are at work."""


class Unwritten:
    """Steps and what nodes gave, in the order in which they came."""

    def __init__(self, commit: Callable[[Sequence[Step | Given]], Awaitable[None]]) -> None:
        """Commit with `commit`, all or nothing."""
        self._commit = commit
        self._kept: list[Step | Given] = []
        self._soon: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._error: Exception | None = None

    def add(self, one: Step | Given) -> None:
        """Have it committed soon; raises what went wrong before."""
        if self._error is not None:
            raise self._error
        self._kept.append(one)
        if self._soon is None and self._writing is None:
            self._soon = asyncio.get_running_loop().call_later(SOON_SECONDS, self._begin)

    async def flush(self) -> None:
        """Wait until all of it is committed; whoever is cancelled meanwhile does not cancel that."""
        while self._kept or self._writing is not None:
            self._begin()
            if self._writing is not None:
                await asyncio.shield(self._writing)
        if self._error is not None:
            raise self._error

    def drop(self) -> None:
        """Commit no more; nothing is under way afterwards."""
        self._kept.clear()
        for one in (self._soon, self._writing):
            if one is not None:
                one.cancel()

    def _begin(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="checkpoints")

    async def _write(self) -> None:
        """Commit until nothing is left; what comes meanwhile is the next commit."""
        try:
            while self._kept:
                taken, self._kept = self._kept, []
                await self._commit(taken)
        except Exception as error:  # those who wait are told, and those who come
            self._error = error
            self._kept.clear()
        finally:
            self._writing = None
