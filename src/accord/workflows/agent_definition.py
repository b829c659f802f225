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
    """The model that it is called with."""
    max_tokens: Count | None = None
    """Tokens that it may use for a step; the step then fails."""
    max_cost: Annotated[float, Meta(gt=0)] | None = None
    """What it may cost for a step, in dollars; the step then fails."""
    timeout: Seconds | None = None
    """How long it may take for a step, unless the step says otherwise."""
    retries: Tally | None = None
    """How often a step of it is tried again, unless the step says otherwise."""
    idle_threshold: Seconds = 30.0
    """Silence after which an agent in a terminal counts as done; 0 for never."""


class Files(DocumentPart, frozen=True, kw_only=True):
    """Patterns of files, relative to the directory of an agent."""

    read: tuple[str, ...] = ()
    """What it is told that it may read."""
    write: tuple[str, ...] = ()
    """What it may change: a step that changes anything else fails."""
    deny: tuple[str, ...] = ()
    """What it may neither read nor change: a step that changes it fails."""


class Permissions(DocumentPart, frozen=True, kw_only=True):
    """Permissions of an agent to change files, checked after every step."""

    profile: str | None = None
    """The profile that the rest is added to."""
    access: Access | None = None
    """What the agent may do: its command gets the flag for it, and what it changed is compared with it."""
    inherit: bool = True
    """Whether `.agentignore` and `.agentreadonly` count as well."""
    files: Files | None = None
    """Patterns of files."""
    description: str | None = None
    """What it is for; the agent is told."""
    why: str | None = None
    """Why it is so; the agent is told."""


class FilePermissions(DocumentPart, frozen=True, kw_only=True):
    """Permissions of a whole file, as agent-relay writes them."""

    profiles: dict[str, Permissions] = field(default_factory=dict)
    """Permissions by name, the same as `permission_profiles`."""
    default: Permissions | None = None
    """The permissions of agents that state none."""


class AgentDef(DocumentPart, frozen=True, kw_only=True):
    """An agent: a command line agent (`cli`, or any `command`), or with `runtime: a2a` an agent at a URL."""

    name: str
    """What steps call it."""
    runtime: Literal["cli", "a2a"] = "cli"
    """`a2a` for an agent at a URL, `cli` for a command."""
    cli: Cli | None = None
    """Which command line agent it is; `api` is a model behind an OpenAI or Anthropic API."""
    command: str | None = None
    """Any other command: it gets the task as its standard input, or where `{prompt}` stands."""
    role: str | None = None
    """Who it is: it is told, and patterns choose by it."""
    task: str | None = None
    """What it does where the pattern gives it work and no step says otherwise."""
    channels: tuple[str, ...] = ()
    """Channels that what it does is posted to besides the run's."""
    interactive: bool | None = None
    """Whether it works in a terminal of its own; if not, it is called once for each step. Left out, a `cli` and a
    `lead` work in a terminal and any other `command` does not."""
    preset: Literal["lead", "worker", "reviewer", "analyst"] | None = None
    """`lead` works in a terminal; `worker`, `reviewer` and `analyst` without, and are told how."""
    constraints: Constraints = Constraints()
    """What it may use."""
    cwd: str | None = None
    """The directory that it works in, relative to the file."""
    workdir: str | None = None
    """The same, by a name from `paths`."""
    additional_paths: tuple[str, ...] = ()
    """Further directories that it may use."""
    env: dict[str, Text] = field(default_factory=dict)
    """Variables for its command; `${NAME}` and `${credential:NAME}` are filled in."""
    permissions: Permissions | None = None
    """What it may change."""
    skills: str | None = None
    """What it is told before its first task; the system prompt of a model."""
    done: str | None = None
    """A pattern: what an agent in a terminal prints when it is done."""
    allow_interpreter: bool = False
    """Whether `{prompt}` may be an argument of a program that runs its arguments, such as `sh`."""
    url: str | None = None
    """Where it is. `${NAME}` is filled in from the environment."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of every request; `${NAME}` and `${credential:NAME}` are filled in."""
    credentials: str | None = None
    """The name of a credential that it is called with."""
    timeout: Seconds | None = None
    """How long it may take for a step: a minute, unless this or the step says otherwise."""
    streaming: bool | None = None
    """Whether what it says is followed as it comes; left out, if it offers that."""
    mode: Literal["auto", "stream", "poll", "push"] | None = None
    """How its result gets here: `stream`, `poll`, `push` by webhook while nothing waits, or `auto`."""
    share_context: bool = False
    """Whether its steps in a run are one conversation."""

    @property
    def is_a2a(self) -> bool:
        """Whether the agent is called over A2A."""
        return self.runtime == "a2a"
