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
    own: Sequence[str] = ()
    """The variables of the server that it gets: its key, and where its configuration is."""


_CURSOR = Row(preset="cursor", access={"full": ("--force",)}, own=("CURSOR_API_KEY",))
_ANY = ("ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENROUTER_API_KEY")
"""Keys of models, for commands that work with those of any provider."""

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
        own=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_BASE_URL",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
        ),
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
        own=("CODEX_API_KEY", "CODEX_HOME", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    ),
    "gemini": Row(
        preset="gemini",
        access={
            "readwrite": ("--approval-mode", "auto_edit"),
            "restricted": ("--approval-mode", "auto_edit"),
            "full": ("--approval-mode", "yolo"),
        },
        directory="--include-directories",
        own=("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_CLOUD_LOCATION", "GOOGLE_CLOUD_PROJECT"),
    ),
    "aider": Row(preset="aider", access={"readonly": ("--dry-run",)}, own=_ANY),
    "goose": Row(preset="goose", model=None, model_env="GOOSE_MODEL", own=("GOOSE_PROVIDER", *_ANY)),
    "opencode": Row(preset="opencode", own=_ANY),
    "droid": Row(preset="droid", own=("FACTORY_API_KEY",)),
    "cursor": _CURSOR,
    "cursor-agent": _CURSOR,
    "agent": Row(preset="cursor", path="agent", access=_CURSOR.access, own=_CURSOR.own),
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
