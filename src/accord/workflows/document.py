"""Workflow documents as plain data: agents, workflows, steps and triggers.

The structs have the form of the file: names and defaults are those of the file, in camelCase. `source` reads a document
from YAML, and `planner` makes a plan of it.
"""

import re
import shlex
from decimal import Decimal
from typing import Annotated, Any, Literal, get_args

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from accord.workflows.step_types import ADDED, STEP_TYPES, StepType

UNITS = {"d": Decimal(86_400), "h": Decimal(3_600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
DURATION_PATTERN = r"^\s*(\d+(\.\d+)?(ms|[dhms])\s*)+$"
"""A valid duration, as a regular expression that any engine reads."""

MAX_SECONDS = 10 * 366 * 86_400
"""Ten years. A longer time is a mistake and would overflow in some places."""


def parse_duration(text: str) -> float:
    """Return a duration in seconds; raises ValueError if it is not valid."""
    if re.fullmatch(DURATION_PATTERN[1:-1], text, re.ASCII) is None:
        raise ValueError(text)
    return float(sum((Decimal(number) * UNITS[unit] for number, unit in _PART.findall(text)), Decimal(0)))


def format_duration(time: float) -> str:
    """Return a duration in the form of a file; the inverse of `parse_duration`."""
    left = Decimal(repr(time))
    if left % UNITS["ms"]:
        return f"{left:f}s"
    words = []
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        words += [f"{count:f}{unit}"] if count else []
    return "".join(words) or "0s"


TypeName = Annotated[str, Meta(extra={"written": "step type"})]
"""A name in `STEP_TYPES`, or of a type that another package adds (`steps`)."""

Access = Literal["readonly", "readwrite", "restricted", "full"]
ACCESS = get_args(Access)

OnError = Literal["fail", "skip", "retry", "continue"]
Cli = Literal[
    "claude", "codex", "gemini", "aider", "goose", "opencode", "droid", "cursor", "cursor-agent", "agent", "api"
]

Seconds = Annotated[float, Meta(ge=0, le=MAX_SECONDS, extra={"written": "duration"})]
"""A duration of at most ten years. Files write `10m`, or `timeoutMs` for `timeout`."""

Text = Annotated[str, Meta(extra={"written": "scalar"})]
"""A scalar that is always a string, also if it is written as a number or boolean without quotes."""

Argv = Annotated[tuple[Text, ...], Meta(min_length=1)]
"""A program and its arguments, run without a shell."""

Count = Annotated[int, Meta(ge=1)]
Tally = Annotated[int, Meta(ge=0)]

A2A_SECONDS = 60.0
"""Default timeout of an A2A agent, in seconds."""


class DocumentPart(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Base of all structs of a file. Durations are in seconds, in any notation of the file."""


# --- agents -----------------------------------------------------------------------------------------------------------


class Constraints(DocumentPart, frozen=True, kw_only=True):
    """The model, limits, timeout and retries of an agent."""

    model: str | None = None
    max_tokens: Count | None = None
    max_cost: Annotated[float, Meta(gt=0)] | None = None
    timeout: Seconds | None = None
    retries: Tally | None = None
    idle_threshold: Seconds = 30.0


class Files(DocumentPart, frozen=True, kw_only=True):
    """Patterns of files, relative to the directory of an agent."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Permissions(DocumentPart, frozen=True, kw_only=True):
    """Permissions of an agent to change files, checked after every step."""

    profile: str | None = None
    access: Access | None = None
    inherit: bool = True
    files: Files | None = None
    description: str | None = None
    why: str | None = None


class FilePermissions(DocumentPart, frozen=True, kw_only=True):
    """Permissions of a whole file, as agent-relay writes them."""

    profiles: dict[str, Permissions] = field(default_factory=dict)
    default: Permissions | None = None


class AgentDef(DocumentPart, frozen=True, kw_only=True):
    """An agent: a command line agent (`cli`, or any `command`), or with `runtime: a2a` an agent at a URL."""

    name: str
    runtime: Literal["cli", "a2a"] = "cli"
    cli: Cli | None = None
    command: str | None = None
    role: str | None = None
    task: str | None = None
    channels: tuple[str, ...] = ()
    interactive: bool | None = None
    preset: Literal["lead", "worker", "reviewer", "analyst"] | None = None
    constraints: Constraints = Constraints()
    cwd: str | None = None
    workdir: str | None = None
    additional_paths: tuple[str, ...] = ()
    env: dict[str, Text] = field(default_factory=dict)
    permissions: Permissions | None = None
    skills: str | None = None
    done: str | None = None
    allow_interpreter: bool = False

    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    credentials: str | None = None
    timeout: Seconds | None = None
    streaming: bool | None = None
    mode: Literal["auto", "stream", "poll", "push"] | None = None
    share_context: bool = False

    @property
    def is_a2a(self) -> bool:
        """Whether the agent is called over A2A."""
        return self.runtime == "a2a"


# --- steps ------------------------------------------------------------------------------------------------------------


class Verification(DocumentPart, frozen=True, kw_only=True):
    """A check that a step must pass to count as completed."""

    type: Literal["output_contains", "exit_code", "file_exists", "custom", "regex", "pr_url"]
    value: Text = ""
    argv: Argv | None = None
    allow_options: bool = False
    allow_interpreter: bool = False
    description: str | None = None
    timeout: Seconds = 30.0
    diagnostic_agent: str | None = None
    diagnostic_timeout: Seconds = 60.0


class Step(DocumentPart, frozen=True, kw_only=True):
    """A step of a workflow. Its type decides which members have an effect; validation reports the others."""

    name: str
    type: TypeName | None = None
    use: str | None = None
    with_: dict[str, Any] = field(default_factory=dict, name="with")
    description: str | None = None
    depends_on: tuple[str, ...] | None = None
    if_: str | None = field(default=None, name="if")
    timeout: Seconds | None = None
    retries: Tally | None = None
    retry_delay: Seconds | None = None
    backoff: Annotated[float, Meta(ge=1)] | None = None
    on_error: OnError | None = None
    on_crash: Literal["restart", "fail"] | None = None
    verification: Verification | None = None
    max_iterations: Count | None = None
    permissions: Permissions | None = None
    cwd: str | None = None
    workdir: str | None = None
    env: dict[str, Text] = field(default_factory=dict)
    set: dict[str, Text] = field(default_factory=dict)

    agent: str | None = None
    task: str | None = None
    allow_empty: bool = False

    command: str | None = None
    argv: Argv | None = None
    allow_options: bool = False
    allow_interpreter: bool = False
    fail_on_error: bool = True
    capture_output: bool = True

    branch: str | None = None
    base_branch: str | None = None
    path: str | None = None
    create_branch: bool = True

    url: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    credentials: str | None = None
    streaming: bool | None = None
    mode: Literal["auto", "stream", "poll", "push"] | None = None
    share_context: bool | None = None

    on_reject: Literal["fail", "skip"] | None = None
    approvers: tuple[str, ...] = ()
    not_by_starter: bool = False

    for_: Seconds | None = field(default=None, name="for")
    until: str | None = None
    event: str | None = None

    workflow: str | None = None
    file: str | None = None
    input: str | None = None
    vars: dict[str, Any] = field(default_factory=dict)

    over: str | tuple[Any, ...] | None = None
    as_: str = field(default="item", name="as")
    concurrency: Count | None = None
    step: "Step | None" = None

    @property
    def kind(self) -> str:
        """The type of the step [default: `agent`]."""
        return self.type or "agent"

    @property
    def row(self) -> StepType:
        """The row of its type."""
        return STEP_TYPES.get(self.type or "agent", ADDED)

    @property
    def command_line(self) -> str | None:
        """The command as a person would type it."""
        return self.command if self.argv is None else shlex.join(self.argv)

    @property
    def is_added(self) -> bool:
        """Whether another package adds its type."""
        return self.kind not in STEP_TYPES

    @property
    def innermost(self) -> "Step":
        """The step itself; for a map, the step that runs for each item."""
        return self if self.step is None else self.step.innermost

    @property
    def is_ruled_approval(self) -> bool:
        """Whether only some callers may decide it. The owner then cannot decide it with a message."""
        return self.row.has_decision and (bool(self.approvers) or self.not_by_starter)


class Preflight(DocumentPart, frozen=True, kw_only=True):
    """A check before the first step."""

    command: str
    fail_if: str | None = None
    success_if: str | None = None
    description: str | None = None


class Workflow(DocumentPart, frozen=True, kw_only=True):
    """A workflow: named steps with an order."""

    name: str
    steps: Annotated[tuple[Step, ...], Meta(min_length=1)]
    description: str | None = None
    on_error: OnError | None = None
    preflight: tuple[Preflight, ...] = ()
    output: str | None = None


# --- coordination -----------------------------------------------------------------------------------------------------


class IdleNudge(DocumentPart, frozen=True, kw_only=True):
    """Reminders for an agent that is silent, and its end."""

    nudge_after: Seconds = 120.0
    escalate_after: Seconds = 120.0
    max_nudges: Tally = 1


class Swarm(DocumentPart, frozen=True, kw_only=True):
    """How the agents of a document work together. Without a `pattern`, their roles choose one."""

    pattern: str | None = None
    max_concurrency: Count | None = None
    timeout: Seconds | None = None
    token_budget: Count | None = None
    cost_budget: Annotated[float, Meta(gt=0)] | None = None
    channel: str | None = None
    idle_nudge: IdleNudge | None = None
    completion_grace_period: Seconds = 5.0


class Barrier(DocumentPart, frozen=True, kw_only=True):
    """A point that steps wait for. It completes when the steps of `waitFor` have ended as `mode` demands."""

    name: str
    wait_for: Annotated[tuple[str, ...], Meta(min_length=1)]
    timeout: Seconds | None = None
    mode: Literal["all", "any", "majority"] = "all"


class Coordination(DocumentPart, frozen=True, kw_only=True):
    """How agents agree: barriers and votes."""

    barriers: tuple[Barrier, ...] = ()
    voting_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    consensus_strategy: Literal["majority", "unanimous", "quorum"] | None = None


class SharedState(DocumentPart, frozen=True, kw_only=True):
    """State that the runs of a document share. Steps `set` values and read them as `{{state.NAME}}`."""

    backend: Literal["memory", "database"] = "database"
    ttl: Seconds | None = None
    namespace: str | None = None


class ErrorHandling(DocumentPart, frozen=True, kw_only=True):
    """What happens to a run when a step fails."""

    strategy: Literal["fail-fast", "continue", "retry"] = "fail-fast"
    max_retries: Tally | None = None
    retry_delay: Seconds | None = None
    backoff: Annotated[float, Meta(ge=1)] | None = None
    notify_channel: str | None = None
    repair_agent: str | None = None
    repair_retries: Tally | None = None


class Trajectories(DocumentPart, frozen=True, kw_only=True):
    """Which decisions of a run are recorded in its `trajectory` artifact."""

    enabled: bool = True
    reflect_on_barriers: bool = False
    reflect_on_converge: bool = False
    auto_decisions: bool = False


class Path(DocumentPart, frozen=True, kw_only=True):
    """A named directory that agents and steps may work in."""

    name: str
    path: str
    description: str | None = None
    required: bool = True


class Input(DocumentPart, frozen=True, kw_only=True):
    """A value that the caller gives to a run."""

    type: Literal["string", "number", "integer", "boolean", "array", "object"] = "string"
    description: str | None = None
    default: Any = None
    required: bool = False
    enum: tuple[Any, ...] = ()


class Param(DocumentPart, frozen=True, kw_only=True):
    """A parameter of a custom step, given in `with`."""

    name: str
    required: bool = False
    default: Any = None
    description: str | None = None


class CustomStep(DocumentPart, frozen=True, kw_only=True):
    """A custom step for `use`: any members of a step, in which `{{NAME}}` are its parameters."""

    params: tuple[Param, ...] = ()
    step: dict[str, Any] = field(default_factory=dict)


class Schedule(DocumentPart, frozen=True, kw_only=True):
    """A schedule that starts runs: five cron fields, in a time zone."""

    cron: str
    timezone: str = "UTC"
    input: str | None = None
    vars: dict[str, Any] = field(default_factory=dict)


class Hook(DocumentPart, frozen=True, kw_only=True):
    """A webhook endpoint: each POST to `/hooks/NAME/PATH` starts a run. `secret` names the credential that signs it."""

    path: str
    secret: str | None = None
    signature: Literal["timestamp", "github"] = "timestamp"
    input: str | None = None


class Triggers(DocumentPart, frozen=True, kw_only=True):
    """Triggers that start runs of a served document, besides messages."""

    schedule: tuple[Schedule, ...] = ()
    webhook: tuple[Hook, ...] = ()


class Document(DocumentPart, frozen=True, kw_only=True):
    """A workflow file."""

    version: Text
    name: str
    description: str | None = None
    swarm: Swarm
    on: Triggers | None = None
    inputs: dict[str, Input] = field(default_factory=dict)
    vars: dict[str, Any] = field(default_factory=dict)
    env: dict[str, Text] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()
    permission_profiles: dict[str, Permissions] = field(default_factory=dict, name="permission_profiles")
    permissions: FilePermissions = FilePermissions()
    agents: tuple[AgentDef, ...] = ()
    steps: dict[str, CustomStep] = field(default_factory=dict)
    workflows: tuple[Workflow, ...] = ()
    coordination: Coordination = Coordination()
    state: SharedState | None = None
    error_handling: ErrorHandling | None = None
    trajectories: Trajectories | None = None

    @property
    def profiles(self) -> dict[str, Permissions]:
        """All permission profiles by name."""
        return {**self.permission_profiles, **self.permissions.profiles}

    @property
    def permitted(self) -> tuple[AgentDef, ...]:
        """The agents of the document. An agent without permissions gets the default of the file."""
        default = self.permissions.default
        return tuple(one if one.permissions else replace(one, permissions=default) for one in self.agents)

    def agent(self, name: str) -> AgentDef | None:
        """Return one of its agents, or None."""
        return next((agent for agent in self.agents if agent.name == name), None)

    def workflow(self, name: str | None = None) -> Workflow | None:
        """Return the workflow with this name; without a name, the first."""
        return next((one for one in self.workflows if name in (None, one.name)), None)
