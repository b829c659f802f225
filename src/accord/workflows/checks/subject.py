"""What the checks look at: a document, where it is, and what is around it; and what they say.

A problem names its place by the path of the file's own names; which line that is, is found by whoever has the text.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from accord.workflows.custom import expanded
from accord.workflows.defaults import typed
from accord.workflows.document import AgentDef, CustomStep, Document, Step, Workflow
from accord.workflows.findings import BadDocument

Where = tuple[str | int, ...]


class Problem(NamedTuple):
    """One thing that is wrong or remarkable: its code, where, what, and how it is mended.

    It is the value at a path, its key (`at_key`), or what begins somewhere in its text (`start`).
    """

    code: str
    where: Where
    message: str
    fix: str
    at_key: bool = False
    start: int | None = None


class Placed(NamedTuple):
    """A step, where it stands, and what it belongs to.

    `outer` is the map that does it for each of its items, `top` the step of the workflow that it is, or is within;
    `items` is what the items of all maps around it are called.
    """

    step: Step
    where: Where
    workflow: Workflow
    top: Step
    outer: Step | None = None
    items: frozenset[str] = frozenset()


class Subject:
    """A document together with its surroundings."""

    def __init__(
        self, document: Document, base: Path, env: Mapping[str, str], custom: Mapping[str, CustomStep] | None = None
    ) -> None:
        """Keep them; `base` is where its relative paths begin, `custom` are the steps of one's own beside it."""
        self.document = document
        self.base = base
        self.env = env
        self.custom: Mapping[str, CustomStep] = {**(custom or {}), **document.steps}
        self.agents: Mapping[str, AgentDef] = {agent.name: agent for agent in reversed(document.agents)}

    @cached_property
    def steps(self) -> tuple[Placed, ...]:
        """Every step of every workflow, also those within maps, with what they use in its place, if that can be."""
        return tuple(self._filled(placed) for placed in self.written)

    @cached_property
    def written(self) -> tuple[Placed, ...]:
        """The same, as the file has them."""
        return tuple(
            placed
            for number, workflow in enumerate(self.document.workflows)
            for place, step in enumerate(workflow.steps)
            for placed in _within(Placed(step, ("workflows", number, "steps", place), workflow, step))
        )

    def _filled(self, placed: Placed) -> Placed:
        try:
            return placed._replace(step=expanded(placed.step, self.custom))
        except BadDocument:
            return placed  # `using` says why

    def of(self, workflow: Workflow) -> Iterator[Placed]:
        """Yield the steps of one workflow that are not within others."""
        return (placed for placed in self.steps if placed.workflow is workflow and placed.outer is None)

    def agent_of(self, step: Step) -> AgentDef | None:
        """Return the agent that a step names, if it is there."""
        return self.agents.get(step.agent or "")

    def kind_of(self, step: Step) -> str:
        """Return a step's type: what it says, or else what a run would take it for."""
        return typed(step, self.agent_of(step)).kind


Check = Callable[[Subject], Iterator[Problem]]


def _within(placed: Placed) -> Iterator[Placed]:
    yield placed
    if placed.step.step is not None:
        where, items = (*placed.where, "step"), placed.items | {placed.step.as_}
        yield from _within(Placed(placed.step.step, where, placed.workflow, placed.top, placed.step, items))
