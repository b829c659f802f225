"""The example is read from its file and run."""

import os
from collections.abc import Callable
from pathlib import Path

from accord.model import TaskState
from accord.server.agents import agents_of
from accord.server.settings_loader import load
from accord.testing import running
from tests.agents.process.conftest import completed, sent, status

ROOT = Path(__file__).parent.parent.parent.parent


async def test_the_example_runs(binary: Callable[[str], str], tmp_path: Path) -> None:
    binary("claude")
    env = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    coder, words = agents_of(load(ROOT / "examples" / "agents" / "process_agent.toml", env), env)
    async with running(coder) as a2a:
        asked = await sent(a2a, "run make test")
        assert asked.status.state is TaskState.INPUT_REQUIRED, status(asked)
        assert "ran make test" in completed(await sent(a2a, "yes", task=asked))
    async with running(words) as a2a:
        assert completed(await sent(a2a, "one two three")) == "3"
