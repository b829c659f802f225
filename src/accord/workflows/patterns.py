"""Patterns: expand the steps of a workflow by how its agents cooperate.

Each pattern is a row of `PATTERNS` with an expansion into plain steps, which a dry run prints. In a document without a
pattern, the roles of its agents choose one. docs/workflows/patterns.md has a section for each.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from accord.workflows import pattern_rounds
from accord.workflows.document import Step
from accord.workflows.functions import APPROVE
from accord.workflows.pattern_roles import (
    TIER,
    Cast,
    Misfit,
    after,
    chained,
    gathered,
    hears,
    like,
    listed,
    names_of,
    needed,
    only_if,
    result,
    staged,
    told,
    turn,
    votes,
)
from accord.workflows.pattern_rounds import agreed

LEADS = ("lead", "hub", "coordinator")
GATHERERS = ("gatherer", "aggregator", "collector")
MANAGERS = ("manager",)
UNDO = ("undo", "compensate")
HANDLERS = ("compensate-handler", "saga-orchestrator")

SUMMARY = "Put together what the others have done into one answer, and say what is still open."


def dag(cast: Cast) -> list[Step]:
    """Each step starts when its `dependsOn` have ended. Without dependencies it starts at once."""
    return [after(step, ()) for step in cast.steps]


def pipeline(cast: Cast) -> list[Step]:
    """Each step waits for the one above it."""
    return chained(cast.steps)


def fan_out(cast: Cast) -> list[Step]:
    """All steps start at once, except those with dependencies."""
    return dag(cast)


def scatter_gather(cast: Cast) -> list[Step]:
    """All steps start at once. The last one, or the gatherer, gets all outputs."""
    last = cast.of(*GATHERERS) or cast.steps[-1:]
    parts = cast.above(last)
    needed(parts, "it needs two steps at least besides the one that gathers", 2)
    return gathered(cast, parts, last)


def map_reduce(cast: Cast) -> list[Step]:
    """The mappers start at once. The reducer gets all their outputs."""
    reducers = cast.of("reducer")
    mappers = cast.of("mapper")
    mappers += [step for step in cast.steps if step.row.executor == "items" and step not in mappers]
    needed(mappers, "it needs an agent with the role mapper, or a step of the type map")
    needed(reducers, "it needs an agent with the role reducer")
    return gathered(cast, mappers, reducers)


def hub_spoke(cast: Cast) -> list[Step]:
    """The hub starts, the spokes get its output, and the hub gets theirs."""
    hubs = cast.of(*LEADS)
    spokes = [step for step in cast.steps if step not in hubs]
    needed(hubs, "it needs an agent with the role hub, coordinator or lead")
    needed(spokes, "it needs steps of others than the hub")
    return _led(cast, hubs, [spokes])


def hierarchical(cast: Cast) -> list[Step]:
    """The lead starts, managers get its output, workers those of the managers, and the lead those of the workers."""
    leads = cast.of(*LEADS)
    managers = [step for step in cast.of(*MANAGERS) if step not in leads]
    workers = [step for step in cast.steps if step not in leads and step not in managers]
    needed(leads, "it needs an agent with the role lead")
    needed(workers, "it needs steps of workers, who are neither lead nor manager")
    collecting = [step for step in managers if cast.waits_for(step.name) & set(names_of(workers))]
    managers = [step for step in managers if step not in collecting]
    return _led(cast, leads, [managers, [*workers, *collecting]])


def _led(cast: Cast, leads: Sequence[Step], levels: Sequence[Sequence[Step]]) -> list[Step]:
    """Return levels of steps between the first step of a lead and its other steps.

    The other steps get the outputs of the lowest level. A lead's step with its own `dependsOn` collects results, so it
    never opens. If no step opens, the top level starts at once. No step waits for a step that its author lets wait for
    it.
    """
    opening = next((step for step in leads if not step.depends_on), None)
    collecting = [step for step in leads if step is not opening]
    done: list[list[Step]] = [] if opening is None else [[after(opening, ())]]
    for level in filter(None, levels):
        above = names_of(done[-1]) if done else ()
        done.append([hears(step, above) for step in level])
    if opening is not None and not collecting:
        collecting = [like(opening, f"{opening.name}-summary", SUMMARY)]
    last: list[Step] = []
    for step in collecting:
        lowest = [name for name in names_of(done[-1]) if step.name not in cast.waits_for(name)]
        last.append(hears(step, lowest or names_of(done[0])))
    return [*(step for level in done for step in level), *last]


def handoff(cast: Cast) -> list[Step]:
    """Each step gets the output of the previous one. After an answer DECISION: DONE the rest is skipped."""
    needed(cast.steps, "it needs two steps at least, one to hand over to the other", 2)
    chain: list[Step] = []
    for step in cast.steps:
        one = step
        if step is not cast.steps[-1]:
            one = told(one, "If nothing is left to do after you, end your answer with the line DECISION: DONE")
        if chain:
            before = chain[-1].name
            one = only_if(
                hears(one, (before,)), f"succeeded({listed([before])}) and vote({listed([before])}) != 'DONE'"
            )
        chain.append(after(one, ()))
    names = names_of(chain)
    return [*chain, result("handoff-result", names, f"latest({listed(names)})")]


def saga(cast: Cast) -> list[Step]:
    """Steps run in order. When one fails, the previous ones are undone in reverse order."""
    handler = cast.agent_of(*HANDLERS)
    forward = [step for step in cast.steps if not _undone(step) and not cast.plays(step, *HANDLERS)]
    undoing = {name: step for step in cast.steps if (name := _undone(step)) is not None}
    needed(forward, "it needs two steps at least, of which the first can be undone", 2)
    if handler is not None:
        for step in forward[:-1]:
            task = f"A later step failed. Undo what the step {step.name} did:\n{{{{steps.{step.name}.output}}}}"
            undoing.setdefault(step.name, turn(handler, f"undo-{step.name}", task))
    if strange := set(undoing) - set(names_of(forward)):
        raise Misfit(f"undo-{min(strange)} undoes no step of that name")
    if not undoing:
        raise Misfit("it needs steps called undo-STEP, or an agent with the role compensate-handler")
    done = chained(forward)
    names = names_of(done)
    undone: list[Step] = []
    for place in reversed(range(len(names) - 1)):
        if (step_back := undoing.get(names[place])) is not None:
            condition = f"succeeded({listed([names[place]])}) and failed({listed(names[place + 1 :])})"
            undone.append(only_if(after(step_back, (*names[place:], *names_of(undone[-1:]))), condition))
    return [*done, *undone]


def _undone(step: Step) -> str | None:
    """Return the name of the step that this step undoes, or None."""
    for word in UNDO:
        if step.name.startswith(f"{word}-"):
            return step.name.removeprefix(f"{word}-")
        if step.name.endswith(f"-{word}"):
            return step.name.removesuffix(f"-{word}")
    return None


PROPOSERS = ("proposer", "lead")
VERIFIERS = ("verifier", "validator", "verify")
JUDGES = ("judge", "arbiter", "reviewer")
MINDS = ("hive-mind", "queen", "lead")
AUCTIONEERS = ("auctioneer",)
BIDDING = (
    "Do not do this yet. Say in a few sentences how you would, and end with one line BID: NUMBER, from 0 to 100, that "
    "says how well you could:"
)
CIRCUIT = ("primary", "fallback", "backup")


def consensus(cast: Cast) -> list[Step]:
    """Agents vote on the results of the steps before them. The steps after them run only if enough approve."""
    voters = cast.speakers(*PROPOSERS)
    needed(voters, "it needs two steps at least of those who vote", 2)

    def arranged(before: tuple[str, ...]) -> list[Step]:
        voting = [votes(hears(step, before), "APPROVE", "REJECT") for step in voters]
        return [*voting, agreed(cast, "consensus", names_of(voting), APPROVE)]

    return staged(cast, voters, arranged)


def verifier(cast: Cast) -> list[Step]:
    """Workers execute their steps, and verifiers check all of them. The run continues only if all verifiers approve."""
    verifiers = cast.of(*VERIFIERS)
    workers = cast.above(verifiers)
    needed(verifiers, "it needs an agent with the role verifier")
    needed(workers, "it needs steps of others above the verifier")
    names = names_of(verifiers)
    condition = f"votes('APPROVE', {listed(names)}) == {len(names)}"
    verified = result("verified", names, f"tally({listed(names)})", condition, "a verifier does not approve")

    def arranged(before: tuple[str, ...]) -> list[Step]:
        done = [after(step, before) for step in workers]
        looked = [votes(hears(step, names_of(done)), "APPROVE", "REJECT") for step in verifiers]
        return [*done, *looked, verified]

    return staged(cast, [*workers, *verifiers], arranged)


def competitive(cast: Cast) -> list[Step]:
    """All agents do the same task at once, and a judge chooses from their outputs.

    Without a judge, a step with at least two dependencies chooses, and the steps keep their order.
    """
    judges = cast.of(*JUDGES)
    rivals = cast.above(judges)
    if not judges and any(len(step.depends_on or ()) > 1 for step in cast.steps):
        return dag(cast)
    needed(judges, "it needs an agent with the role judge, or a step that depends on all who compete")
    needed(rivals, "it needs two steps at least of those who compete", 2)

    def arranged(before: tuple[str, ...]) -> list[Step]:
        done = [after(step, before) for step in rivals]
        return [*done, *(votes(hears(step, names_of(done)), "NAME-OF-THE-BEST") for step in judges)]

    return staged(cast, [*rivals, *judges], arranged)


def swarm(cast: Cast) -> list[Step]:
    """All agents work at once, and the hive-mind makes one answer of their outputs."""
    minds = cast.of(*MINDS)
    workers = cast.above(minds)
    needed(minds, "it needs an agent with the role hive-mind")
    needed(workers, "it needs two steps at least of others than the hive-mind", 2)
    return gathered(cast, workers, minds)


def auction(cast: Cast) -> list[Step]:
    """All agents bid. The one with the highest bid does the task, the first of equals."""
    bidders = cast.speakers(*AUCTIONEERS)
    needed(bidders, "it needs two steps at least of those who bid", 2)
    bid_names = [f"{step.name}-bid" for step in bidders]

    def arranged(before: tuple[str, ...]) -> list[Step]:
        bids = [
            after(like(step, name, f"{BIDDING}\n{step.task or step.name}"), before)
            for step, name in zip(bidders, bid_names, strict=True)
        ]
        doing = [
            only_if(after(step, bid_names), f"best({listed(bid_names)}) == {place}")
            for place, step in enumerate(bidders)
        ]
        return [*bids, *doing, _first_to_succeed("auction-result", names_of(doing))]

    return staged(cast, bidders, arranged)


# --- alternatives after a failure -------------------------------------------------------------------------------------


def cascade(cast: Cast) -> list[Step]:
    """When an agent fails or answers DECISION: REJECT, the next one tries."""
    needed(cast.steps, "it needs two steps at least", 2)
    return _one_of(cast.steps, "cascade-result", "REJECT", "If you cannot do this, end with the line DECISION: REJECT")


def escalation(cast: Cast) -> list[Step]:
    """When a tier fails or answers DECISION: ESCALATE, the next tier takes over and gets its output."""
    tiers = {step.name: tier for step in cast.steps if (tier := _tier(cast, step)) is not None}
    needed([step for step in cast.steps if step.name in tiers], "it needs agents with the roles tier-1 and tier-2", 2)
    ordered = sorted((step for step in cast.steps if step.name in tiers), key=lambda step: tiers[step.name])
    cast.steps = [*ordered, *(step for step in cast.steps if step.name not in tiers)]
    text = "If this is more than you can do, end with the line DECISION: ESCALATE"
    return staged(cast, ordered, lambda _: _one_of(ordered, "escalation-result", "ESCALATE", text, hear=True))


def circuit_breaker(cast: Cast) -> list[Step]:
    """When the primary fails after its retries, the fallback takes over, then the backup."""
    roles = [cast.of(role) for role in CIRCUIT]
    needed(roles[0], "it needs an agent with the role primary")
    needed(roles[1] + roles[2], "it needs an agent with the role fallback or backup")
    ordered = [step for steps in roles for step in steps]
    cast.steps = [*ordered, *(step for step in cast.steps if step not in ordered)]
    return staged(cast, ordered, lambda _: _one_of(ordered, "circuit-breaker-result"))


def _tier(cast: Cast, step: Step) -> int | None:
    agent = cast.agents.get(step.agent or "")
    texts = (step.name, agent.name if agent else "", (agent.role or "") if agent else "")
    return next((int(found[1]) for text in texts if (found := TIER.search(text))), None)


def _one_of(
    steps: Sequence[Step], name: str, word: str | None = None, text: str = "", hear: bool = False
) -> list[Step]:
    """Return steps of which each runs only when the previous one failed, or declined with a word."""
    chain: list[Step] = []
    for step in steps:
        one = replace(step, on_error="continue")
        if word is not None and step is not steps[-1]:
            one = told(one, text)
        if chain:
            before = chain[-1].name
            one = hears(one, (before,)) if hear else after(one, (before,))
            declined = f" or vote({listed([before])}) == '{word}'" if word is not None else ""
            one = only_if(one, f"failed({listed([before])}){declined}")
        chain.append(after(one, ()))
    return [*chain, _first_to_succeed(name, names_of(chain), word)]


def _first_to_succeed(name: str, names: Sequence[str], word: str | None = None) -> Step:
    """Return the step with the output of the first success. It fails if all failed, or declined with a word."""
    each = [f"succeeded({listed([one])})" for one in names]
    if word is not None:
        each = [f"({did} and vote({listed([one])}) != '{word}')" for did, one in zip(each, names, strict=True)]
    condition = " or ".join(each)
    return result(name, names, f"latest({listed(names)})", condition, f"{name}: none of {len(names)} succeeded")


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
"""Roles that must all be present, and the pattern that they select."""


def choose_pattern(cast: Cast) -> str:
    """Return the pattern for a document without one."""
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


class Pattern(NamedTuple):
    """The name of a pattern, when to use it, and its expansion; `expand` raises Misfit."""

    name: str
    when: str
    expand: Callable[[Cast], list[Step]]


_ROWS = (
    Pattern("dag", "steps declare their own dependencies", dag),
    Pattern("pipeline", "each step works on the previous step's output", pipeline),
    Pattern("fan-out", "steps are independent", fan_out),
    Pattern("scatter-gather", "several agents examine the same subject, and one merges their answers", scatter_gather),
    Pattern("map-reduce", "parts are processed separately and then merged", map_reduce),
    Pattern("hub-spoke", "one agent assigns the work and collects the results", hub_spoke),
    Pattern("hierarchical", "work goes down through levels, and results come back to the lead", hierarchical),
    Pattern("handoff", "each agent does its part and hands over, until one reports that the work is done", handoff),
    Pattern("saga", "steps change other systems, and must be undone when a later step fails", saga),
    Pattern("review-loop", "all reviewers must approve work before other steps use it", pattern_rounds.review_loop),
    Pattern("reflection", "critique improves a first draft", pattern_rounds.reflection),
    Pattern("red-team", "a result must withstand attacks", pattern_rounds.red_team),
    Pattern("supervisor", "one agent checks the work of several workers", pattern_rounds.supervisor),
    Pattern("debate", "a question has several sides, and is decided after all have answered", pattern_rounds.debate),
    Pattern("mesh", "all agents should get all opinions, without a decision", pattern_rounds.mesh),
    Pattern("blackboard", "agents add to shared knowledge in turn", pattern_rounds.blackboard),
    Pattern("consensus", "an action needs the agreement of enough agents", consensus),
    Pattern("verifier", "results must be verified before the run continues", verifier),
    Pattern("competitive", "several agents solve the same problem, and the best solution wins", competitive),
    Pattern("swarm", "many small contributions become one answer", swarm),
    Pattern("auction", "the best suited agent should do the task", auction),
    Pattern("cascade", "cheap attempts come first, better attempts follow only after failures", cascade),
    Pattern("escalation", "hard cases go to the next tier", escalation),
    Pattern("circuit-breaker", "an agent may be down, and other agents replace it", circuit_breaker),
)

PATTERNS: Mapping[str, Pattern] = MappingProxyType({row.name: row for row in _ROWS})
"""Every pattern that agent-relay names."""
