"""Another implementation's server as a real process: its start, where it is, and its end by its id."""

import json
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.environments import ROOT

BOUND_SECONDS = 60
"""For machines that are busy with other things; the slowest server needs three seconds."""


@contextmanager
def running(python: str, script: str, log: Path) -> Iterator[str]:
    """Run a script of `servers` while the block runs; give the URL that it says. What else it says goes into a log."""
    command = (python, "-W", "ignore", "-m", f"tests.peers.servers.{script}")
    with log.open("wb") as errors:
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=errors, text=True)
    with process:
        try:
            assert process.stdout is not None
            has_spoken, _, _ = select.select([process.stdout], [], [], BOUND_SECONDS)
            line = process.stdout.readline() if has_spoken else ""
            assert line, f"{script} never said where it is, but: {log.read_text()[-4000:]}"
            url: str = json.loads(line)["url"]
            yield url
        finally:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(BOUND_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
