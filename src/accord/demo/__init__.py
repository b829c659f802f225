"""The agents and the workflow of `accord demo`: what a first minute with a server looks like when nothing is set up.

They need no network, no key and no model, and say the same about the same words. They are nothing to build upon:
`accord.cli.demo` serves them, and what they do is what any agent may.
"""

from importlib.util import find_spec
from pathlib import Path

AGENTS = (
    "accord.agents.echo:echo",
    "accord.demo.reporter:reporter",
    "accord.demo.billing:billing",
    "accord.demo.planner:planner",
    "accord.demo.releases:releases",
)
"""Those that are always there, the default one first."""

GRAPH = "accord.demo.trip:trip"
"""A graph of LangGraph's, where that is installed."""

WORKFLOW = Path(__file__).parent / "ship.yaml"

ELSEWHERE = "accord.demo.warehouse:warehouse"
"""The agent of the other server, which this one reaches over A2A and hears from by webhook."""

ELSEWHERE_NAME = "Warehouse"


def targets() -> tuple[str, ...]:
    """Return what is served here."""
    graph = (GRAPH,) if find_spec("langgraph") is not None else ()
    return (*AGENTS, *graph, str(WORKFLOW))
