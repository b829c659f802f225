"""Order: what steps wait for, and whether all of them have a turn."""

from collections.abc import Iterator, Mapping

from accord.workflows.checks.names import meant
from accord.workflows.checks.subject import Placed, Problem, Subject, Where
from accord.workflows.defaults import typed
from accord.workflows.document import Step, Workflow
from accord.workflows.expressions import BadExpression
from accord.workflows.patterns import PATTERNS
from accord.workflows.patterns.cast import Cast, Misfit
from accord.workflows.patterns.choosing import chosen

MANY = 5
"""As many outputs seldom fit into one task."""

Edges = Mapping[str, tuple[str, ...]]


def edges(subject: Subject, workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """Return what each step and barrier waits for, as far as the file says it; in a pipeline, for the one before."""
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
    """Return everything that has ended when a step begins."""
    reached: set[str] = set()
    ahead = list(waits.get(name, ()))
    while ahead:
        one = ahead.pop()
        if one not in reached:
            reached.add(one)
            ahead += waits.get(one, ())
    return reached


def known(subject: Subject) -> Iterator[Problem]:
    """Steps and barriers wait for what is there."""
    every = {placed.step.name for placed in subject.steps if placed.outer is None}
    for workflow in subject.document.workflows:
        there = edges(subject, workflow)
        for step, where, *_ in subject.of(workflow):
            for at, name in enumerate(step.depends_on or ()):
                if name not in there:
                    what = "is in another workflow" if name in every else "is not there"
                    fix = meant(name, there, "name a step or a barrier of the same workflow")
                    message = f"{step.name} depends on {name}, which {what}"
                    yield Problem("UNKNOWN_DEPENDENCY", (*where, "dependsOn", at), message, fix)
    for number, barrier in enumerate(subject.document.coordination.barriers):
        for at, name in enumerate(barrier.wait_for):
            if name not in every:
                where = ("coordination", "barriers", number, "waitFor", at)
                fix = meant(name, every, "name a step")
                yield Problem("UNKNOWN_DEPENDENCY", where, f"The barrier {barrier.name} waits for {name}", fix)


def circles(subject: Subject) -> Iterator[Problem]:
    """Nobody waits for itself, however indirectly; and what waits for those who do is never done."""
    for workflow in subject.document.workflows:
        waits = edges(subject, workflow)
        circle = _circle(waits)
        if circle is None:
            continue
        steps = {placed.step.name: placed for placed in subject.of(workflow)}
        where = _where(subject, steps, circle[0])
        shown = " -> ".join((*circle, circle[0]))
        yield Problem("CYCLE", where, f"They wait for each other: {shown}", "remove one of these from `dependsOn`")
        for placed in steps.values():
            if placed.step.name not in circle and upstream(waits, placed.step.name) & set(circle):
                message = f"{placed.step.name} waits for steps that wait for each other"
                yield Problem("UNREACHABLE", (*placed.where, "dependsOn"), message, "mend the circle")


def never(subject: Subject) -> Iterator[Problem]:
    """No condition is always false."""
    for step, where, *_ in subject.steps:
        if (step.if_ or "").strip().strip("{}").strip() in ("false", "not true", "0"):
            message = f"{step.name} is never done: its condition is always false"
            yield Problem("UNREACHABLE", (*where, "if"), message, "remove `if`, or the step")


def crowds(subject: Subject) -> Iterator[Problem]:
    """Few steps wait for many."""
    for step, where, *_ in subject.steps:
        if len(step.depends_on or ()) >= MANY and subject.kind_of(step) in ("agent", "a2a"):
            message = f"{step.name} waits for {len(step.depends_on or ())} steps"
            fix = "have some of them summed up before, or `truncate(500)` what they say"
            yield Problem("FAN_IN", (*where, "dependsOn"), message, fix)


def fitting(subject: Subject) -> Iterator[Problem]:
    """The agents and steps are those that the pattern needs, and loops that are not the pattern's say when they end."""
    for workflow in subject.document.workflows:
        try:
            there = _expanded(subject, workflow)
        except Misfit as error:
            message = f"The pattern {subject.document.swarm.pattern} does not fit: {error}"
            yield Problem("WRONG_CAST", ("swarm", "pattern"), message, "add it, or choose another pattern")
            continue
        except BadExpression:
            continue  # others say what is wrong with these steps
        loops = [step for step in there if step.max_iterations is not None and step.verification is None]
        endless = {step.name for step in loops if step.until is None}
        for placed in subject.of(workflow):
            if placed.step.name in endless:
                where = (*placed.where, "maxIterations")
                fix = "add `until: CONDITION` or a `verification`, or use `retries`"
                yield Problem("MISSING_MEMBER", where, "Nothing says when the loop is done", fix, at_key=True)


def _expanded(subject: Subject, workflow: Workflow) -> list[Step]:
    """Return the steps that the pattern makes of a workflow's; those themselves if there is no such pattern."""
    document = subject.document
    steps = [typed(placed.step, subject.agent_of(placed.step)) for placed in subject.of(workflow)]
    cast = Cast(steps, document.agents, document.coordination)
    pattern = document.swarm.pattern or chosen(cast)
    return PATTERNS[pattern].expand(cast) if pattern in PATTERNS else steps


def _where(subject: Subject, steps: Mapping[str, Placed], name: str) -> Where:
    if name in steps:
        return (*steps[name].where, "dependsOn")
    names = [barrier.name for barrier in subject.document.coordination.barriers]
    return ("coordination", "barriers", names.index(name), "waitFor")


def _circle(waits: Edges) -> list[str] | None:
    """Return some that wait for each other, in that order; without recursion, for a chain may be long."""
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


ORDER_CHECKS = (known, circles, never, crowds, fitting)
