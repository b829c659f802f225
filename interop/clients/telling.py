"""What every client's script shares: the arguments that it is given, and how it says what came of each operation.

A script runs in the environment of its peer: one argument, a JSON object, goes in, and one JSON object comes out, from
operations to verdicts with their reasons. What is not in its table, the client's API has nothing for.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from interop.outcome import Operation, Outcome, attempted

SAYING = "outcomes: "
"""How the line begins that counts: some peers print things of their own."""

Steps = Mapping[Operation, Callable[[], Awaitable[None]]]


async def told(steps: Steps) -> dict[Operation, Outcome]:
    """Do one after the other, whatever becomes of those before."""
    return {operation: await attempted(step()) for operation, step in steps.items()}


def run(talking: Callable[..., AbstractAsyncContextManager[Steps]]) -> None:
    """Talk to the server that the arguments name, and print the outcomes."""

    async def talk() -> dict[Operation, Outcome]:
        async with talking(**arguments) as steps:
            return await told(steps)

    arguments: dict[str, Any] = json.loads(sys.argv[1])
    print(f"{SAYING}{json.dumps(asyncio.run(talk()))}", flush=True)
