"""Executors of the official SDK, 0.3: they and it are in an environment of their own."""

from accord.engine.agent import Crash
from tests.agents.contract.subjects import Subject

SUBJECT = Subject(
    kind="a2a_sdk_03",
    make=None,
    has=frozenset({"echo", "stream", "held", "remember", "slow", "fail", "ask", "file"}),
    crash=Crash.RESTART,
    serve="a2a-sdk-03",
)
