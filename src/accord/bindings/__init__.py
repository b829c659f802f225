"""The server's edges: each binding knows one framing, asks `protocol` for versions and `core` for meaning."""
