"""Workflows: documents that say what agents, shells and people do together, and the runs that follow them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from accord.workflows.builder import Builder, workflow
    from accord.workflows.predicates import (
        is_a2a_step,
        is_agent_step,
        is_deterministic_step,
        is_worktree_step,
        isA2AStep,
        isAgentStep,
        isDeterministicStep,
        isWorktreeStep,
    )

__all__ = [
    "Builder",
    "isA2AStep",
    "isAgentStep",
    "isDeterministicStep",
    "isWorktreeStep",
    "is_a2a_step",
    "is_agent_step",
    "is_deterministic_step",
    "is_worktree_step",
    "workflow",
]

_HOMES = {
    "Builder": "builder",
    "isA2AStep": "predicates",
    "isAgentStep": "predicates",
    "isDeterministicStep": "predicates",
    "isWorktreeStep": "predicates",
    "is_a2a_step": "predicates",
    "is_agent_step": "predicates",
    "is_deterministic_step": "predicates",
    "is_worktree_step": "predicates",
    "workflow": "builder",
}


def __getattr__(name: str) -> Any:
    """Import the public names when they are used: who needs one module does not pay for all."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
