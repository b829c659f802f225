"""Values: whether what templates and conditions speak of is there by then, and can do no harm in a shell."""

from collections.abc import Iterator
from typing import NamedTuple

from accord.workflows.checks.names import meant
from accord.workflows.checks.order import Edges, edges, upstream
from accord.workflows.checks.subject import Placed, Problem, Subject, Where
from accord.workflows.document import AgentDef, Document, Step
from accord.workflows.expressions import BadExpression
from accord.workflows.resolving import (
    LATER,
    NO_THIS_STEP,
    THIS_STEP,
    events_of,
    run_lacks,
    unfilled,
    unsafe_commands,
)
from accord.workflows.templates import ROOTS, Reference, condition_references, references, texts_in

OF_A_STEP = ("output", "status", "json", "exit_code", "exitCode")

_TEXTS = ("task", "command", "argv", "cwd", "branch", "baseBranch", "path", "url", "input", "over", "event")

FIXED_ORDER = ("dag", "pipeline")
"""Patterns that add no steps and no order of their own."""


class Said(NamedTuple):
    """A text that has templates, or is a condition; `is_own` if the step that says it has ended by then."""

    where: Where
    text: str
    is_condition: bool = False
    is_own: bool = False

    @property
    def is_set(self) -> bool:
        """Whether it is a value that a step sets."""
        return "set" in self.where


class _Around(NamedTuple):
    """What a text may speak of."""

    waits: Edges
    names: frozenset[str]
    placed: Placed | None

    @property
    def items(self) -> frozenset[str]:
        """What the items of the maps around it are called."""
        return frozenset() if self.placed is None else self.placed.items


def known(subject: Subject) -> Iterator[Problem]:
    """What is spoken of is there by then."""
    for number, workflow in enumerate(subject.document.workflows):
        waits = edges(subject, workflow)
        names = frozenset(placed.step.name for placed in subject.of(workflow))
        for placed in subject.steps:
            if placed.workflow is workflow and placed.step.use is None:
                for said in _texts(subject, placed):
                    yield from _judged(subject, said, _Around(waits, names, placed))
        if workflow.output is not None:
            said = Said(("workflows", number, "output"), workflow.output, is_own=True)
            yield from _judged(subject, said, _Around(waits, names, None))


def commands(subject: Subject) -> Iterator[Problem]:
    """No value could be taken for a part of a command."""
    for placed in subject.steps:
        for path, error in unsafe_commands(placed.step) if placed.step.use is None else ():
            yield Problem("INJECTION_RISK", (*placed.where, *path), str(error), error.fix)


def read(subject: Subject) -> Iterator[Problem]:
    """Templates stand where they are read."""
    for where, value in _plain(subject):
        for text in texts_in(value):
            if (begin := text.find("{{")) >= 0 and "}}" in text[begin + 3 :]:
                message = f"{{{{..}}}} is not read in `{where[-1]}`"
                yield Problem("TEMPLATE_NOT_READ", where, message, "say it in the `task` or the `env` of a step")


def variables(subject: Subject) -> Iterator[Problem]:
    """Variables of the environment that an `env` names are filled in."""
    said: list[tuple[Where, Document | Step | AgentDef]] = [((), subject.document)]
    said += [(placed.where, placed.step) for placed in subject.steps]
    said += [(("agents", at), agent) for at, agent in enumerate(subject.document.agents)]
    for where, one in said:
        for name, message, fix in unfilled(one):
            yield Problem("NOT_FILLED", (*where, "env", name), message, fix)


def _plain(subject: Subject) -> Iterator[tuple[Where, object]]:
    """Yield texts that are taken as they are."""
    for at, agent in enumerate(subject.document.agents):
        for name in ("command", "role", "skills", "done", "channels"):
            yield ("agents", at, name), getattr(agent, name)
        yield ("agents", at, "additionalPaths"), agent.additional_paths
    for at, workflow in enumerate(subject.document.workflows):
        for number, check in enumerate(workflow.preflight):
            yield ("workflows", at, "preflight", number, "command"), check.command
    for placed in subject.steps:
        for name in ("agent", "workflow", "file", "credentials"):
            yield (*placed.where, name), getattr(placed.step, name)


def _texts(subject: Subject, placed: Placed) -> Iterator[Said]:
    """Yield all texts of a step that may have templates."""
    step, where = placed.step, placed.where
    if step.if_ is not None:
        yield Said((*where, "if"), step.if_, is_condition=True)
    is_loop = subject.kind_of(step) != "wait"
    for name in (*_TEXTS, "until"):
        value = getattr(step, {"baseBranch": "base_branch"}.get(name, name))
        is_condition = name == "until" and is_loop
        # a loop speaks of its own last round
        is_own = is_loop and step.max_iterations is not None
        for text in texts_in(value):
            yield Said((*where, name), text, is_condition, is_own)
    agent = subject.agent_of(step)
    if step.task is None and agent is not None and agent.task is not None:
        yield Said(("agents", subject.document.agents.index(agent), "task"), agent.task)
    for name, table in (("headers", step.headers), ("env", step.env), ("vars", step.vars), ("with", step.with_)):
        for key, value in table.items():
            for text in texts_in(value):
                yield Said((*where, name, key), text)
    for key, text in step.set.items():
        yield Said((*where, "set", key), text, is_own=True)
    if step.verification is not None:
        yield Said((*where, "verification", "value"), step.verification.value, is_own=True)
        for text in step.verification.argv or ():
            yield Said((*where, "verification", "argv"), text, is_own=True)


