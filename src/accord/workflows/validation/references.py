"""Check dependencies of steps, and references in templates and conditions."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accord.workflows.document import AgentDef, Document, Step, Workflow
from accord.workflows.expressions import ROOTS, BadExpression, Reference, condition_references, references, texts_in
from accord.workflows.findings import CheckProblem, Where
from accord.workflows.pattern_roles import Cast, Misfit
from accord.workflows.patterns import PATTERNS, choose_pattern
from accord.workflows.plan import LATER, NO_THIS_STEP, THIS_STEP, events_of, run_lacks, unfilled, unsafe_commands
from accord.workflows.planner import with_type
from accord.workflows.validation.subject import PlacedStep, Subject, unknown_name_fix

MANY = 5
"""Number of dependencies whose outputs seldom fit into one task."""

Edges = Mapping[str, tuple[str, ...]]


def dependencies(subject: Subject, workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """Return the dependencies of each step and barrier in the file; in a pipeline, the previous step."""
    names = [placed.step.name for placed in subject.of(workflow)]
    is_line = subject.document.swarm.pattern == "pipeline"
    found: dict[str, tuple[str, ...]] = {}
    for at, placed in enumerate(subject.of(workflow)):
        before = tuple(names[at - 1 : at]) if is_line and at else ()
        stated = placed.step.depends_on
        found[placed.step.name] = before if stated is None else stated
    for barrier in subject.document.coordination.barriers:
        found.setdefault(barrier.name, tuple(name for name in barrier.wait_for if name in names))
    return found


def upstream(waits: Edges, name: str) -> set[str]:
    """Return all direct and indirect dependencies of a step."""
    reached: set[str] = set()
    ahead = list(waits.get(name, ()))
    while ahead:
        one = ahead.pop()
        if one not in reached:
            reached.add(one)
            ahead += waits.get(one, ())
    return reached


def check_dependencies_exist(subject: Subject) -> Iterator[CheckProblem]:
    """Check that the dependencies of steps and barriers exist."""
    every = {placed.step.name for placed in subject.steps if placed.outer is None}
    for workflow in subject.document.workflows:
        there = dependencies(subject, workflow)
        for step, where, *_ in subject.of(workflow):
            for at, name in enumerate(step.depends_on or ()):
                if name not in there:
                    what = "is in another workflow" if name in every else "is not there"
                    fix = unknown_name_fix(name, there, "name a step or a barrier of the same workflow")
                    message = f"{step.name} depends on {name}, which {what}"
                    yield CheckProblem("UNKNOWN_DEPENDENCY", (*where, "dependsOn", at), message, fix)
    for number, barrier in enumerate(subject.document.coordination.barriers):
        for at, name in enumerate(barrier.wait_for):
            if name not in every:
                where = ("coordination", "barriers", number, "waitFor", at)
                fix = unknown_name_fix(name, every, "name a step")
                yield CheckProblem("UNKNOWN_DEPENDENCY", where, f"The barrier {barrier.name} waits for {name}", fix)


def check_cycles(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no step depends on itself, directly or indirectly, or on such steps."""
    for workflow in subject.document.workflows:
        waits = dependencies(subject, workflow)
        circle = _circle(waits)
        if circle is None:
            continue
        steps = {placed.step.name: placed for placed in subject.of(workflow)}
        where = _where(subject, steps, circle[0])
        shown = " -> ".join((*circle, circle[0]))
        yield CheckProblem("CYCLE", where, f"They wait for each other: {shown}", "remove one of these from `dependsOn`")
        for placed in steps.values():
            if placed.step.name not in circle and upstream(waits, placed.step.name) & set(circle):
                message = f"{placed.step.name} waits for steps that wait for each other"
                yield CheckProblem("UNREACHABLE", (*placed.where, "dependsOn"), message, "mend the circle")


