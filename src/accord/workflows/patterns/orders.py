"""Patterns that are an order: who waits for whom, and who is told what others said.

No step is done twice and none is left out by these; patterns with rounds are `rounds`, those with a choice `choices`.
"""

from collections.abc import Sequence

from accord.workflows.document import Step
from accord.workflows.patterns.cast import (
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
    told,
    turn,
)

LEADS = ("lead", "hub", "coordinator")
GATHERERS = ("gatherer", "aggregator", "collector")
MANAGERS = ("manager",)
UNDO = ("undo", "compensate")
HANDLERS = ("compensate-handler", "saga-orchestrator")

SUMMARY = "Put together what the others have done into one answer, and say what is still open."


def dag(cast: Cast) -> list[Step]:
    """Every step begins when those in its `dependsOn` have ended; one without, at once."""
    return [after(step, ()) for step in cast.steps]


def pipeline(cast: Cast) -> list[Step]:
    """Every step waits for the one above it."""
    return chained(cast.steps)


def fan_out(cast: Cast) -> list[Step]:
    """All steps begin at once, except those that say for whom they wait."""
    return dag(cast)


def scatter_gather(cast: Cast) -> list[Step]:
    """All begin at once; the last, or the gatherer, hears all of them."""
    last = cast.of(*GATHERERS) or cast.steps[-1:]
    parts = cast.above(last)
    needed(parts, "it needs two steps at least besides the one that gathers", 2)
    return gathered(cast, parts, last)


def map_reduce(cast: Cast) -> list[Step]:
    """The mappers begin at once; the reducer hears all of them."""
    reducers = cast.of("reducer")
    mappers = cast.of("mapper")
    mappers += [step for step in cast.steps if step.type == "map" and step not in mappers]
    needed(mappers, "it needs an agent with the role mapper, or a step of the type map")
    needed(reducers, "it needs an agent with the role reducer")
    return gathered(cast, mappers, reducers)


def hub_spoke(cast: Cast) -> list[Step]:
    """The hub begins, the spokes hear it, the hub hears the spokes."""
    hubs = cast.of(*LEADS)
    spokes = [step for step in cast.steps if step not in hubs]
    needed(hubs, "it needs an agent with the role hub, coordinator or lead")
    needed(spokes, "it needs steps of others than the hub")
    return _led(cast, hubs, [spokes])


def hierarchical(cast: Cast) -> list[Step]:
    """The lead begins, managers hear the lead, workers the managers, and the lead hears the workers."""
    leads = cast.of(*LEADS)
    managers = [step for step in cast.of(*MANAGERS) if step not in leads]
    workers = [step for step in cast.steps if step not in leads and step not in managers]
    needed(leads, "it needs an agent with the role lead")
    needed(workers, "it needs steps of workers, who are neither lead nor manager")
    collecting = [step for step in managers if cast.waits_for(step.name) & set(names_of(workers))]
    managers = [step for step in managers if step not in collecting]
    return _led(cast, leads, [managers, [*workers, *collecting]])


def _led(cast: Cast, leads: Sequence[Step], levels: Sequence[Sequence[Step]]) -> list[Step]:
    """Return levels of steps between the first step of a lead and its others, which hear the lowest level.

    A lead's step with a `dependsOn` of its own collects results, so it never opens; if no step opens, the top level
    begins at once. No step waits for one that its author has wait for it.
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
    """Each hears the one before it, and none is asked any more after one that says DECISION: DONE."""
    needed(cast.steps, "it needs two steps at least, one to hand over to the other", 2)
    found: list[Step] = []
    for step in cast.steps:
        one = step
        if step is not cast.steps[-1]:
            one = told(one, "If nothing is left to do after you, end your answer with the line DECISION: DONE")
        if found:
            before = found[-1].name
            one = only_if(
                hears(one, (before,)), f"succeeded({listed([before])}) and vote({listed([before])}) != 'DONE'"
            )
        found.append(after(one, ()))
    names = names_of(found)
    return [*found, result("handoff-result", names, f"latest({listed(names)})")]


def saga(cast: Cast) -> list[Step]:
    """Steps in their order; when one fails, those before it are undone, the last of them first."""
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
    """Return which step one is there to undo, by its name."""
    for word in UNDO:
        if step.name.startswith(f"{word}-"):
            return step.name.removeprefix(f"{word}-")
        if step.name.endswith(f"-{word}"):
            return step.name.removesuffix(f"-{word}")
    return None
