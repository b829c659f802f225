"""The waterfall of a task: its states, runs and waits, the tasks that it began and its webhooks, on one axis of time.

Pure: rows and statuses in, lanes out. Workflows have one of their own, with their steps.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec import Struct

from accord.console.rows import STATES, words_of
from accord.console.views import Lane, Segment, TaskRow
from accord.model import TaskState
from accord.model.base import timestamp_ms
from accord.protocol import lifecycle
from accord.storage.commands.browsing import Changed
from accord.storage.commands.pushes import Tried

_ENDED = frozenset(STATES[state] for state in lifecycle.ENDED)

LABELS = {
    TaskState.WORKING: ("attempt", "Run"),
    TaskState.INPUT_REQUIRED: ("wait", "Question"),
    TaskState.AUTH_REQUIRED: ("wait", "Credentials"),
}
"""State -> the kind of lane that a stay in it has, and what it is called."""


class Stay(Struct, frozen=True):
    """A time in one state; one without an end goes on."""

    state: TaskState
    begin: int
    end: int | None
    label: str


def lanes(
    row: TaskRow, statuses: Sequence[Changed], children: Iterable[TaskRow], tried: Iterable[tuple[str, Tried]]
) -> list[Lane]:
    """Return the lanes of a task, its own first."""
    stays = _stays(row, statuses)
    own = Lane(
        id="task",
        label=row.title or row.agent,
        kind="task",
        parent=None,
        task_id=row.id,
        segments=[_segment(stay) for stay in stays],
    )
    return [own, *_turns(stays, row.id), *(_child(child) for child in children), *_deliveries(tried, row.id)]


def _stays(row: TaskRow, statuses: Sequence[Changed]) -> list[Stay]:
    """Return where a task has been; one whose log is gone has been where it is."""
    points = [(TaskState.SUBMITTED, _ms(row.created_at), "")]
    for one in statuses:
        state, said = one.status.state, words_of(one.status.message) or ""
        if state is points[-1][0] and state not in LABELS:
            continue  # an end that repeats changes nothing
        if state is points[-1][0] is TaskState.WORKING:
            continue  # progress, not another run
        points.append((state, max(one.at, points[-1][1]), said))
    if STATES[points[-1][0]] != row.status:
        state = next(state for state, name in STATES.items() if name == row.status)
        points.append((state, max(_ms(row.updated_at), points[-1][1]), row.status_message or ""))
    ends = [begin for _, begin, _ in points[1:]]
    last = points[-1]
    ends_at = last[1] if last[0] in lifecycle.ENDED else None
    return [Stay(state, begin, end, label) for (state, begin, label), end in zip(points, [*ends, ends_at], strict=True)]


def _turns(stays: Sequence[Stay], task_id: str) -> list[Lane]:
    """Return a lane for each run and each question."""
    found: list[Lane] = []
    counts: dict[str, int] = {}
    for stay in stays:
        if stay.state not in LABELS:
            continue
        kind, name = LABELS[stay.state]
        counts[name] = number = counts.get(name, 0) + 1
        found.append(
            Lane(
                id=f"{kind}-{name}-{number}",
                label=f"{name} {number}",
                kind="attempt" if kind == "attempt" else "wait",
                parent="task",
                task_id=task_id,
                segments=[_segment(stay)],
            )
        )
    return found


def _child(row: TaskRow) -> Lane:
    end = row.updated_at if row.status in _ENDED else None
    return Lane(
        id=f"child-{row.id}",
        label=row.agent,
        kind="child",
        parent="task",
        task_id=row.id,
        segments=[Segment(begin=row.created_at, end=end, state=row.status, label=row.title)],
    )


def _deliveries(tried: Iterable[tuple[str, Tried]], task_id: str) -> list[Lane]:
    by_push: dict[str, list[Segment]] = {}
    for push, one in sorted(tried, key=lambda found: found[1].id):
        state = "delivered" if one.error is None else "failed"
        end = timestamp_ms(one.at + one.duration_ms)
        label = f"event {one.seq}" + (f": {one.status or one.error}" if one.error else "")
        by_push.setdefault(push, []).append(Segment(begin=timestamp_ms(one.at), end=end, state=state, label=label))
    return [
        Lane(
            id=f"delivery-{push}",
            label=f"Webhook {push}",
            kind="delivery",
            parent="task",
            task_id=task_id,
            segments=all,
        )
        for push, all in by_push.items()
    ]


def _segment(stay: Stay) -> Segment:
    end = None if stay.end is None else timestamp_ms(stay.end)
    return Segment(begin=timestamp_ms(stay.begin), end=end, state=STATES[stay.state], label=stay.label)


def _ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
