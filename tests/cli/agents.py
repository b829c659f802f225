"""An agent that does what the first word of a message tells it: every way in which a task can go."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from accord import Context, agent
from accord.model import Message, Part


def _alone(message: Message) -> bool:
    return (message.parts[0].text or "").startswith("alone")


@agent(
    description="Does what it is told",
    skills=["obeying"],
    input_modes=["text/plain", "application/json", "x/y"],
    answers_message=_alone,
)
async def obeying(ctx: Context) -> AsyncIterator[str]:
    word, _, rest = ctx.text.partition(" ")
    match word:
        case "ask":
            said = await ctx.ask("Which day?")
            yield f"It is {said.text}"
        case "auth":
            await ctx.require_auth("Log in first")
            yield "in"
        case "fail":
            raise RuntimeError("no way")
        case "hold":  # until a file appears
            await ctx.status("holding on")
            yield "begun "
            await ctx.flush()
            while not Path(rest).exists():  # noqa: ASYNC110, ASYNC240  # another process makes it
                await asyncio.sleep(0.02)
            yield "done"
        case "make":
            await ctx.artifact(Part(raw=b"\x89PNG", filename="../../evil.png", media_type="image/png"), id="a-1")
            await ctx.artifact({"n": 1}, id="a-2", name="numbers")
            yield "made"
        case "link":
            await ctx.artifact(Part(url=rest, filename="linked.txt"), id="a-1")
        case "parts":
            for part in ctx.message.parts[1:]:
                yield f"{part.text or ''}{part.raw or b''!r}{part.filename}:{part.media_type};"
        case "evil":
            yield "a\x1b[31mred\x07"
        case _:
            yield f"{ctx.text}, "
            await ctx.flush()
            yield "it says"
