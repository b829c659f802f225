"""LangChain runnables: the agent type and its options.

The framework is imported when an agent is made (`runnable`). Graphs are a separate agent type.
"""

from collections.abc import Mapping
from typing import Any

from accord.api import Agent
from accord.api.agent_types import AgentArguments, AgentType, Count, Options, is_instance_of, needs

RUNNABLE = "langchain_core.runnables.base:Runnable"
"""Base class of everything in LangChain that can be run."""


class RunnableOptions(Options, frozen=True, kw_only=True):
    """Options of a runnable."""

    input_key: str | None = None
    output_key: str | None = None
    input_mapper: str | None = None
    messages: Count = 100
    configurable: Mapping[str, Any] = {}


def make(given: AgentArguments) -> Agent:
    """Make an agent that runs a runnable."""
    with needs("langchain-core", "langchain"):
        from accord.agents.langchain.runnable import RunnableAgent
    return RunnableAgent(given)


AGENT_TYPE = AgentType(
    name="langchain", options=RunnableOptions, make=make, recognizes=lambda thing: is_instance_of(thing, RUNNABLE)
)
