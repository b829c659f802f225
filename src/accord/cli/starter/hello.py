"""A first agent: it asks, remembers and streams.

`accord serve` in this folder serves it, as configured in accord.toml.
"""

from collections.abc import AsyncIterator

from accord import Context, agent


@agent(description="Greets you, and counts the letters of your name", skills=["greeting"])
async def hello(ctx: Context) -> AsyncIterator[str]:
    """Answer a message."""
    answer = await ctx.ask("What is your name?")  # suspends the task; the answer restarts this function
    name = answer.text.strip() or "stranger"
    letters = await ctx.step("count", count, name)  # executed once, even if this process is killed
    yield f"Hello {name}! "  # each piece is stored before any client sees it
    yield f"Your name has {letters} letters."


async def count(name: str) -> int:
    """Count the letters of a name."""
    return sum(character.isalpha() for character in name)
