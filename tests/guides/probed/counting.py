"""The agent that is probed on every server: it is told a number and says so many pieces, one every few milliseconds."""

import asyncio
from collections.abc import AsyncIterator

STEP_SECONDS = 0.05


async def pieces(text: str) -> AsyncIterator[str]:
    """Say what there is to say."""
    for number in range(1, int(text) + 1):
        await asyncio.sleep(STEP_SECONDS)
        yield f"{number} "


async def count(text: str) -> AsyncIterator[str]:
    """Counts up, as a function of ours."""
    async for piece in pieces(text):
        yield piece
