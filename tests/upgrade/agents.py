"""Agents whose tasks are begun under one release and finished under another."""

import asyncio
from pathlib import Path

from accord import Context, agent


@agent(on_crash="resume", attempts=1000)
async def counting(ctx: Context) -> None:
    """Say the numbers below the first that it is told, one every so many seconds, each of them once."""
    count, pause = ctx.text.split()
    kept = sum(len(artifact.parts) for artifact in ctx.task.artifacts)
    for number in range(kept, int(count)):
        await ctx.artifact(f"{number} ", id="numbers", append=kept + number > 0, last_chunk=False)
        await ctx.flush()
        await asyncio.sleep(float(pause))


@agent(on_crash="resume")
async def halting(ctx: Context) -> None:
    """Say "before" once, wait until the file that it is told is there, and say "after"."""
    if not ctx.task.artifacts:
        await ctx.artifact("before ", id="words", last_chunk=False)
        await ctx.flush()
    while not Path(ctx.text).exists():  # noqa: ASYNC110, ASYNC240  # another process makes it
        await asyncio.sleep(0.02)
    await ctx.artifact("after", id="words", append=True)


@agent
async def asking(ctx: Context) -> str:
    """Ask for a name, and greet."""
    answer = await ctx.ask("What is your name?")
    return f"hello {answer.text}"
