"""Tools from MCP servers: a real one, started with the node and stopped with it."""

import sys
from pathlib import Path
from typing import Any

import pytest
from agents import Agent
from agents.mcp import MCPServerStdio

from accord.agents.openai_agents import OpenAIAgent, OpenAIAgentsOptions
from accord.api.agent_types import AgentArguments
from accord.server.settings_loader import BadSettings
from accord.testing import running
from tests.agents.openai_agents.models import Scripted, calls, returned
from tests.engine.conftest import bounded

TOOLS = Path(__file__).parents[3] / "examples" / "agents" / "mcp_tools.py"


def calculating(file: Path) -> OpenAIAgent:
    """An agent that hands over to one with tools of an MCP server."""
    server = MCPServerStdio(params={"command": sys.executable, "args": [str(file)]}, client_session_timeout_seconds=30)
    model = Scripted(
        lambda items, time: [calls("add", a=40, b=2)] if time == 1 else [str(given) for given in returned(items)]
    )
    second = Agent("second", model=model, mcp_servers=[server])
    first: Agent[Any] = Agent(
        "first", model=Scripted(lambda items, time: [calls("transfer_to_second", "c-0")]), handoffs=[second]
    )
    return OpenAIAgent(AgentArguments(options=OpenAIAgentsOptions(), name="subject", target=first))


@bounded
async def test_tools_of_an_mcp_server_are_called() -> None:
    async with running(calculating(TOOLS)) as a2a:
        assert "42" in await a2a.ask_text("40 + 2")


@bounded
async def test_failed_mcp_servers_are_reported_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("raise SystemExit(3)")
    with pytest.raises(BadSettings, match="The agent subject cannot start: an MCP server cannot be reached"):
        async with running(calculating(file)):
            pass
