"""Step 2, an agent that asks: `accord serve examples/tutorial/asking.py:guide`."""

from accord import Context, agent


@agent(description="Says what to do in a city", skills=["guide"])
async def guide(ctx: Context):
    day = await ctx.ask("On which day?")  # the run ends here; the answer begins it again, and this line returns it
    what = "the market" if day.text == "Saturday" else "the museum"
    yield f"{ctx.text} on {day}: {what}"
