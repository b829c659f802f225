"""The database comes back as an earlier copy while nodes run: its tasks end, and subscribers see their ends."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from accord.model import Event, Task, TaskState
from tests.crash.agents import whole
from tests.crash.conftest import (
    BOUND_SECONDS,
    Client,
    Fact,
    Node,
    Postgres,
    Start,
    connected,
    running_postgres,
    text,
    until,
)

LEASE_SECONDS = 6.0
"""Longer than the database is away."""

COUNT = 60
ORDERED = f"{COUNT} 0.25"
"""Chunks that take longer than copying the database."""


@pytest.fixture
def restorable() -> Iterator[Postgres]:
    """A server of the test's own: its data is replaced."""
    with running_postgres() as server:
        yield server


@contextmanager
def stopped(server: Postgres) -> Iterator[Path]:
    """The folder of a server that is not running meanwhile."""
    server.kill()
    yield server.folder
    server.start()


async def test_tasks_end_on_a_restored_postgresql(restorable: Postgres, start: Start, tmp_path: Path) -> None:
    store_url = await restorable.empty()
    async with connected(store_url) as client:
        nodes = await asyncio.gather(*(start(store_url, lease=LEASE_SECONDS) for _ in range(2)))
        agents = ("chunks", "careful", "parent") * 2
        task_ids = await asyncio.gather(*(client.send(agent, ORDERED) for agent in agents))
        waiting = await client.send("brief", "8")
        for task_id in task_ids[:2]:
            await client.reaches(task_id, 5)
        with stopped(restorable) as folder:
            await asyncio.to_thread(copy, folder, tmp_path / "copy")
        seen: list[list[Event]] = [[], []]
        following = [
            asyncio.create_task(followed(client, agent, task_id, into))
            for agent, task_id, into in zip(agents, task_ids, seen, strict=False)
        ]
        await until(lambda: all(len(events) > 20 for events in seen))
        vanished = await client.send("chunks", ORDERED)
        await client.reaches(vanished, 3)
        assert not any(one.done() for one in following)
        with stopped(restorable) as folder:
            await asyncio.to_thread(copy, tmp_path / "copy", folder)
        for task in await asyncio.gather(*map(client.rested, [*task_ids, waiting])):
            assert task.status.state is TaskState.COMPLETED, task.status
            assert task.id == waiting or text(task) == whole(COUNT)
        async with asyncio.timeout(BOUND_SECONDS):
            await asyncio.gather(*following)
        for events in seen:
            again = [at for at, event in enumerate(events) if isinstance(event.body, Task)][-1]
            assert again, "subscribers start from the task"
            log = await client.log(events[0].body.id if isinstance(events[0].body, Task) else "")
            assert events[again + 1 :] == log[events[again].seq :]
        assert [fact for node in nodes for fact in losses(node)]


def copy(folder: Path, to: Path) -> None:
    """Copy a server's data, with its owner."""
    shutil.rmtree(to, ignore_errors=True)
    subprocess.run(["cp", "-a", folder, to], check=True)


LOST = ("store.lost_events", "store.went_back")


def losses(node: Node) -> list[Fact]:
    """What a node has logged of losses."""
    return [fact for fact in node.facts["logged"] if fact["message"] in LOST]


async def followed(client: Client, agent: str, task_id: str, into: list[Event]) -> None:
    async for event in client.follow(agent, task_id):
        into.append(event)
