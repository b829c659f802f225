"""A function as an agent."""

import asyncio

from accord import Context


async def count(ctx: Context):
    """Counts down."""
    start = ctx.text if ctx.text.isdigit() else (await ctx.ask("From which number?")).text
    for number in range(int(start), 0, -1):
        yield f"{number} "  # streamed, and on disk before anybody sees it
        await asyncio.sleep(0.1)
    yield "lift-off"
