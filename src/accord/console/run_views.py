"""Views of workflow runs: rows, steps, attempts and lanes of the timeline.

They are built from the run that `workflows.stored_run` reads. This module reads nothing itself.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from accord.console.routing import V, time_of, view_of
from accord.console.views import Lane, Segment, StateName, Timeline, View
from accord.model.base import timestamp_ms
from accord.protocol.states import LOWER
from accord.workflows.attempts import FAILED_WITH_DIAGNOSTIC
from accord.workflows.source import StepPositions
from accord.workflows.state import PlanNode
from accord.workflows.step_types import StepType, step_type
from accord.workflows.stored_run import RunWait, StoredRun, StoredStep, is_reused

StepStatus = Literal["pending", "running", "waiting", "completed", "failed", "skipped", "cancelled"]
"""Status of a step. `waiting` is between two attempts. `cancelled` had started when its run ended."""


class CheckView(View, frozen=True, kw_only=True):
    """A step's verification and its result. `passed` is null before it ran."""

    type: str
    value: str
    description: str | None
    passed: bool | None


class StepView(View, frozen=True, kw_only=True):
    """A step or barrier of a run.

    `needs` are the steps it waits for, and `child` is its child task. `parent` is the map that it is an item of. With
    `is_reused` its result is from the run that this run continues. `error` and `output` may be shortened. `line` to
    `last_line` is its place in the document, counted from 1.
    """

    name: str
    type: str
    status: StepStatus
    agent: str | None
    depth: int
    parent: str | None
    needs: list[str]
    attempts: int
    begin: str | None
    end: str | None
    exit_code: int | None
    reason: str | None
    error: str | None
    output: str
    is_reused: bool
    verification: CheckView | None
    child: str | None
    line: int | None
    last_line: int | None


class TryView(View, frozen=True, kw_only=True):
    """One attempt at a step and its result."""

    attempt: int
    status: StepStatus
    begin: str | None
    end: str | None
    exit_code: int | None
    error: str | None
    output: str
    child: str | None


class StepDetail(StepView, frozen=True, kw_only=True):
    """A step with all details. `input` is its prompt or command, and `item` its item of a map."""

    description: str | None
    condition: str | None
    input: str
    item: Any
    tries: list[TryView]


class WaitView(View, frozen=True, kw_only=True):
    """A signal, approval or time that a run waits for."""

    step: str
    kind: Literal["approval", "event", "time"]
    event: str | None
    until: str | None


class RunRow(View, frozen=True, kw_only=True):
    """A run in a list. `counts` is the number of steps per status."""

    id: str
    workflow: str
    agent: str
    slug: str
    status: StateName
    begin: str
    updated_at: str
    owner: str
    parent_id: str | None
    counts: dict[str, int]
    waits: list[WaitView]
    seq: int


class RunPage(View, frozen=True, kw_only=True):
    """A page of runs."""

    items: list[RunRow]
    next: str | None
    feed: int


class RunView(RunRow, frozen=True, kw_only=True):
    """A run with all details. `document` is its YAML at the start of the run.

    `previous` is the run that it continues. `question` is the pending question, and `asks` its step.
    """

    steps: list[StepView]
    input: str
    inputs: dict[str, Any]
    output: str | None
    error: str | None
    question: str | None
    asks: str | None
    document: str
    previous: str | None
    actions: list[Literal["cancel", "rerun", "again", "approve"]]
    feed: int


class RerunView(View, frozen=True, kw_only=True):
    """A preview of a re-run:

    `again` are the steps that run, `kept` those that do not, `approvals` the approvals among these.
    """

    again: list[str]
    kept: list[str]
    approvals: list[str]


class ScheduleView(View, frozen=True, kw_only=True):
    """The schedule of a workflow."""

    cron: str
    timezone: str


class HookView(View, frozen=True, kw_only=True):
    """A webhook endpoint that starts runs. With `is_signed` it requires a signature."""

    url: str
    is_signed: bool


class WorkflowView(View, frozen=True, kw_only=True):
    """A served workflow: its names and the JSON Schema of its inputs.

    With `takes_input` it also takes a text.
    """

    slug: str
    agent: str
    name: str
    description: str
    names: list[str]
    inputs: dict[str, Any] | None
    takes_input: bool
    schedules: list[ScheduleView]
    webhooks: list[HookView]


class WorkflowList(View, frozen=True, kw_only=True):
    """The workflows that the caller may run."""

    items: list[WorkflowView]


MAX_SHOWN = 1000
"""Maximum characters of an output or error in a list of steps: a run may have thousands of steps."""

BARRIER = "barrier"
"""Type of a barrier, which is not a step but stands between steps."""

PASSED = "completed_verified"
MISSED = frozenset({"failed_verification", FAILED_WITH_DIAGNOSTIC})
"""Reasons of a failed verification (`workflows.verification`)."""


def run_row(run: StoredRun, slug: str) -> RunRow:
    """Return a run as a list row."""
    task = run.task
    return view_of(
        RunRow,
        task,
        id=task.task_id,
        workflow=run.origin.title,
        slug=slug,
        status=LOWER[task.state],
        begin=timestamp_ms(task.begun_at),
        updated_at=timestamp_ms(task.updated_at),
        counts=dict(Counter(step.status for step in run.lines() if not step.depth)),
        waits=[_wait(wait) for wait in run.waits()],
        seq=task.last_seq,
    )


