"""Group commit for PostgreSQL: commands that arrive during one transaction share the next.

What a batch does not do runs alone, as the portable command in a transaction of its own: the item it found no rows for,
and every item of a batch that the server refused, of which only one may be at fault. So results and exceptions are
those of the portable command. Which commands there are, and their statements, is `postgres_overrides`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, NamedTuple

import asyncpg
from msgspec import Struct

from accord.storage.store import BadValue, StoreInterrupted, StoreUnavailable

MAX_ITEMS = 512
"""Commands in one transaction: enough to hide the fsync, few enough that nobody waits long behind them."""

FEW_ITEMS = 16
"""Commands that are worth a transaction: of more, half go with a second one, so that one is under way while the answers
to the other are read."""

TOGETHER = 2
"""Transactions under way at a time: while the server writes one to its disk, the next is prepared and sent."""

MAX_CHARACTERS = 4_000_000
"""Text in one transaction, give or take an item: it is held several times over while it is sent."""

CLOSE_SECONDS = 15.0
"""How long closing waits for what was accepted."""

log = logging.getLogger("accord.postgres")


class Item(Struct, frozen=True):
    """One command, ready to be written with others.

    No two items of a batch share any of the `keys`. What is written is `line`, which is `row` as text, and the lines of
    its `entries` and `notes`; `result` and `topics` are returned and published for it, unless writing finds out better.
    """

    keys: tuple[Hashable, ...]
    row: Any
    line: str
    entries: Sequence[str] = ()
    result: Any = None
    topics: tuple[str, ...] = ()
    notes: Sequence[str] = ()

    def characters(self) -> int:
        """Return how much text there is to write."""
        return len(self.line) + sum(map(len, self.entries)) + sum(map(len, self.notes))


class Written(Struct, frozen=True):
    """What became of an item that was written."""

    result: Any
    topics: tuple[str, ...] = ()


Begin = Callable[[], AbstractAsyncContextManager[Any]]
"""Gives a connection, on which each statement is a transaction by itself or all together are one."""

Write = Callable[[Any, Sequence[Item]], Awaitable[Mapping[int, Written]]]
"""Writes items on a connection and returns what became of each, by position; some it may leave out."""


class Stage(NamedTuple):
    """A way to write items that it takes: the next gets those that it leaves out, and what the last does runs alone."""

    begin: Begin
    write: Write
    takes: Callable[[Item], bool] = lambda _: True
    is_statement: bool = False
    """Whether what it has written is committed at once: nobody waits until the connection is given back."""


class Waiting(Struct, frozen=True):
    """An item and who waits for it: None tells them to run it alone."""

    item: Item
    done: "asyncio.Future[Written | None]"


class Batcher:
    """Writes what has gathered, a transaction while the one before it is being committed."""

    def __init__(self, stages: Sequence[Stage], publish: Callable[[list[str]], None], turns: int = 0) -> None:
        """Wait for so many turns of the loop, at most, until nobody else comes."""
        self._stages = stages
        self._publish = publish
        self._turns = turns
        self._gathered: list[Waiting] = []
        self._held: set[Hashable] = set()
        self._under_way = 0
        self._workers: set[asyncio.Task[None]] = set()
        self._closed = False

    def put(self, item: Item) -> "asyncio.Future[Written | None]":
        """Write an item together with others; what is returned becomes None if it has to run alone.

        Whoever stops waiting disturbs nobody: what is in a transaction by then is written, what is not is left out.
        """
        if self._closed:
            raise StoreUnavailable("The store is closed")
        done: asyncio.Future[Written | None] = asyncio.get_running_loop().create_future()
        self._gathered.append(Waiting(item, done))
        # A second transaction begins once it is worth one: with half as much as the first, both stay of like size.
        if len(self._gathered) >= self._under_way // 2:
            self._begin()
        return done

    def _begin(self) -> None:
        if len(self._workers) < TOGETHER:
            self._workers.add(asyncio.create_task(self._work(), name="accord-batch"))

    async def close(self) -> None:
        """Finish what was accepted, and accept no more."""
        self._closed = True
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=CLOSE_SECONDS)
            for worker in late:
                worker.cancel()

    async def _work(self) -> None:
        try:
            while batch := await self._next_calm():
                if self._gathered:
                    self._begin()
                await self._write(batch)
                await asyncio.sleep(0)  # whoever got an answer can come back with what is next
        finally:  # not by a callback: until that is called, whoever comes would wait for a worker that has ended
            self._workers.discard(asyncio.current_task())

    async def _next_calm(self) -> list[Waiting]:
        """Take what has gathered once nobody else comes: of many who come at once none goes ahead alone."""
        seen = 0
        for _ in range(self._turns):
            if len(self._gathered) <= seen:
                break
            seen = len(self._gathered)
            await asyncio.sleep(0)
        return self._next()

    async def _write(self, batch: list[Waiting]) -> None:
        left = batch
        try:
            for stage in self._stages:
                left = await self._through(stage, left)
            self._leave(left)
        except Exception as error:
            self._refuse(left, error)
        except BaseException:
            self._fail([*left, *self._gathered], StoreUnavailable("The store was closed"))
            raise
        finally:
            self._under_way -= len(batch)
            for waiting in batch:
                self._held.difference_update(waiting.item.keys)

    async def _through(self, stage: Stage, batch: list[Waiting]) -> list[Waiting]:
        """Write what a stage can, tell those who wait for it, and return the rest."""
        taken = [waiting for waiting in batch if stage.takes(waiting.item)]
        if not taken:
            return batch
        async with stage.begin() as connection:
            written = await stage.write(connection, [waiting.item for waiting in taken])
            if stage.is_statement:
                self._deliver(taken, written)
        if not stage.is_statement:
            self._deliver(taken, written)
        done = {id(taken[position]) for position in written}
        return [waiting for waiting in batch if id(waiting) not in done]

    def _refuse(self, batch: list[Waiting], error: Exception) -> None:
        """Let each run alone if what the server refused may be the fault of one, or passes when it is less."""
        if isinstance(error, asyncpg.PostgresError | BadValue | StoreInterrupted):
            log.warning("a batch was refused, its commands run alone", extra={"reason": str(error)})
            self._leave(batch)
        else:
            self._fail(batch, error)

    def _next(self) -> list[Waiting]:
        """Take some of what has gathered; what shares a key with it, and what is too much, waits for the next."""
        batch: list[Waiting] = []
        left: list[Waiting] = []
        taken = self._held
        characters = 0
        most = min(MAX_ITEMS, max(FEW_ITEMS, (len(self._gathered) + self._under_way + 1) // 2))
        for waiting in self._gathered:
            if waiting.done.done():
                continue  # whoever waited gave up
            full = len(batch) >= most or characters >= MAX_CHARACTERS
            if full or not taken.isdisjoint(waiting.item.keys):
                left.append(waiting)
            else:
                batch.append(waiting)
                taken.update(waiting.item.keys)
                characters += waiting.item.characters()
        self._gathered = left
        self._under_way += len(batch)
        return batch

    def _deliver(self, batch: list[Waiting], written: Mapping[int, Written]) -> None:
        topics: list[str] = []
        for position, outcome in written.items():
            topics += outcome.topics
            done = batch[position].done
            if not done.done():
                done.set_result(outcome)
        if topics:
            self._publish(topics)

    def _leave(self, batch: list[Waiting]) -> None:
        """Let each run alone."""
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_result(None)

    def _fail(self, batch: list[Waiting], error: Exception) -> None:
        for waiting in batch:
            if not waiting.done.done():
                waiting.done.set_exception(error)


class Override(NamedTuple):
    """A command by sets: how its arguments become an item, and the batcher that takes it."""

    item: Callable[..., Item]
    batcher: Batcher

    def put(self, *args: Any, **kwargs: Any) -> "asyncio.Future[Written | None] | None":
        """Run the command with others; what cannot even be written down is the portable command's to refuse."""
        try:
            item = self.item(*args, **kwargs)
        except ValueError:
            return None
        return self.batcher.put(item)
