"""An agent whose tools come from an MCP server: `accord serve examples/agents/mcp_agent.py:toolbox`.

It calls the tool that the message names, "add 2 3" or "reverse hello"; one with a model would have that choose.
"""

import sys
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from mcp_types import TextContent, Tool

from accord import Context, Failed, Rejected, agent
from accord.model import Part

SERVER = StdioServerParameters(command=sys.executable, args=[str(Path(__file__).with_name("mcp_tools.py"))])
"""How the server is started; `Client("https://...")` connects to one that runs."""

NUMBERS = ("number", "integer")


@agent(description="Does what the tools of an MCP server can do", skills=["tools"])
async def toolbox(ctx: Context) -> list[Part]:
    async with Client(SERVER) as mcp:
        name, arguments = chosen((await mcp.list_tools()).tools, *ctx.text.partition(" ")[::2], ctx.data)
        await ctx.status(f"calling {name}")
        result = await mcp.call_tool(name, arguments)
    text = "".join(block.text for block in result.content if isinstance(block, TextContent))
    if result.is_error:
        raise Failed(text)
    structured = result.structured_content
    return [Part(text=text), *([] if structured is None else [Part(data=structured)])]


def chosen(tools: list[Tool], name: str, text: str, data: Any) -> tuple[str, dict[str, Any]]:
    """Return the tool to call, with the message's data or else its words as arguments; or reject, and say why."""
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        told = "; ".join(f"{tool.name}: {tool.description}" for tool in tools)
        raise Rejected(f"Begin with the name of a tool. There are {told}")
    if isinstance(data, dict):
        return name, data
    parameters: dict[str, Any] = tool.input_schema.get("properties", {})
    words = text.split(maxsplit=max(len(parameters) - 1, 0))
    if len(words) != len(parameters):
        raise Rejected(f"{name} takes {', '.join(parameters)}")
    try:
        pairs = zip(parameters.items(), words, strict=True)
        return name, {key: float(word) if schema.get("type") in NUMBERS else word for (key, schema), word in pairs}
    except ValueError as error:
        raise Rejected(f"{name} takes numbers") from error
