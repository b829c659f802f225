"""Workflow documents as plain data: agents, workflows, steps and triggers.

The structs have the form of the file: names and defaults are those of the file, in camelCase. `source` reads a document
from YAML, and `planner` makes a plan of it. A string below a field is its description, in the schema for editors
and in the reference.
"""

import shlex
from typing import Annotated, Any, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from accord.workflows.agent_definition import AgentDef, FilePermissions, Permissions
from accord.workflows.notation import Argv, Count, DocumentPart, Seconds, Tally, Text
from accord.workflows.step_types import ADDED, STEP_TYPES, StepType

TypeName = Annotated[str, Meta(extra_json_schema={"notation": "step type"})]
"""A name in `STEP_TYPES`, or of a type that another package adds (`steps`)."""

OnError = Literal["fail", "skip", "retry", "continue"]


class Verification(DocumentPart, frozen=True, kw_only=True):
    """A check that a step must pass to count as completed."""

    type: Literal["output_contains", "exit_code", "file_exists", "custom", "regex", "pr_url"]
    """What is looked at."""
    value: Text = ""
    """The text that the output contains, the exit code, the file, the command (with the output in `$STEP_OUTPUT`), the
    pattern, or the repository of the pull request."""
    argv: Argv | None = None
    """For `custom`, in place of `value`: a program and its arguments, run without a shell."""
    allow_options: bool = False
    """As for a step."""
    allow_interpreter: bool = False
    """As for a step."""
    description: str | None = None
    """What it is for; shown if it fails."""
    timeout: Seconds = 30.0
    """How long a custom command may take."""
    diagnostic_agent: str | None = None
    """Who says why it failed; the next attempt is told."""
    diagnostic_timeout: Seconds = 60.0
    """How long that may take. A plain number is milliseconds here, as in agent-relay."""


