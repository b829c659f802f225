"""Accord: a durable server and client for agents that communicate over A2A (Agent2Agent)."""

from typing import TYPE_CHECKING

from accord.client.resolver import DEFAULT_RESOLVER
from accord.lazy import deferred, lazily
from accord.workflows import RUNNER

__version__ = "0.1.0"

if TYPE_CHECKING:
    from accord.agents.function import agent
    from accord.agents.loader import as_agent
    from accord.agents.relay import RelayA2AAdapter
    from accord.agents.remote.agent import RemoteAgent
    from accord.client import BlockingClient, Client, RemoteTask, Reply
    from accord.engine.context import Context
    from accord.engine.outcome import Failed, Rejected
    from accord.server.application import to_a2a
    from accord.server.startup import serve_agent

__all__ = [
    "BlockingClient",
    "Client",
    "Context",
    "Failed",
    "Rejected",
    "RelayA2AAdapter",
    "RemoteAgent",
    "RemoteTask",
    "Reply",
    "__version__",
    "agent",
    "as_agent",
    "serve_agent",
    "to_a2a",
]

_HOMES = {
    ".agents.function": ("agent",),
    ".agents.loader": ("as_agent",),
    ".agents.relay": ("RelayA2AAdapter",),
    ".agents.remote.agent": ("RemoteAgent",),
    ".server.application": ("to_a2a",),
    ".server.startup": ("serve_agent",),
    ".client": ("BlockingClient", "Client", "RemoteTask", "Reply"),
    ".engine.context": ("Context",),
    ".engine.outcome": ("Failed", "Rejected"),
}
"""Module -> the public names that it defines."""

__getattr__ = lazily(__name__, _HOMES)
"""Lazy, so that the command prints its version without importing the public names."""


# Set here because this package is always imported first, from whichever module a client or a workflow is imported.
DEFAULT_RESOLVER.resolve = deferred("accord.server.registry:resolve_name")
RUNNER.run = deferred("accord.server.workflow_runs:run_document")
