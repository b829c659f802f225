"""Functions in threads of their own: what they give and raise, that as many run as are asked for, and no waiting."""

import asyncio
import threading
from contextvars import ContextVar

import pytest

from accord.engine import threads
from accord.engine.threads import in_thread

BOUND_SECONDS = 30
WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


async def test_results_and_exceptions_pass_through() -> None:
    assert await in_thread(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 7, 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await in_thread(next, iter(()))


async def test_threads_run_with_the_caller_s_context() -> None:
    WHO.set("ada")
    assert await in_thread(lambda: (WHO.get(), threading.current_thread().daemon)) == ("ada", True)
    assert await in_thread(threading.current_thread) is not threading.main_thread()


async def test_concurrency_is_unlimited() -> None:
    everybody = threading.Barrier(60)
    numbers = await asyncio.gather(*(in_thread(everybody.wait, BOUND_SECONDS) for _ in range(60)))
    assert sorted(numbers) == list(range(60))


async def test_idle_threads_are_reused_and_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "_idle", [])
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.05)
    one = await in_thread(threading.current_thread)
    assert await in_thread(threading.current_thread) is one
    await asyncio.to_thread(one.join, BOUND_SECONDS)
    assert not one.is_alive()
    assert await in_thread(threading.current_thread) is not one


async def test_canceled_callers_do_not_wait() -> None:
    go_on, went_on = threading.Event(), threading.Event()

    def blocked() -> None:
        go_on.wait(BOUND_SECONDS)
        went_on.set()

    waiting = asyncio.create_task(in_thread(blocked))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    assert await asyncio.to_thread(went_on.wait, BOUND_SECONDS)
