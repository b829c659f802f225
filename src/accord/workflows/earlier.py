"""What a run takes over from an earlier one, so that finished work is not done again.

Records only: which of them still hold in a new plan, whose steps are the same if they have the same name. Whose earlier
run may be read is the workflow's agent's to say.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from accord.workflows.document import Step
from accord.workflows.plan import Plan
from accord.workflows.records import BY_START, Begun, Ended, Record
from accord.workflows.state import Node, State

_decoder = msgspec.json.Decoder(Record)

R = TypeVar("R", Begun, Ended)


def carried_over(plan: Plan, entries: Mapping[str, str], start_from: str | None, now: int) -> list[Record]:
    """Return the records of an earlier run, given by their keys, with which a new one begins.

    Kept is what has ended well, and comes only after what is kept. An approval that the owner may not give is for one
    run, and is never kept. Of a map that has not, its items are kept, and what
    has ended well of them. With `start_from`, that step and all after it is done again, and all before it must be
    kept; without an earlier run it is left out. Raises ValueError.
    """
    state = State(plan, _fitting(plan, entries))
    if start_from is not None and (start_from not in state.nodes or state.nodes[start_from].step is None):
        raise ValueError(f"There is no step called {start_from!r} to start from")
    again = set() if start_from is None else {start_from, *_reached(state, start_from, forward=True)}
    if start_from is not None:
        _check_approvals(state, start_from)
    kept = _kept(state, again)
    records = [record for name in state.nodes if "[" not in name for record in _held(state, name, kept, again, now)]
    if start_from is None:
        return records
    before = _reached(state, start_from, forward=False)
    missing = [name for name, node in state.nodes.items() if name in before - kept and node.step is not None]
    if missing and entries:
        raise ValueError(f"The earlier run has not completed {', '.join(missing)}, which {start_from} comes after")
    return [*records, *(_left_out(name, start_from, now) for name in missing)]


def _check_approvals(state: State, start_from: str) -> None:
    """Refuse to start after an approval that the owner of the run may not give: that would be giving it."""
    steps = [state.nodes[name].step for name in _reached(state, start_from, forward=False)]
    if ruled := sorted(step.name for step in steps if step is not None and step.is_ruled_approval):
        raise ValueError(f"No run can start from {start_from!r}: it comes after the approval {', '.join(ruled)}")


def _fitting(plan: Plan, entries: Mapping[str, str]) -> list[Record]:
    """Return the records that are of steps of the plan, and of maps if these are maps."""
    steps = {step.name: step for step in plan.steps}
    found = [_decoder.decode(entry) for key, entry in entries.items() if key.endswith((":begun", ":ended"))]
    return [record for record in found if _fits(steps, record)]


def _fits(steps: Mapping[str, Step], record: Record) -> bool:
    name, *indexes = record.step.split("[")
    step = steps.get(name)
    for _ in indexes:
        step = None if step is None else step.step
    is_map = step is not None and step.type == "map"
    return step is not None and (isinstance(record, Ended) or (record.items is not None) == is_map)


def _kept(state: State, again: set[str]) -> set[str]:
    """Return what has ended well and comes only after such; of what a barrier waits for, as much as it needs."""
    kept: set[str] = set()
    for node in _in_order(state):
        held = sum(name in kept for name in node.after)
        if node.name in again or held < node.needed or (node.step is not None and node.step.is_ruled_approval):
            continue
        if node.barrier is not None or _ended_well(node):
            kept.add(node.name)
    return kept


def _ended_well(node: Node) -> bool:
    return node.end is not None and node.end.cause is None


def _in_order(state: State) -> Iterator[Node]:
    """Yield steps and barriers, each after those that it comes after."""
    waits = {name: len(node.after) for name, node in state.nodes.items() if node.parent is None}
    ready = deque(name for name, count in waits.items() if not count)
    while ready:
        node = state.nodes[ready.popleft()]
        yield node
        for other in node.dependents:
            waits[other.name] -= 1
            if not waits[other.name]:
                ready.append(other.name)


def _reached(state: State, start: str, *, forward: bool) -> set[str]:
    """Return all that comes after a step, or all that it comes after."""
    found: set[str] = set()
    left = [start]
    while left:
        node = state.nodes[left.pop()]
        near = [other.name for other in node.dependents] if forward else node.after
        left += [name for name in near if name not in found]
        found.update(near)
    return found


def _held(state: State, name: str, kept: set[str], again: set[str], now: int) -> Iterator[Record]:
    """Yield the records of a step with which a new run begins."""
    node = state.nodes[name]
    if name not in again and all(other in kept for other in node.after):
        yield from _items(node, now, every=name in kept)
    if name in kept and node.step is not None and node.end is not None:
        yield _first(node.end, now)


def _items(node: Node, now: int, *, every: bool) -> Iterator[Record]:
    """Yield what a map goes over and what has come of it: of every item, or of those that have ended well."""
    if node.items is None or node.begun is None:
        return
    yield _first(node.begun, now)
    for item in node.items:
        is_kept = every or _ended_well(item)
        yield from _items(item, now, every=is_kept)
        if is_kept and item.end is not None:
            yield _first(item.end, now)


def _first(record: R, now: int) -> R:
    """Return a record as that of the first attempt of the new run."""
    return replace(record, attempt=1, at=now)


def _left_out(name: str, start_from: str, now: int) -> Ended:
    """Return the end of a step that is passed over although nothing is known of it."""
    error = f"The run starts from {start_from!r}"
    return Ended(step=name, attempt=1, at=now, status="skipped", reason=BY_START, error=error)
