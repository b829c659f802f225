"""Records of a run: the start and end of each attempt.

Records are only added, each under its own key, and mean the same in any order. `state` is what they add up to.
"""

from typing import Any, Literal

from msgspec import Struct

Status = Literal["completed", "failed", "skipped"]
"""How an attempt ends."""

BY_CONDITION = "skipped_by_condition"
BY_FAILURE = "skipped_by_failure"
BY_END_OF_RUN = "skipped_by_end_of_run"
BY_START = "skipped_by_start"
TIMED_OUT = "timed_out"
UNDECIDABLE = "failed_condition"
ITEM_FAILED = "failed_item"
"""Reasons that `decide` and `run_request` give; `steps.Reason` has those of executors."""


class StepRecord(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Base of the records: which attempt at which step, and when in milliseconds. The first attempt is number one."""

    step: str
    attempt: int
    at: int


class StepStarted(StepRecord, frozen=True, kw_only=True, tag="begun"):
    """An attempt has begun.

    `items` is what a map goes over, so that it stays the same whatever values become; `until` is when a `wait` is over.
    """

    items: tuple[Any, ...] | None = None
    until: int | None = None

    @property
    def key(self) -> str:
        """What there is one of in a run."""
        return f"{self.step}:{self.attempt}:begun"


class StepEnded(StepRecord, frozen=True, kw_only=True, tag="ended"):
    """An attempt has ended, or the step without one: then its number is that which the next would have had.

    With `again_at` it failed and is tried again then; without, the step has ended. `cause` names the step because of
    which those that come after this one are skipped: itself if it failed, the one it was skipped for otherwise. Without
    a cause they run. `reason` is for programs, `error` for people.
    """

    status: Status
    output: str = ""
    exit_code: int | None = None
    reason: str | None = None
    error: str | None = None
    cause: str | None = None
    again_at: int | None = None

    @property
    def key(self) -> str:
        """What there is one of in a run."""
        return f"{self.step}:{self.attempt}:ended"

    @property
    def fails(self) -> bool:
        """Whether whatever the step is part of fails with it."""
        return self.status == "failed" and self.cause is not None


Record = StepStarted | StepEnded
