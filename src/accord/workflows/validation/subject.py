"""The document under validation, and checks of its names, paths and triggers.

A problem has the path of a member in the file. The caller finds the line in the text.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec

from accord.workflows.agent_definition import AgentDef
from accord.workflows.document import CustomStep, Document, Schedule, Step, Workflow
from accord.workflows.expressions import BadExpression, references
from accord.workflows.findings import BadDocument, CheckProblem, Where
from accord.workflows.patterns import PATTERNS
from accord.workflows.planner import expand_custom_step, includes_itself, resolve_path, with_type
from accord.workflows.references import reachable, unknown_name_fix
from accord.workflows.step_types import StepType, step_type
from accord.workflows.values import output_variable


class PlacedStep(NamedTuple):
    """A step, its path, and its context.

    `outer` is the map that runs it for each item. `top` is the step of the workflow that it is, or is within. `items`
    are the names of the items of all enclosing maps.
    """

    step: Step
    where: Where
    workflow: Workflow
    top: Step
    outer: Step | None = None
    items: frozenset[str] = frozenset()


class Subject:
    """A document with its environment."""

    def __init__(
        self, document: Document, base: Path, env: Mapping[str, str], custom: Mapping[str, CustomStep] | None = None
    ) -> None:
        """Store the document; `base` is the base of its paths, `custom` are the custom steps in its directory."""
        self.document = document
        self.base = base
        self.env = env
        self.custom: Mapping[str, CustomStep] = {**(custom or {}), **document.steps}
        self.agents: Mapping[str, AgentDef] = {agent.name: agent for agent in reversed(document.agents)}

    @cached_property
    def steps(self) -> tuple[PlacedStep, ...]:
        """Every step of every workflow, also within maps. Custom steps are expanded where possible."""
        return tuple(self._filled(placed) for placed in self.written)

    @cached_property
    def written(self) -> tuple[PlacedStep, ...]:
        """The same steps as the file has them."""
        return tuple(
            placed
            for number, workflow in enumerate(self.document.workflows)
            for place, step in enumerate(workflow.steps)
            for placed in _within(PlacedStep(step, ("workflows", number, "steps", place), workflow, step))
        )

    def _filled(self, placed: PlacedStep) -> PlacedStep:
        try:
            return placed._replace(step=expand_custom_step(placed.step, self.custom))
        except BadDocument:
            return placed  # `check_custom_steps_exist` and the checks after it report why

    def of(self, workflow: Workflow) -> Iterator[PlacedStep]:
        """Yield the steps of one workflow that are not within others."""
        return (placed for placed in self.steps if placed.workflow is workflow and placed.outer is None)

    def agent_of(self, step: Step) -> AgentDef | None:
        """Return the agent of a step, or None."""
        return self.agents.get(step.agent or "")

    def kind_of(self, step: Step) -> str:
        """Return a step's type, as the file has it or as a run derives it."""
        return with_type(step, self.agent_of(step)).kind

    def row_of(self, step: Step) -> StepType:
        """Return the row of a step's type."""
        return step_type(self.kind_of(step))


Check = Callable[[Subject], Iterator[CheckProblem]]


def _within(placed: PlacedStep) -> Iterator[PlacedStep]:
    yield placed
    if placed.step.step is not None:
        where, items = (*placed.where, "step"), placed.items | {placed.step.as_}
        yield from _within(PlacedStep(placed.step.step, where, placed.workflow, placed.top, placed.step, items))


NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
"""Names that templates and records can refer to."""

CHANNEL = re.compile(r"[a-z0-9][a-z0-9-]*")

_NO_NAME = re.compile(r"[^a-z0-9_]+")


def check_version(subject: Subject) -> Iterator[CheckProblem]:
    """Check that the version of the file is supported."""
    if re.fullmatch(r"1(\.\d+)*", subject.document.version) is None:
        yield CheckProblem("BAD_VALUE", ("version",), f"Version {subject.document.version} is not known", 'write "1"')