class Step(DocumentPart, frozen=True, kw_only=True):
    """A step of a workflow. Its type decides which members have an effect; validation reports the others."""

    name: str
    """What others call it."""
    type: TypeName | None = None
    """What kind of step it is; left out, one for the agent that it names. Packages may add types."""
    use: str | None = None
    """The step of your own that it is."""
    with_: dict[str, Any] = field(default_factory=dict, name="with")
    """What a step of your own, or of a type that a package has added, is given; as in agent-relay it may also stand
    beside `use`."""
    description: str | None = None
    """What it is for; shown with it."""
    depends_on: tuple[str, ...] | None = None
    """The steps and barriers that must have ended before it begins."""
    if_: str | None = field(default=None, name="if")
    """A condition: if it is false, the step is skipped and those after it are not."""
    timeout: Seconds | None = None
    """How long an attempt may take; it then fails."""
    retries: Tally | None = None
    """How often it is tried again after a failure."""
    retry_delay: Seconds | None = None
    """How long to wait before the second attempt."""
    backoff: Annotated[float, Meta(ge=1)] | None = None
    """How many times longer to wait before each further attempt."""
    on_error: OnError | None = None
    """What its failure means: `fail` the run; `skip` it and what depends on it; `retry` it; or `continue` with what
    depends on it."""
    on_crash: Literal["restart", "fail"] | None = None
    """What becomes of a command that was running when its node died: `restart` it, or `fail`."""
    verification: Verification | None = None
    """What must be so afterwards for it to count as done."""
    max_iterations: Count | None = None
    """How often it is done at most, until `until` holds or, without that, its `verification`."""
    permissions: Permissions | None = None
    """What its agent may change in this step, instead of the agent's own permissions."""
    cwd: str | None = None
    """The directory that it works in, relative to the file."""
    workdir: str | None = None
    """The same, by a name from `paths`."""
    env: dict[str, Text] = field(default_factory=dict)
    """Variables for its command."""
    set: dict[str, Text] = field(default_factory=dict)
    """Values of the shared state that it sets, by name: templates, also over its own output."""

    # agents, A2A agents and approvals
    agent: str | None = None
    """Who does it."""
    task: str | None = None
    """What is to be done, a template; for an approval, what a person is asked."""
    allow_empty: bool = False
    """Whether an answer without text or files is a success; left out, it is a failure."""

    # commands
    command: str | None = None
    """A command for a shell. Templates may stand only in arguments of a few commands: prefer `argv`."""
    argv: Argv | None = None
    """A program and its arguments, run without a shell: a template is one argument, or a part of one."""
    allow_options: bool = False
    """Whether a value may begin with `-`, where the program reads it as an option."""
    allow_interpreter: bool = False
    """Whether `argv` may give values to a program that runs its arguments, such as `sh`."""
    fail_on_error: bool = True
    """Whether an exit code other than 0 is a failure."""
    capture_output: bool = True
    """Whether what it prints is its output; if not, that is `Command completed (exit code N)`."""

    # worktrees
    branch: str | None = None
    """The branch of the worktree."""
    base_branch: str | None = None
    """Where a new branch begins; left out, at HEAD."""
    path: str | None = None
    """Where the worktree is; left out, `.worktrees/STEP`."""
    create_branch: bool = True
    """Whether the branch is made if it is not there."""

    # A2A agents
    url: str | None = None
    """Where its A2A agent is; it counts before its agent's."""
    headers: dict[str, str] = field(default_factory=dict)
    """Headers of its requests, added to its agent's."""
    credentials: str | None = None
    """The name of the credential that it calls with."""
    streaming: bool | None = None
    """Whether what the agent says is followed as it comes."""
    mode: Literal["auto", "stream", "poll", "push"] | None = None
    """How the result gets here, as for agents."""
    share_context: bool | None = None
    """Whether it belongs to its agent's conversation in this run."""

    # approvals
    on_reject: Literal["fail", "skip"] | None = None
    """What a rejection means: `fail` the run, which is the default, or `skip` what depends on it."""
    approvers: tuple[str, ...] = ()
    """The roles that may decide it; left out, those of `approvals.approvers`, or the owner of the run."""
    not_by_starter: bool = False
    """Whether the owner of the run may not decide it; `approvals.not_by_starter` is for all."""

    # waits
    for_: Seconds | None = field(default=None, name="for")
    """How long to wait."""
    until: str | None = None
    """For a wait, the time that it waits for; for a loop, the condition that ends it."""
    event: str | None = None
    """The name of the event that it waits for."""

    # workflows
    workflow: str | None = None
    """The workflow that it runs: of this file, or of `file`."""
    file: str | None = None
    """The file of that workflow, relative to this one."""
    input: str | None = None
    """The `{{input}}` of that workflow."""
    vars: dict[str, Any] = field(default_factory=dict)
    """Values that override the `vars` of that workflow."""

    # maps
    over: str | tuple[Any, ...] | None = None
    """The list that a map goes over: a list, or a template of one."""
    as_: str = field(default="item", name="as")
    """What the step within calls an item; it is also `{{item}}`, and its place is `{{index}}`."""
    concurrency: Count | None = None
    """How many items are under way at a time."""
    step: "Step | None" = None
    """What is done for each item."""

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
    """What is run, for at most 30 seconds; it must succeed."""
    fail_if: str | None = None
    """`non-empty`, `empty`, or a pattern: what it must not print."""
    success_if: str | None = None
    """A pattern: what it must print."""
    description: str | None = None
    """What it is for; shown if it fails."""


class Workflow(DocumentPart, frozen=True, kw_only=True):
    """A workflow: named steps with an order."""

    name: str
    """What it is called."""
    steps: Annotated[tuple[Step, ...], Meta(min_length=1)]
    """What is done."""
    description: str | None = None
    """What it is for."""
    on_error: OnError | None = None
    """What a failed step means, unless the step says otherwise."""
    preflight: tuple[Preflight, ...] = ()
    """What is looked at before the first step; all of it must be right."""
    output: str | None = None
    """What a run of it answers, a template; left out, what its last steps said."""


# --- coordination -----------------------------------------------------------------------------------------------------


class IdleNudge(DocumentPart, frozen=True, kw_only=True):
    """Reminders for an agent that is silent, and its end."""

    nudge_after: Seconds = 120.0
    """Silence after which it is reminded of its task."""
    escalate_after: Seconds = 120.0
    """Silence after the last reminder, after which it is ended."""
    max_nudges: Tally = 1
    """How often it is reminded."""


