"""What kind of step a step is, as functions: the names that agent-relay's type guards have, and ours.

They say what the step's own properties say, and nothing of whether it is complete; `checks` does.
"""

from accord.workflows.document import Step


def is_agent_step(step: Step) -> bool:
    """Whether a command line agent does it."""
    return step.is_agent_step


def is_deterministic_step(step: Step) -> bool:
    """Whether it is a command."""
    return step.is_deterministic_step


def is_worktree_step(step: Step) -> bool:
    """Whether it makes a worktree."""
    return step.is_worktree_step


def is_a2a_step(step: Step) -> bool:
    """Whether an A2A agent does it."""
    return step.is_a2a_step


isAgentStep = is_agent_step
isDeterministicStep = is_deterministic_step
isWorktreeStep = is_worktree_step
isA2AStep = is_a2a_step
