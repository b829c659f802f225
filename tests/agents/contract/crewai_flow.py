"""Flows of CrewAI, in its environment."""

from accord.engine.agent import Crash
from tests.agents.contract.subjects import Subject

SUBJECT = Subject(
    kind="crewai_flow",
    make=None,
    has=frozenset({"echo", "remember", "slow", "fail", "ask", "usage", "steps"}),
    crash=Crash.RESUME,
    serve="crewai",
    within="flows",
)
