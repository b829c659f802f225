"""A document becomes a plan: everything that can be settled or refused before a run begins is settled or refused here.

It does no work and asks nobody; what a document says that has nothing to do with this run is judged by `checks`. Below
are `custom`, `givens`, `patterns`, `defaults` and `resolving`, one for each thing that is settled; runs begin with it.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from accord.workflows.custom import bad_document, beside, expanded
from accord.workflows.defaults import merged, typed
from accord.workflows.document import Barrier, Document, Step, Workflow
from accord.workflows.expressions import BadExpression
from accord.workflows.findings import BadDocument
from accord.workflows.functions import nearest
from accord.workflows.givens import inputs_of, outlined, vars_of
from accord.workflows.patterns import PATTERNS
from accord.workflows.patterns.cast import Cast, Misfit, turn
from accord.workflows.patterns.choosing import chosen
from accord.workflows.patterns.loops import looped
from accord.workflows.plan import Plan
from accord.workflows.resolving import check_references, resolve_references

MAIN = "main"
"""What the workflow of a document is called that has none but agents."""

REPAIRS = 2
"""How often a repair agent is asked, unless the document says: as agent-relay does."""


def plan(
    document: Document,
    workflow: str | None = None,
    vars: Mapping[str, Any] | None = None,
    input: str | None = None,
    *,
    base: Path,
    env: Mapping[str, str] | None = None,
    is_outline: bool = False,
) -> Plan:
    """Return what a run of a workflow follows, the first of a document unless one is named; raises BadDocument.

    `vars` are variables and inputs by their names; `base` is where relative paths begin; `env` is what `${NAME}` and
    `{{env.NAME}}` must be found in. An outline is planned without the inputs and variables that only a run is given.
    """
    env = os.environ if env is None else env
    text = input or ""
    one = _workflow(document, workflow)
    given, pending = outlined(document, vars or {}) if is_outline else (vars or {}, None)
    inputs, problems = inputs_of(document, given, text)
    if problems:
        raise BadDocument(problems)
    variables, problems = vars_of(document, given, text, inputs, pending=pending or ())
    if problems:
        raise BadDocument(problems)
    pattern, steps = _arranged(document, one, base)
    steps = _unrolled([merged(step, document, one, base, env) for step in steps])
    handling = document.error_handling
    made = Plan(
        name=document.name,
        workflow=one.name,
        directory=str(base),
        pattern=pattern,
        steps=tuple(steps),
        barriers=_barriers(document, steps),
        agents=document.permitted,
        env=document.env,
        permission_profiles=document.profiles,
        max_concurrency=document.swarm.max_concurrency,
        timeout=document.swarm.timeout,
        token_budget=document.swarm.token_budget,
        cost_budget=document.swarm.cost_budget,
        strategy="fail-fast" if handling is None else handling.strategy,
        notify_channel=None if handling is None else handling.notify_channel,
        repair_agent=None if handling is None else handling.repair_agent,
        repair_retries=_repairs(document),
        channel=document.swarm.channel,
        idle_nudge=document.swarm.idle_nudge,
        completion_grace_period=document.swarm.completion_grace_period,
        preflight=one.preflight,
        output=one.output,
        input=text,
        inputs=inputs,
        vars=variables,
        state=document.state,
        trajectories=document.trajectories,
    )
    if wrong := check_references(made, document, env, pending):
        raise BadDocument(wrong)
    return resolve_references(made)


def _workflow(document: Document, name: str | None) -> Workflow:
    one = document.workflow(name)
    if one is not None:
        return one
    names = [workflow.name for workflow in document.workflows]
    if names:
        raise bad_document(
            "UNKNOWN_WORKFLOW", f"there is no workflow {name!r}", nearest(name or "", names).lstrip("; ")
        )
    if name not in (None, MAIN) or not document.agents:
        raise bad_document(
            "UNKNOWN_WORKFLOW", "the document has no workflow", "write one below `workflows`, or agents with tasks"
        )
    steps = tuple(turn(agent, agent.name, agent.task or "{{input}}") for agent in document.agents)
    return Workflow(name=MAIN, steps=steps)


def _arranged(document: Document, one: Workflow, base: Path) -> tuple[str, list[Step]]:
    """Return the steps of a workflow with the order of its pattern, and what the pattern adds."""
    own = {**beside(base), **document.steps}
    steps = [expanded(step, own) for step in one.steps]
    steps = [typed(step, document.agent(step.agent or "")) for step in steps]
    cast = Cast(steps, document.agents, document.coordination)
    pattern = document.swarm.pattern or chosen(cast)
    if pattern not in PATTERNS:
        fix = f"there is none of that name{nearest(pattern, PATTERNS)}"
        raise bad_document("UNKNOWN_PATTERN", f"the pattern is {pattern!r}", fix)
    try:
        return pattern, PATTERNS[pattern].expand(cast)
    except Misfit as error:
        raise bad_document(
            "WRONG_CAST", f"the pattern {pattern} does not fit: {error}", "add it, or choose another"
        ) from None
    except BadExpression as error:
        raise bad_document("BAD_TEMPLATE", str(error), "mend it") from None


def _unrolled(steps: list[Step]) -> list[Step]:
    """Return steps without loops: each has become its rounds."""
    found_: list[Step] = []
    for step in steps:
        if step.max_iterations is None:
            found_.append(step)
            continue
        if step.until is None and step.verification is not None:  # as agent-relay means it: until it is verified
            found_.append(replace(step, max_iterations=None, retries=max(step.retries or 0, step.max_iterations - 1)))
            continue
        if step.until is None:
            fix = f"add `verification`, or `until: vote({step.name}) == 'APPROVE'` or another condition on its output"
            raise bad_document(
                "MISSING_MEMBER", f"step {step.name!r} has maxIterations and does not say until when", fix
            )
        try:
            found_ += looped([step], step.until, step.max_iterations, (step.name,))
        except BadExpression as error:
            raise bad_document("BAD_TEMPLATE", f"step {step.name!r}: {error}", "mend it") from None
    return found_


def _barriers(document: Document, steps: list[Step]) -> tuple[Barrier, ...]:
    """Return the barriers of a workflow: coordination is the document's, and some may belong to another workflow."""
    names = {step.name for step in steps}
    return tuple(one for one in document.coordination.barriers if names & set(one.wait_for))


def _repairs(document: Document) -> int:
    handling = document.error_handling
    if handling is None or handling.repair_agent is None:
        return 0
    return REPAIRS if handling.repair_retries is None else handling.repair_retries
