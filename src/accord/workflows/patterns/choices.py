"""Patterns with a choice: among answers, among those who could do something, or of another one when one fails.

Who is chosen follows from votes, bids and failures by expressions alone; no agent's words are read by a shell.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from accord.workflows.document import Step
from accord.workflows.patterns.cast import (
    TIER,
    Cast,
    after,
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
    votes,
)
from accord.workflows.patterns.orders import dag
from accord.workflows.patterns.rounds import agreed
from accord.workflows.votes import APPROVE

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
    """What comes before the first vote is voted on, and nothing comes after it unless enough approve."""
    voters = cast.speakers(*PROPOSERS)
    needed(voters, "it needs two steps at least of those who vote", 2)

    def arranged(before: tuple[str, ...]) -> list[Step]:
        asked = [votes(hears(step, before), "APPROVE", "REJECT") for step in voters]
        return [*asked, agreed(cast, "consensus", names_of(asked), APPROVE)]

    return staged(cast, voters, arranged)


def verifier(cast: Cast) -> list[Step]:
    """The workers do their steps, verifiers look at all of them, and the run goes on only if all of them approve."""
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
    """All do the same at once, and a judge hears all of them and chooses.

    Without a judge, a step that depends on two others at least is the one that chooses, and the steps keep their order.
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
    """All work at once, and the hive-mind hears all of them and makes one answer."""
    minds = cast.of(*MINDS)
    workers = cast.above(minds)
    needed(minds, "it needs an agent with the role hive-mind")
    needed(workers, "it needs two steps at least of others than the hive-mind", 2)
    return gathered(cast, workers, minds)


def auction(cast: Cast) -> list[Step]:
    """All bid for it, and the one with the highest bid does it, the first of equals."""
    bidders = cast.speakers(*AUCTIONEERS)
    needed(bidders, "it needs two steps at least of those who bid", 2)
    bid_names = [f"{step.name}-bid" for step in bidders]

    def arranged(before: tuple[str, ...]) -> list[Step]:
        asked = [
            after(like(step, name, f"{BIDDING}\n{step.task or step.name}"), before)
            for step, name in zip(bidders, bid_names, strict=True)
        ]
        doing = [
            only_if(after(step, bid_names), f"best({listed(bid_names)}) == {place}")
            for place, step in enumerate(bidders)
        ]
        return [*asked, *doing, _first_to_succeed("auction-result", names_of(doing))]

    return staged(cast, bidders, arranged)


# --- another one when one fails ---------------------------------------------------------------------------------------


def cascade(cast: Cast) -> list[Step]:
    """The next one tries when one fails, or says DECISION: REJECT."""
    needed(cast.steps, "it needs two steps at least", 2)
    return _one_of(cast.steps, "cascade-result", "REJECT", "If you cannot do this, end with the line DECISION: REJECT")


def escalation(cast: Cast) -> list[Step]:
    """The next tier takes over when one fails or says DECISION: ESCALATE, and hears what was said."""
    tiers = {step.name: tier for step in cast.steps if (tier := _tier(cast, step)) is not None}
    needed([step for step in cast.steps if step.name in tiers], "it needs agents with the roles tier-1 and tier-2", 2)
    ordered = sorted((step for step in cast.steps if step.name in tiers), key=lambda step: tiers[step.name])
    cast.steps = [*ordered, *(step for step in cast.steps if step.name not in tiers)]
    text = "If this is more than you can do, end with the line DECISION: ESCALATE"
    return staged(cast, ordered, lambda _: _one_of(ordered, "escalation-result", "ESCALATE", text, hear=True))


def circuit_breaker(cast: Cast) -> list[Step]:
    """When the primary fails, after its retries, the fallback does it, and then the backup."""
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
    """Return steps of which each is only done when the one before it failed, or declined with a word."""
    found: list[Step] = []
    for step in steps:
        one = replace(step, on_error="continue")
        if word is not None and step is not steps[-1]:
            one = told(one, text)
        if found:
            before = found[-1].name
            one = hears(one, (before,)) if hear else after(one, (before,))
            declined = f" or vote({listed([before])}) == '{word}'" if word is not None else ""
            one = only_if(one, f"failed({listed([before])}){declined}")
        found.append(after(one, ()))
    return [*found, _first_to_succeed(name, names_of(found), word)]


def _first_to_succeed(name: str, names: Sequence[str], word: str | None = None) -> Step:
    """Return the step that says what one of them came to, and fails if all failed, or declined with a word."""
    each = [f"succeeded({listed([one])})" for one in names]
    if word is not None:
        each = [f"({did} and vote({listed([one])}) != '{word}')" for did, one in zip(each, names, strict=True)]
    condition = " or ".join(each)
    return result(name, names, f"latest({listed(names)})", condition, f"{name}: none of {len(names)} succeeded")
