"""How long an event takes to those who follow it in another process.

This process appends at a steady pace; the other (`latency_process`) follows with a hub, as a server does, and compares
the time in each event with its own clock, which both processes share.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import uvloop

from accord.model import TaskState
from accord.storage.commands import tasks
from accord.storage.commands.tasks import Append, TaskCreation
from accord.storage.store import Store
from bench import hosting
from bench.report import Table, Target
from bench.setting import POSTGRES, SQLITE, Setting
from bench.timing import Measured, interleaved

ROOT = Path(__file__).resolve().parent.parent
TASKS = 20
FOLLOWERS = 5
PER_SECOND = 200
P50_MS = 5.0
LATEST_SECONDS = 30
"""How much longer than the writing the following may take before something is broken."""

COLUMNS = ("p50", "p99", "commit p50", "commit p99")

NOTES = (
    f"{TASKS} tasks, {PER_SECOND} events a second in all, {FOLLOWERS} followers for each task in another process."
    " Milliseconds from the call of `tasks.append` to the follower; the commit is the part until it returns.",
    "PostgreSQL carries hints with NOTIFY. SQLite carries none between processes: followers there poll once a second,"
    " and it is shown for information.",
)


async def followed(setting: Setting, kind: str) -> Measured:
    """Append to tasks that are followed elsewhere, and return how late what arrived."""
    address = setting.database(kind)
    count = setting.size(50, 10)
    async with hosting.opened(address) as store:
        new = [hosting.new_task(TaskState.WORKING) for _ in range(TASKS)]
        for one in new:
            await store.do(tasks.create_task, hosting.TENANT, one, 1)
        ids = [one.task.id for one in new]
        asked = {"address": address, "tasks": ids, "followers": FOLLOWERS, "count": count}
        async with asyncio.timeout(count * TASKS / PER_SECOND + LATEST_SECONDS), _process(asked) as following:
            assert await following.readline() == b"ready\n"
            written = await asyncio.gather(*(_write(store, one, place, count) for place, one in enumerate(new)))
            arrived = json.loads(await following.readline())
    assert arrived["count"] == TASKS * FOLLOWERS * count
    commits = statistics.quantiles([taken for one in written for taken in one], n=100)
    return {"p50": arrived["p50"], "p99": arrived["p99"], "commit p50": commits[49], "commit p99": commits[98]}


@asynccontextmanager
async def _process(asked: dict[str, object]) -> AsyncIterator[asyncio.StreamReader]:
    """Run the other process and give what it says."""
    script = (sys.executable, "-m", "bench.latency_process", json.dumps(asked))
    process = await asyncio.create_subprocess_exec(*script, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


async def _write(store: Store, new: TaskCreation, place: int, count: int) -> list[float]:
    """Append at a steady pace, each event with the time of its writing; return what the commits took."""
    start, interval = time.monotonic() + place / PER_SECOND, TASKS / PER_SECOND
    commits = []
    for number in range(count):
        await asyncio.sleep(max(0, start + number * interval - time.monotonic()))
        at = time.monotonic_ns()
        bodies = [hosting.chunk(new.task, str(at))]
        append = Append(task_id=new.task.id, epoch=1, after=number, bodies=bodies, at=hosting.AT)
        await store.do(tasks.append, hosting.TENANT, append)
        commits.append((time.monotonic_ns() - at) / 1e6)
    return commits


def run(setting: Setting) -> list[Table]:
    contenders = {kind: partial(followed, setting, kind) for kind in (POSTGRES, SQLITE)}
    rows = uvloop.run(interleaved(setting.rounds(3), contenders))
    targets = (Target(POSTGRES, "p50", at_most=P50_MS),)
    return [Table("From append to follower, across processes", "milliseconds", COLUMNS, rows, targets, NOTES)]
