"""What was acknowledged is there, whatever is killed at full load: the process that writes, or PostgreSQL itself."""

import asyncio
from collections import Counter
from functools import partial

import pytest

from accord.engine import subscriptions
from accord.model import TaskState
from accord.storage.postgres.driver import PostgresStore
from tests.crash.agents import whole
from tests.crash.conftest import (
    BOUND_SECONDS,
    Client,
    Node,
    Postgres,
    Start,
    assert_intact,
    connected,
    text,
    until,
)

WRITERS = 32
"""Tasks that stream, and as many callers who send one message after the other: 64 who write at the same time."""

ROUNDS = 5
ENOUGH = 1_500
"""Acknowledgements before the kill."""

CHUNKS = 200
"""Chunks to stream for four seconds, while the server is killed twice."""


@pytest.mark.proves("3-09")
async def test_nothing_acknowledged_is_lost_with_the_process(store_url: str, start: Start) -> None:
    kept: Counter[str] = Counter()
    sent: set[str] = set()
    for _ in range(ROUNDS):
        node = await start(store_url, "--acknowledge", lease=60)
        for _ in range(WRITERS):
            node.tell("send", agent="endless", text="")
            node.tell("send_on", agent="chunks", text="3")
        await node.says("kept", ENOUGH)
        await node.kill()
        kept |= acknowledged(node)
        sent |= {fact["task"] for fact in node.said("sent")}
    assert_intact(store_url)
    assert len(kept) > ROUNDS * WRITERS
    assert sent
    async with connected(store_url) as client:
        await assert_kept(client, kept)
        for task_id in sent:
            task = await client.get("chunks", task_id)
            assert task.status.state is TaskState.COMPLETED
            assert text(task) == whole(3)


async def test_nothing_acknowledged_is_lost_with_the_server(
    mortal: Postgres, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_url = await mortal.empty()
    nodes = [await start(store_url, "--acknowledge") for _ in range(2)]
    async with connected(store_url) as client:
        task_ids = await asyncio.gather(*(client.send("chunks", f"{CHUNKS} 0.02") for _ in range(WRITERS)))
        for _ in range(2):
            await until(partial(has_kept, nodes, count_kept(nodes) + WRITERS // 2))
            await asyncio.to_thread(mortal.kill)
            await asyncio.to_thread(mortal.start)
        for task in await asyncio.gather(*map(client.rested, task_ids)):
            assert task.status.state is TaskState.COMPLETED
            assert text(task) == whole(CHUNKS)
        await assert_kept(client, acknowledged(nodes[0]) | acknowledged(nodes[1]))
        await assert_hints_arrive(client, nodes, monkeypatch)


def count_kept(nodes: list[Node]) -> int:
    return sum(len(node.said("kept")) for node in nodes)


def has_kept(nodes: list[Node], number: int) -> bool:
    return count_kept(nodes) >= number


async def assert_hints_arrive(client: Client, nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow a task without looking by oneself: only hints say that there is more."""
    assert isinstance(client.store, PostgresStore)
    async with asyncio.timeout(BOUND_SECONDS):
        await client.store.listening()
    for node in nodes:
        node.tell("listen")
        await node.says("listening")
    monkeypatch.setattr(subscriptions, "POLL_SECONDS", 2 * BOUND_SECONDS)
    assert text(await client.rested(await client.send("chunks", "20 0.01"))) == whole(20)


def acknowledged(node: Node) -> Counter[str]:
    """Return how many events of each task a node knew to be committed."""
    kept: Counter[str] = Counter()
    for fact in node.said("kept"):
        kept[fact["task"]] = max(kept[fact["task"]], fact["seq"])
    return kept


async def assert_kept(client: Client, kept: Counter[str]) -> None:
    for task_id, seq in kept.items():
        assert len(await client.log(task_id)) >= seq
