"""The HTTP, gRPC and MCP bindings of a server.

Each binding implements one framing. `protocol` decodes and encodes versions. The `A2A` service executes the operations.
"""
