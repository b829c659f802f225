"""Step 3, an agent that survives kill -9: `accord serve examples/tutorial/trains.py:trains`."""

import asyncio
from pathlib import Path

from accord import Context, agent

BOOKINGS = Path("bookings.txt")


@agent(description="Books a seat on a train", skills=["booking"])
async def trains(ctx: Context):
    seat = await ctx.step("reserve", reserve, ctx.text)  # once done, it is not done again, whatever dies
    for piece in ("Your ", "seat ", "to ", f"{ctx.text} ", "is ", f"{seat}."):
        await asyncio.sleep(0.5)
        yield piece


def reserve(city: str) -> int:
    with BOOKINGS.open("a", encoding="utf-8") as file:
        file.write(f"{city}\n")
    return 17
