"""Executors: steps that are executed in the process of their run, also of types that other packages add.

An executor gets a scene and returns a result.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec import Struct

from accord.entries import Group
from accord.workflows.document import Step
from accord.workflows.step_types import STEP_TYPES

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
"""Why a step counts as completed or failed."""


async def _discard(_line: str) -> None:
    """Discard a line."""


class Scene(Struct, frozen=True, kw_only=True):
    """The environment of one attempt.

    `directory` is that of the run, `env` the environment of its commands. `post` sends a line to the log of the
    channel, and `heard` takes output of a command as it is printed.
    """

    run_id: str
    step: Step
    attempt: int
    directory: Path
    env: Mapping[str, str]
    values: "Values"
    post: Callable[[str], Awaitable[None]] = _discard
    heard: Callable[[str], Awaitable[None]] = _discard

    @property
    def place(self) -> Path:
        """The directory of the step, relative to that of the run."""
        cwd = self.step.cwd
        return self.directory if cwd is None else self.directory / os.path.expanduser(self.values.text(cwd))

    def environment(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a command: the run's, the step's `env`, and `values`."""
        return {**self.env, **{name: self.values.text(text) for name, text in self.step.env.items()}, **values}

    def given(self, options: type[Given]) -> Given:
        """Return the options in `with`, with templates filled in; raises Unresolved or ValueError."""
        try:
            return msgspec.convert(self.values.tree(self.step.with_), options, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"`with`: {error}") from None


class Result(Struct, frozen=True, kw_only=True):
    """The result of a step; `error` is the reason for people if it is not `ok`."""

    ok: bool
    output: str = ""
    exit_code: int | None = None
    reason: Reason | None = None
    error: str | None = None


Executor = Callable[[Scene], Awaitable[Result]]
"""Executes a step in the process of its run."""


class NoOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a type of step that takes none in `with`."""


class StepKind(Struct, frozen=True, kw_only=True):
    """A type of step: its executor, and its options, which `scene.given(options)` reads.

    A step may be executed again after a crash or as a retry. `scene.run_id`, `scene.step.name` and `scene.attempt`
    identify the attempt. An expected failure is a Result that is not `ok`, or a ValueError.
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
"""All types that are executed in the process of a run."""


def step_types() -> tuple[str, ...]:
    """Return the names of all types of steps."""
    return (*STEP_TYPES, *(name for name in STEPS.names() if name not in STEP_TYPES))


def executor_of(name: str) -> Executor:
    """Return the executor of a type, loaded when it is needed. Raises ValueError for an unknown type."""
    if name in STEPS.ours:
        return _own_executor(name)
    if name not in STEPS:
        raise ValueError(f"There is no type of step called {name!r} here: is its package installed?")
    return _with_timeout(STEPS.load(name).do)


@cache
def _own_executor(name: str) -> Executor:
    return STEPS.load(name).do


def _with_timeout(do: Executor) -> Executor:
    """Return an executor with the timeout of the step. Executors of Accord enforce it themselves."""

    async def done(scene: Scene) -> Result:
        try:
            async with asyncio.timeout(scene.step.timeout):
                return await do(scene)
        except TimeoutError:
            return Result(ok=False, error=f"The step did not end within {scene.step.timeout:g} seconds")

    return done


def is_agent_step(step: Step) -> bool:
    """Whether a command line agent executes it."""
    return step.kind == "agent"


def is_deterministic_step(step: Step) -> bool:
    """Whether it is a command."""
    return step.kind == "deterministic"


def is_worktree_step(step: Step) -> bool:
    """Whether it creates a worktree."""
    return step.kind == "worktree"


def is_a2a_step(step: Step) -> bool:
    """Whether an A2A agent executes it."""
    return step.kind == "a2a"


isAgentStep = is_agent_step
isDeterministicStep = is_deterministic_step
isWorktreeStep = is_worktree_step
isA2AStep = is_a2a_step
