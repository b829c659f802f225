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


async def test_all_waiters_get_the_result() -> None:
    rest = ResultBroadcast()
    those = await waiting(rest, 3)
    rest.settle(TASK)
    assert await asyncio.gather(*those) == [TASK] * 3


async def test_later_waiters_get_the_same_result() -> None:
    rest = ResultBroadcast()
    rest.settle(TASK)
    rest.settle(None)
    assert rest.is_settled
    assert await rest.wait() is TASK


async def test_canceled_waiters_do_not_affect_others() -> None:
    rest = ResultBroadcast()
    first, second = await waiting(rest, 2)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert not rest.is_settled
    rest.settle(None)
    assert first.cancelled()
    assert await second is None


async def test_a_result_that_is_reopened_is_awaited_again() -> None:
    rest = ResultBroadcast()
    rest.settle(TASK)
    rest.reopen()
    (waiter,) = await waiting(rest, 1)
    rest.end(None)
    rest.reopen()
    assert (await waiter, await rest.wait(), rest.is_final) == (None, None, True)


async def test_callbacks_are_called_once_at_the_end() -> None:
    rest, called = ResultBroadcast(), list[str]()
    rest.at_end(lambda: called.append("end"))
    rest.at_end(dropped := lambda: called.append("dropped"))
    rest.not_at_end(dropped)
    rest.settle(TASK)
    assert called == []
    rest.end(TASK)
    rest.at_end(lambda: called.append("late"))
    assert called == ["end", "late"]
