"""Threads for blocking functions, which hold up neither the loop nor shutdown."""

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
"""How long a thread waits for more to do: one that walks a generator has more at once."""


class _Worker:
    """A thread that does one thing at a time."""

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
                do = self._given.get()  # somebody has taken it, and is about to give it something
            do()


_idle: list[_Worker] = []


def _leaves(worker: _Worker) -> bool:
    """Let a worker go, unless somebody has just taken it."""
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
    """Run a function in a thread and return what it gives, or raise what it raises.

    Whoever is cancelled stops waiting; the function cannot be stopped and goes on for nobody.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()
    run = partial(contextvars.copy_context().run, do, *args, **kwargs)
    worker = _taken()

    def work() -> None:
        result, error = _outcome(run)
        _idle.append(worker)
        with suppress(RuntimeError):  # the loop was closed, and nobody waits any more
            loop.call_soon_threadsafe(_tell, done, result, error)

    worker.give(work)
    return await done


def _outcome(run: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return run(), None
    except StopIteration as error:  # no future takes it: it would end whoever waits, silently
        raised = RuntimeError("The function raised StopIteration")
        raised.__cause__ = error
        return None, raised
    except BaseException as error:  # it belongs to whoever waits
        return None, error


def _tell(done: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
