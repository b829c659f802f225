"""What whoever does a step is given, and what comes of it.

Only values: nothing is done here, and whether a failed step is tried again is not known here but in `decide`. The
run stands above and makes scenes; `shell` and `worktree` beside it, and `verification`, act in them.
"""

import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec import Struct

from accord.workflows.document import Step

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
