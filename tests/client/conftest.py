"""What the tests of the client share: bounds, and waits that take no time."""

import asyncio
import inspect
from pathlib import Path

import pytest

from accord.client.connecting import CARDS
from tests.core.conftest import bounded


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Bound every test of this folder; a fixture cannot, because it runs in a task of its own."""
    for item in items:
        if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent:
            item.obj = bounded(item.obj) if inspect.iscoroutinefunction(item.obj) else item.obj


@pytest.fixture(autouse=True)
def _no_cards() -> None:
    """Forget the cards of other tests: their ports may be used again."""
    CARDS.clear()


async def no_time(_seconds: float) -> None:
    """Sleep without sleeping, but let others run."""
    await asyncio.sleep(0)
