"""From settings and agents to a running server."""

from accord.app.application import Application, to_a2a

__all__ = ["Application", "to_a2a"]
