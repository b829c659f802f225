"""Agents as tools of the Model Context Protocol (extra `mcp`).

`conversion` turns tool calls into messages and tasks into results. `server` lists tools and answers calls. An agent is
any implementation of `A2A`.
"""

try:
    from accord.http.mcp.server import ExposedAgent, http_app, make_server, serve_stdio
except ImportError as error:
    raise ImportError("Agents as MCP tools need mcp 2: pip install 'accord[mcp]'") from error

__all__ = ["ExposedAgent", "http_app", "make_server", "serve_stdio"]