def check_unique_names(subject: Subject) -> Iterator[CheckProblem]:
    """Check that names are unique."""
    document = subject.document
    yield from _twice("agent", [(("agents", at), one.name) for at, one in enumerate(document.agents)])
    yield from _twice("workflow", [(("workflows", at), one.name) for at, one in enumerate(document.workflows)])
    yield from _twice("path", [(("paths", at), one.name) for at, one in enumerate(document.paths)])
    barriers: list[tuple[Where, str]] = [
        (("coordination", "barriers", at), one.name) for at, one in enumerate(document.coordination.barriers)
    ]
    yield from _twice("barrier", barriers)
    for workflow in document.workflows:
        steps = [(placed.where, placed.step.name) for placed in subject.of(workflow)]
        yield from _twice("step or barrier", [*barriers, *steps], skip=len(barriers))


def check_variable_names(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no two steps have the same variable in a command."""
    for workflow in subject.document.workflows:
        seen: dict[str, str] = {}
        for placed in subject.of(workflow):
            name, variable = placed.step.name, output_variable(placed.step.name)
            if (other := seen.setdefault(variable, name)) != name:
                message = f"{name} and {other} are both {variable} to a command"
                yield CheckProblem("DUPLICATE_NAME", (*placed.where, "name"), message, "call one of them otherwise")


def check_referable_names(subject: Subject) -> Iterator[CheckProblem]:
    """Check that templates can refer to the names of steps and barriers."""
    named = [(placed.where, placed.step.name) for placed in subject.steps]
    named += [
        (("coordination", "barriers", at), one.name) for at, one in enumerate(subject.document.coordination.barriers)
    ]
    for where, name in named:
        if NAME.fullmatch(name) is None:
            other = _NO_NAME.sub("-", name.lower()).strip("-") or "step"
            message = f'"{name}" has other characters than letters, digits, - and _'
            yield CheckProblem("BAD_NAME", (*where, "name"), message, f"call it {other}")


def check_channels(subject: Subject) -> Iterator[CheckProblem]:
    """Check that channels have valid names, as in agent-relay."""
    document = subject.document
    stated: list[tuple[Where, str | None]] = [(("swarm", "channel"), document.swarm.channel)]
    if document.error_handling is not None:
        stated.append((("errorHandling", "notifyChannel"), document.error_handling.notify_channel))
    for number, agent in enumerate(document.agents):
        stated += [(("agents", number, "channels", at), channel) for at, channel in enumerate(agent.channels)]
    for where, name in stated:
        if name is not None and CHANNEL.fullmatch(name) is None:
            other = _NO_NAME.sub("-", name.lower()).replace("_", "-").strip("-") or "general"
            message = f'"{name}" is not a valid channel name: lower-case letters, digits and hyphens'
            yield CheckProblem("INVALID_CHANNEL_NAME", where, message, f"call it {other}")


def check_pattern(subject: Subject) -> Iterator[CheckProblem]:
    """Check that the pattern exists."""
    name = subject.document.swarm.pattern
    if name is not None and name not in PATTERNS:
        fix = unknown_name_fix(name, PATTERNS, f"write one of {', '.join(PATTERNS)}")
        yield CheckProblem("UNKNOWN_PATTERN", ("swarm", "pattern"), f"There is no pattern {name}", fix)


def check_profiles(subject: Subject) -> Iterator[CheckProblem]:
    """Check that permission profiles exist."""
    document, known = subject.document, subject.document.profiles
    named: list[tuple[Where, str | None]] = [
        (("agents", at, "permissions", "profile"), agent.permissions.profile)
        for at, agent in enumerate(document.agents)
        if agent.permissions is not None
    ]
    named += [
        ((*where, "permissions", "profile"), step.permissions.profile)
        for step, where, *_ in subject.steps
        if step.permissions is not None
    ]
    named += [(("permission_profiles", name, "profile"), one.profile) for name, one in known.items()]
    if document.permissions.default is not None:
        named.append((("permissions", "default"), document.permissions.default.profile))
    for where, name in named:
        if name is not None and name not in known:
            fix = unknown_name_fix(name, known, "add it to `permission_profiles`")
            yield CheckProblem("UNKNOWN_PROFILE", where, f"There is no profile {name}", fix)


def check_workflows(subject: Subject) -> Iterator[CheckProblem]:
    """Check that workflows of steps exist and do not run themselves."""
    known = {workflow.name: workflow for workflow in subject.document.workflows}
    for step, where, workflow, *_ in subject.steps:
        if step.file is not None and "{{" not in step.file:
            file = subject.base / Path(step.file)
            if not file.is_file():
                message = f"There is no file {step.file}"
                yield CheckProblem("UNKNOWN_WORKFLOW", (*where, "file"), message, "its path begins where this file is")
            elif includes_itself(file):
                message = f"The file {step.file} would run itself for ever"
                yield CheckProblem("CYCLE", (*where, "file"), message, "name another file")
        if step.workflow is None or step.file is not None or "{{" in step.workflow:
            continue
        if step.workflow not in known:
            fix = unknown_name_fix(step.workflow, known, "name one of this file, or its `file`")
            yield CheckProblem("UNKNOWN_WORKFLOW", (*where, "workflow"), f"There is no workflow {step.workflow}", fix)
        elif workflow.name in _run_by(subject, step.workflow):
            message = f"The workflow {workflow.name} would run itself for ever"
            yield CheckProblem("CYCLE", (*where, "workflow"), message, "name another workflow")


def _run_by(subject: Subject, name: str) -> set[str]:
    """Return the workflows that a workflow runs, directly and indirectly, and itself."""
    calls: dict[str, list[str]] = {}
    for step, _, workflow, *_ in subject.steps:
        if step.workflow is not None and step.file is None:
            calls.setdefault(workflow.name, []).append(step.workflow)
    return {name} | reachable(calls, name)


def _twice(what: str, named: Iterable[tuple[Where, str]], skip: int = 0) -> Iterator[CheckProblem]:
    seen: set[str] = set()
    for at, (where, name) in enumerate(named):
        if name in seen and at >= skip:
            message = f"There is another {what} called {name}"
            yield CheckProblem("DUPLICATE_NAME", (*where, "name"), message, "call one of them otherwise")
        seen.add(name)


NAME_CHECKS = (
    check_version,
    check_unique_names,
    check_variable_names,
    check_referable_names,
    check_channels,
    check_pattern,
    check_profiles,
    check_workflows,
)


_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def check_one_path(subject: Subject) -> Iterator[CheckProblem]:
    """Check that `cwd` and `workdir` are not both given."""
    for where, cwd, workdir in _stated(subject):
        if cwd is not None and workdir is not None:
            message = "`cwd` and `workdir` both say where"
            yield CheckProblem("CONFLICT", (*where, "workdir"), message, "remove one of them", at_key=True)


def check_named_paths(subject: Subject) -> Iterator[CheckProblem]:
    """Check that each `workdir` is among `paths`."""
    names = [path.name for path in subject.document.paths]
    for where, _, workdir in _stated(subject):
        if workdir is not None and workdir not in names:
            fix = unknown_name_fix(workdir, names, "add it to `paths`, or write `cwd`")
            yield CheckProblem("UNKNOWN_WORKDIR", (*where, "workdir"), f"There is no path called {workdir}", fix)


def check_paths_exist(subject: Subject) -> Iterator[CheckProblem]:
    """Check that directories exist, unless a worktree step may create them."""
    for at, path in enumerate(subject.document.paths):
        where: Where = ("paths", at, "path")
        unset = [name for name in map("".join, _VARIABLE.findall(path.path)) if name not in subject.env]
        for name in unset:
            yield CheckProblem(
                "UNSET_VARIABLE", where, f"The variable {name} is not set", f"set {name} before it is run"
            )
        place = resolve_path(path.path, subject.base, subject.env)
        if path.required and not unset and not place.is_dir():
            fix = "make it, or say `required: false`"
            what = f" ({path.description})" if path.description else ""
            yield CheckProblem("NO_DIRECTORY", where, f"There is not a directory {place}{what}", fix)
    makes_some = any(step.kind == "worktree" for step, *_ in subject.steps)
    for owner, cwd, _ in () if makes_some else _stated(subject):
        if cwd is not None and "{{" not in cwd and not (subject.base / os.path.expanduser(cwd)).is_dir():
            message = f"There is not a directory {cwd}"
            yield CheckProblem("NO_DIRECTORY", (*owner, "cwd"), message, "make it; its path begins where this file is")


def _stated(subject: Subject) -> Iterator[tuple[Where, str | None, str | None]]:
    for at, agent in enumerate(subject.document.agents):
        yield ("agents", at), agent.cwd, agent.workdir
    for step, where, *_ in subject.steps:
        yield where, step.cwd, step.workdir


PATH_CHECKS = (check_one_path, check_named_paths, check_paths_exist)


PATH = re.compile(r"/?[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*/?")
"""A path without characters that a URL would have to escape."""

OF_A_CALL = ("body", "headers")
"""The roots of values in the input of a webhook."""


def check_webhooks(subject: Subject) -> Iterator[CheckProblem]:
    """Check that webhooks have unique paths, one kind of signature per secret, and valid input templates."""
    seen: set[str] = set()
    kinds: dict[str, str] = {}
    for at, hook in enumerate(subject.document.on.webhook if subject.document.on else ()):
        where, path = ("on", "webhook", at), hook.path.strip("/")
        if not PATH.fullmatch(hook.path):
            fix = "write letters, digits and - . _ ~, with / in between"
            yield CheckProblem("BAD_VALUE", (*where, "path"), f"{hook.path!r} is not a valid path", fix)
        elif path in seen:
            yield CheckProblem("DUPLICATE_NAME", (*where, "path"), f"Another webhook has the path {path}", "rename one")
        seen.add(path)
        if hook.signature != "timestamp" and hook.secret is None:
            message = f"signature: {hook.signature} has no effect without `secret`"
            yield CheckProblem("BAD_VALUE", (*where, "signature"), message, "add `secret`, the name of a credential")
        if hook.secret is not None and kinds.setdefault(hook.secret, hook.signature) != hook.signature:
            # What Standard Webhooks sign, id, time and body in one text, is a signed body for the other kind.
            message = f"Another webhook takes signatures of another kind with the secret {hook.secret}"
            yield CheckProblem("BAD_VALUE", (*where, "secret"), message, "give each webhook a secret of its own")
        if hook.input is not None:
            yield from _spoken_of((*where, "input"), hook.input)


def _spoken_of(where: tuple[str | int, ...], text: str) -> Iterator[CheckProblem]:
    try:
        mentioned = references(text)
    except BadExpression as error:
        yield CheckProblem("BAD_TEMPLATE", where, str(error), "see docs/workflows/values.md for what can be written")
        return
    for one in mentioned:
        if one.path[0] not in OF_A_CALL:
            message = f"{one.source}: a webhook knows only what it is sent"
            yield CheckProblem(
                "UNKNOWN_REFERENCE", where, message, "write {{body}}, {{body.a.b}} or {{headers.x-name}}"
            )


def check_schedule_inputs(subject: Subject) -> Iterator[CheckProblem]:
    """Check that schedules give all required inputs, and as values."""
    document = subject.document
    needed = {name for name, one in document.inputs.items() if one.required and one.default is None}
    for at, one in enumerate(document.on.schedule if document.on else ()):
        where = ("on", "schedule", at)
        if one.input is not None and "{{" in one.input:
            fix = "write the text itself: there is nothing yet that it could speak of"
            yield CheckProblem("UNKNOWN_REFERENCE", (*where, "input"), "The input of a schedule is not a template", fix)
        for name in sorted(needed - one.vars.keys() - _in_text(one)):
            message = f"The runs of this schedule lack the input {name}"
            yield CheckProblem(
                "MISSING_INPUT", where, message, f"add `vars: {{{name}: ...}}` to it, or give it a default"
            )


def _in_text(one: Schedule) -> set[str]:
    """Return the inputs in the JSON of a schedule's input."""
    try:
        values = msgspec.json.decode(one.input or "")
    except msgspec.DecodeError:
        return set()
    return set(values) if isinstance(values, dict) else set()


TRIGGER_CHECKS: tuple[Check, ...] = (check_webhooks, check_schedule_inputs)
