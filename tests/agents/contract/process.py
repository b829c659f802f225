"""Commands that print events and keep sessions."""

import os
import sys
from pathlib import Path

from accord.agents.process import ProcessAgent, ProcessOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.contract.subjects import Subject

SCRIPT = Path(__file__).parent.parent / "process" / "clis" / "contract.py"


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    options = ProcessOptions(
        command=(sys.executable, "-I", str(SCRIPT), behaviour, str(scratch)),
        events="lines",
        resume_args=("--resume", "{session}"),
        root=str(scratch / "work"),
        grace=0.5,
    )
    return ProcessAgent(AgentArguments(options=options, name="subject", env=os.environ))


SUBJECT = Subject(
    kind="process",
    make=make,
    has=frozenset({"echo", "stream", "held", "remember", "slow", "fail", "ask", "file", "usage", "steps"}),
    crash=Crash.RESUME,
)
