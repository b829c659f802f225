"""Threads of CrewAI, and calls from there into the execution's event loop.

A thread cannot be stopped from outside. After its execution has ended, its next call of a model or tool raises, and its
reports are refused.
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
    """The execution has ended. It is not an `Exception`, because crews retry those."""


class LoopBridge:
    """A bridge from a thread to its execution's event loop; the thread waits for each call."""

    def __init__(self, ctx: Context) -> None:
        """Bridge to the running event loop."""
        self.is_over = False
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()

    def check(self) -> None:
        """Raise `ExecutionOver` if the execution has ended."""
        if self.is_over or self._ctx.cancelled:
            raise ExecutionOver

    def do(self, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the execution's loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(self._checked(doing), self._loop).result()

    async def done(self, doing: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the execution's loop, and await it in the thread's own loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._checked(doing), self._loop))

    async def _checked(self, doing: Coroutine[Any, Any, T]) -> T:
        try:
            self.check()
        except ExecutionOver:
            doing.close()
            raise
        return await doing

    def hooks(self, count: Callable[[], Coroutine[Any, Any, None]]) -> AbstractContextManager[Any]:
        """Return hooks that end calls of models and tools with the execution, and count their usage."""
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
    """Run a function in its own daemon thread, which does not delay the program's exit."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if done.done():  # the coroutine no longer waits
            if error is not None and not isinstance(error, ExecutionOver | asyncio.CancelledError):
                log.info("crewai.late_end", exc_info=error)
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # it is there if there is no error

    def work() -> None:
        result, error = None, None
        try:
            result = do()
        except BaseException as raised:  # raised in the coroutine that waits
            error = raised
        with suppress(RuntimeError):  # the loop is gone, and so is the coroutine
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=copy_context().run, args=(work,), name="crew", daemon=True).start()
    return await done
