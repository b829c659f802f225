"""The example is read from its file and run; so is what the documentation says of options."""

import os
import re
from collections.abc import Callable
from pathlib import Path

from accord.agents.kinds import Options
from accord.agents.process import ProcessOptions
from accord.app.agents import agents_of
from accord.config import load
from accord.model import TaskState
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


def test_the_documentation_names_every_option() -> None:
    written = (ROOT / "docs" / "agents" / "process.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in written.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    own = set(ProcessOptions.__struct_fields__) - set(Options.__struct_fields__)
    assert own <= named
