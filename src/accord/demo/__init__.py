"""The agents and the workflow of `accord demo`, and their pace.

They need no network, no key and no model, and their answers do not vary. They are examples, not a base for other
code. `accord.cli` serves them, and they use only the public interface for agents.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

WORD_SECONDS = 0.06
"""Seconds per word: about a thousand words a minute, readable and visibly streamed."""


class Pace:
    """The speed of the demo, as a factor of real time."""

    speed = 1.0


async def pause(seconds: float) -> None:
    """Wait, to simulate work."""
    await asyncio.sleep(seconds / Pace.speed)


async def type_text(text: str) -> AsyncIterator[str]:
    """Yield a text in pieces, like a model."""
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
"""The agents that are always served, the default first."""

GRAPH_AGENT = "accord.demo.trip:trip"
"""A LangGraph graph, served if LangGraph is installed."""

WORKFLOW = Path(__file__).parent / "ship.yaml"

REMOTE_AGENT = "accord.demo.agents:warehouse"
"""The agent of the second server, which the first calls over A2A and which reports by webhook."""

REMOTE_AGENT_NAME = "Warehouse"


def targets() -> tuple[str, ...]:
    """Return the served targets."""
    graph = (GRAPH_AGENT,) if find_spec("langgraph") is not None else ()
    return (*AGENTS, *graph, str(WORKFLOW))
