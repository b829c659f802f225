"""Workflows: documents that say what agents, shells and people do together, and the runs that follow them."""

from typing import TYPE_CHECKING

from accord.lazy import lazily

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
    ".builder": ("Builder", "workflow"),
    ".predicates": (
        "isA2AStep",
        "isAgentStep",
        "isDeterministicStep",
        "isWorktreeStep",
        "is_a2a_step",
        "is_agent_step",
        "is_deterministic_step",
        "is_worktree_step",
    ),
}
"""Module -> the public names that are at home there."""

__getattr__ = lazily(__name__, _HOMES)
"""Who needs one module does not pay for all."""
