"""Runs of workflows as pages show them: what is written down of one, as rows, steps and lanes.

It reads nothing and decides nothing: a run comes in as `workflows.stored_run` has it and goes out as
`console.flows.views`. What is asked and who may see it is `console.flows.api`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from accord.console.flows.views import CheckView, RunRow, StepDetail, StepView, TryView, WaitView
from accord.console.routing import time_of
from accord.model.base import timestamp_ms
from accord.protocol.states import LOWER
from accord.storage.commands.journal import Begun as Noted
from accord.workflows.attempts import WITH_ADVICE, step_values
from accord.workflows.document import Step
from accord.workflows.records import Record, StepEnded, StepStarted
from accord.workflows.run_request import RunOrigin
from accord.workflows.source import StepPositions
from accord.workflows.state import FINAL, PlanNode, RunState
from accord.workflows.stored_run import CANCELLED, RunWait, StoredRun, StoredStep
from accord.workflows.values import Unresolved

SHOWN = 1000
"""Characters of an output or an error that a list of steps shows: a run may have thousands of them."""

BARRIER = "barrier"
"""The type of what is no step and stands between some."""

PASSED = "completed_verified"
MISSED = frozenset({"failed_verification", WITH_ADVICE})
"""Reasons that say what a verification came to (`workflows.verification`)."""

_records = msgspec.json.Decoder(Record)


def row(noted: Noted, origin: RunOrigin, slug: str, lines: list[StoredStep], waits: list[RunWait]) -> RunRow:
    """Return a run as a list shows it."""
    return RunRow(
        id=noted.task_id,
        workflow=origin.name if origin.name == origin.workflow else f"{origin.name}/{origin.workflow}",
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


class Steps:
    """The steps of one run, as they stand."""

    def __init__(self, found: StoredRun) -> None:
        """Read what is written down of it, once."""
        self.found, self.state = found, found.state()
        self.lines = found.lines(self.state)
        self._places = StepPositions(found.text, self.state.plan.workflow)

    def views(self) -> list[StepView]:
        """Return them in the order of the plan, items below their maps, barriers last."""
        steps = [StepView(**self._shown(line)) for line in self.lines]
        return steps + [_barrier(node) for node in self.state.nodes.values() if node.barrier is not None]

    def detail(self, name: str) -> StepDetail | None:
        """Return all of one step; None if there is none of that name."""
        line = next((one for one in self.lines if one.name == name), None)
        if line is None:
            return None
        node, step = self._known(line)
        return StepDetail(
            **{**self._shown(line), "error": line.error, "output": line.output},
            description=step.description,
            condition=step.if_,
            input=_told(self.state, node, step, self.found.task.task_id),
            item=node.item,
            tries=[self._try(number, *both) for number, both in sorted(self._tries(name).items())],
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
            "error": None if line.error is None else line.error[:SHOWN],
            "output": line.output[:SHOWN],
            "is_reused": is_reused(node),
            "verification": _checked(step, line),
            "child": line.child,
            "line": None if place is None else place.first,
            "last_line": None if place is None else place.last,
        }

    # --- attempts -------------------------------------------------------------------------------------------------

    def tries(self) -> Iterator[tuple[StoredStep, dict[int, TryView]]]:
        """Yield every step with its attempts by their numbers."""
        found: dict[str, dict[int, tuple[StepStarted | None, StepEnded | None]]] = {}
        for record in self._written():
            _put(found.setdefault(record.step, {}), record)
        for line in self.lines:
            tries = found.get(line.name, {})
            yield line, {number: self._try(number, *tries[number], line.name) for number in sorted(tries)}

    def _written(self) -> Iterator[Record]:
        for key, entry in self.found.records.items():
            if key.endswith((":begun", ":ended")):
                yield _records.decode(entry)

    def _tries(self, name: str) -> dict[int, tuple[StepStarted | None, StepEnded | None, str]]:
        found: dict[int, tuple[StepStarted | None, StepEnded | None]] = {}
        for record in self._written():
            if record.step == name:
                _put(found, record)
        return {number: (*both, name) for number, both in found.items()}

    def _try(self, number: int, begun: StepStarted | None, ended: StepEnded | None, name: str) -> TryView:
        is_cut = ended is None and self.found.is_over
        status = ended.status if ended is not None else CANCELLED if is_cut else "running"
        end = ended.at if ended is not None else self.found.task.updated_at if is_cut else None
        return TryView(
            attempt=number,
            status=status,  # type: ignore[arg-type]  # all of them are statuses
            begin=None if begun is None else timestamp_ms(begun.at),
            end=time_of(end),
            exit_code=None if ended is None else ended.exit_code,
            error=None if ended is None else ended.error,
            output="" if ended is None else ended.output,
            child=self.found.child(name, number),
        )


def _put(tries: dict[int, tuple[StepStarted | None, StepEnded | None]], record: Record) -> None:
    begun, ended = tries.get(record.attempt, (None, None))
    tries[record.attempt] = (record, ended) if isinstance(record, StepStarted) else (begun, record)


def is_reused(node: PlanNode) -> bool:
    """Whether a step was done by an earlier run: it ended well without a start here (`workflows.run_request`)."""
    if node.standing != "completed" or node.step is None:
        return False
    if node.is_map:
        return bool(node.items) and all(is_reused(item) for item in node.items or ())
    return node.begun is None


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


def _checked(step: Step, line: StoredStep) -> CheckView | None:
    """Return what a step's verification says, and what it came to."""
    wanted = step.verification
    if wanted is None:
        return None
    passed = True if line.reason == PASSED else False if line.reason in MISSED else None
    return CheckView(type=wanted.type, value=wanted.value, description=wanted.description, passed=passed)


# --- what a step is told ----------------------------------------------------------------------------------------------

_TOLD: Mapping[str, Callable[[Step], Any]] = {
    "agent": lambda step: step.task,
    "a2a": lambda step: step.task,
    "approval": lambda step: step.task,
    "deterministic": lambda step: step.command,
    "worktree": lambda step: step.branch,
    "workflow": lambda step: step.input,
    "wait": lambda step: step.event or step.until,
    "map": lambda step: step.over,
}
"""Type of a step -> what says what is to be done."""


def _given(step: Step) -> Any:
    """Return what a step of an added type is given."""
    return step.with_ or None


def _told(state: RunState, node: PlanNode, step: Step, run_id: str) -> str:
    """Return what a step is told, with the values that it speaks of.

    Those of the environment stay names: pages are for more people than the environment is.
    """
    said = _TOLD.get(step.kind, _given)(step)
    if said is None:
        return ""
    if not isinstance(said, str):
        return msgspec.json.encode(said).decode()
    try:
        return step_values(state, node, run={"id": run_id}).text(said)
    except Unresolved:
        return said


def is_open(line: StoredStep) -> bool:
    """Whether a step may still change."""
    return line.status not in FINAL and line.status != CANCELLED
