"""The MCP server: lists tools and has calls answered, over standard input and output or over streamable HTTP.

The SDK speaks the protocol, of every version; nothing is written to standard output but that.
"""

from collections.abc import Iterable
from typing import Any

from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    InputRequiredResult,
    ListToolsResult,
    PaginatedRequestParams,
)

from accord.bindings.mcp.calls import Calls
from accord.bindings.mcp.tools import Exposed, offered

NAME = "accord"

INSTRUCTIONS = (
    "Each tool is an agent. It may take a while and say how far it is. One that asks something answers with a task_id:"
    " call the same tool again with the answer as message and that task_id. To talk on with an agent about the same"
    " thing, pass the context_id of its last answer."
)


def made(
    agents: Iterable[Exposed], *, by_skill: bool = False, wait_seconds: float | None = None, version: str = ""
) -> Server[Any]:
    """Return a server whose tools are these agents; `version` is what it says of itself."""
    tools = offered(agents, by_skill=by_skill)
    calls = Calls(wait_seconds)

    async def list_tools(ctx: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[one.tool for one in tools.values()])

    async def call_tool(
        ctx: ServerRequestContext[Any], params: CallToolRequestParams
    ) -> CallToolResult | InputRequiredResult:
        if params.name not in tools:
            raise MCPError(code=INVALID_PARAMS, message=f"There is no tool called {params.name!r}")
        return await calls.answer(tools[params.name], ctx, params)

    return Server(NAME, version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool)


async def serve_stdio(server: Server[Any]) -> None:
    """Talk over standard input and output until the other side is gone."""
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())


def http_app(server: Server[Any], *, host: str) -> Any:
    """Return the ASGI application that serves it; pages of other origins are kept out where `host` is this machine."""
    return server.streamable_http_app(streamable_http_path="/mcp", host=host)
