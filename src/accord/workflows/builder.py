"""Workflows written in Python: calls that add up to the document that a file would be.

A builder has no rules of its own: what it is given goes through the same reading as a file, with a file's names in
camelCase or snake_case, and is refused at the line that said it. `source` is below; scripts stand above.

    workflow("my-flow")
        .a2a_agent("data-processor", url="http://localhost:9000", role="Processes data via n8n")
        .step("fetch-data", type="a2a", agent="data-processor", task="Pull latest dataset from warehouse")
        .run_blocking()

Members may also come as one mapping, as in TypeScript; `if_`, `for_`, `as_` and `with_` are what Python keeps for
itself, and a member that is None is not said.
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
from accord.workflows.decoder import DocumentDecoder, camel_case
from accord.workflows.document import (
    AgentDef,
    Barrier,
    Coordination,
    CustomStep,
    Document,
    ErrorHandling,
    FilePermissions,
    IdleNudge,
    Input,
    Path,
    Permissions,
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
"""What the workflow is called that the first steps belong to."""

Members = Mapping[str, Any]

T = TypeVar("T", bound=Struct)


class Builder:
    """A document in the making; every method but those at its end returns the builder."""

    def __init__(self, name: str) -> None:
        """Begin with nothing but a name."""
        self._document = Document(version=VERSION, name=name, swarm=Swarm(pattern="dag"))
        self._swarm: dict[str, Any] = {"pattern": "dag"}
        self._workflows: dict[str, dict[str, Any]] = {MAIN: {}}
        self._steps: dict[str, list[Step]] = {MAIN: []}
        self._at = MAIN
        self._options: dict[str, Any] = {}

    # --- the whole

    def description(self, text: str) -> Self:
        """Say what it is for."""
        return self._with(description=text)

    def inputs(self, members: Members | None = None, /, **more: Any) -> Self:
        """Name values that whoever runs it gives: `topic={"type": "string", "required": True}`."""
        given = {name: _made(Input, said, f"input {name!r}") for name, said in _plain(members, more).items()}
        return self._with(inputs=self._document.inputs | given)

    def vars(self, members: Members | None = None, /, **more: Any) -> Self:
        """Name values that templates may use."""
        return self._with(vars=self._document.vars | _tree(_plain(members, more)))

    def env(self, members: Members | None = None, /, **more: str) -> Self:
        """Set variables that all commands get: `GH_TOKEN="${GH_TOKEN}"` passes one of the server's."""
        return self._with(env=self._document.env | _plain(members, more))

    def paths(self, paths: Sequence[Members]) -> Self:
        """Name places to work in: `{"name": "docs", "path": "../docs"}`."""
        more = tuple(_made(Path, path, "path") for path in paths)
        return self._with(paths=self._document.paths + more)

    def permission_profile(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Name permissions that agents may have as their `profile`."""
        profile = _made(Permissions, _said(members, more), f"profile {name!r}")
        return self._with(permission_profiles=self._document.permission_profiles | {name: profile})

    def permissions(self, members: Members | None = None, /, **more: Any) -> Self:
        """Set the `default` permissions of agents that have none; `profiles` are further named permissions."""
        return self._with(permissions=_made(FilePermissions, _said(members, more), "permissions"))

    def custom_step(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Define a step of one's own, which others `use`: its `params`, and the members of a step."""
        custom = _made(CustomStep, _said(members, more), f"custom step {name!r}")
        return self._with(steps=self._document.steps | {name: custom})

    def on(self, members: Members | None = None, /, **more: Any) -> Self:
        """Say what begins a run of it where it is served: a `schedule`, a `webhook`."""
        return self._with(on=_made(Triggers, _said(members, more), "on"))

    # --- how its agents work together

    def pattern(self, name: str | None) -> Self:
        """Choose how the agents work together; None leaves the choice to their roles."""
        return self._with_swarm(pattern=name)

    def max_concurrency(self, count: int) -> Self:
        """Bound how many steps are worked at at a time."""
        return self._with_swarm(maxConcurrency=count)

    def timeout(self, time: str | float) -> Self:
        """Bound how long a run takes: `10m`, or seconds."""
        return self._with_swarm(timeout=time)

    def timeout_ms(self, time: float) -> Self:
        """Bound how long a run takes, in milliseconds."""
        return self._with_swarm(timeout=time / 1000)

    def token_budget(self, count: int) -> Self:
        """Bound how many tokens a run uses."""
        return self._with_swarm(tokenBudget=count)

    def cost_budget(self, amount: float) -> Self:
        """Bound what a run costs."""
        return self._with_swarm(costBudget=amount)

    def channel(self, name: str) -> Self:
        """Choose where a run says how it goes."""
        return self._with_swarm(channel=name)

    def idle_nudge(self, members: Members | None = None, /, **more: Any) -> Self:
        """Say what becomes of an agent that says nothing."""
        return self._with_swarm(idleNudge=_made(IdleNudge, _said(members, more), "idleNudge"))

    def completion_grace_period(self, time: str | float) -> Self:
        """Say how long an agent may go on after it said that it is done."""
        return self._with_swarm(completionGracePeriod=time)

    def coordination(self, members: Members | None = None, /, **more: Any) -> Self:
        """Say how agents agree: `barriers`, `voting_threshold`, `consensus_strategy`."""
        return self._with(coordination=_made(Coordination, _said(members, more), "coordination"))

    def barrier(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add a barrier: `wait_for` and `mode`."""
        barrier = _made(Barrier, {"name": name, **_said(members, more)}, f"barrier {name!r}")
        before = self._document.coordination
        return self._with(coordination=replace(before, barriers=(*before.barriers, barrier)))

    def state(self, members: Members | None = None, /, **more: Any) -> Self:
        """Say where runs of it keep what they have in common."""
        return self._with(state=_made(SharedState, _said(members, more), "state"))

    def trajectories(self, members: Members | bool | None = None, /, **more: Any) -> Self:
        """Say which decisions of a run are written down; False for none."""
        said = members if isinstance(members, bool) else _said(members, more)
        return self._with(trajectories=_made(Trajectories, said, "trajectories"))

    def on_error(self, strategy: str, members: Members | None = None, /, **more: Any) -> Self:
        """Say what becomes of a run when a step fails: `fail-fast`, `continue` or `retry`, with `max_retries` ..."""
        said = {"strategy": strategy, **_said(members, more)}
        return self._with(error_handling=_made(ErrorHandling, said, "errorHandling"))

    # --- who, and what

    def agent(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add an agent: one of a command line, with `cli` or `command`."""
        agent = _made(AgentDef, {"name": name, **_said(members, more)}, f"agent {name!r}")
        return self._with(agents=(*self._document.agents, agent))

    def a2a_agent(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add an agent that is reached over A2A, at its `url`."""
        return self.agent(name, {"runtime": "a2a", **_said(members, more)})

    def workflow(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Begin a workflow, or go on with one: what follows belongs to it. Without this, all belongs to `main`."""
        if not self._workflows[self._at] and not self._steps[self._at]:
            del self._workflows[self._at], self._steps[self._at]
        self._at = name
        self._workflows.setdefault(name, {}).update(_said(members, more))
        self._steps.setdefault(name, [])
        return self

    def preflight(self, command: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add what must be so before anything is done."""
        check = _made(Preflight, {"command": command, **_said(members, more)}, "preflight")
        here = self._workflows[self._at]
        here["preflight"] = [*here.get("preflight", ()), check]
        return self

    def output(self, template: str) -> Self:
        """Say what a run comes to."""
        self._workflows[self._at]["output"] = template
        return self

    def step(self, name: str, members: Members | None = None, /, **more: Any) -> Self:
        """Add a step."""
        self._steps[self._at].append(_made(Step, {"name": name, **_said(members, more)}, f"step {name!r}"))
        return self

    # --- what it comes to

    def to_config(self) -> Document:
        """Return the document."""
        begun = [name for name in self._workflows if self._workflows[name] or self._steps[name]]
        return replace(self._document, workflows=tuple(map(self._workflow, begun)))

    def to_yaml(self) -> str:
        """Return it as a file."""
        return write_document(self.to_config())

    def dry_run(
        self,
        workflow: str | None = None,
        *,
        vars: Members | None = None,
        input: str | None = None,
        directory: FilePath | str = ".",
    ) -> DryRun:
        """Return what a run would do; raises BadDocument for what could not be run."""
        return dry_run_report(make_plan(self.to_config(), workflow, vars, input, base=FilePath(directory)))

    def start_from(self, step: str) -> Self:
        """Let runs begin with a step: what comes before it is taken from the run before, or left out."""
        self._options["start_from"] = step
        return self

    def previous_run_id(self, run: str) -> Self:
        """Let runs take over what has ended well in an earlier one."""
        self._options["previous_run_id"] = run
        return self

    async def run(self, **options: Any) -> Task:
        """Run it to its end, or to where it asks somebody, and return the task that the run is.

        `options` are those of `run_document`: workflow, vars, input, directory, start_from, previous_run_id, on_event.
        """
        wanted = {**self._options, **_options(options)}
        if wanted.get("directory") is not None:
            wanted["directory"] = FilePath(wanted["directory"])
        return await run_document(self.to_config(), **wanted)

    def run_blocking(self, **options: Any) -> Task:
        """Run it from a script without async."""
        return asyncio.run(self.run(**options))

    def _workflow(self, name: str) -> Workflow:
        return _made(
            Workflow, {"name": name, **self._workflows[name], "steps": self._steps[name]}, f"workflow {name!r}"
        )

    def _with(self, **members: Any) -> Self:
        self._document = replace(self._document, **members)
        return self

    def _with_swarm(self, **members: Any) -> Self:
        self._swarm = {name: value for name, value in (self._swarm | members).items() if value is not None}
        return self._with(swarm=_made(Swarm, self._swarm, "swarm"))

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
    """Begin a workflow."""
    return Builder(name)


def _made(kind: type[T], said: Any, what: str) -> T:
    """Return what a file would say with these values; raises BadDocument."""
    return DocumentDecoder().made(kind, node_of_values(_tree(said), TextPosition(f"<{what}>")), what)


def _said(members: Members | None, more: Members) -> dict[str, Any]:
    """Return members without those that are not said, under names that a file has."""
    return {name: value for name, value in {**(members or {}), **_named(more)}.items() if value is not None}


def _named(more: Members) -> dict[str, Any]:
    return {name.removesuffix("_"): value for name, value in more.items()}


def _options(given: Members) -> dict[str, Any]:
    """Return what a run is given, in our spelling; a name that is none is refused where it is called."""
    spelled = {camel_case(name): name for name in inspect.signature(run_document).parameters}
    return {spelled.get(name, name): value for name, value in given.items()}


def _plain(members: Members | None, more: Members) -> dict[str, Any]:
    """Return values whose names are the user's own."""
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