def check_false_conditions(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no condition is always false."""
    for step, where, *_ in subject.steps:
        if (step.if_ or "").strip().strip("{}").strip() in ("false", "not true", "0"):
            message = f"{step.name} is never done: its condition is always false"
            yield CheckProblem("UNREACHABLE", (*where, "if"), message, "remove `if`, or the step")


def check_fan_in(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no step has too many dependencies for one task."""
    for step, where, *_ in subject.steps:
        if len(step.depends_on or ()) >= MANY and subject.row_of(step).has_prompt:
            message = f"{step.name} waits for {len(step.depends_on or ())} steps"
            fix = "have some of them summed up before, or `truncate(500)` what they say"
            yield CheckProblem("FAN_IN", (*where, "dependsOn"), message, fix)


def check_pattern_fit(subject: Subject) -> Iterator[CheckProblem]:
    """Check that agents and steps fit the pattern, and that loops of steps have an end."""
    for workflow in subject.document.workflows:
        try:
            there = _expanded(subject, workflow)
        except Misfit as error:
            message = f"The pattern {subject.document.swarm.pattern} does not fit: {error}"
            yield CheckProblem("WRONG_CAST", ("swarm", "pattern"), message, "add it, or choose another pattern")
            continue
        except BadExpression:
            continue  # other checks report the error in these steps
        loops = [step for step in there if step.max_iterations is not None and step.verification is None]
        endless = {step.name for step in loops if step.until is None}
        for placed in subject.of(workflow):
            if placed.step.name in endless:
                where = (*placed.where, "maxIterations")
                fix = "add `until: CONDITION` or a `verification`, or use `retries`"
                yield CheckProblem("MISSING_MEMBER", where, "Nothing says when the loop is done", fix, at_key=True)


def _expanded(subject: Subject, workflow: Workflow) -> list[Step]:
    """Return the steps after expansion of the pattern. With an unknown pattern they are unchanged."""
    document = subject.document
    steps = [with_type(placed.step, subject.agent_of(placed.step)) for placed in subject.of(workflow)]
    cast = Cast(steps, document.agents, document.coordination)
    pattern = document.swarm.pattern or choose_pattern(cast)
    return PATTERNS[pattern].expand(cast) if pattern in PATTERNS else steps


def _where(subject: Subject, steps: Mapping[str, PlacedStep], name: str) -> Where:
    if name in steps:
        return (*steps[name].where, "dependsOn")
    names = [barrier.name for barrier in subject.document.coordination.barriers]
    return ("coordination", "barriers", names.index(name), "waitFor")


def _circle(waits: Edges) -> list[str] | None:
    """Return the names of a cycle in order, or None. Without recursion, because a chain may be long."""
    done: set[str] = set()
    for start in waits:
        path, ahead = [start], [iter(waits[start])]
        on_path = {start}
        while ahead and start not in done:
            name = next(ahead[-1], None)
            if name is None:
                ahead.pop()
                ended = path.pop()
                on_path.discard(ended)
                done.add(ended)
            elif name in on_path:
                return path[path.index(name) :]
            elif name in waits and name not in done:
                path.append(name)
                on_path.add(name)
                ahead.append(iter(waits[name]))
    return None


ORDER_CHECKS = (check_dependencies_exist, check_cycles, check_false_conditions, check_fan_in, check_pattern_fit)


OF_A_STEP = ("output", "status", "json", "exit_code", "exitCode")

_TEXTS = ("task", "command", "argv", "cwd", "branch", "baseBranch", "path", "url", "input", "over", "event")

FIXED_ORDER = ("dag", "pipeline")
"""Patterns that add no steps and no order."""


class TemplatedText(NamedTuple):
    """A text with templates, or a condition; `is_own` if it is evaluated after the end of its step."""

    where: Where
    text: str
    is_condition: bool = False
    is_own: bool = False

    @property
    def is_set(self) -> bool:
        """Whether it is a value that a step sets."""
        return "set" in self.where


class _Around(NamedTuple):
    """The context of a text: dependencies, names and step."""

    waits: Edges
    names: frozenset[str]
    placed: PlacedStep | None

    @property
    def items(self) -> frozenset[str]:
        """The names of the items of the enclosing maps."""
        return frozenset() if self.placed is None else self.placed.items


def check_references(subject: Subject) -> Iterator[CheckProblem]:
    """Check that templates read values that exist by then."""
    for number, workflow in enumerate(subject.document.workflows):
        waits = dependencies(subject, workflow)
        names = frozenset(placed.step.name for placed in subject.of(workflow))
        for placed in subject.steps:
            if placed.workflow is workflow and placed.step.use is None:
                for said in _texts(subject, placed):
                    yield from _judged(subject, said, _Around(waits, names, placed))
        if workflow.output is not None:
            said = TemplatedText(("workflows", number, "output"), workflow.output, is_own=True)
            yield from _judged(subject, said, _Around(waits, names, None))


def check_command_values(subject: Subject) -> Iterator[CheckProblem]:
    """Check that no value can become part of a command."""
    for placed in subject.steps:
        for path, error in unsafe_commands(placed.step) if placed.step.use is None else ():
            yield CheckProblem("INJECTION_RISK", (*placed.where, *path), str(error), error.fix)


def check_plain_texts(subject: Subject) -> Iterator[CheckProblem]:
    """Check that templates are used only where they are evaluated."""
    for where, value in _plain(subject):
        for text in texts_in(value):
            if (begin := text.find("{{")) >= 0 and "}}" in text[begin + 3 :]:
                message = f"{{{{..}}}} is not read in `{where[-1]}`"
                yield CheckProblem("TEMPLATE_NOT_READ", where, message, "say it in the `task` or the `env` of a step")


def check_env_variables(subject: Subject) -> Iterator[CheckProblem]:
    """Check that references in `env` are filled in."""
    said: list[tuple[Where, Document | Step | AgentDef]] = [((), subject.document)]
    said += [(placed.where, placed.step) for placed in subject.steps]
    said += [(("agents", at), agent) for at, agent in enumerate(subject.document.agents)]
    for where, one in said:
        for name, message, fix in unfilled(one):
            yield CheckProblem("NOT_FILLED", (*where, "env", name), message, fix)


def _plain(subject: Subject) -> Iterator[tuple[Where, object]]:
    """Yield the texts in which templates are not evaluated."""
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


def _texts(subject: Subject, placed: PlacedStep) -> Iterator[TemplatedText]:
    """Yield all texts of a step that may have templates."""
    step, where = placed.step, placed.where
    if step.if_ is not None:
        yield TemplatedText((*where, "if"), step.if_, is_condition=True)
    is_loop = not subject.row_of(step).is_waiting
    for name in (*_TEXTS, "until"):
        value = getattr(step, {"baseBranch": "base_branch"}.get(name, name))
        is_condition = name == "until" and is_loop
        # a loop may read its own last round
        is_own = is_loop and step.max_iterations is not None
        for text in texts_in(value):
            yield TemplatedText((*where, name), text, is_condition, is_own)
    agent = subject.agent_of(step)
    if step.task is None and agent is not None and agent.task is not None:
        yield TemplatedText(("agents", subject.document.agents.index(agent), "task"), agent.task)
    for name, table in (("headers", step.headers), ("env", step.env), ("vars", step.vars), ("with", step.with_)):
        for key, value in table.items():
            for text in texts_in(value):
                yield TemplatedText((*where, name, key), text)
    for key, text in step.set.items():
        yield TemplatedText((*where, "set", key), text, is_own=True)
    if step.verification is not None:
        yield TemplatedText((*where, "verification", "value"), step.verification.value, is_own=True)
        for text in step.verification.argv or ():
            yield TemplatedText((*where, "verification", "argv"), text, is_own=True)


def _judged(subject: Subject, said: TemplatedText, around: _Around) -> Iterator[CheckProblem]:
    try:
        found = condition_references(said.text) if said.is_condition else references(said.text)
    except BadExpression as error:
        yield CheckProblem(
            "BAD_TEMPLATE", said.where, str(error), "see docs/workflows/values.md for what can be written"
        )
        return
    for one in found:
        for problem in _about(subject, said, around, one):
            yield problem._replace(start=one.start)


def _about(subject: Subject, said: TemplatedText, around: _Around, one: Reference) -> Iterator[CheckProblem]:
    is_late = one.path[0] in LATER or one.path[0] in around.items
    if is_late and ("headers" in said.where or said.where[-1] in ("url", "event")):
        fix = "write ${NAME} for a variable of the environment" if one.path[0] == "env" else "use `vars` or `inputs`"
        yield CheckProblem("NOT_FIXED", said.where, f"{one.source} is known only during a run", fix)
    elif one.step is not None:
        yield from _about_step(subject, said, around, one)
    elif not one.is_optional and (problem := _about_value(subject, said, around, one)) is not None:
        yield problem


def _about_step(subject: Subject, said: TemplatedText, around: _Around, one: Reference) -> Iterator[CheckProblem]:
    name, step = one.path[1], None if around.placed is None else around.placed.top
    is_itself = said.is_set and around.placed is not None and name == around.placed.step.name
    if name not in around.names and not is_itself:
        fix = unknown_name_fix(name, around.names, "name a step of the same workflow")
        yield CheckProblem("UNKNOWN_REFERENCE", said.where, f"{one.source}: there is no step {name}", fix)
        return
    if len(one.path) > 2 and one.path[2] not in OF_A_STEP:
        message = f"{one.source}: a step has no `{one.path[2]}`"
        yield CheckProblem("UNKNOWN_REFERENCE", said.where, message, f"write one of {', '.join(OF_A_STEP[:4])}")
    if step is None or is_itself or (said.is_own and name == step.name):
        return
    pattern = subject.document.swarm.pattern
    is_stated = step.depends_on is not None or pattern in FIXED_ORDER
    if is_stated and name not in around.waits[step.name] and name not in upstream(around.waits, step.name):
        message = f"{one.source}: {name} need not have ended when {step.name} begins"
        fix = f"add {name} to `dependsOn`" if name != step.name else "a step cannot speak of its own output"
        yield CheckProblem("NOT_UPSTREAM", said.where, message, fix)


def _about_value(subject: Subject, said: TemplatedText, around: _Around, one: Reference) -> CheckProblem | None:
    document, (root, *rest) = subject.document, one.path
    if root in ("item", "index") or root in around.items:
        if around.items:
            return None
        message = f"{one.source}: only the step of a map has `{root}`"
        return CheckProblem("UNKNOWN_REFERENCE", said.where, message, "use `type: map`, or another value")
    if root == "inputs" and rest and rest[0] not in document.inputs:
        fix = unknown_name_fix(rest[0], document.inputs, f"add {rest[0]} to `inputs`")
        return CheckProblem("UNKNOWN_REFERENCE", said.where, f"{one.source}: there is no input {rest[0]}", fix)
    if root == "run" and rest:
        steps = [step for workflow in document.workflows for step in workflow.steps]
        lacks = run_lacks(rest, events_of(steps))
        return (
            None
            if lacks is None
            else CheckProblem("UNKNOWN_REFERENCE", said.where, f"{one.source} has no value", lacks)
        )
    if root == "env" and rest and rest[0] not in subject.env:
        fix = f"set {rest[0]} in the environment, which no workflow sees if settings refer to it"
        return CheckProblem("MISSING_ENV", said.where, f"The variable {rest[0]} is not set", fix)
    variable = rest[0] if root == "vars" and rest else root if root not in ROOTS else None
    if variable == THIS_STEP and rest and variable not in document.vars:
        return CheckProblem("UNKNOWN_REFERENCE", said.where, f"{one.source}: no value is called `step`", NO_THIS_STEP)
    if variable is not None and variable not in document.vars:
        fix = unknown_name_fix(
            variable, document.vars, f"add {variable} to `vars`, or run it with --var {variable}=..."
        )
        return CheckProblem(
            "UNDECLARED_VARIABLE", said.where, f"{one.source}: nothing in the file says what {variable} is", fix
        )
    return None


REFERENCE_CHECKS = (check_references, check_command_values, check_plain_texts, check_env_variables)
