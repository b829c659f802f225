"""MCP clients of the real SDK, in this process, over standard input and output, and over HTTP."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from accord.client.client import in_process
from accord.http.mcp import ExposedAgent, make_server
from accord.testing import running
from tests.mcp import agents
from tests.serve.running import environment

AGENTS = Path(agents.__file__)

Connect = Callable[..., AbstractAsyncContextManager[Client]]


def everybody() -> list[Any]:
    found = (agents.echo, agents.trip, agents.permit, agents.count, agents.fail, agents.slow, agents.patient)
    return [*found, agents.files, agents.data]


@pytest.fixture(params=["auto", "legacy"])
def connect(request: pytest.FixtureRequest) -> Connect:
    """A function that connects a client in this process, which speaks the newest version of MCP or an older one."""

    @asynccontextmanager
    async def connected(*, by_skill: bool = False, wait: float | None = None, **client: Any) -> AsyncIterator[Client]:
        first, *others = everybody()
        async with running(first, *others) as a2a:
            exposed = [
                ExposedAgent(
                    name=name,
                    agent=in_process(service),
                    description=a2a.app.agents[slug].profile.description,
                    skills=a2a.app.agents[slug].profile.skills,
                )
                for slug, (name, service) in zip(a2a.app.agents, a2a.app.host.services.items(), strict=True)
            ]
            server = make_server(exposed, by_skill=by_skill, wait_seconds=wait)
            async with Client(server, mode=request.param, raise_exceptions=True, **client) as connected:
                yield connected

    return connected


def command(folder: Path, *arguments: str) -> StdioServerParameters:
    """`accord mcp` as an MCP client starts it."""
    return StdioServerParameters(
        command=sys.executable, args=["-m", "accord", "mcp", *arguments], env=environment(folder), cwd=str(folder)
    )
