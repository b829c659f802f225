"""A small MCP server, as there are many: `python examples/agents/mcp_tools.py`, on standard input and output."""

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("tools")


@server.tool()
def add(a: float, b: float) -> float:
    """Add two numbers."""
    return a + b


@server.tool()
def reverse(text: str) -> str:
    """Write a text backwards."""
    return text[::-1]


@server.tool()
def divide(a: float, b: float) -> float:
    """Divide one number by another."""
    if b == 0:
        raise ToolError("nothing can be divided by zero")
    return a / b


if __name__ == "__main__":
    server.run()
