"""Dry run: steps of a plan in waves, with agents and warnings.

A wave contains steps that could be running at the same time. A real run has no waves: steps start when they can.
"""

from collections import Counter

from msgspec import Struct

from accord.workflows.attempts import behavior_of, first_line
from accord.workflows.document import Step
from accord.workflows.plan import Plan
from accord.workflows.references import in_order

MANY = 5
"""Number of dependencies from which their outputs may be too much for one task."""


class DryRunStep(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One step of the report. `does` is its description, or the first line of its task or command."""

    name: str
    type: str
    does: str
    depends_on: tuple[str, ...] = ()
    agent: str | None = None
    condition: str | None = None


class DryRun(Struct, frozen=True, kw_only=True, rename="camel"):
    """The report of a dry run.

    `peak` is the maximum number of concurrent steps, `agents` the number of steps of each agent.
    """

    name: str
    workflow: str
    pattern: str
    waves: tuple[tuple[DryRunStep, ...], ...]
    total: int
    peak: int
    agents: dict[str, int]
    permissions: dict[str, str]
    warnings: tuple[str, ...] = ()


def dry_run_report(plan: Plan) -> DryRun:
    """Return the report of a plan."""
    waves = _waves(plan)
    widest = max(map(len, waves), default=0)
    return DryRun(
        name=plan.name,
        workflow=plan.workflow,
        pattern=plan.pattern,
        waves=tuple(tuple(map(_line, wave)) for wave in waves),
        total=len(plan.steps),
        peak=min(widest, plan.max_concurrency or widest),
        agents=_counts(plan),
        permissions={agent.name: _access(agent.permissions) for agent in plan.agents if agent.permissions is not None},
        warnings=tuple(_warnings(plan, widest)),
    )


def _waves(plan: Plan) -> list[list[Step]]:
    """Return the steps by the length of the longest chain of dependencies. Barriers do not count."""
    by_name = {step.name: step for step in plan.steps}
    barriers = {barrier.name: barrier.wait_for for barrier in plan.barriers}
    before = {**{name: step.depends_on or () for name, step in by_name.items()}, **barriers}
    depths: dict[str, int] = {}
    for name in in_order(before):
        depths[name] = max((depths[other] + (other in by_name) for other in before[name]), default=0)
    waves: list[list[Step]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for step in plan.steps:
        waves[depths[step.name]].append(step)
    return [wave for wave in waves if wave]


def _line(step: Step) -> DryRunStep:
    inner = step.innermost
    return DryRunStep(
        name=step.name,
        type=f"{_maps(step)}{inner.kind}",
        does=_does(step),
        depends_on=step.depends_on or (),
        agent=inner.agent or inner.url,
        condition=step.if_,
    )


def _maps(step: Step) -> str:
    return "" if step.step is None else f"map of {_maps(step.step)}"


def _does(step: Step) -> str:
    """Return a one-line description of a step. It always includes a question, a time or a list."""
    described, what = first_line(step.description), behavior_of(step.kind).describe(step)
    if described and step.row.is_waiting:
        return f"{described}: {what}"
    return what if step.row.executor == "items" else described or what


def _counts(plan: Plan) -> dict[str, int]:
    counts = Counter(step.innermost.agent for step in plan.steps)
    return {agent.name: counts[agent.name] for agent in plan.agents}


def _access(permissions: object) -> str:
    access, profile = getattr(permissions, "access", None), getattr(permissions, "profile", None)
    return access or (f"profile {profile}" if profile else "files")


def _warnings(plan: Plan, widest: int) -> list[str]:
    warnings = [
        f"{step.name} waits for {len(step.depends_on or ())} others, whose outputs may be too much for one task"
        for step in plan.steps
        if step.row.has_prompt and len(step.depends_on or ()) >= MANY
    ]
    if plan.max_concurrency is not None and widest > plan.max_concurrency:
        warnings.append(f"{widest} steps could run at once, and maxConcurrency lets {plan.max_concurrency}")
    return warnings + [f"{name} has no step" for name, count in _counts(plan).items() if not count]
