"""Jobs: claimed once, in order, under a fence; those of a dead node are done by another."""

import asyncio

import pytest

from accord.storage import migrate
from accord.storage.commands.jobs import RUN, NewJob, claim, enqueue, finish, heartbeat, reap, release
from accord.storage.commands.tasks import Entry, Fenced, NewTask, append, create_task
from tests.storage.conftest import AnyStore, Heard

TENANT = "acme"
LEASE_MS = 60_000


@pytest.fixture
async def ready(store: AnyStore) -> AnyStore:
    await migrate.upgrade(store)
    return store


async def test_the_same_work_is_kept_once(ready: AnyStore, heard: Heard) -> None:
    assert await ready.do(enqueue, TENANT, NewJob(kind=RUN, key="t-1")) is True
    assert await ready.do(enqueue, TENANT, NewJob(kind=RUN, key="t-1")) is False
    assert await ready.do(enqueue, "other", NewJob(kind=RUN, key="t-1")) is True
    assert "queue:default" in heard


async def test_urgent_work_comes_first_then_older_and_delayed_work_waits(ready: AnyStore) -> None:
    await ready.do(enqueue, TENANT, NewJob(kind=RUN, key="later", delay_ms=LEASE_MS))
    for key, priority in [("a", 5), ("b", 0), ("c", 0), ("d", -5)]:
        await ready.do(enqueue, TENANT, NewJob(kind=RUN, key=key, priority=priority))
    first = await ready.do(claim, "n-1", "default", 1)
    assert [job.key for job in first] == ["d"]
    rest = [(await ready.do(claim, "n-1", "default", 1))[0].key for _ in range(3)]
    assert rest == ["b", "c", "a"]
    assert await ready.do(claim, "n-1", "default", 10) == []
    assert await ready.do(claim, "n-1", "another", 10) == []


async def test_nobody_gets_work_that_another_has(ready: AnyStore) -> None:
    for at in range(60):
        await ready.do(enqueue, TENANT, NewJob(kind=RUN, key=f"t-{at}"))
    taken = await asyncio.gather(*(ready.do(claim, f"n-{at % 4}", "default", 7) for at in range(16)))
    keys = [job.key for jobs in taken for job in jobs]
    assert len(keys) == len(set(keys)) == 60


async def test_work_is_done_or_given_back_by_whoever_holds_it(ready: AnyStore) -> None:
    await ready.do(enqueue, TENANT, NewJob(kind=RUN, key="t-1"))
    (job,) = await ready.do(claim, "n-1", "default", 1)
    assert (job.epoch, job.attempts) == (1, 1)
    assert await ready.do(release, job) is True
    (again,) = await ready.do(claim, "n-2", "default", 1)
    assert (again.epoch, again.attempts) == (2, 2)
    assert await ready.do(finish, job) is False
    assert await ready.do(release, job) is False
    assert await ready.do(finish, again) is True
    assert await ready.do(claim, "n-1", "default", 1) == []


async def test_the_work_of_a_dead_node_is_done_by_another_and_the_dead_cannot_write(
    ready: AnyStore, heard: Heard
) -> None:
    task = NewTask(id="t-1", context_id="c", agent="echo", owner="", state="working", doc="{}")
    await ready.do(create_task, TENANT, task)
    await ready.do(enqueue, TENANT, NewJob(kind=RUN, key="t-1"))
    await ready.do(heartbeat, "zombie", -1)
    await ready.do(heartbeat, "alive", LEASE_MS)
    (first,) = await ready.do(claim, "zombie", "default", 1)
    await ready.do(append, TENANT, "t-1", first.epoch, [Entry(kind="artifact", data="one")])
    heard.clear()
    assert await ready.do(reap) == ["zombie"]
    assert "queue:default" in heard
    assert await ready.do(reap) == []
    (second,) = await ready.do(claim, "alive", "default", 1)
    assert (second.key, second.attempts) == ("t-1", 2)
    with pytest.raises(Fenced):
        await ready.do(append, TENANT, "t-1", first.epoch, [Entry(kind="artifact", data="from the grave")])
    assert await ready.do(append, TENANT, "t-1", second.epoch, [Entry(kind="artifact", data="two")]) == 2


async def test_a_heartbeat_keeps_everything_a_node_holds(ready: AnyStore) -> None:
    await ready.do(enqueue, TENANT, NewJob(kind=RUN, key="t-1"))
    await ready.do(heartbeat, "n-1", -1)
    await ready.do(claim, "n-1", "default", 1)
    await ready.do(heartbeat, "n-1", LEASE_MS)
    assert await ready.do(reap) == []
