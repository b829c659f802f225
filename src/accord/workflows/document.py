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
    """Kind of check."""
    value: Text = ""
    """Expected text, exit code, file, pattern or repository of a pull request; for `custom`, a command that finds the
    output in `$STEP_OUTPUT`."""
    argv: Argv | None = None
    """Program and arguments of a `custom` check, run without a shell, in place of `value`."""
    allow_options: bool = False
    """Whether a value may begin with `-`, as for a step."""
    allow_interpreter: bool = False
    """Whether `argv` may pass values to a program that runs its arguments, as for a step."""
    description: str | None = None
    """Purpose of the check, shown if it fails."""
    timeout: Seconds = 30.0
    """Timeout of a custom command."""
    diagnostic_agent: str | None = None
    """Name of the agent that explains a failed check. The next attempt gets its explanation."""
    diagnostic_timeout: Seconds = 60.0
    """Timeout of the diagnostic agent. A plain number is milliseconds here, as in agent-relay."""


class Step(DocumentPart, frozen=True, kw_only=True):
    """A step of a workflow. Its type decides which members have an effect; validation reports the others."""

    name: str
    """Name of the step, for `dependsOn` and templates."""
    type: TypeName | None = None
    """Type of the step [default: the type for its agent]. Packages may add types."""
    use: str | None = None
    """Name of the custom step to use."""
    with_: dict[str, Any] = field(default_factory=dict, name="with")
    """Parameters of a custom step, or of a step type that a package adds. As in agent-relay, they may also stand beside
    `use`."""
    description: str | None = None
    """Purpose of the step, shown with it."""
    depends_on: tuple[str, ...] | None = None
    """Steps and barriers that must end before the step starts."""
    if_: str | None = field(default=None, name="if")
    """Condition for running the step. If it is false, the step is skipped, and the steps that depend on it still
    run."""
    timeout: Seconds | None = None
    """Maximum duration of an attempt. A longer attempt fails."""
    retries: Tally | None = None
    """Maximum number of retries after a failure."""
    retry_delay: Seconds | None = None
    """Delay before the first retry [default: 1s]."""
    backoff: Annotated[float, Meta(ge=1)] | None = None
    """Factor by which the delay grows with each further retry [default: 2]."""
    on_error: OnError | None = None
    """Effect of a failure: `fail` the run, `skip` the step and its dependents, `retry` it, or `continue` with its
    dependents."""
    on_crash: Literal["restart", "fail"] | None = None
    """Handling of a command whose node failed while it ran: `restart` it, or `fail`."""
    verification: Verification | None = None
    """Check that the step must pass to count as completed."""
    max_iterations: Count | None = None
    """Maximum number of repetitions until `until` holds or, without it, `verification` passes."""
    permissions: Permissions | None = None
    """Permissions of the agent in this step, instead of its own."""
    cwd: str | None = None
    """Working directory, relative to the file."""
    workdir: str | None = None
    """Working directory, by a name from `paths`."""
    env: dict[str, Text] = field(default_factory=dict)
    """Environment variables of the command."""
    set: dict[str, Text] = field(default_factory=dict)
    """Values to set in the shared state, by name: templates that may contain the step's output."""

    # agents, A2A agents and approvals
    agent: str | None = None
    """Name of the agent that does the step."""
    task: str | None = None
    """Task for the agent, as a template; for an approval, the question to decide."""
    allow_empty: bool = False
    """Whether an answer without text or files is a success. By default it is a failure."""

    # commands
    command: str | None = None
    """Shell command. Templates are allowed only in arguments of a few commands: prefer `argv`."""
    argv: Argv | None = None
    """Program and arguments, run without a shell. A template is one argument, or a part of one."""
    allow_options: bool = False
    """Whether a value may begin with `-`, which the program reads as an option."""
    allow_interpreter: bool = False
    """Whether `argv` may pass values to a program that runs its arguments, such as `sh`."""
    fail_on_error: bool = True
    """Whether an exit code other than 0 is a failure."""
    capture_output: bool = True
    """Whether the printed text is the step's output. Otherwise the output is `Command completed (exit code N)`."""

    # worktrees
    branch: str | None = None
    """Branch of the worktree."""
    base_branch: str | None = None
    """Start point of a new branch [default: HEAD]."""
    path: str | None = None
    """Directory of the worktree [default: `.worktrees/STEP`]."""
    create_branch: bool = True
    """Whether a missing branch is created."""

    # A2A agents
    url: str | None = None
    """URL of the A2A agent. It takes precedence over the agent's own `url`."""
    headers: dict[str, str] = field(default_factory=dict)
    """HTTP headers of requests, added to those of the agent."""
    credentials: str | None = None
    """Name of the credential for calls."""
    streaming: bool | None = None
    """Whether to stream the agent's output."""
    mode: Literal["auto", "stream", "poll", "push"] | None = None
    """Transport of the result, as for agents."""
    share_context: bool | None = None
    """Whether the step is part of its agent's conversation in this run."""

    # approvals
    on_reject: Literal["fail", "skip"] | None = None
    """Effect of a rejection: `fail` the run, or `skip` the steps that depend on the approval [default: `fail`]."""
    approvers: tuple[str, ...] = ()
    """Roles that may decide [default: `approvals.approvers`, or else the owner of the run]."""
    not_by_starter: bool = False
    """Whether the owner of the run is excluded from the decision. The setting `approvals.not_by_starter` applies to all
    runs."""

    # waits
    for_: Seconds | None = field(default=None, name="for")
    """Duration of the wait."""
    until: str | None = None
    """Time at which a wait ends, or condition that ends a loop."""
    event: str | None = None
    """Name of the event to wait for."""

    # workflows
    workflow: str | None = None
    """Name of the workflow to run: of this file, or of `file`."""
    file: str | None = None
    """File of that workflow, relative to this file."""
    input: str | None = None
    """The `{{input}}` of that workflow."""
    vars: dict[str, Any] = field(default_factory=dict)
    """Values that override the `vars` of that workflow."""

    # maps
    over: str | tuple[Any, ...] | None = None
    """List of items for a map, or a template of a list."""
    as_: str = field(default="item", name="as")
    """Name of the item in the inner step. `{{item}}` is also the item, and `{{index}}` its position."""
    concurrency: Count | None = None
    """Maximum number of items in progress at a time."""
    step: "Step | None" = None
    """Step to run for each item."""

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
    """Command that must succeed within 30 seconds."""
    fail_if: str | None = None
    """Output that fails the check: `non-empty`, `empty`, or a pattern."""
    success_if: str | None = None
    """Pattern that the output must match."""
    description: str | None = None
    """Purpose of the check, shown if it fails."""


