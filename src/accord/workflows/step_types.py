"""Types of steps: one row for each type.

A row has the facts about a type that planner, runner, validation and views ask for. Its code is `STEP` in the module of
that name in `workflows.steps`, which is loaded when it is used. The console has an icon for each row.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

from msgspec import Struct

ALWAYS = ("name", "type", "description", "dependsOn", "if", "timeout", "onError", "set")
"""Members of every type."""

_AGAIN = ("retries", "retryDelay", "backoff")
_LOOP = ("maxIterations", "until")
_PLACE = ("cwd", "workdir")


class StepType(Struct, frozen=True, kw_only=True):
    """A row of `STEP_TYPES`. Members of steps have the names of a file."""

    executor: Literal["process", "child", "items", "signal"]
    """The process of the run, a child task, the items of a map, or none: the step waits for a signal or a time."""

    icon: str
    """The console's icon, by its name in Lucide."""

    needs: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    """Required members, members of which one is required, and all other members with an effect."""

    shows: tuple[str, ...] = ("with_",)
    """The fields of which views show the first that is given as the step's input: a prompt, a command, a list."""

    has_prompt: bool = False
    """Whether an agent gets a prompt, to which a pattern may add text."""

    is_remote: bool = False
    """Whether an A2A agent executes it."""

    is_retryable: bool = False
    """Whether the retries of an agent or a document apply, because a failure may be temporary."""

    changes_files: bool = False
    """Whether it may change files in the directory of the run."""

    has_decision: bool = False
    """Whether a person decides it."""

    @property
    def is_waiting(self) -> bool:
        """Whether nothing executes it: it waits for a person, a time or an event."""
        return self.executor == "signal"

    @property
    def members(self) -> frozenset[str]:
        """All members that have an effect."""
        return frozenset((*ALWAYS, *self.needs, *self.either, *self.uses))


STEP_TYPES: Mapping[str, StepType] = MappingProxyType(
    {
        "agent": StepType(
            executor="child",
            icon="Bot",
            needs=("agent", "task"),
            uses=(
                *(*_AGAIN, *_LOOP, *_PLACE, "onCrash", "verification", "env"),
                *("shareContext", "allowEmpty", "permissions"),
            ),
            shows=("task",),
            has_prompt=True,
            is_retryable=True,
            changes_files=True,
        ),
        "deterministic": StepType(
            executor="process",
            icon="SquareTerminal",
            either=("command", "argv"),
            uses=(
                *(*_AGAIN, *_LOOP, *_PLACE, "onCrash", "verification", "env"),
                *("allowOptions", "allowInterpreter", "failOnError", "captureOutput"),
            ),
            shows=("command",),
            is_retryable=True,
            changes_files=True,
        ),
        "worktree": StepType(
            executor="process",
            icon="GitBranch",
            needs=("branch",),
            uses=(*_AGAIN, *_PLACE, "verification", "baseBranch", "path", "createBranch"),
            shows=("branch",),
            is_retryable=True,
        ),
        "a2a": StepType(
            executor="child",
            icon="Bot",
            needs=("task",),
            uses=(
                *(*_AGAIN, *_LOOP, "verification", "agent", "url", "headers", "credentials"),
                *("streaming", "mode", "shareContext", "allowEmpty"),
            ),
            shows=("task",),
            has_prompt=True,
            is_remote=True,
            is_retryable=True,
        ),
        "approval": StepType(
            executor="signal",
            icon="Hand",
            needs=("task",),
            uses=("onReject", "approvers", "notByStarter"),
            shows=("task",),
            has_decision=True,
        ),
        "wait": StepType(
            executor="signal",
            icon="Clock",
            either=("for", "until", "event"),
            shows=("event", "until"),
        ),
        "workflow": StepType(
            executor="child",
            icon="Network",
            either=("workflow", "file"),
            uses=(*_AGAIN, *_LOOP, "input", "vars"),
            shows=("input",),
        ),
        "map": StepType(
            executor="items",
            icon="Layers",
            needs=("over", "step"),
            uses=(*_AGAIN, "as", "concurrency"),
            shows=("over",),
        ),
    }
)
"""Type of a step -> its row."""

ADDED = StepType(
    executor="process",
    icon="CircleDashed",
    uses=(*_AGAIN, *_LOOP, *_PLACE, "onCrash", "verification", "env", "with"),
    is_retryable=True,
    changes_files=True,
)
"""The row of types that other packages add. Their own options are in `with`."""


def step_type(name: str) -> StepType:
    """Return the row of a type."""
    return STEP_TYPES.get(name, ADDED)
