"""Agents that are killed, stopped, cancelled and starved; what they have to tell goes to stdout, a JSON line each."""

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from accord.agents.function import agent
from accord.engine.context import Context
from accord.storage.commands.tasks import Fenced
from accord.workflows.document import Step
from accord.workflows.executors import Result, Scene
from tests.workflows.flows import FlowAgent, Member, agents, plan_of, step

MANY = 1_000
"""Attempts for agents whose process is killed again and again without any fault of theirs."""

LINKS = 6
"""Steps of a chain."""


def say(fact: str, **details: Any) -> None:
    """Tell the test something; a process that is killed in the next moment has told it."""
    os.write(1, json.dumps({"fact": fact, **details}).encode() + b"\n")


def ordered(text: str) -> tuple[int, float]:
    """Return how many chunks a message wants, and the seconds between them."""
    count, _, pause = text.partition(" ")
    return int(count), float(pause or 0)


def whole(count: int) -> str:
    """Return the text of so many chunks."""
    return "".join(f"{number} " for number in range(count))


@agent(attempts=MANY)
async def chunks(ctx: Context) -> AsyncIterator[str]:
    """Stream numbers; a run that is lost begins anew."""
    count, pause = ordered(ctx.text)
    for number in range(count):
        yield f"{number} "
        await asyncio.sleep(pause)


@agent(on_crash="resume", attempts=MANY)
async def careful(ctx: Context) -> None:
    """Stream numbers, each made in a step; a run that is lost goes on after what its log has."""
    count, pause = ordered(ctx.text)
    kept = sum(len(artifact.parts) for artifact in ctx.task.artifacts)
    for number in range(kept, count):
        text: str = await ctx.step(f"chunk {number}", _make, number, pause)
        await ctx.artifact(text, id="answer", append=True, last_chunk=False)


async def _make(number: int, pause: float) -> str:
    await asyncio.sleep(pause)
    return f"{number} "


@agent(attempts=MANY)
async def stubborn(ctx: Context) -> None:
    """Stream numbers, and when told to stop try to write all the same."""
    count, pause = ordered(ctx.text)
    try:
        for number in range(count):
            await ctx.artifact(f"{number} ", id="answer", append=True, last_chunk=False)
            await ctx.flush()
            await asyncio.sleep(pause)
    except (asyncio.CancelledError, Fenced):
        await ctx.artifact("too late ", id="answer", append=True)
        await ctx.flush()
        raise


@agent(attempts=MANY)
async def large(ctx: Context) -> AsyncIterator[str]:
    """Stream chunks of 10 kB."""
    for number in range(int(ctx.text)):
        yield f"{number} ".ljust(10_000, ".")


@agent(attempts=MANY)
async def endless(ctx: Context) -> None:
    """Stream numbers as fast as they can be kept."""
    number = 0
    while True:
        await ctx.artifact(f"{number} ", id="answer", append=True, last_chunk=False)
        await ctx.flush()
        number += 1


@agent
async def waiting(ctx: Context) -> None:
    """Wait for ever, and say so when that is over."""
    try:
        say("waiting", task=ctx.task_id, attempt=ctx.attempt)
        await asyncio.Event().wait()
    finally:
        say("interrupted", task=ctx.task_id)


@agent
async def brief(ctx: Context) -> str:
    """Work for a moment."""
    say("briefly", task=ctx.task_id)
    await asyncio.sleep(float(ctx.text))
    return "done"


@agent
async def deadly(ctx: Context) -> None:
    """Kill the process."""
    say("dying", task=ctx.task_id, attempt=ctx.attempt)
    os.kill(os.getpid(), signal.SIGKILL)


@agent(on_crash="fail")
async def fragile(ctx: Context) -> None:
    """Kill the process; what is lost must not be run again."""
    say("dying", task=ctx.task_id, attempt=ctx.attempt)
    os.kill(os.getpid(), signal.SIGKILL)


