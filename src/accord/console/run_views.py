"""Views of workflow runs: rows, steps, attempts and lanes of the timeline.

They are built from the run that `workflows.stored_run` reads. This module reads nothing itself.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from accord.api.queries import ListedRun as Noted
from accord.console.routing import time_of
from accord.console.views import Lane, Segment, StateName, Timeline, View
from accord.model.base import timestamp_ms
from accord.protocol.states import LOWER
from accord.workflows.attempts import WITH_ADVICE
from accord.workflows.document import Step
from accord.workflows.run_request import RunOrigin
from accord.workflows.source import StepPositions
from accord.workflows.state import FINAL, PlanNode
from accord.workflows.step_types import StepType, step_type
from accord.workflows.stored_run import CANCELLED, RunWait, StoredRun, StoredStep, is_reused

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
MISSED = frozenset({"failed_verification", WITH_ADVICE})
"""Reasons of a failed verification (`workflows.verification`)."""


def run_row(noted: Noted, origin: RunOrigin, slug: str, lines: list[StoredStep], waits: list[RunWait]) -> RunRow:
    """Return a run as a list row."""
    return RunRow(
        id=noted.task_id,
        workflow=origin.title,
        agent=noted.agent,
        slug=slug,
        status=LOWER[noted.state],  # type: ignore[arg-type]  # all of them are states
        begin=timestamp_ms(noted.begun_at),
        updated_at=timestamp_ms(noted.updated_at),
        owner=noted.owner,
        parent_id=noted.parent_id,
        counts=dict(Counter(line.status for line in lines if not line.depth)),
        waits=[_wait(one) for one in waits],
        seq=noted.last_seq,
    )


def _wait(wait: RunWait) -> WaitView:
    kind = "approval" if wait.is_approval else "event" if wait.event is not None else "time"
    return WaitView(step=wait.step, kind=kind, event=wait.event, until=time_of(wait.until))  # type: ignore[arg-type]


# --- steps ------------------------------------------------------------------------------------------------------------


class RunStepViews:
    """The views of the steps of one run."""

    def __init__(self, found: StoredRun) -> None:
        """Read the records of a run once."""
        self.found, self.state = found, found.state()
        self.lines = found.lines()
        self._places = StepPositions(found.text, self.state.plan.workflow)

    def views(self) -> list[StepView]:
        """Return all steps in plan order, items below their maps, barriers last."""
        steps = [StepView(**self._shown(line)) for line in self.lines]
        return steps + [_barrier(node) for node in self.state.nodes.values() if node.barrier is not None]

    def detail(self, name: str) -> StepDetail | None:
        """Return all details of a step, or None if the name is unknown."""
        line = next((one for one in self.lines if one.name == name), None)
        if line is None:
            return None
        node, step = self._known(line)
        return StepDetail(
            **{**self._shown(line), "error": line.error, "output": line.output},
            description=step.description,
            condition=step.if_,
            input=self.found.input_of(name),
            item=node.item,
            tries=self.attempts(name),
        )

    def _known(self, line: StoredStep) -> tuple[PlanNode, Step]:
        node = self.state.nodes[line.name]
        assert node.step is not None  # lines are of steps
        return node, node.step

    def _shown(self, line: StoredStep) -> dict[str, Any]:
        node, step = self._known(line)
        place = self._places.of(line.name, step)
        return {
            "name": line.name,
            "type": line.type,
            "status": line.status,
            "agent": step.agent or step.url,
            "depth": line.depth,
            "parent": None if node.parent is None else node.parent.name,
            "needs": list(node.after),
            "attempts": line.attempts,
            "begin": time_of(line.begun_at),
            "end": time_of(line.ended_at),
            "exit_code": line.exit_code,
            "reason": line.reason,
            "error": None if line.error is None else line.error[:MAX_SHOWN],
            "output": line.output[:MAX_SHOWN],
            "is_reused": is_reused(node),
            "verification": _check_view(step, line),
            "child": line.child,
            "line": None if place is None else place.first,
            "last_line": None if place is None else place.last,
        }

    def attempts(self, name: str) -> list[TryView]:
        """Return the attempts at a step by number."""
        return [
            TryView(
                attempt=one.number,
                status=one.status,  # type: ignore[arg-type]  # all of them are statuses
                begin=time_of(one.begun_at),
                end=time_of(one.ended_at),
                exit_code=one.exit_code,
                error=one.error,
                output=one.output,
                child=one.child,
            )
            for one in self.found.attempts(name)
        ]


def _barrier(node: PlanNode) -> StepView:
    end = node.end
    return StepView(
        name=node.name,
        type=BARRIER,
        status=node.standing,
        agent=None,
        depth=0,
        parent=None,
        needs=list(node.after),
        attempts=0,
        begin=None,
        end=None if end is None else timestamp_ms(end.at),
        exit_code=None,
        reason=None if end is None else end.reason,
        error=None if end is None else end.error,
        output="",
        is_reused=False,
        verification=None,
        child=None,
        line=None,
        last_line=None,
    )


def _check_view(step: Step, line: StoredStep) -> CheckView | None:
    """Return a step's verification and its result."""
    wanted = step.verification
    if wanted is None:
        return None
    passed = True if line.reason == PASSED else False if line.reason in MISSED else None
    return CheckView(type=wanted.type, value=wanted.value, description=wanted.description, passed=passed)


def is_open(line: StoredStep) -> bool:
    """Whether a step may still change."""
    return line.status not in FINAL and line.status != CANCELLED


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


def run_timeline(steps: RunStepViews, now_ms: int) -> Timeline:
    """Return the waterfall of a run."""
    return Timeline(lanes=[_lane(line, steps.attempts(line.name)) for line in steps.lines], now=timestamp_ms(now_ms))


def _lane(line: StoredStep, tries: list[TryView]) -> Lane:
    return Lane(
        id=line.name,
        label=line.name,
        kind="step",
        parent=line.name.rpartition("[")[0] if line.depth else None,
        task_id=line.child,
        segments=list(_segments(line, tries)),
    )


def _segments(line: StoredStep, tries: list[TryView]) -> Iterator[Segment]:
    """Yield the attempts, and the time between them. A step that has not started has none."""
    before: str | None = None
    for one in tries:
        begin = one.begin or one.end
        if begin is None or one.status == "skipped":
            continue
        if before is not None:
            yield Segment(begin=before, end=begin, state=BETWEEN, label=f"waits for attempt {one.attempt}")
        state = _running_state(step_type(line.type)) if one.status == "running" else _STATES[one.status]
        label = one.status if len(tries) == 1 else f"attempt {one.attempt}, {one.status}"
        yield Segment(begin=begin, end=one.end, state=state, label=label)
        before = one.end
    if before is not None and line.status == "waiting" and is_open(line):
        yield Segment(begin=before, end=None, state=BETWEEN, label="waits for the next attempt")


def _running_state(row: StepType) -> str:
    return "input-required" if row.has_decision else BETWEEN if row.is_waiting else "working"
