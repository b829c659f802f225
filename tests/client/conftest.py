"""What the tests of the client share: bounds, and waits that take no time."""

import asyncio

import pytest

from accord.client.connection import CARDS


@pytest.fixture(autouse=True)
def _no_cards() -> None:
    """Forget the cards of other tests: their ports may be used again."""
    CARDS.clear()


async def no_time(_seconds: float) -> None:
    """Sleep without sleeping, but let others run."""
    await asyncio.sleep(0)
