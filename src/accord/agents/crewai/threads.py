"""Threads of CrewAI, and calls from there into the execution's event loop.

A thread cannot be stopped from outside: one whose execution is over ends before its next call of a model or tool, and
what it reports meanwhile is refused.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from typing import Any, TypeVar

from accord.engine.context import Context

log = logging.getLogger("accord.agents.crewai")

T = TypeVar("T")


class ExecutionOver(BaseException):
    """The run is over. It is no `Exception`: crews try again after those."""


class LoopBridge:
    """The way from a thread to the loop of its run: what is said over it is waited for."""

    def __init__(self, ctx: Context) -> None:
        """Lead to the loop that runs."""
        self.is_over = False
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """End the thread if its run is over."""
        if self.is_over or self._ctx.cancelled:
            raise ExecutionOver

    def do(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do something in the run's loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(self._checked(doing), self._loop).result()

    async def done(self, doing: Coroutine[Any, Any, T]) -> T:
        """Do the same from a loop of the thread's own, which goes on meanwhile."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._checked(doing), self._loop))

    async def _checked(self, doing: Coroutine[Any, Any, T]) -> T:
        try:
            self.check()
        except ExecutionOver:
            doing.close()
            raise
        return await doing

    def hooks(self, count: Callable[[], Coroutine[Any, Any, None]]) -> AbstractContextManager[Any]:
        """Return what lets calls of models and tools end with the run, and counts what they used."""
        from crewai.hooks.dispatch import InterceptionPoint, scoped_hooks

        check = [lambda _context: self.check()]
        wanted = {
            InterceptionPoint.PRE_MODEL_CALL: check,
            InterceptionPoint.PRE_TOOL_CALL: check,
            InterceptionPoint.POST_MODEL_CALL: [lambda _context: self.do(count())],
        }
        found: AbstractContextManager[Any] = scoped_hooks(wanted)
        return found


async def run_in_thread(do: Callable[[], T]) -> T:
    """Do something in a thread of its own, which nobody waits for when the program ends."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.done():  # nobody waits any more
            if error is not None and not isinstance(error, ExecutionOver | asyncio.CancelledError):
                log.info("crew ended after its run", exc_info=error)
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # it is there if there is no error

    def work() -> None:
        result, error = None, None
        try:
            result = do()
        except BaseException as raised:  # handed to whoever waits
            error = raised
        with suppress(RuntimeError):  # the loop is gone, and so is whoever waited
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=copy_context().run, args=(work,), name="crew", daemon=True).start()
    return await done
