"""Functions as agents: `accord serve examples/agents/function_agent.py:report` or any other one here."""

import time
from collections.abc import AsyncIterator, Iterator

from accord import Context, Failed, agent
from accord.model import Part

POPULATION = {"Lisbon": 567_000, "Rome": 2_750_000}


@agent(description="Counts people", skills=["population"], timeout=30)
async def report(ctx: Context) -> AsyncIterator[str | dict[str, int]]:
    """What is yielded is one artifact, streamed; structured values are data parts of it."""
    city = ctx.text or (await ctx.ask("Which city?")).text  # the run ends here; the answer begins it again
    await ctx.status(f"Looking up {city}")
    if city not in POPULATION:
        raise Failed(f"There is no city called {city} in the books")  # callers see this; of a bug they see nothing
    yield f"{city} has "
    yield f"{POPULATION[city]:,} inhabitants."
    yield {"population": POPULATION[city]}


def shout(text: str) -> str:
    """Says it louder: a plain function, whose name and docstring are the agent's."""
    return text.upper()


@agent(input_modes=["text/plain", "text/csv"], output_modes=["text/csv"])
def sort(ctx: Context) -> Part:
    """Sorts the lines of a file; it runs in a thread."""
    if not ctx.files:
        raise Failed("Send a file with lines")
    lines = sorted((ctx.files[0].raw or b"").splitlines(keepends=True))
    return Part(raw=b"".join(lines), filename="sorted.csv", media_type="text/csv")


@agent(on_crash="fail")
def countdown(ctx: Context) -> Iterator[str]:
    """Counts down; threads cannot be stopped, so it looks whether it should."""
    for number in range(1000, 0, -1):
        if ctx.cancelled:
            return
        yield f"{number} "
        time.sleep(0.01)
