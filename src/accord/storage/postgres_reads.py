"""Tasks read by key, many with one statement: whatever is asked for while another look is under way.

A statement of its own for each costs more than all the rest of reading a task. Nobody waits for others to come; and
what changed between two looks at a task is `Torn`, as everywhere.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from accord.storage.commands import tasks
from accord.storage.commands.tasks import Stored
from accord.storage.store import BadValue, Row, StoreUnavailable, Tx, refuse_nul

TOGETHER = 2
"""Looks under way at once: while the answer of one is read, the server works on the next."""

MOST = 256
"""Tasks in one look."""

Key = tuple[str, str]
Waiting = list["asyncio.Future[Stored | None]"]
Connect = Callable[[], AbstractAsyncContextManager[Any]]

_LOOK = f"""SELECT found.* FROM unnest($1::text[], $2::text[]) AS wanted(tenant, id),
            LATERAL (SELECT task.tenant, {tasks.COLUMNS}
                     WHERE task.tenant = wanted.tenant AND task.id = wanted.id OFFSET 0) AS found"""
"""One look-up by key for each: without OFFSET the planner may read the whole table instead."""


class Reads:
    """Reads tasks of one database."""

    def __init__(self, connect: Connect, transaction: Callable[[Any], Tx]) -> None:
        """Read on what `connect` gives; `transaction` makes commands run on it."""
        self._connect = connect
        self._transaction = transaction
        self._wanted: dict[Key, Waiting] = {}
        self._workers: set[asyncio.Task[None]] = set()

    async def task(self, tenant: str, task_id: str) -> Stored | None:
        """Return a task's snapshot and the events after it, or raise `Torn`."""
        refuse_nul((tenant, task_id))
        try:  # here, because in a look it would be everybody's mistake
            (tenant + task_id).encode()
        except UnicodeEncodeError as error:
            raise BadValue(f"PostgreSQL: {error}") from error
        done: asyncio.Future[Stored | None] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault((tenant, task_id), []).append(done)
        if len(self._workers) < TOGETHER:
            self._workers.add(asyncio.create_task(self._work(), name="accord-reads"))
        return await done

    async def close(self) -> None:
        """Let nobody wait any more."""
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        left, self._wanted = self._wanted, {}
        _fail(left, StoreUnavailable("The store was closed"))

    async def _work(self) -> None:
        try:
            while self._wanted:
                taken = {key: self._wanted.pop(key) for key in list(self._wanted)[:MOST]}
                await self._answer(taken)
        finally:  # not by a callback: until that is called, whoever comes would wait for a worker that has ended
            self._workers.discard(asyncio.current_task())

    async def _answer(self, taken: dict[Key, Waiting]) -> None:
        try:
            await self._look(taken)
        except Exception as error:  # it belongs to those who wait
            _fail(taken, error)
        except BaseException:
            _fail(taken, StoreUnavailable("The store was closed"))
            raise

    async def _look(self, taken: dict[Key, Waiting]) -> None:
        async with self._connect() as connection:
            tenants, ids = zip(*taken, strict=True)
            rows: Sequence[Row] = await connection.fetch(_LOOK, tenants, ids)
            found = {(row[0], row[1]): tuple(row)[1:] for row in rows}
            for key, waiting in taken.items():
                row = found.get(key)
                try:
                    stored = None if row is None else await self._whole(connection, key, row)
                except tasks.Torn as error:
                    _fail({key: waiting}, error)
                    continue
                for done in waiting:
                    if not done.done():
                        done.set_result(stored)

    async def _whole(self, connection: Any, key: Key, row: Row) -> Stored | None:
        """Return a task; what came after its snapshot is read by itself, with the task as it is by then."""
        if not tasks.behind(row):
            return tasks.as_stored(row)
        return await tasks.read_task(self._transaction(connection), *key)


def _fail(taken: dict[Key, Waiting], error: Exception) -> None:
    for waiting in taken.values():
        for done in waiting:
            if not done.done():
                done.set_exception(error)
