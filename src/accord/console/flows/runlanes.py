"""The waterfall of a run: a lane for each step, a segment for each attempt, and the time between them.

It turns what `console.flows.runviews` has made of a run into what is drawn, and reads nothing. States are those of
tasks, so that steps and tasks look the same in one picture.
"""

from collections.abc import Iterator, Mapping

from accord.console.flows.runviews import Steps, is_open
from accord.console.flows.views import TryView
from accord.console.views import Lane, Segment, Timeline
from accord.model.base import timestamp_ms
from accord.workflows.stored_run import StoredStep

_STATES: Mapping[str, str] = {
    "running": "working",
    "completed": "completed",
    "failed": "failed",
    "skipped": "canceled",
    "cancelled": "canceled",
}
"""Status of an attempt -> the state that it looks like."""

_PARKED: Mapping[str, str] = {"approval": "input-required", "wait": "submitted"}
"""Type of a step that nobody works at -> what it looks like meanwhile."""

BETWEEN = "submitted"
"""What the time between two attempts looks like."""


def timeline(steps: Steps, now_ms: int) -> Timeline:
    """Return the waterfall of a run."""
    return Timeline(lanes=[_lane(line, tries) for line, tries in steps.tries()], now=timestamp_ms(now_ms))


def _lane(line: StoredStep, tries: Mapping[int, TryView]) -> Lane:
    return Lane(
        id=line.name,
        label=line.name,
        kind="step",
        parent=line.name.rpartition("[")[0] if line.depth else None,
        task_id=line.child,
        segments=list(_segments(line, list(tries.values()))),
    )


def _segments(line: StoredStep, tries: list[TryView]) -> Iterator[Segment]:
    """Yield the attempts, and between them the time until the next; a step that was not even begun has none."""
    before: str | None = None
    for one in tries:
        begin = one.begin or one.end
        if begin is None or one.status == "skipped":
            continue
        if before is not None:
            yield Segment(begin=before, end=begin, state=BETWEEN, label=f"waits for attempt {one.attempt}")
        state = _PARKED.get(line.type, "working") if one.status == "running" else _STATES[one.status]
        label = one.status if len(tries) == 1 else f"attempt {one.attempt}, {one.status}"
        yield Segment(begin=begin, end=one.end, state=state, label=label)
        before = one.end
    if before is not None and line.status == "waiting" and is_open(line):
        yield Segment(begin=before, end=None, state=BETWEEN, label="waits for the next attempt")
