"""An agent worth testing: it asks, it waits for a long time, and it has another agent look something up."""

from accord import Context, Rejected, agent


@agent(description="Reminds you of something", skills=["remind"])
async def reminder(ctx: Context):
    what = ctx.text
    answer = await ctx.ask("In how many minutes?")
    if not answer.text.isdigit():
        raise Rejected(f"{answer.text} is no number of minutes")
    await ctx.status(f"In {answer.text} minutes")
    await ctx.sleep(60 * int(answer.text))
    weather = await ctx.call("weather", "now")
    return f"{what} ({weather.text})"
