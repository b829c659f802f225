"""The agents and the workflow of `accord demo`, and their pace.

They need no network, no key and no model, and answer the same words alike. They are nothing to build upon: `accord.cli`
serves them, and what they do is what any agent may.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

WORD_SECONDS = 0.06
"""About a thousand words a minute: quick to read, slow enough to be seen coming."""


class Pace:
    """How many times faster than life."""

    speed = 1.0


async def pause(seconds: float) -> None:
    """Let some time pass, as if something were being done."""
    await asyncio.sleep(seconds / Pace.speed)


async def type_text(text: str) -> AsyncIterator[str]:
    """Yield a text in the pieces in which a model would say it."""
    for word in re.findall(r"\S+\s*|\s+", text):
        await pause(WORD_SECONDS)
        yield word


AGENTS = (
    "accord.agents.echo:echo",
    "accord.demo.reporter:reporter",
    "accord.demo.agents:billing",
    "accord.demo.agents:planner",
    "accord.demo.agents:releases",
)
"""Those that are always there, the default one first."""

GRAPH_AGENT = "accord.demo.trip:trip"
"""A graph of LangGraph's, where that is installed."""

WORKFLOW = Path(__file__).parent / "ship.yaml"

REMOTE_AGENT = "accord.demo.agents:warehouse"
"""The agent of the other server, which this one reaches over A2A and hears from by webhook."""

REMOTE_AGENT_NAME = "Warehouse"


def targets() -> tuple[str, ...]:
    """Return what is served here."""
    graph = (GRAPH_AGENT,) if find_spec("langgraph") is not None else ()
    return (*AGENTS, *graph, str(WORKFLOW))
