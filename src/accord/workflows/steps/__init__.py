"""Types of steps: predicates, and the executors that other packages may add to.

An executor runs in the process of the run: it gets a scene and returns a result. The other types (agents, approvals,
waits, maps, workflows) belong to the runner.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec import Struct

from accord.entries import Group
from accord.workflows.document import STEP_TYPES, Step

if TYPE_CHECKING:
    from accord.workflows.values import Values


Given = TypeVar("Given", bound=Struct)

Reason = Literal[
    "completed_verified",
    "completed_by_owner_decision",
    "completed_by_evidence",
    "completed_by_process_exit",
    "retry_requested_by_owner",
    "failed_verification",
    "failed_verification_with_diagnostic",
    "failed_owner_decision",
    "failed_no_evidence",
]
"""What made a step count as done, or not."""


async def _unheard(_line: str) -> None:
    """Let nobody hear."""


class Scene(Struct, frozen=True, kw_only=True):
    """Where a step is done, and with what.

    `directory` is where the run works, `env` what its commands get, `post` takes a line for the channel's log and
    `heard` what a command has said just now.
    """

    run_id: str
    step: Step
    attempt: int
    directory: Path
    env: Mapping[str, str]
    values: "Values"
    post: Callable[[str], Awaitable[None]] = _unheard
    heard: Callable[[str], Awaitable[None]] = _unheard

    @property
    def place(self) -> Path:
        """Where this step works: where it says, seen from where the run does."""
        said = self.step.cwd
        return self.directory if said is None else self.directory / os.path.expanduser(self.values.text(said))

    def environment(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command: the run's, what the step says in `env`, and `values`."""
        return {**self.env, **{name: self.values.text(said) for name, said in self.step.env.items()}, **values}

    def given(self, options: type[Given]) -> Given:
        """Return what the step is given with `with`, templates filled in; raises Unresolved, or a ValueError."""
        try:
            return msgspec.convert(self.values.tree(self.step.with_), options, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"`with`: {error}") from None


class Result(Struct, frozen=True, kw_only=True):
    """What came of a step; `error` says for a person why it is not `ok`."""

    ok: bool
    output: str = ""
    exit_code: int | None = None
    reason: Reason | None = None
    error: str | None = None


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
    {"deterministic": "accord.workflows.steps.deterministic:STEP", "worktree": "accord.workflows.steps.worktree:STEP"},
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


def is_agent_step(step: Step) -> bool:
    """Whether a command line agent does it."""
    return step.is_agent_step


def is_deterministic_step(step: Step) -> bool:
    """Whether it is a command."""
    return step.is_deterministic_step


def is_worktree_step(step: Step) -> bool:
    """Whether it makes a worktree."""
    return step.is_worktree_step


def is_a2a_step(step: Step) -> bool:
    """Whether an A2A agent does it."""
    return step.is_a2a_step


isAgentStep = is_agent_step
isDeterministicStep = is_deterministic_step
isWorktreeStep = is_worktree_step
isA2AStep = is_a2a_step
