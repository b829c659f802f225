"""Channels of a relay: a broker on this machine, and a command that answers in it."""

import sys
from pathlib import Path

from accord.agents.relay.agent import AGENT_TYPE, RelayOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject

COMMAND = """
import os, sys, time
from pathlib import Path
scratch, behaviour, asked = Path(sys.argv[1]), sys.argv[2], sys.stdin.read()
if behaviour == "fail":
    sys.exit("no such city")
while behaviour == "slow":
    with (scratch / "beats").open("ab") as file:
        file.write(b".")
    time.sleep(float(sys.argv[3]))
if behaviour == "remember":
    with (scratch / os.environ["RELAY_CONTEXT_ID"]).open("a+") as file:
        print(asked, file=file, flush=True)
        file.seek(0)
        print(file.read())
else:
    print(f"you said {asked}")
"""


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    command = (sys.executable, "-c", COMMAND, str(scratch), behaviour, str(marks.BEAT_SECONDS))
    options = RelayOptions(command=command, poll_interval=0.05, timeout=marks.LONG_SECONDS)
    return AGENT_TYPE.make(AgentArguments(options=options, name="subject"))


SUBJECT = Subject(kind="relay", make=make, has=frozenset({"echo", "remember", "slow", "fail"}), crash=Crash.RESTART)
