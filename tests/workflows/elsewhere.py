"""Agents for servers elsewhere, of which workflows make steps."""

from collections.abc import AsyncIterator
from pathlib import Path

from accord import Context, agent
from accord.engine.outcome import Failed
from accord.model import Part
from tests.workflows.scenes import appears


@agent(description="Says in which conversation it is and what it was told, in pieces")
async def parrot(ctx: Context) -> AsyncIterator[str]:
    if ctx.text.startswith("break"):
        raise Failed("no such city")
    yield f"{ctx.context_id} "
    for word in ctx.text.split():
        yield f"{word} "
        await ctx.flush()


@agent(description="Says that it has begun, and then what is in the file that it is told, once there is one")
async def patient(ctx: Context) -> AsyncIterator[str]:
    yield "begun "
    await ctx.flush()
    yield await appears(Path(ctx.text))


@agent(description="Makes several things of several parts")
async def maker(ctx: Context) -> None:
    await ctx.artifact([Part(text="one "), Part(text="two")], id="a")
    await ctx.artifact(Part(data={"three": 3}), id="b")
    await ctx.status("working on it")
    await ctx.artifact(Part(text="four"), id="c")
