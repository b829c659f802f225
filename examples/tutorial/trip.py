"""Step 4, an agent that calls others: they are served beside it.

`accord serve examples/tutorial/trip.py:trip examples/tutorial/weather.py:weather examples/tutorial/asking.py:guide`
"""

from accord import Context, agent


@agent(description="Plans a trip", skills=["trips"])
async def trip(ctx: Context):
    forecast = await ctx.call("weather", ctx.text)  # a task of its own, which ends with this one
    plan = await ctx.call("guide", ctx.text)  # what it asks is asked of our caller
    yield f"{forecast.text}. {plan.text}."
