"""DBOS's half of the workflow benchmark, run by an interpreter that has it: one question a line in, one answer out.

Workflows and steps are written in both of its forms: coroutines, and plain functions in as many threads as there are
runs. Steps side by side can only be coroutines: it has no other way to begin several of one workflow.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dbos import DBOS

from bench.timing import paced, times_of

SAID = "x"


@DBOS.step()
def step() -> str:
    return SAID


@DBOS.step()
async def async_step() -> str:
    return SAID


@DBOS.workflow()
def chain(steps: int) -> str:
    for _ in range(steps):
        step()
    return SAID


@DBOS.workflow()
async def async_chain(steps: int) -> str:
    for _ in range(steps):
        await async_step()
    return SAID


@DBOS.workflow()
async def async_beside(steps: int) -> str:
    await asyncio.gather(*(async_step() for _ in range(steps)))
    return SAID


def in_thread(pool: ThreadPoolExecutor) -> Callable[[int], Awaitable[object]]:
    return lambda steps: asyncio.get_running_loop().run_in_executor(pool, chain, steps)


async def answer(asked: dict[str, Any]) -> dict[str, float]:
    """Run workflows of a shape and form: many for a while, or so many one after the other."""
    with ThreadPoolExecutor(asked["at_once"]) as pool:
        forms = {"chain": async_chain, "beside": async_beside, "chain in threads": in_thread(pool)}
        flow, steps = forms[asked["form"]], asked["steps"]
        if "seconds" in asked:
            return await paced(lambda _: flow(steps), asked["at_once"], asked["seconds"])
        return await times_of(lambda: flow(steps), asked["count"])


async def main() -> None:
    loop = asyncio.get_running_loop()
    own = ThreadPoolExecutor(1)
    while line := await loop.run_in_executor(own, sys.stdin.readline):
        print(json.dumps(await answer(json.loads(line))), flush=True)


DBOS(config={"name": "bench", "system_database_url": sys.argv[1], "log_level": "ERROR", "enable_otlp": False})
DBOS.launch()
asyncio.run(main())
DBOS.destroy()
