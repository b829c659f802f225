"""Rough timers: they ring, they can be taken back, and a loop without any sleeps."""

import asyncio

from accord.http import timers
from accord.http.timers import CoarseTimers


async def test_an_alarm_rings_once_and_a_cleared_one_never() -> None:
    waiting, rung, done = CoarseTimers(asyncio.get_running_loop()), list[str](), asyncio.Event()

    def last() -> None:
        rung.append("last")
        done.set()

    cleared = waiting.set(0.0, lambda: rung.append("cleared"))
    waiting.set(0.0, lambda: rung.append("first"))
    waiting.set(0.3, last)
    waiting.clear(cleared)
    async with asyncio.timeout(10):
        await done.wait()
    assert rung == ["first", "last"]
    assert len(waiting) == 0


async def test_timers_can_clear_and_set_others() -> None:
    waiting, rung, done = CoarseTimers(asyncio.get_running_loop()), list[str](), asyncio.Event()

    def first() -> None:
        waiting.clear(second)
        waiting.set(0.0, done.set)

    waiting.set(0.0, first)
    second = waiting.set(0.0, lambda: rung.append("second"))
    async with asyncio.timeout(10):
        await done.wait()
    assert rung == []


async def test_nothing_wakes_a_loop_without_alarms() -> None:
    waiting = CoarseTimers(asyncio.get_running_loop())
    rung = asyncio.Event()
    waiting.set(0.0, rung.set)
    async with asyncio.timeout(10):
        await rung.wait()
    assert waiting._tick is None


def test_each_loop_has_its_own() -> None:
    async def own() -> CoarseTimers:
        loop = asyncio.get_running_loop()
        assert timers.timers_of(loop) is timers.timers_of(loop)
        return timers.timers_of(loop)

    assert asyncio.run(own()) is not asyncio.run(own())
