"""The command line agents that a document may name, and how each takes what a document says of it.

One row for each: the preset of `agents.process` that it is, and the arguments for a model, for what it may change and
for further directories, as its own documentation has them. What an agent is told in words is `members`.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from accord.agents.process.options import PresetName

MODEL = "AGENT_MODEL"
"""The variable that a command of one's own finds its model in."""


class Row(Struct, frozen=True, kw_only=True):
    """One command; `access` has what keeps it to what it may do, as far as it can do that itself."""

    preset: PresetName
    path: str | None = None
    model: str | None = "--model"
    model_env: str | None = None
    access: Mapping[str, Sequence[str]] = {}
    directory: str | None = None


_CURSOR = Row(preset="cursor", access={"full": ("--force",)})

ROWS: Mapping[str, Row] = {
    "claude": Row(
        preset="claude",
        access={
            "readonly": ("--disallowedTools", "Edit,MultiEdit,Write,NotebookEdit"),
            "readwrite": ("--permission-mode", "acceptEdits"),
            "restricted": ("--permission-mode", "acceptEdits"),
            "full": ("--dangerously-skip-permissions",),
        },
        directory="--add-dir",
    ),
    "codex": Row(
        preset="codex",
        access={
            "readonly": ("--sandbox", "read-only"),
            "readwrite": ("--sandbox", "workspace-write"),
            "restricted": ("--sandbox", "workspace-write"),
            "full": ("--dangerously-bypass-approvals-and-sandbox",),
        },
        directory="--add-dir",
    ),
    "gemini": Row(
        preset="gemini",
        access={
            "readwrite": ("--approval-mode", "auto_edit"),
            "restricted": ("--approval-mode", "auto_edit"),
            "full": ("--approval-mode", "yolo"),
        },
        directory="--include-directories",
    ),
    "aider": Row(preset="aider", access={"readonly": ("--dry-run",)}),
    "goose": Row(preset="goose", model=None, model_env="GOOSE_MODEL"),
    "opencode": Row(preset="opencode"),
    "droid": Row(preset="droid"),
    "cursor": _CURSOR,
    "cursor-agent": _CURSOR,
    "agent": Row(preset="cursor", path="agent", access=_CURSOR.access),
}
"""`cli` -> command."""


def arguments(row: Row, *, model: str | None, access: str | None, directories: Sequence[str]) -> tuple[str, ...]:
    """Return what a command is called with, besides what its preset says."""
    named = (row.model, model) if row.model and model else ()
    added = [word for one in directories for word in (row.directory, one)] if row.directory else []
    return (*named, *row.access.get(access or "", ()), *(word for word in added if word))


def variables(row: Row | None, model: str | None) -> dict[str, str]:
    """Return the variables that tell a command its model: its own, or ours for a command that has no row."""
    name = MODEL if row is None else row.model_env
    return {name: model} if name and model else {}
