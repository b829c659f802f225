"""The same agent here: `accord serve examples/migrating/python_a2a_after.py:weather`."""

from accord import Context, agent


@agent(description="Tells the weather", skills=["forecast"], version="1.0.0")
async def weather(ctx: Context) -> str:
    city = ctx.text or (await ctx.ask("Which city?")).text
    return forecast(city)


def forecast(city: str) -> str:
    return f"It is sunny in {city}."
