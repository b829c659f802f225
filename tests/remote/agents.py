"""Agents for servers elsewhere."""

from collections.abc import AsyncIterator

from accord import Context, agent


@agent(description="Asks for a size if it is told to, and says what it was told")
async def shop(ctx: Context) -> AsyncIterator[str]:
    if ctx.text == "ask":
        size = await ctx.ask("Which size?")
        yield f"size {size}"
        return
    if ctx.text == "hold":
        await ctx.wait("never")
    yield "you "
    yield f"said {ctx.text}"
