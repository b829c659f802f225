"""Accord: a durable home for agents that talk to each other over A2A (Agent2Agent)."""

from typing import TYPE_CHECKING, Any

from accord.client.names import DEFAULT
from accord.workflows.running import RUNNER

__version__ = "0.1.0"

if TYPE_CHECKING:
    from accord.agents.function import agent
    from accord.agents.relay import RelayA2AAdapter
    from accord.agents.remote.agent import RemoteAgent
    from accord.app import to_a2a
    from accord.app.serving import serve_agent
    from accord.client import BlockingClient, Client, RemoteTask, Said
    from accord.core.context import Context, Failed, Rejected
    from accord.model import AgentCard, Task
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
    "serve_agent",
    "to_a2a",
]

_HOMES = {
    "agent": "accord.agents.function",
    "RelayA2AAdapter": "accord.agents.relay",
    "RemoteAgent": "accord.agents.remote.agent",
    "Context": "accord.core.context",
    "Failed": "accord.core.context",
    "Rejected": "accord.core.context",
    "serve_agent": "accord.app.serving",
    "to_a2a": "accord.app",
    "Client": "accord.client",
    "BlockingClient": "accord.client",
    "RemoteTask": "accord.client",
    "Said": "accord.client",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: the command must not pay for them to print its version."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


async def _resolved(name: str) -> "AgentCard":
    """Look a name up; settings and a registry, and all that they stand on, are only loaded for one."""
    from accord.app.names import resolved

    return await resolved(name)


# Here, because this is always imported first: it does not matter which module a client is imported from.
DEFAULT.resolve = _resolved


async def _run(document: "Document", wish: dict[str, Any], **more: Any) -> "Task":
    """Run a workflow; a store, and all that hosts agents, is only loaded for one."""
    from accord.app.workflows import run_document

    return await run_document(document, wish, **more)


RUNNER.run = _run
