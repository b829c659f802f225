"""LangChain runnables as agents: the kind, and what settings may say about a runnable.

The framework is imported when an agent is made; what it does then is in `agent`. Graphs are a kind of their own.
"""

from collections.abc import Mapping
from typing import Any

from accord.agents.kinds import Count, Given, Kind, Options, comes_from
from accord.engine.agent import Agent

RUNNABLE = "langchain_core.runnables.base:Runnable"
"""What everything in LangChain is that can be run."""


class RunnableOptions(Options, frozen=True, kw_only=True):
    """What may be said about a runnable."""

    input_key: str | None = None
    output_key: str | None = None
    input_mapper: str | None = None
    messages: Count = 100
    configurable: Mapping[str, Any] = {}


def make(given: Given) -> Agent:
    """Return an agent that runs a runnable."""
    try:
        from accord.agents.langchain.agent import RunnableAgent
    except ImportError as error:
        raise ImportError("LangChain agents need langchain-core: pip install 'accord[langchain]'") from error
    return RunnableAgent(given)


def recognises(thing: Any) -> bool:
    """Whether a thing is a runnable."""
    return comes_from(thing, RUNNABLE)


KIND = Kind(name="langchain", options=RunnableOptions, make=make, recognises=recognises)
