"""Workflows: documents, the plans made of them, and their runs.

The public names are imported when they are used. `run_document` is a port: importing `accord` sets its implementation,
because a store and hosted agents are in a higher layer. Nothing heavy is imported here.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from accord.lazy import lazily

if TYPE_CHECKING:
    from pathlib import Path

    from accord.model import Event, Task
    from accord.workflows.builder import Builder, workflow
    from accord.workflows.document import Document
    from accord.workflows.executors import (
        Executor,
        Result,
        Scene,
        StepExecutorType,
        is_a2a_step,
        is_agent_step,
        is_deterministic_step,
        is_worktree_step,
        isA2AStep,
        isAgentStep,
        isDeterministicStep,
        isWorktreeStep,
    )

    Told = Callable[[Event], Awaitable[None]]
    Run = Callable[..., Awaitable[Task]]


class RunPort:
    """The port for running documents."""

    run: "Run | None" = None


RUNNER = RunPort()


async def run_document(
    document: "Document",
    *,
    workflow: str | None = None,
    vars: Mapping[str, Any] | None = None,
    input: str = "",
    directory: "Path | None" = None,
    start_from: str | None = None,
    previous_run_id: str | None = None,
    on_event: "Told | None" = None,
) -> "Task":
    """Run a workflow of a document and return its task.

    The run ends, or stops when it needs input. The run and its steps are stored in the store of the settings. `accord
    runs` lists and resumes it.
    """
    if RUNNER.run is None:
        raise RuntimeError("Nobody here runs documents: import accord")
    members = {
        "input": input,
        "vars": dict(vars or {}),
        "workflow": workflow,
        "startFrom": start_from,
        "previousRun": previous_run_id,
    }
    request = {name: value for name, value in members.items() if value}
    return await RUNNER.run(document, request, directory=directory, on_event=on_event)


__all__ = [
    "Builder",
    "Executor",
    "Result",
    "Scene",
    "StepExecutorType",
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
    ".executors": (
        "Executor",
        "Result",
        "Scene",
        "StepExecutorType",
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
"""Module -> the public names that it contains."""

__getattr__ = lazily(__name__, _HOMES)
"""Import a module only when one of its names is used."""
