"""Commands that talk to people at a terminal, and have no sessions."""

import os
import sys
from pathlib import Path

from accord.agents.process import ProcessAgent, ProcessOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.contract.process import SCRIPT
from tests.agents.contract.subjects import Subject


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    options = ProcessOptions(
        command=(sys.executable, "-I", str(SCRIPT), behaviour, str(scratch)),
        mode="pty",
        root=str(scratch / "work"),
        grace=0.5,
    )
    return ProcessAgent(AgentArguments(options=options, name="subject", env=os.environ))


SUBJECT = Subject(
    kind="process",
    make=make,
    has=frozenset({"echo", "held", "slow", "fail", "ask", "file"}),
    crash=Crash.FAIL,
)