class Workflow(DocumentPart, frozen=True, kw_only=True):
    """A workflow: named steps with an order."""

    name: str
    """Name of the workflow."""
    steps: Annotated[tuple[Step, ...], Meta(min_length=1)]
    """Steps of the workflow."""
    description: str | None = None
    """Purpose of the workflow."""
    on_error: OnError | None = None
    """Effect of a failed step, unless the step sets `onError`."""
    preflight: tuple[Preflight, ...] = ()
    """Checks before the first step. All of them must pass."""
    output: str | None = None
    """Result of a run, as a template [default: the output of the last steps]."""


# --- coordination -----------------------------------------------------------------------------------------------------


class IdleNudge(DocumentPart, frozen=True, kw_only=True):
    """Reminders for an agent that is silent, and its end."""

    nudge_after: Seconds = 120.0
    """Silence before the agent is reminded of its task."""
    escalate_after: Seconds = 120.0
    """Silence after the last reminder before the agent is ended."""
    max_nudges: Tally = 1
    """Maximum number of reminders."""


class Swarm(DocumentPart, frozen=True, kw_only=True):
    """How the agents of a document work together. Without a `pattern`, their roles choose one."""

    pattern: str | None = None
    """Name of the pattern that divides the work [default: chosen by the agents' roles]."""
    max_concurrency: Count | None = None
    """Maximum number of concurrent steps."""
    timeout: Seconds | None = None
    """Maximum duration of a run. A longer run fails."""
    token_budget: Count | None = None
    """Maximum number of tokens for all agents of a run. The run then fails."""
    cost_budget: Annotated[float, Meta(gt=0)] | None = None
    """Maximum cost of all agents of a run, in dollars. The run then fails."""
    channel: str | None = None
    """Channel for progress messages."""
    idle_nudge: IdleNudge | None = None
    """Reminders for a silent agent in a terminal."""
    completion_grace_period: Seconds = 5.0
    """Time for a finished agent to exit by itself, at most a minute."""


