"""Temporal's workflows, by a real server, and a worker in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accord.agents.temporal import workflow_agent
from accord.engine.agent import Agent, Crash
from tests.agents.contract.subjects import HERE, Subject
from tests.agents.temporal.contract_worker import WORKFLOWS, WORKS
from tests.agents.temporal.server import ending, running_server

ADDRESS = "temporal"
"""The file of the scratch folder that says where the server is."""

OPTIONS: dict[str, dict[str, Any]] = {
    "ask": {"status": "status"},
    "stream": {"progress_query": "progress"},
    "held": {"progress_query": "progress"},
    "remember": {"input": "conversation"},
}
"""What is said about the workflow of a behaviour."""

ROOT = HERE.parent.parent.parent


@contextmanager
def beside(scratch: Path) -> Iterator[None]:
    """Run a server, and a worker with this scratch folder."""
    with running_server() as address:
        (scratch / ADDRESS).write_text(address)
        module = "tests.agents.temporal.contract_worker"
        command = [sys.executable, "-m", module, address, "contract", str(scratch)]
        worker = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
        with ending(worker):
            assert worker.stdout is not None
            assert worker.stdout.readline().strip() == WORKS.encode(), "the worker did not start"
            yield


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    address = (scratch / ADDRESS).read_text()
    options = {"poll_seconds": 1.0, **OPTIONS.get(behaviour, {})}
    return workflow_agent(behaviour, "contract", name="subject", address=address, **options)


SUBJECT = Subject(
    kind="temporal",
    make=make,
    has=frozenset(WORKFLOWS),
    crash=Crash.RESUME,
    lives_on=True,
    beside=beside,
)
