"""Agents of frameworks that live in environments of their own: served by those, and talked to over HTTP."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from accord.a2a import Caller
from accord.client import Client
from tests.agents.contract.talking import BOUND_SECONDS, Talk
from tests.environments import interpreter
from tests.serve.running import Server

Talking = Callable[[str], AbstractAsyncContextManager[Talk]]


class Served:
    """Agents, by name what their tables say, in one process: to import a framework takes longer than most tests."""

    def __init__(self, folder: Path, environment: str, agents: Mapping[str, str]) -> None:
        self.folder = folder
        self._environment = environment
        tables = [f"[agents.{name}]\n{lines}\n" for name, lines in agents.items()]
        (folder / "accord.toml").write_text("\n".join(tables))
        self._server = self._started()

    def _started(self) -> Server:
        store, python = f"sqlite:///{self.folder}/accord.db", str(interpreter(self._environment))
        return Server(self.folder, "--store", store, python=python, SCRATCH=str(self.folder))

    @asynccontextmanager
    async def talking(self, name: str) -> AsyncIterator[Talk]:
        """Talk to one of them."""
        async with Client.connect(f"{self._server.url}/agents/{name}", timeout=BOUND_SECONDS) as client:
            yield Talk(client, Caller(), self.folder)

    def kill(self) -> None:
        """Kill the process, as a crash would, and start another one with the same store."""
        self._server.kill()
        self._server = self._started()

    def stop(self) -> None:
        """Ask the process to stop."""
        self._server.stop()
