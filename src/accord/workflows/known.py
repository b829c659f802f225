"""What a step may speak of when its turn has come: what the plan says, and what the steps that have ended said.

Nothing is copied: a run of thousands of steps asks for this at each of them. The driver of a run gives it to `decide`
for the `if` of steps, and to whoever does one for its templates.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from accord.workflows.state import Node, State
from accord.workflows.values import StepValue, Values


class Ends(Mapping[str, StepValue]):
    """The steps of a run that have ended, by their name; for an item of a map, the map's name means the item itself."""

    def __init__(self, state: State, item: Node | None = None) -> None:
        self._state = state
        self._own = {} if item is None else {top_of(item).name: item}

    def __getitem__(self, name: str) -> StepValue:
        end = (self._own.get(name) or self._state.nodes[name]).end
        if end is None:
            raise KeyError(name)
        return StepValue(status=end.status, output=end.output, exit_code=end.exit_code)

    def __iter__(self) -> Iterator[str]:
        return (name for name, node in self._state.nodes.items() if node.end is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def top_of(node: Node) -> Node:
    """Return the step of the plan that an item, perhaps of a map within a map, belongs to."""
    while node.parent is not None:
        node = node.parent
    return node


def values_of(
    state: State,
    node: Node,
    shared: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    run: Mapping[str, Any] | None = None,
) -> Values:
    """Return the values of a step.

    `shared` is what the runs of its document have in common, `env` its environment and `run` what is known of the run.
    """
    plan = state.plan
    above = node.parent
    return Values(
        input=plan.input,
        inputs=plan.inputs,
        vars=plan.vars,
        steps=Ends(state, node),
        state=shared or {},
        env=env or {},
        run=run or {},
        needs=node.after,
        item=node.item,
        index=None if above is None else node.index,
        name="item" if above is None or above.step is None else above.step.as_,
        around=_around(above),
    )


def _around(node: Node | None) -> dict[str, Any]:
    """Return the items that a map itself is for, by what they are called; nearer ones hide those further out."""
    found: dict[str, Any] = {}
    while node is not None and node.parent is not None:
        if node.parent.step is not None:
            found.setdefault(node.parent.step.as_, node.item)
        node = node.parent
    return found


def values_of_run(state: State, env: Mapping[str, str] | None = None, run: Mapping[str, Any] | None = None) -> str:
    """Return what a run that has ended says: as its workflow's `output`, or what its last steps said, in their order.

    Raises Unresolved.
    """
    plan = state.plan
    if plan.output is not None:
        values = Values(
            input=plan.input, inputs=plan.inputs, vars=plan.vars, steps=Ends(state), env=env or {}, run=run or {}
        )
        return values.text(plan.output)
    last = [node for node in state.nodes.values() if node.step is not None and not node.dependents and not node.parent]
    said = [node.end.output for node in last if node.end is not None and node.end.status == "completed"]
    return "\n\n".join(text for text in said if text)
