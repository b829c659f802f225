"""Agents to be called as tools."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from accord import Context, agent
from accord.engine.outcome import Failed
from accord.model import AgentSkill, Part

PNG = b"\x89PNG\r\n\x1a\n"

SKILLS = [
    AgentSkill(id="book/it", name="Book", description="Books a trip", tags=("trip",), examples=("to Rome",)),
    AgentSkill(id="price", name="Price", description="Says what it costs", tags=("trip",)),
]


@agent(name="echo", description="Says it back", input_modes=["*/*"])
async def echo(ctx: Context) -> str:
    print("agents may print: that must not get into the protocol")
    return f"you said {ctx.text}"


@agent(name="trip agent", description="Plans trips", skills=SKILLS)
async def trip(ctx: Context) -> str:
    skill = (ctx.message.metadata or {}).get("skill")
    city = await ctx.ask("Which city?")
    return f"to {city} by {skill}"


@agent(name="permit")
async def permit(ctx: Context) -> str:
    decided = await ctx.approve("May I?")
    return f"{'yes' if decided else 'no'}, {decided.comment}"


@agent(name="count")
async def count(ctx: Context) -> AsyncIterator[str]:
    await ctx.status("beginning")
    for word in ("one ", "two ", "three"):
        yield word


@agent(name="fail")
async def fail(ctx: Context) -> None:
    if ctx.text == "half way":
        await ctx.artifact("so far")
    raise Failed("no such city")


@agent(name="slow")
async def slow(ctx: Context) -> None:
    """Works until it is stopped; the message names a file that says so."""
    note(ctx.text, "working")
    try:
        await asyncio.Event().wait()
    finally:
        note(ctx.text, "stopped")


def is_there(file: str) -> bool:
    return Path(file).exists()


def note(file: str, content: str) -> None:
    Path(file).write_text(content)


@agent(name="patient")
async def patient(ctx: Context) -> str:
    """Waits for a file."""
    while not is_there(ctx.text):
        await ctx.sleep(0.05)
    return "it is there"


@agent(name="files", input_modes=["*/*"])
async def files(ctx: Context) -> list[Part]:
    given = [
        Part(raw=(part.raw or b"") + b"!", filename=part.filename, media_type=part.media_type) for part in ctx.files
    ]
    return [*given, Part(raw=PNG, media_type="image/png"), Part(url="https://a.example/b.pdf", filename="b.pdf")]


@agent(name="data")
async def data(ctx: Context) -> dict[str, object]:
    return {"given": ctx.data}