def _judged(subject: Subject, said: Said, around: _Around) -> Iterator[Problem]:
    try:
        found = condition_references(said.text) if said.is_condition else references(said.text)
    except BadExpression as error:
        yield Problem("BAD_TEMPLATE", said.where, str(error), "see docs/workflows/values.md for what can be written")
        return
    for one in found:
        for problem in _about(subject, said, around, one):
            yield problem._replace(start=one.start)


def _about(subject: Subject, said: Said, around: _Around, one: Reference) -> Iterator[Problem]:
    is_late = one.path[0] in LATER or one.path[0] in around.items
    if is_late and ("headers" in said.where or said.where[-1] in ("url", "event")):
        fix = "write ${NAME} for a variable of the environment" if one.path[0] == "env" else "use `vars` or `inputs`"
        yield Problem("NOT_FIXED", said.where, f"{one.source} is known only during a run", fix)
    elif one.step is not None:
        yield from _about_step(subject, said, around, one)
    elif not one.is_optional and (problem := _about_value(subject, said, around, one)) is not None:
        yield problem


def _about_step(subject: Subject, said: Said, around: _Around, one: Reference) -> Iterator[Problem]:
    name, step = one.path[1], None if around.placed is None else around.placed.top
    is_itself = said.is_set and around.placed is not None and name == around.placed.step.name
    if name not in around.names and not is_itself:
        fix = meant(name, around.names, "name a step of the same workflow")
        yield Problem("UNKNOWN_REFERENCE", said.where, f"{one.source}: there is no step {name}", fix)
        return
    if len(one.path) > 2 and one.path[2] not in OF_A_STEP:
        message = f"{one.source}: a step has no `{one.path[2]}`"
        yield Problem("UNKNOWN_REFERENCE", said.where, message, f"write one of {', '.join(OF_A_STEP[:4])}")
    if step is None or is_itself or (said.is_own and name == step.name):
        return
    pattern = subject.document.swarm.pattern
    is_stated = step.depends_on is not None or pattern in FIXED_ORDER
    if is_stated and name not in around.waits[step.name] and name not in upstream(around.waits, step.name):
        message = f"{one.source}: {name} need not have ended when {step.name} begins"
        fix = f"add {name} to `dependsOn`" if name != step.name else "a step cannot speak of its own output"
        yield Problem("NOT_UPSTREAM", said.where, message, fix)


def _about_value(subject: Subject, said: Said, around: _Around, one: Reference) -> Problem | None:
    document, (root, *rest) = subject.document, one.path
    if root in ("item", "index") or root in around.items:
        if around.items:
            return None
        message = f"{one.source}: only the step of a map has `{root}`"
        return Problem("UNKNOWN_REFERENCE", said.where, message, "use `type: map`, or another value")
    if root == "inputs" and rest and rest[0] not in document.inputs:
        fix = meant(rest[0], document.inputs, f"add {rest[0]} to `inputs`")
        return Problem("UNKNOWN_REFERENCE", said.where, f"{one.source}: there is no input {rest[0]}", fix)
    if root == "run" and rest:
        steps = [step for workflow in document.workflows for step in workflow.steps]
        lacks = run_lacks(rest, events_of(steps))
        return None if lacks is None else Problem("UNKNOWN_REFERENCE", said.where, f"{one.source} has no value", lacks)
    if root == "env" and rest and rest[0] not in subject.env:
        fix = f"set {rest[0]} in the environment, which no workflow sees if settings refer to it"
        return Problem("MISSING_ENV", said.where, f"The variable {rest[0]} is not set", fix)
    variable = rest[0] if root == "vars" and rest else root if root not in ROOTS else None
    if variable == THIS_STEP and rest and variable not in document.vars:
        return Problem("UNKNOWN_REFERENCE", said.where, f"{one.source}: no value is called `step`", NO_THIS_STEP)
    if variable is not None and variable not in document.vars:
        fix = meant(variable, document.vars, f"add {variable} to `vars`, or run it with --var {variable}=...")
        return Problem(
            "UNDECLARED_VARIABLE", said.where, f"{one.source}: nothing in the file says what {variable} is", fix
        )
    return None


REFERENCE_CHECKS = (known, commands, read, variables)
