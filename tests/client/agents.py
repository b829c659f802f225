"""Agents for clients to talk to."""

import asyncio
from collections.abc import AsyncIterator

from accord import Context, agent


@agent(description="Says what it is told, word by word")
async def echo(ctx: Context) -> AsyncIterator[str]:
    for word in ctx.text.split(" "):
        yield f"{word} "


@agent(description="Asks for a colour", extended_skills=["mix"])
async def asking(ctx: Context) -> str:
    colour = await ctx.ask("which colour?")
    return f"{ctx.text}: {colour.text}"


@agent(description="Works until it is stopped")
async def endless(ctx: Context) -> AsyncIterator[str]:
    yield "working "
    await ctx.flush()
    await asyncio.Event().wait()


@agent(description="Cannot do it")
def failing() -> str:
    raise ValueError("a detail that callers must not see")
