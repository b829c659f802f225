"""What a behaviour leaves in its scratch folder for the suite to see, and what the suite leaves there for it.

    beats   grows while the work goes on
    steps   a line for each step that was begun
    go      what is held may go on

It needs nothing but Python: subjects in other environments use it as well.
"""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

BEAT_SECONDS = 0.05
"""Between two beats; not less, for the suite counts how many come after an end."""

BOUND_SECONDS = 60
"""For whoever waits to be told to go on."""

LONG_SECONDS = 600.0
"""For agents whose time is limited: all subjects work at the same time, and are stopped one after the other."""


def beat(scratch: Path) -> None:
    """Show that the work goes on."""
    with (scratch / "beats").open("ab") as file:
        file.write(b".")


async def work(scratch: Path) -> None:
    """Work until somebody stops it."""
    while True:
        beat(scratch)
        await asyncio.sleep(BEAT_SECONDS)


def work_in_thread(scratch: Path, is_over: Callable[[], bool]) -> None:
    """Work until it is over."""
    while not is_over():
        beat(scratch)
        time.sleep(BEAT_SECONDS)


def step(scratch: Path, number: int) -> None:
    """Show that a step is begun."""
    with (scratch / "steps").open("a") as file:
        file.write(f"{number}\n")


async def held(scratch: Path) -> None:
    """Wait until the suite says to go on."""
    async with asyncio.timeout(BOUND_SECONDS):
        while not (scratch / "go").exists():  # noqa: ASYNC110  # it is said by another process
            await asyncio.sleep(BEAT_SECONDS)


def held_in_thread(scratch: Path) -> None:
    """Wait until the suite says to go on."""
    until = time.monotonic() + BOUND_SECONDS
    while not (scratch / "go").exists():
        if time.monotonic() > until:
            raise TimeoutError("Nobody said to go on")
        time.sleep(BEAT_SECONDS)
