"""What a step may speak of when its turn has come: what the plan says, and what the steps that have ended said.

Nothing is copied: a run of thousands of steps asks for this at each of them. The driver of a run gives it to `decide`
for the `if` of steps, and to whoever does one for its templates.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from accord.workflows.state import Node, State
from accord.workflows.values import StepValue, Values


class Ends(Mapping[str, StepValue]):
    """The steps of a run that have ended, by their name."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __getitem__(self, name: str) -> StepValue:
        end = self._state.nodes[name].end
        if end is None:
            raise KeyError(name)
        return StepValue(status=end.status, output=end.output, exit_code=end.exit_code)

    def __iter__(self) -> Iterator[str]:
        return (name for name, node in self._state.nodes.items() if node.end is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


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
        steps=Ends(state),
        state=shared or {},
        env=env or {},
        run=run or {},
        needs=node.after,
        item=node.item,
        index=None if above is None else node.index,
        name="item" if above is None or above.step is None else above.step.as_,
    )


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
