"""Followers see everything, in order, to the end: in other processes, many of them, slow ones and late ones."""

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest

from accord.engine.subscriptions import MEMORY
from accord.model import Event, TaskState
from tests.crash.agents import whole
from tests.crash.conftest import BOUND_SECONDS, Client, Start, artifacts, gapless, text
from tests.crash.node import digest

LEASE_SECONDS = 15.0
"""Nobody dies: a lease that does not run out on a busy machine."""

MANY = 5_000
"""Chunks: more than is kept in memory for those who follow."""


@pytest.mark.proves("C-01", "C-12")
async def test_a_hundred_followers_on_two_nodes_see_the_same(store_url: str, client: Client, start: Start) -> None:
    nodes = await asyncio.gather(*(start(store_url, lease=LEASE_SECONDS) for _ in range(2)))
    task_ids = await asyncio.gather(*(client.send("chunks", "40 0.03") for _ in range(20)))
    for task_id in task_ids:
        for node, times in zip(nodes, (3, 2), strict=True):
            for _ in range(times):
                node.tell("follow", task=task_id)
    await asyncio.gather(nodes[0].says("followed", 60), nodes[1].says("followed", 40))
    for task_id in task_ids:
        log = await client.log(task_id)
        seen = [fact for node in nodes for fact in node.said("followed", task=task_id)]
        assert len(seen) == 5
        assert all(fact["numbers"] == [0, *(event.seq for event in log)] for fact in seen)
        assert {fact["digest"] for fact in seen} == {digest(log)}
        assert text(await client.get("chunks", task_id)) == whole(40)
    runs = [len(node.said("started")) for node in nodes]
    assert sum(runs) == 20


@pytest.mark.proves("C-01", "STREAM-ORDER-001")
@pytest.mark.parametrize("where", ["same process", "other process"])
async def test_a_follower_slower_than_the_stream_misses_nothing(
    where: str, store_url: str, client: Client, start: Start
) -> None:
    assert MANY > 2 * MEMORY
    if where == "same process":
        await client.host.start()
    else:
        await start(store_url)
    task_id = await client.send("chunks", str(MANY))
    slow = asyncio.create_task(followed(client.follow("chunks", task_id), until=client.rested(task_id)))
    fast = asyncio.create_task(followed(client.follow("chunks", task_id)))
    await client.reaches(task_id, MANY // 2)
    late = asyncio.create_task(followed(client.follow("chunks", task_id)))
    async with asyncio.timeout(BOUND_SECONDS):
        streams = [await slow, await fast, await late, await followed(client.follow("chunks", task_id))]
    if where == "same process":
        await client.host.stop(0)
    log = await client.log(task_id)
    for events in streams:
        assert gapless(events)
        assert [event.body for event in events[1:]] == [event.body for event in log]
        assert "".join(part.text or "" for update in artifacts(events) for part in update.artifact.parts) == whole(MANY)
    assert (await client.get("chunks", task_id)).status.state is TaskState.COMPLETED


async def followed(stream: AsyncIterator[Event], until: Awaitable[object] | None = None) -> list[Event]:
    """Read a stream; after the tenth event wait for something first."""
    events = []
    async for event in stream:
        events.append(event)
        if until is not None and len(events) == 10:
            await until
        elif until is not None:
            await asyncio.sleep(0)
    return events
