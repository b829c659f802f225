"""Agents of Google's ADK: they and it are in an environment of their own."""

from accord.engine.agent import Crash
from tests.agents.contract.subjects import Subject

SUBJECT = Subject(
    kind="adk",
    make=None,
    has=frozenset({"echo", "stream", "held", "remember", "slow", "fail", "ask", "file", "usage"}),
    crash=Crash.RESTART,
    serve="google-adk",
)