def _wait(wait: RunWait) -> WaitView:
    kind = "approval" if wait.is_approval else "event" if wait.event is not None else "time"
    return view_of(WaitView, wait, kind=kind, until=time_of(wait.until))


# --- steps ------------------------------------------------------------------------------------------------------------


def step_views(run: StoredRun) -> list[StepView]:
    """Return all steps in plan order, items below their maps, barriers last."""
    positions = StepPositions(run.text, run.plan.workflow)
    steps = [_step_view(StepView, run, step, positions) for step in run.lines()]
    return steps + [_barrier(node) for node in run.state().nodes.values() if node.barrier is not None]


def step_detail(run: StoredRun, name: str) -> StepDetail | None:
    """Return all details of a step, or None if the name is unknown."""
    step = next((step for step in run.lines() if step.name == name), None)
    if step is None:
        return None
    node = run.state().nodes[name]
    assert node.step is not None  # stored steps are of steps
    return _step_view(
        StepDetail,
        run,
        step,
        StepPositions(run.text, run.plan.workflow),
        error=step.error,
        output=step.output,
        description=node.step.description,
        condition=node.step.if_,
        input=run.input_of(name),
        item=node.item,
        tries=_attempts(run, name),
    )


def _step_view(kind: type[V], run: StoredRun, stored: StoredStep, positions: StepPositions, **fields: Any) -> V:
    node = run.state().nodes[stored.name]
    step = node.step
    assert step is not None  # stored steps are of steps
    place, check = positions.of(stored.name, step), step.verification
    passed = True if stored.reason == PASSED else False if stored.reason in MISSED else None
    members = {
        "agent": step.agent or step.url,
        "parent": None if node.parent is None else node.parent.name,
        "needs": list(node.dependencies),
        "begin": time_of(stored.begun_at),
        "end": time_of(stored.ended_at),
        "error": None if stored.error is None else stored.error[:MAX_SHOWN],
        "output": stored.output[:MAX_SHOWN],
        "is_reused": is_reused(node),
        "verification": None if check is None else view_of(CheckView, check, passed=passed),
        "line": None if place is None else place.first,
        "last_line": None if place is None else place.last,
    }
    return view_of(kind, stored, **(members | fields))


def _attempts(run: StoredRun, step: str) -> list[TryView]:
    """Return the attempts at a step by number."""
    return [
        view_of(
            TryView, attempt, attempt=attempt.number, begin=time_of(attempt.begun_at), end=time_of(attempt.ended_at)
        )
        for attempt in run.attempts(step)
    ]


def _barrier(node: PlanNode) -> StepView:
    stored = StoredStep(name=node.name, type=BARRIER, status=node.status)
    none = dict.fromkeys(("agent", "parent", "verification", "line", "last_line", "begin", "end", "reason", "error"))
    end = (
        {}
        if node.final_end is None
        else {"end": timestamp_ms(node.final_end.at), "reason": node.final_end.reason, "error": node.final_end.error}
    )
    return view_of(StepView, stored, needs=list(node.dependencies), is_reused=False, **(none | end))


# --- timeline ---------------------------------------------------------------------------------------------------------

_STATES: Mapping[str, str] = {
    "running": "working",
    "completed": "completed",
    "failed": "failed",
    "skipped": "canceled",
    "cancelled": "canceled",
}
"""Status of an attempt -> state in the timeline."""

BETWEEN = "submitted"
"""State of the time between two attempts."""


def run_timeline(run: StoredRun, now_ms: int) -> Timeline:
    """Return the waterfall of a run."""
    return Timeline(lanes=[_lane(step, _attempts(run, step.name)) for step in run.lines()], now=timestamp_ms(now_ms))


def _lane(step: StoredStep, attempts: list[TryView]) -> Lane:
    return Lane(
        id=step.name,
        label=step.name,
        kind="step",
        parent=step.name.rpartition("[")[0] if step.depth else None,
        task_id=step.child,
        segments=list(_segments(step, attempts)),
    )


def _segments(step: StoredStep, attempts: list[TryView]) -> Iterator[Segment]:
    """Yield the attempts, and the time between them. A step that has not started has none."""
    previous_end: str | None = None
    for attempt in attempts:
        begin = attempt.begin or attempt.end
        if begin is None or attempt.status == "skipped":
            continue
        if previous_end is not None:
            yield Segment(begin=previous_end, end=begin, state=BETWEEN, label=f"waits for attempt {attempt.attempt}")
        is_running = attempt.status == "running"
        state = _running_state(step_type(step.type)) if is_running else _STATES[attempt.status]
        label = attempt.status if len(attempts) == 1 else f"attempt {attempt.attempt}, {attempt.status}"
        yield Segment(begin=begin, end=attempt.end, state=state, label=label)
        previous_end = attempt.end
    if previous_end is not None and step.status == "waiting":
        yield Segment(begin=previous_end, end=None, state=BETWEEN, label="waits for the next attempt")


def _running_state(row: StepType) -> str:
    return "input-required" if row.has_decision else BETWEEN if row.is_waiting else "working"
