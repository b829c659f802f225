"""Check dependencies of steps, and references in templates and conditions."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from accord.workflows.agent_definition import AgentDef
from accord.workflows.document import Document, Step, Workflow
from accord.workflows.expressions import BadExpression, texts_in
from accord.workflows.findings import CheckProblem, Where
from accord.workflows.pattern_roles import Cast, Misfit
from accord.workflows.patterns import PATTERNS, choose_pattern
from accord.workflows.plan import unfilled, unsafe_commands
from accord.workflows.planner import with_type
from accord.workflows.references import (
    Scope,
    TemplatedText,
    events_of,
    find_cycle,
    reachable,
    step_texts,
    unknown_name_fix,
)
from accord.workflows.validation.subject import PlacedStep, Subject

MANY = 5
"""Number of dependencies whose outputs seldom fit into one task."""


def dependencies(subject: Subject, workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """Return the dependencies of each step and barrier in the file; in a pipeline, the previous step."""
    names = [placed.step.name for placed in subject.of(workflow)]
    is_line = subject.document.swarm.pattern == "pipeline"
    edges: dict[str, tuple[str, ...]] = {}
    for at, placed in enumerate(subject.of(workflow)):
        before = tuple(names[at - 1 : at]) if is_line and at else ()
        depends_on = placed.step.depends_on
        edges[placed.step.name] = before if depends_on is None else depends_on
    for barrier in subject.document.coordination.barriers:
        edges.setdefault(barrier.name, tuple(name for name in barrier.wait_for if name in names))
    return edges


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
        circle = find_cycle(waits)
        if not circle:
            continue
        steps = {placed.step.name: placed for placed in subject.of(workflow)}
        where = _where(subject, steps, circle[0])
        chain = " -> ".join((*circle, circle[0]))
        yield CheckProblem("CYCLE", where, f"They wait for each other: {chain}", "remove one of these from `dependsOn`")
        for placed in steps.values():
            if placed.step.name not in circle and reachable(waits, placed.step.name) & set(circle):
                message = f"{placed.step.name} waits for steps that wait for each other"
                yield CheckProblem("UNREACHABLE", (*placed.where, "dependsOn"), message, "resolve the cycle")


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


ORDER_CHECKS = (check_dependencies_exist, check_cycles, check_false_conditions, check_fan_in, check_pattern_fit)


FIXED_ORDER = ("dag", "pipeline")
"""Patterns that add no steps and no order."""


def check_references(subject: Subject) -> Iterator[CheckProblem]:
    """Check that templates read values that exist by then."""
    document = subject.document
    known = {
        "inputs": document.inputs,
        "vars": document.vars,
        "env": subject.env,
        "run": events_of(step for workflow in document.workflows for step in workflow.steps),
        "state": {name for placed in subject.steps for name in placed.step.set},
    }
    for number, workflow in enumerate(document.workflows):
        names = frozenset(placed.step.name for placed in subject.of(workflow))
        edges = dependencies(subject, workflow)
        scope = Scope(known=known, edges=edges, names=names, undeclared="UNDECLARED_VARIABLE")
        for placed in subject.steps:
            if placed.workflow is workflow and placed.step.use is None:
                is_ordered = placed.top.depends_on is not None or document.swarm.pattern in FIXED_ORDER
                own = {"step": placed.top.name, "own": placed.step.name, "items": placed.items}
                yield from _step_problems(subject, placed, replace(scope, is_ordered=is_ordered, **own))
        if workflow.output is not None:
            text = TemplatedText(("output",), workflow.output, is_own=True)
            yield from _problems(("workflows", number, "output"), text, scope)


def _step_problems(subject: Subject, placed: PlacedStep, scope: Scope) -> Iterator[CheckProblem]:
    step, agent = placed.step, subject.agent_of(placed.step)
    for text in step_texts(step, is_loop=not subject.row_of(step).is_waiting):
        yield from _problems((*placed.where, *text.path), text, scope)
    if step.task is None and agent is not None and agent.task is not None:
        where = ("agents", subject.document.agents.index(agent), "task")
        yield from _problems(where, TemplatedText(("task",), agent.task), scope)


def _problems(where: Where, text: TemplatedText, scope: Scope) -> Iterator[CheckProblem]:
    try:
        mentioned = text.references()
    except BadExpression as error:
        yield CheckProblem("BAD_TEMPLATE", where, str(error), "see docs/workflows/values.md for what can be written")
        return
    for reference in mentioned:
        if (problem := scope.problem(text, reference)) is not None:
            code, message, fix = problem
            yield CheckProblem(code, where, message, fix, start=reference.start)


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
    holders: list[tuple[Where, Document | Step | AgentDef]] = [((), subject.document)]
    holders += [(placed.where, placed.step) for placed in subject.steps]
    holders += [(("agents", at), agent) for at, agent in enumerate(subject.document.agents)]
    for where, one in holders:
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


REFERENCE_CHECKS = (check_references, check_command_values, check_plain_texts, check_env_variables)
