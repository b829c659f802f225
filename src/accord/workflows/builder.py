"""Workflows in Python: calls that build a document.

A builder has no rules of its own. Its members are decoded like those of a file, with names in camelCase or snake_case.
An invalid member raises at the call that gives it.

    workflow("my-flow")
        .a2a_agent("data-processor", url="http://localhost:9000", role="Processes data via n8n")
        .step("fetch-data", type="a2a", agent="data-processor", task="Pull latest dataset from warehouse")
        .run_blocking()

Members may also be one mapping, as in TypeScript. Names that Python reserves end with an underscore: `if_`, `for_`,
`as_` and `with_`. Members with the value None are left out.
"""

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path as FilePath
from typing import Any, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from accord.model import Task
from accord.workflows import run_document
from accord.workflows.agent_definition import AgentDef, FilePermissions, Permissions
from accord.workflows.decoder import DocumentDecoder, camel_case
from accord.workflows.document import (
    Barrier,
    Coordination,
    CustomStep,
    Document,
    ErrorHandling,
    IdleNudge,
    Input,
    Path,
    Preflight,
    SharedState,
    Step,
    Swarm,
    Trajectories,
    Triggers,
    Workflow,
)
from accord.workflows.dry_run import DryRun, dry_run_report
from accord.workflows.findings import TextPosition
from accord.workflows.planner import make_plan
from accord.workflows.source import tree_of, write_document
from accord.workflows.yaml_nodes import node_of_values

VERSION = "1"

MAIN = "main"
"""The name of the default workflow."""

Members = Mapping[str, Any]

T = TypeVar("T", bound=Struct)


