"""Which types of steps are done in the process of their run, ours and those of other packages, by their names.

A kind is what does a step in a scene. The other types (agents, approvals, waiting, maps, workflows) are the run's own,
and nobody adds to them. `reading` and `checks` ask which names there are, `means` who does a step.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping

from msgspec import Struct

from accord.entries import Group
from accord.workflows.document import STEP_TYPES
from accord.workflows.steps.scene import Result, Scene

Executor = Callable[[Scene], Awaitable[Result]]
"""Does a step in the process of its run."""


class NoOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of what a step may be given with `with`, which without others is nothing."""


class StepKind(Struct, frozen=True, kw_only=True):
    """A type of step: who does it, and what it is given, as `scene.given(options)` reads it.

    A step may be done again, after a crash or when it is retried: `scene.run_id`, `scene.step.name` and
    `scene.attempt` tell one from another. What goes wrong for a reason is a Result that is not `ok`, or a ValueError.
    """

    do: Executor
    options: type[Struct] = NoOptions


STEPS = Group(
    "accord.steps",
    "type of step",
    StepKind,
    {"deterministic": "accord.workflows.steps.shell:STEP", "worktree": "accord.workflows.steps.worktree:STEP"},
    taken=STEP_TYPES,
)
"""All types that are done in the process of a run."""


def step_types() -> tuple[str, ...]:
    """Return the names of all types of steps."""
    return (*STEP_TYPES, *(name for name in STEPS.names() if name not in STEP_TYPES))


class Executors(Mapping[str, Executor]):
    """Who does a step, by its type; nothing is loaded before there is such a step."""

    def __getitem__(self, name: str) -> Executor:
        if name not in STEPS:
            raise KeyError(name)
        do = STEPS.load(name).do
        return do if name in STEPS.ours else _bounded(do)

    def __contains__(self, name: object) -> bool:
        return name in STEPS

    def __iter__(self) -> Iterator[str]:
        return iter(STEPS.names())

    def __len__(self) -> int:
        return len(STEPS.names())


def _bounded(do: Executor) -> Executor:
    """Return what does a step within the time that it has; ours see to that themselves."""

    async def done(scene: Scene) -> Result:
        try:
            async with asyncio.timeout(scene.step.timeout):
                return await do(scene)
        except TimeoutError:
            return Result(ok=False, error=f"The step did not end within {scene.step.timeout:g} seconds")

    return done
