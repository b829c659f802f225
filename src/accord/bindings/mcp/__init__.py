"""Agents as tools of the Model Context Protocol, for those who have the extra `mcp`.

`tools` says what is offered, `arguments` and `results` turn calls into messages and tasks into results, `calls` follows
one call, and `server` is what a client connects to. Agents are anything that implements `core.interface.A2A`.
"""

try:
    from accord.bindings.mcp.server import http_app, made, serve_stdio
    from accord.bindings.mcp.tools import Exposed
except ImportError as error:
    raise ImportError("Agents as MCP tools need mcp 2: pip install 'accord[mcp]'") from error

__all__ = ["Exposed", "http_app", "made", "serve_stdio"]
