"""Agents of a document, with their limits and permissions.

A string below a field is its description, in the schema for editors and in the reference.
"""

from typing import Annotated, Literal, get_args

from msgspec import Meta, field

from accord.workflows.notation import Count, DocumentPart, Seconds, Tally, Text

Access = Literal["readonly", "readwrite", "restricted", "full"]
ACCESS = get_args(Access)

Cli = Literal[
    "claude", "codex", "gemini", "aider", "goose", "opencode", "droid", "cursor", "cursor-agent", "agent", "api"
]

A2A_SECONDS = 60.0
"""Default timeout of an A2A agent, in seconds."""


class Constraints(DocumentPart, frozen=True, kw_only=True):
    """The model, limits, timeout and retries of an agent."""

    model: str | None = None
    """Model of the agent."""
    max_tokens: Count | None = None
    """Maximum number of tokens for a step. The step then fails."""
    max_cost: Annotated[float, Meta(gt=0)] | None = None
    """Maximum cost of a step, in dollars. The step then fails."""
    timeout: Seconds | None = None
    """Maximum duration of a step, unless the step sets `timeout`."""
    retries: Tally | None = None
    """Number of retries of a step, unless the step sets `retries`."""
    idle_threshold: Seconds = 30.0
    """Silence after which an agent in a terminal counts as done, 0 for no limit."""


class Files(DocumentPart, frozen=True, kw_only=True):
    """Patterns of files, relative to the directory of an agent."""

    read: tuple[str, ...] = ()
    """Files that the agent may read, as part of its prompt."""
    write: tuple[str, ...] = ()
    """Files that the agent may change. A step that changes other files fails."""
    deny: tuple[str, ...] = ()
    """Files that the agent may neither read nor change. A step that changes one of them fails."""


class Permissions(DocumentPart, frozen=True, kw_only=True):
    """Permissions of an agent to change files, checked after every step."""

    profile: str | None = None
    """Name of the profile that these permissions extend."""
    access: Access | None = None
    """Access level of the agent. Its command gets the matching flag, and changed files are checked against the
    level."""
    inherit: bool = True
    """Whether `.agentignore` and `.agentreadonly` apply as well."""
    files: Files | None = None
    """Patterns of files."""
    description: str | None = None
    """Purpose of the permissions, part of the agent's prompt."""
    why: str | None = None
    """Reason for the permissions, part of the agent's prompt."""


class FilePermissions(DocumentPart, frozen=True, kw_only=True):
    """Permissions of a whole file, as agent-relay writes them."""

    profiles: dict[str, Permissions] = field(default_factory=dict)
    """Permissions by name, the same as `permission_profiles`."""
    default: Permissions | None = None
    """Permissions of agents without their own."""


class AgentDef(DocumentPart, frozen=True, kw_only=True):
    """An agent: a command line agent (`cli`, or any `command`), or with `runtime: a2a` an agent at a URL."""

    name: str
    """Name of the agent, for steps."""
    runtime: Literal["cli", "a2a"] = "cli"
    """Runtime: `cli` for a command, `a2a` for an agent at a URL."""
    cli: Cli | None = None
    """Command line agent; `api` is a model behind an OpenAI or Anthropic API."""
    command: str | None = None
    """Any other command. It gets the task as its standard input, or in place of `{prompt}`."""
    role: str | None = None
    """Role of the agent, part of its prompt. Patterns select agents by role."""
    task: str | None = None
    """Task in patterns that assign work to the agent, unless a step sets another."""
    channels: tuple[str, ...] = ()
    """Channels for the agent's output, besides the channel of the run."""
    interactive: bool | None = None
    """Whether the agent works in a terminal of its own instead of one call per step [default: true for a `cli` or a
    `lead`, false for any other `command`]."""
    preset: Literal["lead", "worker", "reviewer", "analyst"] | None = None
    """Preset: `lead` works in a terminal. `worker`, `reviewer` and `analyst` work without one and get matching
    instructions."""
    constraints: Constraints = Constraints()
    """Model, limits, timeout and retries of the agent."""
    cwd: str | None = None
    """Working directory, relative to the file."""
    workdir: str | None = None
    """Working directory, by a name from `paths`."""
    additional_paths: tuple[str, ...] = ()
    """Further directories that the agent may use."""
    env: dict[str, Text] = field(default_factory=dict)
    """Environment variables of the command. `${NAME}` and `${credential:NAME}` are replaced by their values."""
    permissions: Permissions | None = None
    """Permissions to change files."""
    skills: str | None = None
    """Instructions before the first task; the system prompt of a model."""
    done: str | None = None
    """Pattern of the output with which an agent in a terminal reports that it is done."""
    allow_interpreter: bool = False
    """Whether `{prompt}` may be an argument of a program that runs its arguments, such as `sh`."""
    url: str | None = None
    """URL of the agent. `${NAME}` is replaced by a variable of the environment."""
    headers: dict[str, str] = field(default_factory=dict)
    """HTTP headers of every request. `${NAME}` and `${credential:NAME}` are replaced by their values."""
    credentials: str | None = None
    """Name of the credential for calls."""
    timeout: Seconds | None = None
    """Maximum duration of a step, unless the step sets `timeout` [default: 1m for agents at a URL]."""
    streaming: bool | None = None
    """Whether to stream the agent's output [default: if the agent supports it]."""
    mode: Literal["auto", "stream", "poll", "push"] | None = None
    """Transport of the result: `stream`, `poll`, `push` by webhook while no process waits, or `auto`."""
    share_context: bool = False
    """Whether the agent's steps in a run are one conversation."""

    @property
    def is_a2a(self) -> bool:
        """Whether the agent is called over A2A."""
        return self.runtime == "a2a"
