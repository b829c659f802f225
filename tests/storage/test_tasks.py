"""Tasks and their logs: gapless numbers under concurrency, the fence, snapshots and what comes after them."""

import asyncio

import pytest

from accord.storage import migrate
from accord.storage.commands.tasks import Entry, Fenced, NewTask, append, create_task, events_after, read_task
from accord.storage.store import Tx
from tests.storage.conftest import AnyStore, Heard

TENANT = "acme"


def new(task_id: str = "t-1") -> NewTask:
    return NewTask(id=task_id, context_id="c-1", agent="echo", owner="alice", state="submitted", doc="{}", origin="v1")


def chunk(text: str) -> Entry:
    return Entry(kind="artifact", data=text)


async def claim(tx: Tx, task_id: str, epoch: int) -> None:
    await tx.run("UPDATE task SET epoch = :epoch WHERE id = :id", id=task_id, epoch=epoch)


@pytest.fixture
async def ready(store: AnyStore) -> AnyStore:
    await migrate.upgrade(store)
    await store.do(create_task, TENANT, new())
    return store


async def test_a_task_is_kept_as_it_was_given(ready: AnyStore) -> None:
    found = await ready.read(read_task, TENANT, "t-1")
    assert found is not None
    assert (found.id, found.owner, found.agent, found.origin) == ("t-1", "alice", "echo", "v1")
    assert (found.state, found.doc, found.last_seq, found.events) == ("submitted", "{}", 0, ())
    assert await ready.read(read_task, "another", "t-1") is None
    assert await ready.read(read_task, TENANT, "t-2") is None


async def test_events_are_numbered_without_gaps_whoever_appends(ready: AnyStore, heard: Heard) -> None:
    last = await asyncio.gather(
        *(ready.do(append, TENANT, "t-1", 0, [chunk(f"{at}-{n}") for n in range(3)]) for at in range(20))
    )
    assert sorted(last) == list(range(3, 61, 3))
    events = await ready.read(events_after, TENANT, "t-1", 0)
    assert [seq for seq, *_ in events] == list(range(1, 61))
    for group in (events[at : at + 3] for at in range(0, 60, 3)):
        assert len({data.partition("-")[0] for _, _, data, _ in group}) == 1, "one append stays together"
    assert f"task:{TENANT}:t-1" in heard


async def test_reading_gives_the_snapshot_and_what_came_after_it(ready: AnyStore) -> None:
    await ready.do(
        append, TENANT, "t-1", 0, [chunk("a"), Entry(kind="status", data="s", state="working", doc='{"n":2}')]
    )
    await ready.do(append, TENANT, "t-1", 0, [chunk("b")])
    found = await ready.read(read_task, TENANT, "t-1")
    assert found is not None
    assert (found.state, found.doc, found.doc_seq, found.last_seq) == ("working", '{"n":2}', 2, 3)
    assert [(seq, data) for seq, _, data, _ in found.events] == [(3, "b")]


async def test_following_goes_on_after_a_cursor(ready: AnyStore) -> None:
    await ready.do(append, TENANT, "t-1", 0, [chunk(str(at)) for at in range(10)])
    assert [row[0] for row in await ready.read(events_after, TENANT, "t-1", 7)] == [8, 9, 10]
    assert [row[0] for row in await ready.read(events_after, TENANT, "t-1", 2, 3)] == [3, 4, 5]
    assert await ready.read(events_after, TENANT, "t-1", 10) == []


async def test_a_worker_that_lost_its_claim_cannot_write(ready: AnyStore) -> None:
    await ready.do(claim, "t-1", 1)
    await ready.do(append, TENANT, "t-1", 1, [chunk("mine")])
    await ready.do(claim, "t-1", 2)
    with pytest.raises(Fenced):
        await ready.do(append, TENANT, "t-1", 1, [chunk("zombie")])
    with pytest.raises(Fenced):
        await ready.do(append, TENANT, "nowhere", 0, [chunk("x")])
    await ready.do(append, TENANT, "t-1", 2, [chunk("yours")])
    assert [row[2] for row in await ready.read(events_after, TENANT, "t-1", 0)] == ["mine", "yours"]
