"""How long a test may take that waits for something: one that waits for ever shall fail, not hang.

A fixture cannot bound its test, because it runs in a task of its own; so tests/conftest.py puts every asynchronous
test, and every example of one that Hypothesis makes, into what is here.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., Coroutine[Any, Any, None]]

BOUND_SECONDS = 60
LONG_SECONDS = 300
LONG = {"contract", "crash", "e2e", "guides", "peers", "remote", "serve", "upgrade"}
"""Folders whose tests start programs, some of them again and again."""


def bounded(test: Test, seconds: float = BOUND_SECONDS) -> Test:
    """The test, with an end: after so long in the world, as a test may move the clock of its loop."""

    @wraps(test)
    async def within_bounds(*args: Any, **kwargs: Any) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(None) as bound:
            timer = threading.Timer(seconds, loop.call_soon_threadsafe, [lambda: bound.reschedule(loop.time())])
            timer.daemon = True
            timer.start()
            try:
                await test(*args, **kwargs)
            finally:
                timer.cancel()

    within_bounds.__dict__["bound_seconds"] = seconds
    return within_bounds


def bind(item: pytest.Function) -> None:
    """Give a test an end, unless it is not asynchronous or has one already."""
    made = getattr(item.obj, "hypothesis", None)
    holder, name = (item, "obj") if made is None else (made, "inner_test")
    test = getattr(holder, name)
    if inspect.iscoroutinefunction(test) and not hasattr(test, "bound_seconds"):
        is_long = item.path.parent.name in LONG
        setattr(holder, name, bounded(test, LONG_SECONDS if is_long else BOUND_SECONDS))
