"""Accord: a durable home for agents that talk to each other over A2A (Agent2Agent)."""

from typing import TYPE_CHECKING, Any

from accord.client.resolver import DEFAULT_RESOLVER
from accord.lazy import lazily
from accord.workflows import RUNNER

__version__ = "0.1.0"

if TYPE_CHECKING:
    from accord.agents.function import agent
    from accord.agents.loader import as_agent
    from accord.agents.relay import RelayA2AAdapter
    from accord.agents.remote.agent import RemoteAgent
    from accord.client import BlockingClient, Client, RemoteTask, Said
    from accord.engine.context import Context, Failed, Rejected
    from accord.model import AgentCard, Task
    from accord.server.application import to_a2a
    from accord.server.startup import serve_agent
    from accord.workflows.document import Document

__all__ = [
    "BlockingClient",
    "Client",
    "Context",
    "Failed",
    "Rejected",
    "RelayA2AAdapter",
    "RemoteAgent",
    "RemoteTask",
    "Said",
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
    ".client": ("BlockingClient", "Client", "RemoteTask", "Said"),
    ".engine.context": ("Context", "Failed", "Rejected"),
}
"""Module -> the public names that are at home there."""

__getattr__ = lazily(__name__, _HOMES)
"""The command must not pay for the public names to print its version."""


async def _resolved(name: str) -> "AgentCard":
    """Look a name up; settings and a registry, and all that they stand on, are only loaded for one."""
    from accord.server.registry import resolve_name

    return await resolve_name(name)


# Here, because this is always imported first: it does not matter which module a client is imported from.
DEFAULT_RESOLVER.resolve = _resolved


async def _run(document: "Document", wish: dict[str, Any], **more: Any) -> "Task":
    """Run a workflow; a store, and all that hosts agents, is only loaded for one."""
    from accord.server.workflow_runs import run_document

    return await run_document(document, wish, **more)


RUNNER.run = _run
