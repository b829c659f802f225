"""The example whose tools come from an MCP server, with the real SDK on both sides."""

import pytest

from accord.model import Part, Task, TaskState
from accord.testing import running
from accord.testing.inprocess import text_in
from examples.agents.mcp_agent import toolbox


@pytest.mark.proves("3-44")
async def test_an_agent_uses_the_tools_of_an_mcp_server() -> None:
    async with running(toolbox) as a2a:
        task = await a2a.send_text("add 2 3")
        assert task.status.state is TaskState.COMPLETED
        assert text_in(task) == "5.0"
        assert [part.data for part in task.artifacts[0].parts[1:]] == [{"result": 5.0}]
        assert text_in(await a2a.send_text("reverse hello you")) == "uoy olleh"
        given = await a2a.send((Part(text="add"), Part(data={"a": 1, "b": 1})))
        assert isinstance(given, Task)
        assert text_in(given) == "2.0"


async def test_missing_tool_features_are_explained() -> None:
    async with running(toolbox) as a2a:
        refused = await a2a.send_text("sing")
        assert refused.status.state is TaskState.REJECTED
        assert "add: Add two numbers." in text_in(refused)
        assert text_in(await a2a.send_text("add 2")) == "add takes a, b"
        failed = await a2a.send_text("divide 1 0")
        assert failed.status.state is TaskState.FAILED
        assert "nothing can be divided by zero" in text_in(failed)
