"""Commands as agents: coding agents' own and any others, each run as a process that ends with its task."""

from accord.agents.process.agent import KIND, ProcessAgent
from accord.agents.process.options import ProcessOptions

__all__ = ["KIND", "ProcessAgent", "ProcessOptions"]
