"""Threads for blocking functions, which block neither the event loop nor shutdown."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

IDLE_SECONDS = 10.0
"""Idle seconds before a thread ends. An iterated generator reuses its thread at once."""


class _Worker:
    """A thread that runs one function at a time."""

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="accord-function", daemon=True).start()

    def give(self, do: Callable[[], None]) -> None:
        self._given.put(do)

    def _work(self) -> None:
        while True:
            try:
                do = self._given.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if _leaves(self):
                    return
                do = self._given.get()  # a caller has taken this worker and is about to submit a function
            do()


_idle: list[_Worker] = []


def _leaves(worker: _Worker) -> bool:
    """Remove an idle worker, so that it can end. Return false if a caller has just taken it."""
    try:
        _idle.remove(worker)
    except ValueError:
        return False
    return True


def _taken() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


async def in_thread(do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread and return its result, or raise its exception.

    A canceled caller stops waiting. The function itself cannot be stopped and continues.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    run = partial(contextvars.copy_context().run, do, *args, **kwargs)
    worker = _taken()

    def work() -> None:
        result, error = _outcome(run)
        _idle.append(worker)
        with suppress(RuntimeError):  # the loop was closed, and no caller waits
            loop.call_soon_threadsafe(_tell, done, result, error)

    worker.give(work)
    return await done


def _outcome(run: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return run(), None
    except StopIteration as error:  # a future rejects it, and the waiter would end silently
        raised = RuntimeError("The function raised StopIteration")
        raised.__cause__ = error
        return None, raised
    except BaseException as error:  # raised in the waiting caller
        return None, error


def _tell(done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
