"""Transports by name, and ports that answer them with the bytes that a test wants."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from accord.client.transports import TRANSPORTS, choose
from accord.client.wire import Transport
from tests.core.conftest import bounded
from tests.outbound.conftest import certified, listening

__all__ = ["certified", "listening"]

Making = Callable[..., Transport]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound every test of this folder."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            item.obj = bounded(item.obj) if inspect.iscoroutinefunction(item.obj) else item.obj


@pytest.fixture(params=TRANSPORTS)
async def making(request: pytest.FixtureRequest) -> AsyncIterator[Making]:
    """A function that makes one kind of transport, with options."""
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> Transport:
            found = choose(request.param, **options)
            stack.push_async_callback(found.close)
            return found

        yield make
