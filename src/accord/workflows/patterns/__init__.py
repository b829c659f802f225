"""Patterns: how the steps of a workflow come after each other when their author only says how agents work together.

Each is a row of `PATTERNS` and an expansion into plain steps, which is all that a run follows and what a dry run
prints; nothing that a pattern does is hidden anywhere else. `planning` calls it; docs/workflows/patterns.md has a
section for each.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from accord.workflows.document import Step
from accord.workflows.patterns import choices, orders, rounds
from accord.workflows.patterns.cast import Cast


class Pattern(NamedTuple):
    """What a pattern is called and when it is right; `expand` raises Misfit."""

    name: str
    when: str
    expand: Callable[[Cast], list[Step]]


_ROWS = (
    Pattern("dag", "steps say themselves for whom they wait", orders.dag),
    Pattern("pipeline", "each step works on what the one before it made", orders.pipeline),
    Pattern("fan-out", "steps have nothing to do with each other", orders.fan_out),
    Pattern("scatter-gather", "several look at the same thing, one puts their answers together", orders.scatter_gather),
    Pattern("map-reduce", "parts are worked on separately and then made one", orders.map_reduce),
    Pattern("hub-spoke", "one gives out the work and collects the results", orders.hub_spoke),
    Pattern("hierarchical", "work goes down through levels, and results come back to the lead", orders.hierarchical),
    Pattern("handoff", "each does its part and hands over, until one says that it is done", orders.handoff),
    Pattern("saga", "steps change things elsewhere, and must be undone when a later one fails", orders.saga),
    Pattern("review-loop", "work must be approved by all reviewers before anything builds on it", rounds.review_loop),
    Pattern("reflection", "a first draft gets better by critique", rounds.reflection),
    Pattern("red-team", "something must withstand those who try to break it", rounds.red_team),
    Pattern("supervisor", "one checks what each of several workers does", rounds.supervisor),
    Pattern("debate", "a question has sides, and is decided after all were heard", rounds.debate),
    Pattern("mesh", "all should know what all others think, and nobody decides", rounds.mesh),
    Pattern("blackboard", "knowledge grows as one after the other adds to it", rounds.blackboard),
    Pattern("consensus", "something is only done if enough agents agree", choices.consensus),
    Pattern("verifier", "results must be verified before the run goes on", choices.verifier),
    Pattern("competitive", "several solve the same, and the best solution is wanted", choices.competitive),
    Pattern("swarm", "many small contributions become one answer", choices.swarm),
    Pattern("auction", "whoever is best suited should do it", choices.auction),
    Pattern("cascade", "cheap attempts come first, better ones only if they do not succeed", choices.cascade),
    Pattern("escalation", "hard cases go up to the next tier", choices.escalation),
    Pattern("circuit-breaker", "an agent may be down, and others stand in for it", choices.circuit_breaker),
)

PATTERNS: Mapping[str, Pattern] = MappingProxyType({row.name: row for row in _ROWS})
"""Every pattern that agent-relay has a name for."""
