"""Running a document from a program: what is asked for, what comes of it, and who does it.

Who opens a store and hosts agents is above, so this is a port: the package fills it in when it is imported. Nothing
heavy is imported here.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from accord.model import Event, Task
    from accord.workflows.document import Document

    Told = Callable[[Event], Awaitable[None]]
    Run = Callable[..., Awaitable[Task]]


class Runner:
    """Who runs documents."""

    run: "Run | None" = None


RUNNER = Runner()


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
    """Run a workflow of a document to its end, or to where it asks somebody, and return the task that the run is.

    It is kept in the store that the settings name, as are its steps: `accord runs` shows and resumes it.
    """
    if RUNNER.run is None:
        raise RuntimeError("Nobody here runs documents: import accord")
    asked = {
        "input": input,
        "vars": dict(vars or {}),
        "workflow": workflow,
        "startFrom": start_from,
        "previousRun": previous_run_id,
    }
    wish = {name: value for name, value in asked.items() if value}
    return await RUNNER.run(document, wish, directory=directory, on_event=on_event)
