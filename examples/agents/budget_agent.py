"""An agent that says what it uses: `accord serve examples/agents/budget_agent.py:writer`.

Its tasks show the sum in their metadata, and one that uses more than its budget fails.
"""

from typing import Any

from accord import Context, agent


@agent(description="Writes a line for every word", skills=["write"], max_tokens=1000, max_cost=0.10)
async def writer(ctx: Context):
    for number, word in enumerate(ctx.text.split()):
        line, used = await model(word)
        await ctx.usage(**used, model="small", key=f"line {number}")  # counts once, also if this is run again
        yield line


async def model(word: str) -> tuple[str, dict[str, Any]]:
    """Stand in for a call of a model, which says what it used."""
    return f"There is {word}.\n", {"input_tokens": 60, "output_tokens": 4, "cost": 0.002}
