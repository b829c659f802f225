"""Agents for servers that are killed: they say which process they are in, and go on when a file tells them to."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from accord import Context, agent


async def _appears(file: Path) -> None:
    while not file.exists():  # noqa: ASYNC110, ASYNC240  # another process makes it
        await asyncio.sleep(0.02)


@agent(description="Says the number of its process")
def who() -> str:
    return str(os.getpid())


@agent(description="Says which modules are loaded of those that it is told")
def loaded(text: str) -> str:
    return " ".join(name for name in text.split() if name in sys.modules)


@agent(description="Says its process, waits for the file that it is told, and says its process again")
async def halting(ctx: Context) -> AsyncIterator[str]:
    yield f"{os.getpid()} "
    await ctx.flush()
    await _appears(Path(ctx.text))
    yield f"{os.getpid()}"


@agent(description="Counts to a number, and waits for a file after each of some numbers: `40 25 file [30 file]...`")
async def counting(ctx: Context) -> AsyncIterator[str]:
    last, *pauses = ctx.text.split()
    files = dict(zip(pauses[::2], pauses[1::2], strict=True))
    for number in range(1, int(last) + 1):
        yield f"{number} "
        await ctx.flush()
        if file := files.get(str(number)):
            await _appears(Path(file))


@agent
def blocking(text: str) -> str:
    """Say in a file that it runs, and never come back."""
    Path(text).touch()
    threading.Event().wait()
    return "never"