class Swarm(DocumentPart, frozen=True, kw_only=True):
    """How the agents of a document work together. Without a `pattern`, their roles choose one."""

    pattern: str | None = None
    """How work is divided, by the name of a pattern; left out, it is chosen by the agents' roles."""
    max_concurrency: Count | None = None
    """How many steps work at a time."""
    timeout: Seconds | None = None
    """How long a run may take; it then fails."""
    token_budget: Count | None = None
    """Tokens that the agents of a run may use together; it then fails."""
    cost_budget: Annotated[float, Meta(gt=0)] | None = None
    """What the agents of a run may cost together, in dollars; it then fails."""
    channel: str | None = None
    """The channel that progress is posted to."""
    idle_nudge: IdleNudge | None = None
    """What becomes of an agent in a terminal that says nothing."""
    completion_grace_period: Seconds = 5.0
    """How long an agent that is done has to end by itself, at most a minute."""


class Barrier(DocumentPart, frozen=True, kw_only=True):
    """A point that steps wait for. It completes when the steps of `waitFor` have ended as `mode` demands."""

    name: str
    """What `dependsOn` calls it."""
    wait_for: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The steps that it waits for."""
    timeout: Seconds | None = None
    """How long it waits after the first of them began; it then fails."""
    mode: Literal["all", "any", "majority"] = "all"
    """How many of them must have ended well."""


class Coordination(DocumentPart, frozen=True, kw_only=True):
    """How agents agree: barriers and votes."""

    barriers: tuple[Barrier, ...] = ()
    """Points that steps wait for together."""
    voting_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The share of votes that a decision needs."""
    consensus_strategy: Literal["majority", "unanimous", "quorum"] | None = None
    """How a decision is reached by the patterns that vote."""


class SharedState(DocumentPart, frozen=True, kw_only=True):
    """State that the runs of a document share. Steps `set` values and read them as `{{state.NAME}}`."""

    backend: Literal["memory", "database"] = "database"
    """`database` is kept and shared by the runs of a workflow; `memory` is the run's own."""
    ttl: Seconds | None = None
    """How long a value is kept."""
    namespace: str | None = None
    """What it is kept under; workflows with the same share it. Left out, the workflow's name."""


class ErrorHandling(DocumentPart, frozen=True, kw_only=True):
    """What happens to a run when a step fails."""

    strategy: Literal["fail-fast", "continue", "retry"] = "fail-fast"
    """`fail-fast` ends the run with the first failure; `continue` does what does not depend on it; `retry` is
    `fail-fast` with two retries."""
    max_retries: Tally | None = None
    """How often steps are tried again, unless they say otherwise."""
    retry_delay: Seconds | None = None
    """How long to wait before that."""
    backoff: Annotated[float, Meta(ge=1)] | None = None
    """How many times longer to wait before each further attempt."""
    notify_channel: str | None = None
    """The channel that failures are posted to."""
    repair_agent: str | None = None
    """Who is asked to mend what made a step fail, before it is tried again."""
    repair_retries: Tally | None = None
    """How often that is tried."""


class Trajectories(DocumentPart, frozen=True, kw_only=True):
    """Which decisions of a run are recorded in its `trajectory` artifact."""

    enabled: bool = True
    """Whether anything is: each step, and how it ended."""
    reflect_on_barriers: bool = False
    """Also barriers, and how what they waited for ended."""
    reflect_on_converge: bool = False
    """Also where branches come together, and how they ended."""
    auto_decisions: bool = False
    """Also what was decided for a step, and why."""


class Path(DocumentPart, frozen=True, kw_only=True):
    """A named directory that agents and steps may work in."""

    name: str
    """What `workdir` calls it."""
    path: str
    """Where it is: relative to the file, with `$NAME` from the environment."""
    description: str | None = None
    """What is there."""
    required: bool = True
    """Whether a run is refused without it."""


class Input(DocumentPart, frozen=True, kw_only=True):
    """A value that the caller gives to a run."""

    type: Literal["string", "number", "integer", "boolean", "array", "object"] = "string"
    """What a value must be; texts from a command line are read as that."""
    description: str | None = None
    """What it is for."""
    default: Any = None
    """Its value if none is given."""
    required: bool = False
    """Whether a run is refused without it."""
    enum: tuple[Any, ...] = ()
    """The values that it may have."""


class Param(DocumentPart, frozen=True, kw_only=True):
    """A parameter of a custom step, given in `with`."""

    name: str
    """What it is called in `with` and in templates."""
    required: bool = False
    """Whether it must be given."""
    default: Any = None
    """Its value if it is not given."""
    description: str | None = None
    """What it is for."""


