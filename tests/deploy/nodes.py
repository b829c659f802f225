"""Processes that deployment files start: their very command lines, with this machine's paths and ports."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.ports import free_port
from tests.serve.flowing import until
from tests.serve.running import BOUND_SECONDS, environment

ACCORD = str(Path(sys.executable).parent / "accord")
"""The program, in this environment."""


class Process:
    """A command that serves, on a port of its own, and what it has said."""

    def __init__(self, folder: Path, command: Sequence[str], env: Mapping[str, str], port: int | None = None) -> None:
        """Start it; unless the command says which, the port is told by a variable."""
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.env = environment(folder, **env) | ({} if port else {"ACCORD_SERVER__PORT": str(self.port)})
        self.said = folder / f"{self.port}.log"
        with self.said.open("w") as log:
            self.process = subprocess.Popen(list(command), cwd=folder, env=self.env, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        """Wait until it should get work."""

        def look() -> bool | None:
            assert self.process.poll() is None, self.said.read_text()
            try:
                return httpx.get(f"{self.url}/readyz", timeout=BOUND_SECONDS).status_code == 200 or None
            except httpx.TransportError:
                return None

        return bool(until(look))

    def stop(self) -> int:
        """Tell it to stop, and return its status."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(BOUND_SECONDS)


@contextmanager
def served(
    folder: Path, commands: Sequence[Sequence[str]], env: Mapping[str, str], ports: Sequence[int | None] = ()
) -> Iterator[list[Process]]:
    """Run commands that serve, until the block ends; then each is told to stop and ends well."""
    given = ports or [None] * len(commands)
    processes = [Process(folder, command, env, port) for command, port in zip(commands, given, strict=True)]
    try:
        for one in processes:
            one.is_ready()
        yield processes
        assert [one.stop() for one in processes] == [0] * len(processes)
        for one in processes:
            assert "Traceback" not in one.said.read_text()
    finally:
        for one in processes:
            one.process.kill()
            one.process.wait(BOUND_SECONDS)
