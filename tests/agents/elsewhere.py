"""Agents of frameworks that live in environments of their own: served by those, and talked to over HTTP."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from accord.client import Client
from accord.core.interface import Caller
from tests.agents.contract.talking import BOUND_SECONDS, Talk
from tests.environments import interpreter
from tests.serve.running import Server


def serve(folder: Path, environment: str, agents: Mapping[str, str]) -> Server:
    """Serve agents: by name, what their tables say. Again in the same folder they have the same store."""
    tables = [f"[agents.{name}]\n{lines}\n" for name, lines in agents.items()]
    (folder / "accord.toml").write_text("\n".join(tables))
    store = f"sqlite:///{folder}/accord.db"
    return Server(folder, "--store", store, python=str(interpreter(environment)), SCRATCH=str(folder))


@asynccontextmanager
async def talking(server: Server, name: str, folder: Path) -> AsyncIterator[Talk]:
    """Talk to one of them."""
    async with Client.connect(f"{server.url}/agents/{name}", timeout=BOUND_SECONDS) as client:
        yield Talk(client, Caller(), folder)
