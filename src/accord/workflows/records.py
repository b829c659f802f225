"""Records of a run: the start and end of each attempt.

Records are only added, each under its own key, and their order does not matter. `state` computes the state from them.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec
from msgspec import Struct

Status = Literal["completed", "failed", "skipped"]
"""The status of an ended attempt."""

BY_CONDITION = "skipped_by_condition"
BY_FAILURE = "skipped_by_failure"
BY_END_OF_RUN = "skipped_by_end_of_run"
BY_START = "skipped_by_start"
TIMED_OUT = "timed_out"
UNDECIDABLE = "failed_condition"
ITEM_FAILED = "failed_item"
"""Reasons from `decide` and `run_request`; `steps.Reason` has those of executors."""


class StepRecord(Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """Base of the records: step, attempt and time in milliseconds. The first attempt is number one."""

    step: str
    attempt: int
    at: int


class StepStarted(StepRecord, frozen=True, kw_only=True, tag="begun"):
    """An attempt has started.

    `items` is the list of a map, stored so that it stays the same. `until` is the end time of a `wait`.
    """

    items: tuple[Any, ...] | None = None
    until: int | None = None

    @property
    def key(self) -> str:
        """The unique key of the record in a run."""
        return f"{self.step}:{self.attempt}:begun"


class StepEnded(StepRecord, frozen=True, kw_only=True, tag="ended"):
    """An attempt has ended, or the step has ended without one. Then the number is that of the next attempt.

    With `again_at` the attempt failed and is retried then. Without it, the step has ended. `cause` names the step
    because of which dependents are skipped: the step itself if it failed, otherwise the cause of its own skip. Without
    a cause the dependents run. `reason` is for programs, `error` for people.
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
        """The unique key of the record in a run."""
        return f"{self.step}:{self.attempt}:ended"

    @property
    def fails(self) -> bool:
        """Whether the failure fails the run or the enclosing map."""
        return self.status == "failed" and self.cause is not None


Record = StepStarted | StepEnded

_decoder = msgspec.json.Decoder(Record)


def decode_records(entries: Iterable[tuple[str, str]]) -> Iterator[Record]:
    """Yield the records among journal entries, given with their keys."""
    return (_decoder.decode(entry) for key, entry in entries if key.endswith((":begun", ":ended")))
