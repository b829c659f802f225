"""The HTTP and gRPC edges of a server, and MCP.

Each binding knows one framing. `protocol` decodes and encodes versions, and the service behind an `A2A` has the
meaning.
"""
