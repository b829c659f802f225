"""Agents for servers elsewhere, of which workflows make steps."""

from collections.abc import AsyncIterator

from accord import Context, agent
from accord.core.context import Failed


@agent(description="Says in which conversation it is and what it was told, in pieces")
async def parrot(ctx: Context) -> AsyncIterator[str]:
    if ctx.text.startswith("break"):
        raise Failed("no such city")
    yield f"{ctx.context_id} "
    for word in ctx.text.split():
        yield f"{word} "
        await ctx.flush()