class Barrier(DocumentPart, frozen=True, kw_only=True):
    """A point that steps wait for. It completes when the steps of `waitFor` have ended as `mode` demands."""

    name: str
    """Name of the barrier, for `dependsOn`."""
    wait_for: Annotated[tuple[str, ...], Meta(min_length=1)]
    """Steps to wait for."""
    timeout: Seconds | None = None
    """Timeout, counted from the start of the first of these steps. The barrier then fails."""
    mode: Literal["all", "any", "majority"] = "all"
    """Number of these steps that must complete: `all`, `any` or `majority`."""


class Coordination(DocumentPart, frozen=True, kw_only=True):
    """How agents agree: barriers and votes."""

    barriers: tuple[Barrier, ...] = ()
    """Points at which steps wait for each other."""
    voting_threshold: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Share of votes that a decision needs."""
    consensus_strategy: Literal["majority", "unanimous", "quorum"] | None = None
    """Rule for decisions in patterns that vote."""


class SharedState(DocumentPart, frozen=True, kw_only=True):
    """State that the runs of a document share. Steps `set` values and read them as `{{state.NAME}}`."""

    backend: Literal["memory", "database"] = "database"
    """Storage of values: `database` keeps them for all runs of a workflow, `memory` for one run."""
    ttl: Seconds | None = None
    """Time until a value expires."""
    namespace: str | None = None
    """Name under which values are stored [default: the workflow's name]. Workflows with the same namespace share
    values."""


class ErrorHandling(DocumentPart, frozen=True, kw_only=True):
    """What happens to a run when a step fails."""

    strategy: Literal["fail-fast", "continue", "retry"] = "fail-fast"
    """Reaction to a failed step: `fail-fast` ends the run, `continue` runs the steps that do not depend on it, and
    `retry` is `fail-fast` with two retries."""
    max_retries: Tally | None = None
    """Default number of retries of a step."""
    retry_delay: Seconds | None = None
    """Default delay before the first retry."""
    backoff: Annotated[float, Meta(ge=1)] | None = None
    """Default factor by which the delay grows with each further retry."""
    notify_channel: str | None = None
    """Channel for failure messages."""
    repair_agent: str | None = None
    """Name of the agent that repairs the cause of a failure before the step is retried."""
    repair_retries: Tally | None = None
    """Maximum number of repairs [default: 2]."""


class Trajectories(DocumentPart, frozen=True, kw_only=True):
    """Which decisions of a run are recorded in its `trajectory` artifact."""

    enabled: bool = True
    """Whether each step and its outcome are recorded."""
    reflect_on_barriers: bool = False
    """Whether barriers and the outcomes of their steps are recorded."""
    reflect_on_converge: bool = False
    """Whether steps with several dependencies are recorded with the outcomes of these."""
    auto_decisions: bool = False
    """Whether decisions about steps are recorded with their reasons, such as a retry."""


class Path(DocumentPart, frozen=True, kw_only=True):
    """A named directory that agents and steps may work in."""

    name: str
    """Name of the directory, for `workdir`."""
    path: str
    """Path of the directory, relative to the file. `$NAME` is a variable of the environment."""
    description: str | None = None
    """Content of the directory."""
    required: bool = True
    """Whether a missing directory is an error."""


class Input(DocumentPart, frozen=True, kw_only=True):
    """A value that the caller gives to a run."""

    type: Literal["string", "number", "integer", "boolean", "array", "object"] = "string"
    """Type of the value. Text from a command line is converted to it."""
    description: str | None = None
    """Purpose of the input."""
    default: Any = None
    """Value if the caller gives none."""
    required: bool = False
    """Whether a missing value is an error."""
    enum: tuple[Any, ...] = ()
    """Allowed values."""


class Param(DocumentPart, frozen=True, kw_only=True):
    """A parameter of a custom step, given in `with`."""

    name: str
    """Name of the parameter in `with` and in templates."""
    required: bool = False
    """Whether a missing value is an error."""
    default: Any = None
    """Value if the parameter is not set."""
    description: str | None = None
    """Purpose of the parameter."""


class CustomStep(DocumentPart, frozen=True, kw_only=True):
    """A custom step for `use`: any members of a step, in which `{{NAME}}` are its parameters."""

    params: tuple[Param, ...] = ()
    """Parameters of the custom step."""
    step: dict[str, Any] = field(default_factory=dict)
    """Members of the step, in which `{{NAME}}` is a parameter. They may also stand beside `params`."""


class Schedule(DocumentPart, frozen=True, kw_only=True):
    """A schedule that starts runs: five cron fields, in a time zone."""

    cron: str
    """Cron expression: minute, hour, day, month and weekday, or a shorthand such as `@daily`."""
    timezone: str = "UTC"
    """Time zone of the cron expression."""
    input: str | None = None
    """The run's `{{input}}`."""
    vars: dict[str, Any] = field(default_factory=dict)
    """Values that override `vars`."""


class Hook(DocumentPart, frozen=True, kw_only=True):
    """A webhook endpoint: each POST to `/hooks/NAME/PATH` starts a run. `secret` names the credential that signs it."""

    path: str
    """Last part of the URL path `/hooks/NAME/PATH`."""
    secret: str | None = None
    """Name of the credential that callers sign with. Calls without a valid signature are refused."""
    signature: Literal["timestamp", "github"] = "timestamp"
    """Signed content: `timestamp` for timestamp (and nonce or ID) and body, `github` for the body alone."""
    input: str | None = None
    """The run's `{{input}}` [default: the body of the call]."""


class Triggers(DocumentPart, frozen=True, kw_only=True):
    """Triggers that start runs of a served document, besides messages."""

    schedule: tuple[Schedule, ...] = ()
    """Schedules that start runs."""
    webhook: tuple[Hook, ...] = ()
    """Webhook endpoints that start runs."""


class Document(DocumentPart, frozen=True, kw_only=True):
    """A workflow file."""

    version: Text
    """Version of the file format: `1`."""
    name: str
    """Name of the workflow and of its agent."""
    description: str | None = None
    """Purpose of the workflow, also the description on its card."""
    swarm: Swarm
    """Coordination of the agents. A name alone is a pattern, or a template."""
    on: Triggers | None = None
    """Triggers that start runs of a served workflow, besides messages."""
    inputs: dict[str, Input] = field(default_factory=dict)
    """Values that the caller of a run gives, by name: `{{inputs.NAME}}`."""
    vars: dict[str, Any] = field(default_factory=dict)
    """Variables by name: `{{vars.NAME}}` or `{{NAME}}`. `--var NAME=VALUE` overrides one."""
    env: dict[str, Text] = field(default_factory=dict)
    """Environment variables of all commands, added to the common ones. `${NAME}` is a variable of the server."""
    paths: tuple[Path, ...] = ()
    """Directories by name, for `workdir`."""
    permission_profiles: dict[str, Permissions] = field(default_factory=dict, name="permission_profiles")
    """Permissions by name, for `permissions.profile`."""
    permissions: FilePermissions = FilePermissions()
    """Permission profiles and a default, as agent-relay writes them."""
    agents: tuple[AgentDef, ...] = ()
    """Agents of the workflow."""
    steps: dict[str, CustomStep] = field(default_factory=dict)
    """Custom steps by name, for `use`, in addition to those in `.accord/steps.yaml` and `.relay/steps.yaml`."""
    workflows: tuple[Workflow, ...] = ()
    """Workflows of the file. A run without a workflow's name uses the first."""
    coordination: Coordination = Coordination()
    """Barriers, and the counting of votes."""
    state: SharedState | None = None
    """State that steps `set` and other steps read as `{{state.NAME}}`."""
    error_handling: ErrorHandling | None = None
    """Handling of failed steps."""
    trajectories: Trajectories | None = None
    """Record of a run's decisions in an artifact [default: `false`]."""

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
