"""Planners with a model: the one of the `chat` subject, which calls no tools, so that they pass on what it says."""

from pathlib import Path

from accord.agents.planner import AGENT_TYPE, PlannerOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.contract import chat
from tests.agents.contract.subjects import Subject

HAS = frozenset({"echo", "stream", "held", "slow", "fail", "usage"})


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    options = PlannerOptions(model=behaviour, base_url=(scratch / chat.ADDRESS).read_text())
    return AGENT_TYPE.make(AgentArguments(options=options, name="subject"))


SUBJECT = Subject(kind="planner", make=make, has=HAS, crash=Crash.RESTART, beside=chat.beside)
