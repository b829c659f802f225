"""Stores to test with (a file, memory and a real PostgreSQL that the tests start and stop), and what to put in them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from accord.model import (
    Artifact,
    ArtifactUpdate,
    EventBody,
    Message,
    MessageUpdate,
    Part,
    PushConfig,
    Role,
    StatusUpdate,
    Task,
    TaskState,
    TaskStatus,
)
from accord.model.base import timestamp_ms
from accord.storage import schema
from accord.storage.commands import jobs, task_lifecycle, tasks
from accord.storage.commands.jobs import ClaimedJob
from accord.storage.commands.task_endings import EndRequest
from accord.storage.commands.task_lifecycle import AcceptRequest, JobOptions, MessageRequest, SettleRequest, TaskSignal
from accord.storage.commands.tasks import Append, StoredTask, TaskCreation
from accord.storage.encoding import decode_event
from accord.storage.postgres.driver import PostgresStore
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import Row, Tx
from tests.databases import dropped, emptied, postgres

__all__ = ["postgres"]

AnyStore = SqliteStore | PostgresStore

BOUND_SECONDS = 60
TENANT, OTHER = "acme", "globex"
AGENT = "echo"
AT = 1_700_000_000_000
"""When things happen in tests, unless it matters."""

MINUTE = 60_000


class Heard(list[str]):
    """Collects the hints that a store publishes."""

    def __call__(self, topics: list[str]) -> None:
        self.extend(topics)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture(params=["sqlite-file", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, heard: Heard) -> AsyncIterator[AnyStore]:
    """An empty store of each driver. A test may ask for `sqlite-memory`, the same driver without a file."""
    found: AnyStore
    if request.param == "postgres":
        empty = emptied if "ready" in request.fixturenames else dropped
        found = PostgresStore(await empty(request.getfixturevalue("postgres")), heard)
        await found.open()
    else:
        found = SqliteStore(tmp_path / "accord.db" if request.param == "sqlite-file" else None, heard)
    yield found
    await found.close()


@pytest.fixture
async def ready(store: AnyStore) -> AnyStore:
    """A store of each kind with the tables in it."""
    await schema.upgrade_schema(store)
    return store


@pytest.fixture
async def queued(ready: AnyStore) -> AnyStore:
    """A store in which the task t-1 waits to be run."""
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    return ready


postgres_only = pytest.mark.parametrize("store", ["postgres"], indirect=True)
"""For what can only go wrong where two transactions run at the same time."""


async def overlapped(
    store: AnyStore, first: Callable[[Tx], Coroutine[Any, Any, Any]], second: Callable[[Tx], Coroutine[Any, Any, Any]]
) -> list[Any]:
    """Run `second` when `first` has done everything but commit; return what became of both."""
    done, commit = asyncio.Event(), asyncio.Event()

    async def held_back(tx: Tx) -> Any:
        result = await first(tx)
        done.set()
        await commit.wait()
        return result

    async with asyncio.timeout(BOUND_SECONDS):
        one = asyncio.create_task(store.do(held_back))
        await done.wait()
        two = asyncio.create_task(store.do(second))
        while not two.done() and not await store.read(_somebody_waits):
            pass
        commit.set()
        return list(await asyncio.gather(one, two, return_exceptions=True))


async def _somebody_waits(tx: Tx) -> bool:
    return await tx.one("SELECT 1 FROM pg_locks WHERE NOT granted") is not None


# What to put in


def new(task_id: str = "t-1", *, at: int = AT, state: TaskState = TaskState.SUBMITTED, **fields: Any) -> TaskCreation:
    """A task to create."""
    context_id = fields.pop("context_id", "c-1")
    task = Task(id=task_id, context_id=context_id, status=TaskStatus(state=state, timestamp=timestamp_ms(at)))
    return TaskCreation(**{"task": task, "agent": AGENT, "owner": "alice", "at": at, "origin": "v1", **fields})


def accepting(task_id: str = "t-1", *, node: str | None = None, queue: str = AGENT, **fields: Any) -> AcceptRequest:
    """A message that makes a task."""
    work = fields.pop("work", JobOptions(queue=queue, node=node))
    return AcceptRequest(**{"new": new(task_id), "message_id": "m-1", "work": work, **fields})


def saying(task_id: str = "t-1", text: str = "more", *, node: str | None = None, **fields: Any) -> MessageRequest:
    """A message to a task that exists."""
    work = JobOptions(queue=AGENT, node=node)
    return MessageRequest(**{"task_id": task_id, "message": message(text), "work": work, "at": AT, **fields})


def appending(task_id: str, *bodies: EventBody, epoch: int = 0, after: int = 0, **fields: Any) -> Append:
    """Events to append; the state is that of the last status among them."""
    states = [body.status.state for body in bodies if isinstance(body, StatusUpdate)]
    given: dict[str, Any] = {"at": AT, "state": states[-1] if states else None, **fields}
    return Append(task_id=task_id, epoch=epoch, after=after, bodies=bodies, **given)


def chunk(text: str, task_id: str = "t-1") -> ArtifactUpdate:
    """A piece of the task's one artifact."""
    artifact = Artifact(artifact_id="a-1", parts=(Part(text=text),))
    return ArtifactUpdate(task_id=task_id, context_id="c-1", artifact=artifact, append=True)


