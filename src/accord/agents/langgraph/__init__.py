"""LangGraph graphs: the agent type and its options.

The framework is imported when an agent is made (`agent`). docs/agents/langgraph.md describes the mapping.
"""

from collections.abc import Mapping
from typing import Any, Literal

from accord.api import Agent
from accord.api.agent_types import AgentArguments, AgentType, Count, Options, is_instance_of, needs

GRAPHS = ("langgraph.pregel.main:Pregel", "langgraph.graph.state:StateGraph")
"""Classes of graphs, compiled or not; their names are enough to recognize one without an import."""

PRECEDENCE = 1
"""Higher than LangChain's, because a compiled graph is also a LangChain runnable."""

ATTEMPTS = 20
"""Maximum number of lost executions. A graph resumes from its last checkpoint, so retries repeat little."""


class GraphOptions(Options, frozen=True, kw_only=True):
    """Options of a graph."""

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


def make(given: AgentArguments) -> Agent:
    """Make an agent that runs a graph."""
    with needs("langgraph", "langgraph"):
        from accord.agents.langgraph.agent import GraphAgent
    return GraphAgent(given)


AGENT_TYPE = AgentType(
    name="langgraph",
    options=GraphOptions,
    make=make,
    recognizes=lambda thing: is_instance_of(thing, *GRAPHS),
    precedence=PRECEDENCE,
)
