"""The agents that our own server is measured with."""

import asyncio
from typing import Any

from accord.agents.function import agent
from accord.engine.context import Context
from bench.words import TEXT


@agent(name="Bench")
async def bench(ctx: Context) -> Any:
    """Say as many chunks as a number says, or else what was told."""
    if not ctx.text.isdigit():
        yield ctx.text
        return
    for _ in range(int(ctx.text)):
        yield TEXT


@agent(name="Reporter")
async def reporter(ctx: Context) -> str:
    """Say as many statuses as the first number says, one every so many milliseconds as the second says."""
    count, pause = map(int, ctx.text.split())
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number in range(1, count + 1):
        await asyncio.sleep(max(0.0, begun + number * pause / 1000 - loop.time()))
        await ctx.status(f"{number} of {count}")
    return "done"


@agent(name="Pacer", on_crash="resume", attempts=1000)
async def pacer(ctx: Context) -> None:
    """Say as many numbers as the first one says, one every so many seconds as the second says, none of them twice."""
    count, pause = int(ctx.text.split()[0]), float(ctx.text.split()[1])
    said = sum(len(artifact.parts) for artifact in ctx.task.artifacts)
    for number in range(said, count):
        await asyncio.sleep(pause)
        await ctx.artifact(f"{number} ", id="numbers", append=True, last_chunk=False)
