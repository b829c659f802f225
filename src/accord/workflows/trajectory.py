"""How a run went, as its document wants it written down: which decisions were taken, and why.

A document says with `trajectories` what of it is kept; it becomes an artifact of the run. Pure: a plan and a state in,
data out.
"""

from typing import Any

from accord.workflows.plan import Plan
from accord.workflows.state import Node, State

FAN_IN = 2
"""Steps that another comes after, for their meeting to be worth a note."""


def told(plan: Plan, state: State) -> dict[str, Any] | None:
    """Return what is kept of a run, if its document wants that."""
    wanted = plan.trajectories
    if wanted is None or not wanted.enabled:
        return None
    chapters: list[dict[str, Any]] = []
    for node in state.nodes.values():
        if node.ended is None:
            continue
        if node.barrier is not None:
            if wanted.reflect_on_barriers:
                chapters.append(_chapter(node, "barrier", waited_for=_ends(state, node)))
            continue
        chapters.append(_chapter(node, "step"))
        if wanted.reflect_on_converge and len(node.after) >= FAN_IN:
            chapters.append(_chapter(node, "converge", met=_ends(state, node)))
        if wanted.auto_decisions and _is_decision(node):
            chapters.append(_chapter(node, "decision", because=node.ended.error or node.ended.reason))
    chapters.sort(key=lambda one: one["at"])
    return {"workflow": plan.workflow, "pattern": plan.pattern, "chapters": chapters}


def _chapter(node: Node, kind: str, **more: Any) -> dict[str, Any]:
    end = node.ended
    assert end is not None
    return {"kind": kind, "name": node.name, "at": end.at, "status": end.status, "attempts": end.attempt, **more}


def _ends(state: State, node: Node) -> dict[str, str]:
    return {name: end.status for name in node.after if (end := state.nodes[name].ended) is not None}


def _is_decision(node: Node) -> bool:
    """Whether something was decided about a step besides doing it: to leave it out, or to try again."""
    end = node.ended
    return end is not None and (end.status == "skipped" or end.attempt > 1)
