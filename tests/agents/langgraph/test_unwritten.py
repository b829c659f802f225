"""When what a graph gave is committed: with what must be durable, in its order, and never after something was lost."""

import asyncio
from collections.abc import Sequence

import pytest

from accord.agents.langgraph import checkpoints
from accord.agents.langgraph.checkpoints import PendingWrites
from accord.storage.commands.conversation_state import CheckpointPlace, CheckpointWrites, NewCheckpoint


def given(name: str) -> CheckpointWrites:
    return CheckpointWrites(CheckpointPlace("th-1"), name, [])


class Disk:
    """Notes what is committed together, once it may."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.begun = asyncio.Event()
        self.may = asyncio.Event()
        self.may.set()
        self.error: Exception | None = None

    async def commit(self, kept: Sequence[NewCheckpoint | CheckpointWrites]) -> None:
        self.begun.set()
        await self.may.wait()
        if self.error is not None:
            raise self.error
        self.commits.append([one.checkpoint_id for one in kept if isinstance(one, CheckpointWrites)])


@pytest.fixture
async def disk() -> Disk:
    return Disk()


async def test_writes_are_batched_in_order(disk: Disk) -> None:
    kept = PendingWrites(disk.commit)
    disk.may.clear()
    kept.add(given("a"))
    kept.add(given("b"))
    first = asyncio.create_task(kept.flush())
    await disk.begun.wait()
    kept.add(given("c"))
    kept.add(given("d"))
    disk.may.set()
    async with asyncio.timeout(30):
        await first
        await kept.flush()
    assert disk.commits == [["a", "b"], ["c", "d"]]


async def test_unawaited_writes_are_committed_soon(disk: Disk) -> None:
    kept = PendingWrites(disk.commit)
    kept.add(given("a"))
    async with asyncio.timeout(30):
        await disk.begun.wait()
        await kept.flush()
    assert disk.commits == [["a"]]


async def test_canceled_waiters_do_not_stop_commits(disk: Disk) -> None:
    kept = PendingWrites(disk.commit)
    disk.may.clear()
    kept.add(given("a"))
    waiting = asyncio.create_task(kept.flush())
    await disk.begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    disk.may.set()
    async with asyncio.timeout(30):
        await kept.flush()
    assert disk.commits == [["a"]]


async def test_nothing_is_committed_after_something_was_lost(disk: Disk) -> None:
    kept = PendingWrites(disk.commit)
    disk.error = ValueError("no")
    kept.add(given("a"))
    with pytest.raises(ValueError, match="no"):
        await kept.flush()
    disk.error = None
    with pytest.raises(ValueError, match="no"):
        kept.add(given("b"))
    with pytest.raises(ValueError, match="no"):
        await kept.flush()
    assert disk.commits == []


async def test_dropped_writes_are_not_committed(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "COMMIT_SECONDS", 0.0)
    kept = PendingWrites(disk.commit)
    kept.add(given("a"))
    kept.drop()
    async with asyncio.timeout(30):
        await kept.flush()
    assert disk.commits == []
