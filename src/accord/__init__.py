"""Accord: a durable home for agents that talk to each other over A2A (Agent2Agent)."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from accord.agents.function import agent
    from accord.app import to_a2a
    from accord.core.context import Context, Failed, Rejected

__all__ = ["Context", "Failed", "Rejected", "__version__", "agent", "to_a2a"]

_HOMES = {
    "agent": "accord.agents.function",
    "Context": "accord.core.context",
    "Failed": "accord.core.context",
    "Rejected": "accord.core.context",
    "to_a2a": "accord.app",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: the command must not pay for them to print its version."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