def status(state: TaskState, task_id: str = "t-1", at: int = AT) -> StatusUpdate:
    """A change of the task's state."""
    return StatusUpdate(task_id=task_id, context_id="c-1", status=TaskStatus(state=state, timestamp=timestamp_ms(at)))


def message(text: str) -> Message:
    """What a caller says; its id is derived from the text."""
    return Message(message_id=f"m-{text}", role=Role.USER, parts=(Part(text=text),))


def heard_message(text: str, task_id: str = "t-1") -> MessageUpdate:
    """A message that joins a task's history."""
    return MessageUpdate(task_id=task_id, context_id="c-1", message=message(text))


def webhook(id: str = "w-1", url: str = "https://example.com/hook") -> PushConfig:
    """A webhook."""
    return PushConfig(id=id, url=url)


def settling(job: ClaimedJob, state: TaskState, after: int = 0, **fields: Any) -> SettleRequest:
    """The end of a run, in this state."""
    snapshot = new(job.key, state=state).task
    last = appending(job.key, status(state, job.key), epoch=job.epoch, after=after, snapshot=snapshot)
    return SettleRequest(last=last, job=job, **fields)


def ending(state: TaskState = TaskState.CANCELED, task_id: str = "t-1", **fields: Any) -> EndRequest:
    """How a task ends from outside."""
    return EndRequest(task_id=task_id, status=TaskStatus(state=state, timestamp=timestamp_ms(AT)), at=AT + 5, **fields)


def news(key: str = "answer", output: str = "42", task_id: str = "t-1") -> TaskSignal:
    """What a task waits for."""
    return TaskSignal(task_id=task_id, key=key, output=output, at=AT)


# Looking into a store, and moving its clock


async def pass_time(tx: Tx, milliseconds: int) -> None:
    """Make everything that is kept as old as if so much time had passed."""
    for table, column in (("job", "run_at"), ("node", "expires_at"), ("push", "due_at"), ("idempotency", "expires_at")):
        await tx.run(f"UPDATE {table} SET {column} = {column} - :ms", ms=milliseconds)


async def table(tx: Tx, name: str, columns: str = "*") -> list[Row]:
    """Return every row of a table."""
    return await tx.all(f"SELECT {columns} FROM {name} ORDER BY 1, 2")


async def stored(store: AnyStore, task_id: str = "t-1", tenant: str = TENANT) -> StoredTask:
    """A task as it is kept."""
    found = await store.read(tasks.read_task, tenant, task_id)
    assert found is not None
    return found


async def bodies(store: AnyStore, task_id: str = "t-1") -> list[Any]:
    """What a task's log says."""
    return [decode_event(row).body for row in await store.read(tasks.events_after, TENANT, task_id, 0)]


async def claimed(store: AnyStore, node: str = "n-1", queue: str = AGENT) -> ClaimedJob:
    """Claim the one job that is due."""
    (job,) = await store.do(jobs.claim, node, queue, 10)
    return job


async def waiting(store: AnyStore) -> list[tuple[str, str]]:
    """Every job as (kind, key)."""
    return [(kind, key) for kind, key in await store.read(table, "job", "kind, key")]


async def parked(store: AnyStore, awaited: str | None = None, delay_ms: int | None = None) -> ClaimedJob:
    """Claim the one job that is due and park it."""
    job = await claimed(store)
    await store.do(
        task_lifecycle.settle_execution,
        TENANT,
        settling(job, TaskState.WORKING, parks=True, awaited=awaited, delay_ms=delay_ms),
    )
    return job
