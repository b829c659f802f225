"""From settings and agents to a running server."""
