"""Functions: coroutines and async generators."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from accord.agents.function import agent
from accord.agents.messages import conversation_history
from accord.engine.agent import Agent, Crash
from accord.engine.context import Context
from accord.engine.outcome import Failed
from accord.model import Part
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject


def behaviours(scratch: Path) -> dict[str, Callable[..., Any]]:
    """Return what an agent may do."""

    async def echo(ctx: Context) -> str:
        return f"you said {ctx.text}"

    async def stream(ctx: Context) -> AsyncIterator[str]:
        for word in ("one ", "two ", "three "):
            yield word

    async def held(ctx: Context) -> AsyncIterator[str]:
        yield "one "
        await marks.held(scratch)
        yield "two "

    async def remember(ctx: Context) -> str:
        said = await conversation_history(ctx)
        return " ".join(part.text or "" for message in said for part in message.parts)

    async def slow(ctx: Context) -> None:
        await marks.work(scratch)

    async def fail(ctx: Context) -> None:
        raise Failed("no such city")

    async def ask(ctx: Context) -> str:
        return f"to {await ctx.ask('Which city?')}"

    async def file(ctx: Context) -> Part:
        given = ctx.files[0]
        return Part(raw=(given.raw or b"") + b"!", filename=given.filename, media_type=given.media_type)

    async def usage(ctx: Context) -> str:
        await ctx.usage(input_tokens=7, output_tokens=5)
        return "done"

    async def steps(ctx: Context) -> str:
        for number in (1, 2, 3):
            await ctx.step(f"step {number}", take, number)
        return "done"

    async def take(number: int) -> None:
        marks.step(scratch, number)
        if number == 2:
            await marks.held(scratch)

    return {do.__name__: do for do in (echo, stream, held, remember, slow, fail, ask, file, usage, steps)}


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    return agent(name="subject", input_modes=["*/*"], on_crash=Crash.RESUME)(behaviours(scratch)[behaviour])


SUBJECT = Subject(kind="function", make=make, has=frozenset(behaviours(Path())), crash=Crash.RESUME)