class CustomStep(DocumentPart, frozen=True, kw_only=True):
    """A custom step for `use`: any members of a step, in which `{{NAME}}` are its parameters."""

    params: tuple[Param, ...] = ()
    """What it is given."""
    step: dict[str, Any] = field(default_factory=dict)
    """Its members, in which `{{NAME}}` is a parameter; they may also stand beside `params`."""


class Schedule(DocumentPart, frozen=True, kw_only=True):
    """A schedule that starts runs: five cron fields, in a time zone."""

    cron: str
    """Minute, hour, day, month and weekday, or `@daily` and the like."""
    timezone: str = "UTC"
    """The zone that these are meant in."""
    input: str | None = None
    """The run's `{{input}}`."""
    vars: dict[str, Any] = field(default_factory=dict)
    """Values that override `vars`."""


class Hook(DocumentPart, frozen=True, kw_only=True):
    """A webhook endpoint: each POST to `/hooks/NAME/PATH` starts a run. `secret` names the credential that signs it."""

    path: str
    """The last part of the address `/hooks/NAME/PATH`."""
    secret: str | None = None
    """The name of the credential that callers sign with; calls without a valid signature are refused."""
    signature: Literal["timestamp", "github"] = "timestamp"
    """What callers sign: `timestamp` (and nonce or id, and body), or the body alone as `github` does."""
    input: str | None = None
    """The run's `{{input}}`; left out, the body of the call."""


class Triggers(DocumentPart, frozen=True, kw_only=True):
    """Triggers that start runs of a served document, besides messages."""

    schedule: tuple[Schedule, ...] = ()
    """Times at which a run begins."""
    webhook: tuple[Hook, ...] = ()
    """Addresses whose calls begin a run."""


class Document(DocumentPart, frozen=True, kw_only=True):
    """A workflow file."""

    version: Text
    """The version of this form: `1`."""
    name: str
    """What the workflow is called, also as an agent."""
    description: str | None = None
    """What it is for; the description on its card."""
    swarm: Swarm
    """How the agents work together. A name alone is a pattern, or a template."""
    on: Triggers | None = None
    """What begins a run of a served workflow, besides a message."""
    inputs: dict[str, Input] = field(default_factory=dict)
    """Values that whoever runs it gives, by name: `{{inputs.NAME}}`."""
    vars: dict[str, Any] = field(default_factory=dict)
    """Values by name: `{{vars.NAME}}` or `{{NAME}}`; `--var NAME=VALUE` overrides one."""
    env: dict[str, Text] = field(default_factory=dict)
    """Variables that all commands get besides the common ones; `${NAME}` is the server's variable."""
    paths: tuple[Path, ...] = ()
    """Directories by name, for `workdir`."""
    permission_profiles: dict[str, Permissions] = field(default_factory=dict, name="permission_profiles")
    """Permissions by name, for `permissions.profile`."""
    permissions: FilePermissions = FilePermissions()
    """Permission profiles and a default, as agent-relay writes them."""
    agents: tuple[AgentDef, ...] = ()
    """Who works."""
    steps: dict[str, CustomStep] = field(default_factory=dict)
    """Steps of your own by name, for `use`; `.accord/steps.yaml` and `.relay/steps.yaml` have more."""
    workflows: tuple[Workflow, ...] = ()
    """What is done; the first is run unless another is named."""
    coordination: Coordination = Coordination()
    """Barriers, and how votes are counted."""
    state: SharedState | None = None
    """Values that steps `set` and other steps read as `{{state.NAME}}`."""
    error_handling: ErrorHandling | None = None
    """What becomes of a run when a step fails."""
    trajectories: Trajectories | None = None
    """What of how a run went is written down in an artifact of it; left out, or `false`: nothing."""

    @property
    def profiles(self) -> dict[str, Permissions]:
        """All permission profiles by name."""
        return {**self.permission_profiles, **self.permissions.profiles}

    @property
    def permitted(self) -> tuple[AgentDef, ...]:
        """The agents of the document. An agent without permissions gets the default of the file."""
        default = self.permissions.default
        return tuple(agent if agent.permissions else replace(agent, permissions=default) for agent in self.agents)

    def agent(self, name: str) -> AgentDef | None:
        """Return one of its agents, or None."""
        return next((agent for agent in self.agents if agent.name == name), None)

    def workflow(self, name: str | None = None) -> Workflow | None:
        """Return the workflow with this name; without a name, the first."""
        return next((workflow for workflow in self.workflows if name in (None, workflow.name)), None)
