"""Transports by name, and ports that answer them with the bytes that a test wants."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from accord.outbound import HttpTransport, open_transport
from accord.outbound.session import TRANSPORTS
from tests.outbound.conftest import certified, listening

__all__ = ["certified", "listening"]

Making = Callable[..., HttpTransport]


@pytest.fixture(params=TRANSPORTS)
async def making(request: pytest.FixtureRequest) -> AsyncIterator[Making]:
    """A function that makes one kind of transport, with options."""
    async with AsyncExitStack() as stack:

        def make(**options: Any) -> HttpTransport:
            found = open_transport(request.param, **options)
            stack.push_async_callback(found.close)
            return found

        yield make
