"""Appending one event at a time, each acknowledged when it is on the disk: our log against the SDK's store.

For each event the SDK's TaskManager adds the chunk to the task in memory and saves the whole task with
`DatabaseTaskStore.save`; we append the event to the task's log with `tasks.append`, under its fence and with the
snapshot that a run writes now and then. Both are measured at the store, without agent, queue or wire: a run of ours
writes what gathered meanwhile together, which is `bench.streams`.
"""

from contextlib import AsyncExitStack
from functools import partial

import uvloop
from a2a.server.tasks import TaskStore
from a2a.types import a2a_pb2

from accord.engine.log_writer import SNAPSHOT_EVENTS
from accord.model import Artifact, Part, Task, TaskState
from accord.storage.commands import task_lifecycle, tasks
from accord.storage.commands.tasks import Append
from accord.storage.store import Store
from bench import hosting, official
from bench.report import Table, side_by_side
from bench.setting import POSTGRES, SQLITE, Setting
from bench.timing import CPU, RATE, Measured, interleaved, paced
from bench.words import TEXT

NODE = "node"
CHUNKS = 128

TOGETHER = (64, 1)

NOTES = (
    f"Each writer's task grows by one chunk of {len(TEXT)} bytes at a time; at {CHUNKS} chunks the writer begins a new"
    " task. Writers begin at different lengths, so every moment has tasks of every length.",
    "accord: `store.do(tasks.append, ...)`, one event, under its fence. a2a-sdk: `DatabaseTaskStore.save(task)`, as its"
    " TaskManager does for every event; it raises when a SQLite file is locked for too long, and is asked again.",
    "Both are durable when they return: SQLite `synchronous=FULL` (the SDK's is the driver's default, with a rollback"
    " journal), PostgreSQL `fsync` and `synchronous_commit` on.",
)


class Ours:
    """Writers to our store."""

    def __init__(self, store: Store, writers: int) -> None:
        self._store = store
        self._tasks = [hosting.new_task(TaskState.WORKING) for _ in range(writers)]
        self._lengths = [number * CHUNKS // writers for number in range(writers)]

    async def begin(self) -> None:
        for number, length in enumerate(self._lengths):
            await self._create(number)
            if length:
                await self._append(number, after=0, count=length)

    async def measure(self, seconds: float) -> Measured:
        return await paced(self._grow, len(self._tasks), seconds)

    async def _grow(self, number: int) -> None:
        if self._lengths[number] == CHUNKS:
            self._tasks[number], self._lengths[number] = hosting.new_task(TaskState.WORKING), 0
            await self._create(number)
        await self._append(number, self._lengths[number], 1)
        self._lengths[number] += 1

    async def _create(self, number: int) -> None:
        await self._store.do(task_lifecycle.accept_task, hosting.TENANT, hosting.accepting(self._tasks[number], NODE))

    async def _append(self, number: int, after: int, count: int) -> None:
        task = self._tasks[number].task
        new = Append(
            task_id=task.id,
            epoch=1,
            after=after,
            bodies=[hosting.chunk(task, TEXT)] * count,
            at=hosting.AT,
            snapshot=_grown(task) if after < SNAPSHOT_EVENTS <= after + count else None,
        )
        await self._store.do(tasks.append, hosting.TENANT, new)


def _grown(task: Task) -> Task:
    """Return a task as a run would have folded it by the time that it writes a snapshot."""
    artifact = Artifact(artifact_id="answer", parts=(Part(text=TEXT),) * SNAPSHOT_EVENTS)
    return Task(id=task.id, context_id=task.context_id, status=task.status, history=task.history, artifacts=(artifact,))


class Theirs:
    """Writers to the SDK's store."""

    def __init__(self, store: TaskStore, writers: int) -> None:
        self._store = store
        self._context = official.context()
        self._tasks = [self._new(number * CHUNKS // writers) for number in range(writers)]
        self._refused = 0

    async def begin(self) -> None:
        for task in self._tasks:
            await self._store.save(task, self._context)

    async def measure(self, seconds: float) -> Measured:
        self._refused = 0
        found = await paced(self._grow, len(self._tasks), seconds)
        return found | {"refused": self._refused}

    async def _grow(self, number: int) -> None:
        if len(self._tasks[number].artifacts[0].parts) >= CHUNKS:
            self._tasks[number] = self._new(0)
        task = self._tasks[number]
        task.artifacts[0].parts.add(text=TEXT)
        while True:
            try:
                await self._store.save(task, self._context)
                return
            except official.REFUSALS:
                self._refused += 1

    def _new(self, chunks: int) -> a2a_pb2.Task:
        task = official.new_task()
        task.artifacts.add(artifact_id="answer", parts=[a2a_pb2.Part(text=TEXT)] * chunks)
        return task


async def measured(setting: Setting) -> dict[str, dict[str, float]]:
    ours, theirs = setting.size((1.5, 3.0), (0.3, 0.5))
    contenders = {}
    async with AsyncExitStack() as stack:
        for kind in (SQLITE, POSTGRES):
            store = await stack.enter_async_context(hosting.opened(setting.database(kind)))
            other = await stack.enter_async_context(official.task_store(setting.database(kind)))
            for writers in TOGETHER:
                one, two = Ours(store, writers), Theirs(other, writers)
                await one.begin()
                await two.begin()
                contenders[f"{kind}, {writers} at once/accord"] = partial(one.measure, ours)
                contenders[f"{kind}, {writers} at once/a2a-sdk"] = partial(two.measure, theirs)
        return await interleaved(setting.rounds(3), contenders)


def run(setting: Setting) -> list[Table]:
    rows = side_by_side(uvloop.run(measured(setting)), RATE)
    columns = (f"accord {RATE}", f"a2a-sdk {RATE}", "times", f"accord {CPU}", f"a2a-sdk {CPU}", "a2a-sdk refused")
    return [Table("Append an event, durably", "events", columns, rows, (), NOTES)]
