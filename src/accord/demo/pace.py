"""How fast the demo's agents are: at the speed of somebody who reads along, unless it is said otherwise.

They wait instead of working, and here is where; a test makes them quick.
"""

import asyncio
import re
from collections.abc import AsyncIterator

WORD_SECONDS = 0.06
"""About a thousand words a minute: quick to read, slow enough to be seen coming."""


class Pace:
    """How many times faster than life."""

    speed = 1.0


async def moment(seconds: float) -> None:
    """Let some time pass, as if something were being done."""
    await asyncio.sleep(seconds / Pace.speed)


async def typed(text: str) -> AsyncIterator[str]:
    """Yield a text in the pieces in which a model would say it."""
    for word in re.findall(r"\S+\s*|\s+", text):
        await moment(WORD_SECONDS)
        yield word