@agent(on_crash="resume")
async def telling(ctx: Context) -> None:
    """Say something within a step, and kill the process right after it the first time."""

    async def tell() -> None:
        await ctx.artifact("told ", id="answer", append=True)

    await ctx.step("tell", tell)
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@agent(on_crash="resume", attempts=MANY)
async def chain(ctx: Context) -> str:
    """Forge links, each from the one before; the message names the folder where each forging is noted."""
    link = ""
    for number in range(LINKS):
        link = await ctx.step(f"link {number}", forge, Path(ctx.text) / ctx.task_id, number, link)
    return link


def forge(notes: Path, number: int, before: str) -> str:
    """Note that a link is forged and return it; no two are the same."""
    with notes.open("a") as file:
        file.write(f"{number}\n")
    time.sleep(0.02)  # work, in a thread
    return f"{before}/{number}:{os.urandom(4).hex()}"


@agent
async def poison(ctx: Context) -> AsyncIterator[str]:
    """Stream numbers, and at some point what cannot be kept; the message says which point."""
    for number in range(10):
        yield f"{number} "
        await asyncio.sleep(0.01)
        if ctx.text == "middle" and number == 5:
            yield HALF_A_CHARACTER
    if ctx.text == "end":
        yield HALF_A_CHARACTER
    if ctx.text == "last word":
        await ctx.complete(HALF_A_CHARACTER)
    if ctx.text == "step":
        await ctx.step("nul\0", lambda: 1)


@agent
async def nul(ctx: Context) -> str:
    """Answer with a NUL."""
    return "before\0after"


@agent(on_crash="fail")
async def boss(ctx: Context) -> str:
    """Let another agent wait for ever; what is lost must not be run again."""
    return (await ctx.call("waiting", "x")).text


@agent(attempts=MANY, timeout=4.0)
async def hurried(ctx: Context) -> str:
    """Let two others wait for ever, one of them through a third, and have no time for that."""
    both = await asyncio.gather(ctx.call("waiting", "x", key="one"), ctx.call("boss", "x", key="two"))
    return both[0].text


@agent
async def parent(ctx: Context) -> str:
    """Let another agent stream numbers."""
    return (await ctx.call("chunks", ctx.text)).text


@agent(attempts=MANY)
async def secretary(ctx: Context) -> str:
    """Let another agent ask."""
    return f"noted: {await ctx.call('inquirer', ctx.text)}"


@agent(attempts=MANY)
async def inquirer(ctx: Context) -> str:
    """Ask twice."""
    first = await ctx.ask(f"{ctx.text}?")
    second = await ctx.ask(f"{first}?")
    return f"{first} {second}"


@agent(attempts=MANY)
async def spender(ctx: Context) -> str:
    """Use a token at a time, each with a key of its own."""
    count, pause = ordered(ctx.text)
    for number in range(count):
        await ctx.usage(input_tokens=1, cost=0.1, key=f"call {number}")
        say("spent", number=number)
        await asyncio.sleep(pause)
    return "done"


@agent(attempts=MANY)
async def patron(ctx: Context) -> str:
    """Use two tokens, and let another agent use as many as it is told."""
    await ctx.usage(output_tokens=2, key="own")
    return (await ctx.call("spender", ctx.text)).text


async def link(scene: Scene) -> Result:
    """Do a step of a workflow: take a moment, and tell."""
    await asyncio.sleep(0.02)
    say("stepped", run=scene.run_id, step=scene.step.name)
    return Result(ok=True, output=scene.step.name, exit_code=0)


async def side(ctx: Context) -> str:
    """Do one side of a diamond as a task of its own."""
    await asyncio.sleep(0.02)
    say("stepped", run=ctx.task_id, step="right")
    return ctx.text


DIAMOND = plan_of(
    step("top"),
    step("left", "top"),
    Step(name="right", type="a2a", agent="side", task="right", depends_on=("top",)),
    step("bottom", "left", "right"),
    agents=agents("side"),
)

HALF_A_CHARACTER = "\ud800"
"""Half a surrogate pair, which no UTF-8 has."""

AGENTS = (
    *(chunks, careful, stubborn, large, endless, waiting, brief, deadly, fragile, telling, chain, poison, nul),
    *(boss, hurried, parent, secretary, inquirer, spender, patron),
    *(FlowAgent(DIAMOND, link), Member("side", side, attempts=MANY)),
)
