"""Files that have each other among their steps: whether one would run itself for ever.

It reads files and judges nothing else of them; `checks` says where a circle is, and the workflow's agent refuses one.
"""

from pathlib import Path

from accord.workflows.document import Document
from accord.workflows.findings import BadDocument
from accord.workflows.members import steps_of
from accord.workflows.reading import load


def runs_itself(file: Path) -> bool:
    """Whether a file has a file among its steps, however indirectly, that has itself; one that is none has none."""
    return _returns(file.resolve(), (), set())


def _returns(file: Path, above: tuple[Path, ...], clear: set[Path]) -> bool:
    if file in above:
        return True
    if file in clear:
        return False
    try:
        document = load(file)
    except (BadDocument, OSError):
        return False  # which is found by whoever reads it
    found = any(_returns((file.parent / inner).resolve(), (*above, file), clear) for inner in _files_of(document))
    clear.add(file)
    return found


def _files_of(document: Document) -> list[str]:
    steps = (step for workflow in document.workflows for step in steps_of(workflow.steps))
    return [step.file for step in steps if step.kind == "workflow" and step.file is not None]
