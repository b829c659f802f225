"""An agent that asks, does something once and streams its answer: `accord serve examples/booking.py:booking`."""

from accord import Context, agent


@agent(description="Books a table", skills=["booking"])
async def booking(ctx: Context):
    day = await ctx.ask("For which day?")  # the run ends here; the answer begins it again, on any node
    table = await ctx.step("reserve", reserve, day.text)  # once done it is not done again, whatever dies
    yield f"Table {table} is yours "  # streamed, each piece durable before it is shown
    yield f"on {day}."


async def reserve(day: str) -> int:
    return 1 + len(day) % 20
