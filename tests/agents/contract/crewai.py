"""Crews of CrewAI: they and it are in an environment of their own."""

from accord.engine.agent import Crash
from tests.agents.contract.subjects import Subject

SUBJECT = Subject(
    kind="crewai",
    make=None,
    has=frozenset({"echo", "stream", "held", "remember", "slow", "fail", "usage", "steps"}),
    crash=Crash.RESUME,
    serve="crewai",
)
