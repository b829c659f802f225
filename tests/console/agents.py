"""Agents for those who read chats: each answers in another way."""

from collections.abc import AsyncIterator

from accord import Context, agent
from accord.engine.outcome import Failed
from accord.model import Part


@agent(description="Answers word by word")
async def streams(ctx: Context) -> AsyncIterator[str]:
    for word in f"You said: {ctx.text}".split(" "):
        yield f"{word} "


@agent(description="Cannot do anything")
async def fails(ctx: Context) -> None:
    await ctx.status("Trying")
    raise Failed("The printer is out of paper")


@agent(description="Has a question of its own")
async def asks(ctx: Context) -> str:
    day = await ctx.ask("For which day?")
    return f"Booked for {day.text}"


@agent(description="Makes files and data", output_modes=["*/*"])
async def makes(ctx: Context) -> None:
    await ctx.artifact([Part(data={"total": 3})], id="numbers", name="Numbers")
    await ctx.artifact([Part(raw=b"\x89PNG", media_type="image/png", filename="dot.png")], id="picture")
    await ctx.complete("There they are")


@agent(description="Waits until it is cancelled", input_modes=["*/*"])
async def waits(ctx: Context) -> str:
    await ctx.status("Waiting")
    return str(await ctx.wait("never"))
