"""While a server answers, its event loop waits for nothing but the loop: no file, no name, no process."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BOUND_SECONDS = 90


def watched(folder: Path, which: str) -> list[str]:
    """What the loop of a server was seen to do that may block."""
    command = [sys.executable, "-m", "tests.server.watched", str(folder), which]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    seen: list[str] = json.loads(done.stdout)
    return seen


@pytest.mark.proves("3-14")
def test_nothing_blocks_the_loop_of_a_server(tmp_path: Path) -> None:
    assert watched(tmp_path, "good") == []


def test_blocking_calls_are_detected(tmp_path: Path) -> None:
    seen = [line.partition(" ")[0] for line in watched(tmp_path, "bad")]
    assert seen == ["socket.getaddrinfo", "open"]
