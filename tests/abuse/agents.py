"""The agent that is abused: it does what the first word of a message says, and says everything else back."""

from collections.abc import AsyncIterator

from accord import Context, agent
from accord.model import Part

FLOOD = "x" * 64_000


@agent(name="victim", description="Is abused", input_modes=["*/*"], extended_skills=["hidden"])
async def victim(ctx: Context) -> AsyncIterator[Part | str]:
    """Wait for ever, ask, pour, break or say it back."""
    word = ctx.text.partition(" ")[0]
    if word == "wait":
        await ctx.wait("the end")
    elif word == "ask":
        await ctx.ask("What else?")
    elif word == "pour":
        for _ in range(int(ctx.text.partition(" ")[2])):
            yield FLOOD
    elif word == "pile":
        await ctx.artifact("x" * (int(ctx.text.partition(" ")[2]) * 1_000_000))
        await ctx.wait("the end")
    elif word == "break":
        raise RuntimeError(f"what nobody is told: {ctx.text}")
    for part in ctx.message.parts:
        yield part


@agent(name="neighbour", description="Lives next door", input_modes=["*/*"])
async def neighbour(ctx: Context) -> str:
    """Say it back."""
    return ctx.text
