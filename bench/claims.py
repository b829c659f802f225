"""Claiming and finishing work: how fast one node can take jobs from the store and be done with them.

A node claims up to 64 jobs at once and finishes each on its own, under its fence; it claims the next while it finishes
the last, as an engine does. The jobs run tasks that exist, so every claim raises their fences.
"""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from time import perf_counter

import uvloop

from accord.engine.node import CLAIM
from accord.storage.commands import jobs, task_lifecycle
from accord.storage.commands.jobs import ClaimedJob
from accord.storage.store import Store
from bench import hosting
from bench.report import Table, Target
from bench.setting import POSTGRES, SQLITE, Setting
from bench.timing import Measured, interleaved

JOBS = 4096
SINGLE_JOBS = 512
NODE = "node"
PER_SECOND = 5000
ACCEPTED_AT_ONCE = 256

RATE = "jobs per second"

NOTES = (
    f"`jobs.claim` of {CLAIM} (or 1) at a time by one node, then `jobs.finish` of each; durable when they return.",
    f"The target of {PER_SECOND:,} a second is absolute, so it says something about an idle machine only.",
)


async def fill(store: Store, count: int) -> None:
    """Accept so many tasks, whose jobs nobody takes yet."""
    for start in range(0, count, ACCEPTED_AT_ONCE):
        made = [hosting.accepting(hosting.new_task()) for _ in range(min(ACCEPTED_AT_ONCE, count - start))]
        await asyncio.gather(*(store.do(task_lifecycle.accept_task, hosting.TENANT, new) for new in made))


async def drain(store: Store, at_once: int) -> int:
    """Claim and finish everything, and return how much that was."""
    done = 0
    found: list[ClaimedJob] = await store.do(jobs.claim, NODE, hosting.AGENT, at_once)
    while found:
        done += len(found)
        finishing = asyncio.gather(*(store.do(jobs.finish, job) for job in found))
        found = await store.do(jobs.claim, NODE, hosting.AGENT, at_once)
        assert all(await finishing)
    return done


async def drained(store: Store, at_once: int, count: int) -> Measured:
    await fill(store, count)
    start = perf_counter()
    done = await drain(store, at_once)
    assert done == count
    return {RATE: done / (perf_counter() - start)}


async def measured(setting: Setting) -> dict[str, Measured]:
    contenders = {}
    async with AsyncExitStack() as stack:
        for kind in (SQLITE, POSTGRES):
            store = await stack.enter_async_context(hosting.opened(setting.database(kind)))
            await store.do(jobs.heartbeat, NODE, 3_600_000)
            many, few = setting.size((JOBS, SINGLE_JOBS), (JOBS // 8, SINGLE_JOBS // 8))
            contenders[_row(kind, CLAIM)] = partial(drained, store, CLAIM, many)
            contenders[_row(kind, 1)] = partial(drained, store, 1, few)
        return await interleaved(setting.rounds(5), contenders)


def _row(kind: str, at_once: int) -> str:
    return f"{kind}, claims of {at_once}"


def run(setting: Setting) -> list[Table]:
    rows = uvloop.run(measured(setting))
    targets = tuple(Target(_row(kind, CLAIM), RATE, at_least=PER_SECOND) for kind in (SQLITE, POSTGRES))
    return [Table("Claim and finish work", "node-level claims", (RATE,), rows, targets, NOTES)]
