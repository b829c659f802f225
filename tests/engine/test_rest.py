"""Who waits for a run is told once, and whoever stops waiting disturbs nobody."""

import asyncio

from accord.engine.outcome import ResultBroadcast
from accord.model import Task, TaskState, TaskStatus

TASK = Task(id="t", status=TaskStatus(state=TaskState.COMPLETED))


async def waiting(rest: ResultBroadcast, count: int) -> list[asyncio.Task[Task | None]]:
    found = [asyncio.create_task(rest.wait()) for _ in range(count)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in found)
    return found


async def test_everybody_is_told() -> None:
    rest = ResultBroadcast(asyncio.get_running_loop())
    those = await waiting(rest, 3)
    rest.tell(TASK)
    assert await asyncio.gather(*those) == [TASK] * 3


async def test_whoever_comes_later_is_told_the_same() -> None:
    rest = ResultBroadcast(asyncio.get_running_loop())
    rest.tell(TASK)
    rest.tell(None)
    assert rest.is_told
    assert await rest.wait() is TASK


async def test_whoever_stops_waiting_does_not_stop_the_others() -> None:
    rest = ResultBroadcast(asyncio.get_running_loop())
    first, second = await waiting(rest, 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not rest.is_told
    rest.tell(None)
    assert first.cancelled()
    assert await second is None
