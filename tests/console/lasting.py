"""An agent that is killed in the middle of its answer, with its server, and goes on when that is back."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from accord import Context, agent


@agent(description="Says three words, the last after it was killed")
async def lasting(ctx: Context) -> AsyncIterator[str]:
    yield "one "
    yield "two "
    if ctx.attempt == 1:
        await ctx.flush()
        await asyncio.Event().wait()
    # A pipe: whoever runs it says when, because nobody knows how soon a server is back.
    await asyncio.to_thread(Path(os.environ["LASTING_GATE"]).read_bytes)
    yield "three"
