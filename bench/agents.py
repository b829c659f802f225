"""The agent that our own server is measured with."""

from typing import Any

from accord.agents.function import agent
from accord.core.context import Context
from bench.words import TEXT


@agent(name="Bench")
async def bench(ctx: Context) -> Any:
    """Say as many chunks as a number says, or else what was told."""
    if not ctx.text.isdigit():
        yield ctx.text
        return
    for _ in range(int(ctx.text)):
        yield TEXT
