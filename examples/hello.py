"""The first agent: `accord serve examples/hello.py:hello`."""

from accord import Context, agent


@agent(description="Greets whoever says a name", skills=["greeting"])
async def hello(ctx: Context):
    name = ctx.text or await ctx.ask("Who is there?")  # waits as rows in the store: a minute or a month
    yield "Hello, "  # streamed, each piece durable before anybody sees it
    yield f"{name}!"
