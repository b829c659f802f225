"""Step 1, an agent that streams: `accord serve examples/tutorial/weather.py:weather`."""

import asyncio

from accord import Context, agent


@agent(description="Tells the weather of a city", skills=["weather"])
async def weather(ctx: Context):
    await ctx.status(f"looking at {ctx.text}")  # progress: a status, with a text for people
    yield f"{ctx.text}: "  # every yield is a piece of the answer
    await asyncio.sleep(0.2)
    yield "sunny, 24 degrees"
