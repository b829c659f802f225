"""Which pattern is meant by a document that names none: agents' roles say it, in a fixed order.

The order is agent-relay's, so that its files mean here what they mean there; a document that names a pattern never
comes here.
"""

from accord.workflows.patterns.cast import TIER, Cast

BY_ROLES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("mapper", "reducer"), "map-reduce"),
    (("attacker", "defender"), "red-team"),
    (("critic",), "reflection"),
    (("tier-",), "escalation"),
    (("auctioneer",), "auction"),
    (("saga-orchestrator",), "saga"),
    (("compensate-handler",), "saga"),
    (("primary",), "circuit-breaker"),
    (("fallback",), "circuit-breaker"),
    (("backup",), "circuit-breaker"),
    (("blackboard",), "blackboard"),
    (("hive-mind",), "swarm"),
    (("verifier",), "verifier"),
    (("supervisor",), "supervisor"),
)
"""Roles that must all be there, and the pattern that they mean."""


def chosen(cast: Cast) -> str:
    """Return the pattern that a document without one means."""
    if any(step.depends_on is not None for step in cast.steps):
        return "dag"
    if cast.coordination.consensus_strategy is not None:
        return "consensus"
    for roles, pattern in BY_ROLES:
        if all(_has(cast, role) for role in roles):
            return pattern
    reviewers = [agent for agent in cast.agents.values() if (agent.role or agent.name).lower().startswith("reviewer")]
    if _has(cast, "implementer") and len(reviewers) >= 2:
        return "review-loop"
    if _has(cast, "lead") and len(cast.agents) > 3:
        return "hierarchical"
    if _has(cast, "hub") or _has(cast, "coordinator"):
        return "hub-spoke"
    workers = [step.agent for step in cast.steps]
    return "pipeline" if len(cast.steps) > 2 and len(set(workers)) == len(workers) else "fan-out"


def _has(cast: Cast, role: str) -> bool:
    if role == "tier-":
        return any(TIER.match(agent.role or agent.name) for agent in cast.agents.values())
    return cast.agent_of(role) is not None
