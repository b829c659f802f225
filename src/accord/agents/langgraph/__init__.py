"""LangGraph graphs: the agent type and its options.

The framework is imported when an agent is made (`agent`). The mapping is described in docs/agents/langgraph.md.
"""

from collections.abc import Mapping
from typing import Any, Literal

from accord.agents.agent_types import Count, Given, Kind, Options, is_instance_of
from accord.engine.agent import Agent

GRAPHS = ("langgraph.pregel.main:Pregel", "langgraph.graph.state:StateGraph")
"""What a graph is, compiled and not: nothing is imported to find out."""

PRECEDENCE = 1
"""A compiled graph is a LangChain runnable as well."""

ATTEMPTS = 20
"""How often a run may be lost: it goes on from its last checkpoint, so that trying again does not begin anew."""


class GraphOptions(Options, frozen=True, kw_only=True):
    """What may be said about a graph."""

    attempts: Count | None = ATTEMPTS
    input_key: str | None = None
    output_key: str | None = None
    files_key: str | None = None
    input_mapper: str | None = None
    stream_nodes: tuple[str, ...] = ()
    updates: Literal["names", "values", "off"] = "names"
    recursion_limit: Count | None = None
    durability: Literal["sync", "async", "exit"] = "sync"
    keep_history: bool = False
    configurable: Mapping[str, Any] = {}
    context: Mapping[str, Any] | None = None


def make(given: Given) -> Agent:
    """Return an agent that runs a graph."""
    try:
        from accord.agents.langgraph.agent import GraphAgent
    except ImportError as error:
        raise ImportError("LangGraph agents need langgraph: pip install 'accord[langgraph]'") from error
    return GraphAgent(given)


def recognises(thing: Any) -> bool:
    """Whether a thing is a graph, compiled or not."""
    return is_instance_of(thing, *GRAPHS)


KIND = Kind(name="langgraph", options=GraphOptions, make=make, recognises=recognises, precedence=PRECEDENCE)