class Builder:
    """A document under construction. Every method except the final ones returns the builder."""

    def __init__(self, name: str) -> None:
        """Start with a name only."""
        self._document = Document(version=VERSION, name=name, swarm=Swarm(pattern="dag"))
        self._swarm: dict[str, Any] = {"pattern": "dag"}
        self._workflows: dict[str, dict[str, Any]] = {MAIN: {}}
        self._steps: dict[str, list[Step]] = {MAIN: []}
        self._at = MAIN
        self._options: dict[str, Any] = {}

    # --- document

    def description(self, text: str) -> Self:
        """Set the description of the workflow."""
        return self._with(description=text)

    def inputs(self, members: Members | None = None, /, **more: Any) -> Self:
        """Declare inputs of a run: `topic={"type": "string", "required": True}`."""
        given = {name: _decode(Input, said, f"input {name!r}") for name, said in _merge(members, more).items()}
        return self._with(inputs=self._document.inputs | given)

    def vars(self, members: Members | None = None, /, **more: Any) -> Self:
        """Set values that templates may read."""
        return self._with(vars=self._document.vars | _tree(_merge(members, more)))

    def env(self, members: Members | None = None, /, **more: str) -> Self:
        """Set variables of all commands. `GH_TOKEN="${GH_TOKEN}"` passes a variable of the server."""
        return self._with(env=self._document.env | _merge(members, more))

    def paths(self, paths: Sequence[Members]) -> Self:
        """Name directories: `{"name": "docs", "path": "../docs"}`."""
        more = tuple(_decode(Path, path, "path") for path in paths)
        return self._with(paths=self._document.paths + more)

    def permission_profile(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Define a permission profile for the `profile` of agents."""
        profile = _decode(Permissions, _members_of(members, more), f"profile {name!r}")
        return self._with(permission_profiles=self._document.permission_profiles | {name: profile})

    def permissions(self, members: Members | None = None, /, **more: Any) -> Self:
        """Set the `default` permissions of agents without permissions; `profiles` are further permission profiles."""
        return self._with(permissions=_decode(FilePermissions, _members_of(members, more), "permissions"))

    def custom_step(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Define a custom step for `use`: its `params`, and the members of a step."""
        custom = _decode(CustomStep, _members_of(members, more), f"custom step {name!r}")
        return self._with(steps=self._document.steps | {name: custom})

    def on(self, members: Members | None = None, /, **more: Any) -> Self:
        """Set the triggers of a served workflow: a `schedule`, a `webhook`."""
        return self._with(on=_decode(Triggers, _members_of(members, more), "on"))

    # --- cooperation of agents

    def pattern(self, name: str | None) -> Self:
        """Set the pattern. With None, the roles of the agents choose one."""
        return self._with_swarm(pattern=name)

    def max_concurrency(self, count: int) -> Self:
        """Limit the number of concurrent steps."""
        return self._with_swarm(maxConcurrency=count)

    def timeout(self, time: str | float) -> Self:
        """Set the timeout of a run: `10m`, or seconds."""
        return self._with_swarm(timeout=time)

    def timeout_ms(self, time: float) -> Self:
        """Set the timeout of a run in milliseconds."""
        return self._with_swarm(timeout=time / 1000)

    def token_budget(self, count: int) -> Self:
        """Limit the tokens of a run."""
        return self._with_swarm(tokenBudget=count)

    def cost_budget(self, amount: float) -> Self:
        """Limit the cost of a run."""
        return self._with_swarm(costBudget=amount)

    def channel(self, name: str) -> Self:
        """Set the channel for progress posts."""
        return self._with_swarm(channel=name)

    def idle_nudge(self, members: Members | None = None, /, **more: Any) -> Self:
        """Set the reminders for a silent agent."""
        return self._with_swarm(idleNudge=_decode(IdleNudge, _members_of(members, more), "idleNudge"))

    def completion_grace_period(self, time: str | float) -> Self:
        """Set how long an agent may run after it reports that it is done."""
        return self._with_swarm(completionGracePeriod=time)

    def coordination(self, members: Members | None = None, /, **more: Any) -> Self:
        """Set how agents agree: `barriers`, `voting_threshold`, `consensus_strategy`."""
        return self._with(coordination=_decode(Coordination, _members_of(members, more), "coordination"))

    def barrier(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add a barrier: `wait_for` and `mode`."""
        barrier = _decode(Barrier, {"name": name, **_members_of(members, more)}, f"barrier {name!r}")
        before = self._document.coordination
        return self._with(coordination=replace(before, barriers=(*before.barriers, barrier)))

    def state(self, members: Members | None = None, /, **more: Any) -> Self:
        """Set where runs store the state that they share."""
        return self._with(state=_decode(SharedState, _members_of(members, more), "state"))

    def trajectories(self, members: Members | bool | None = None, /, **more: Any) -> Self:
        """Set which decisions of a run are recorded; False for none."""
        given = members if isinstance(members, bool) else _members_of(members, more)
        return self._with(trajectories=_decode(Trajectories, given, "trajectories"))

    def on_error(self, strategy: str, members: Members | None = None, /, **more: Any) -> Self:
        """Set the reaction to a failed step: `fail-fast`, `continue` or `retry`, with `max_retries` and others."""
        given = {"strategy": strategy, **_members_of(members, more)}
        return self._with(error_handling=_decode(ErrorHandling, given, "errorHandling"))

    # --- agents and workflows

    def agent(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add a command line agent, with `cli` or `command`."""
        agent = _decode(AgentDef, {"name": name, **_members_of(members, more)}, f"agent {name!r}")
        return self._with(agents=(*self._document.agents, agent))

    def a2a_agent(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add an A2A agent at its `url`."""
        return self.agent(name, {"runtime": "a2a", **_members_of(members, more)})

    def workflow(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Start a workflow, or continue one. The following calls belong to it; without this call, to `main`."""
        if not self._workflows[self._at] and not self._steps[self._at]:
            del self._workflows[self._at], self._steps[self._at]
        self._at = name
        self._workflows.setdefault(name, {}).update(_members_of(members, more))
        self._steps.setdefault(name, [])
        return self

    def preflight(self, command: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add a check before the first step."""
        check = _decode(Preflight, {"command": command, **_members_of(members, more)}, "preflight")
        here = self._workflows[self._at]
        here["preflight"] = [*here.get("preflight", ()), check]
        return self

    def output(self, template: str) -> Self:
        """Set the output template of a run."""
        self._workflows[self._at]["output"] = template
        return self

    def step(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add a step."""
        self._steps[self._at].append(_decode(Step, {"name": name, **_members_of(members, more)}, f"step {name!r}"))
        return self

    # --- results

    def to_config(self) -> Document:
        """Return the document."""
        names = [name for name in self._workflows if self._workflows[name] or self._steps[name]]
        return replace(self._document, workflows=tuple(map(self._workflow, names)))

    def to_yaml(self) -> str:
        """Return the document as YAML."""
        return write_document(self.to_config())

    def dry_run(
        self,
        workflow: str | None = None,
        *,
        vars: Members | None = None,
        input: str | None = None,
        directory: FilePath | str = ".",
    ) -> DryRun:
        """Return the report of a dry run; raises BadDocument."""
        return dry_run_report(make_plan(self.to_config(), workflow, vars, input, base=FilePath(directory)))

    def start_from(self, step: str) -> Self:
        """Start runs at a step. Earlier steps are taken from the previous run, or skipped."""
        self._options["start_from"] = step
        return self

    def previous_run_id(self, run: str) -> Self:
        """Reuse the completed steps of an earlier run."""
        self._options["previous_run_id"] = run
        return self

    async def run(self, **options: Any) -> Task:
        """Run the workflow and return its task.

        The run ends, or stops when it needs input. `options` are those of `run_document`: workflow, vars, input,
        directory, start_from, previous_run_id, on_event.
        """
        chosen = {**self._options, **_options(options)}
        if chosen.get("directory") is not None:
            chosen["directory"] = FilePath(chosen["directory"])
        return await run_document(self.to_config(), **chosen)

    def run_blocking(self, **options: Any) -> Task:
        """Run the workflow from a script without async."""
        return asyncio.run(self.run(**options))

    def _workflow(self, name: str) -> Workflow:
        return _decode(
            Workflow, {"name": name, **self._workflows[name], "steps": self._steps[name]}, f"workflow {name!r}"
        )

    def _with(self, **members: Any) -> Self:
        self._document = replace(self._document, **members)
        return self

    def _with_swarm(self, **members: Any) -> Self:
        self._swarm = {name: value for name, value in (self._swarm | members).items() if value is not None}
        return self._with(swarm=_decode(Swarm, self._swarm, "swarm"))

    a2aAgent = a2a_agent
    completionGracePeriod = completion_grace_period
    costBudget = cost_budget
    customStep = custom_step
    dryRun = dry_run
    idleNudge = idle_nudge
    maxConcurrency = max_concurrency
    onError = on_error
    permissionProfile = permission_profile
    previousRunId = previous_run_id
    runBlocking = run_blocking
    startFrom = start_from
    timeoutMs = timeout_ms
    toConfig = to_config
    tokenBudget = token_budget
    toYaml = to_yaml


def workflow(name: str) -> Builder:
    """Return a new builder."""
    return Builder(name)


def _decode(kind: type[T], said: Any, what: str) -> T:
    """Decode members as those of a file; raises BadDocument."""
    return DocumentDecoder().decode(kind, node_of_values(_tree(said), TextPosition(f"<{what}>")), what)


def _members_of(members: Members | None, more: Members) -> dict[str, Any]:
    """Return members under the names of a file, without those that are None."""
    return {name: value for name, value in {**(members or {}), **_named(more)}.items() if value is not None}


def _named(more: Members) -> dict[str, Any]:
    return {name.removesuffix("_"): value for name, value in more.items()}


def _options(given: Members) -> dict[str, Any]:
    """Return options of a run in snake_case. An unknown name raises in `run_document`."""
    spelled = {camel_case(name): name for name in inspect.signature(run_document).parameters}
    return {spelled.get(name, name): value for name, value in given.items()}


def _merge(members: Members | None, more: Members) -> dict[str, Any]:
    return {**(members or {}), **more}


def _tree(value: Any) -> Any:
    match value:
        case Struct():
            return tree_of(value)
        case Mapping():
            return {name: _tree(one) for name, one in value.items()}
        case list() | tuple():
            return [_tree(one) for one in value]
        case _:
            return value
