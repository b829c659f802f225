"""A stored run: the status of its steps, and its waits.

This module only reads. The agent and the runner write, and `signals` delivers the signals that a run waits for.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

from accord.api import Store, queries
from accord.api.queries import ListedRun, RunListQuery
from accord.model.base import timestamp_ms
from accord.protocol.lifecycle import ENDED
from accord.workflows.attempts import child_key, step_values
from accord.workflows.document import Document, Step
from accord.workflows.plan import Plan
from accord.workflows.records import StepEnded, StepStarted, decode_records
from accord.workflows.run_request import DOCUMENT, PLAN, SOURCE, RunOrigin, document_of, origin_of
from accord.workflows.runner import PREFIX
from accord.workflows.source import write_document
from accord.workflows.state import FINAL, PlanNode, RunState
from accord.workflows.values import Unresolved

CANCELLED = "cancelled"
"""Status of a step that had started and not ended when its run ended. No record of its end exists."""


class StoredStep(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The stored state of one step. `depth` is the number of enclosing maps, and times are milliseconds since 1970."""

    name: str
    type: str
    status: str
    depth: int = 0
    attempts: int = 0
    begun_at: int | None = None
    ended_at: int | None = None
    exit_code: int | None = None
    reason: str | None = None
    error: str | None = None
    output: str = ""
    child: str | None = None

    @property
    def seconds(self) -> float | None:
        """Duration of the last attempt, if it has ended."""
        return None if self.begun_at is None or self.ended_at is None else (self.ended_at - self.begun_at) / 1000


class RunWait(Struct, frozen=True, kw_only=True):
    """Something a run waits for: a decision about a step, a named event, or a time in milliseconds since 1970."""

    step: str
    event: str | None = None
    until: int | None = None
    attempt: int = 1
    """Number of the attempt; a loop asks for an approval again."""

    @property
    def is_approval(self) -> bool:
        """Whether a person has to decide."""
        return self.event is None and self.until is None

    def __str__(self) -> str:
        if self.until is not None:
            return f"{self.step} until {timestamp_ms(self.until)}"
        return f"approval of {self.step}" if self.event is None else f"event {self.event}"


class StoredAttempt(Struct, frozen=True, kw_only=True):
    """The stored state of one attempt at a step. Times are milliseconds since 1970."""

    number: int
    status: str
    begun_at: int | None = None
    ended_at: int | None = None
    exit_code: int | None = None
    error: str | None = None
    output: str = ""
    child: str | None = None


class StoredRun:
    """A run as it is stored: its task, its origin and its journal. Everything is decoded once, when it is used."""

    def __init__(self, task: ListedRun, entries: Mapping[str, str]) -> None:
        """Store a task and the entries of its journal."""
        self.task = task
        self.entries = entries

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, so its steps do not change anymore."""
        return self.task.state in ENDED

    @cached_property
    def origin(self) -> RunOrigin:
        """The origin of the run."""
        return origin_of(self.task.origin)

    @cached_property
    def plan(self) -> Plan:
        """The plan of the run."""
        return msgspec.json.decode(self.entries[PLAN], type=Plan)

    @cached_property
    def document(self) -> Document:
        """The document of the run, as it was when the run started."""
        return document_of(self.entries[DOCUMENT])

    @cached_property
    def text(self) -> str:
        """The text of the document: that of its file, or the rendered document."""
        return self.entries.get(SOURCE) or write_document(self.document)

    @cached_property
    def records(self) -> dict[str, str]:
        """The records of its steps, by key."""
        return {key.removeprefix(PREFIX): entry for key, entry in self.entries.items() if key.startswith(PREFIX)}

    @cached_property
    def _attempts(self) -> dict[str, dict[int, tuple[StepStarted | None, StepEnded | None]]]:
        """Start and end of each attempt, by step and number."""
        by_step: dict[str, dict[int, tuple[StepStarted | None, StepEnded | None]]] = {}
        for record in decode_records(self.records.items()):
            attempts = by_step.setdefault(record.step, {})
            begun, ended = attempts.get(record.attempt, (None, None))
            attempts[record.attempt] = (record, ended) if isinstance(record, StepStarted) else (begun, record)
        return by_step

    @cached_property
    def _state(self) -> RunState:
        pairs = (pair for attempts in self._attempts.values() for pair in attempts.values())
        return RunState(self.plan, (record for pair in pairs for record in pair if record is not None))

    def state(self) -> RunState:
        """Return the state of the run."""
        return self._state

    # --- steps --------------------------------------------------------------------------------------------------------

    @cached_property
    def _steps(self) -> list[StoredStep]:
        nodes = self._state.nodes.values()
        return [line for node in nodes if node.parent is None for line in self._lines(node, 0)]

    def lines(self) -> list[StoredStep]:
        """Return its steps in the order of the plan, items below their maps."""
        return self._steps

    def _lines(self, node: PlanNode, depth: int) -> Iterator[StoredStep]:
        if node.step is not None:
            yield self._line(node, node.step, depth)
        for item in node.items or ():
            yield from self._lines(item, depth + 1)

    def _line(self, node: PlanNode, step: Step, depth: int) -> StoredStep:
        begun, ended = node.last_start, node.last_end
        end = ended if ended is not None and (begun is None or ended.attempt >= begun.attempt) else None
        is_cut = self.is_over and begun is not None and node.status not in FINAL
        return StoredStep(
            name=node.name,
            type=step.kind,
            status=CANCELLED if is_cut else node.status,
            depth=depth,
            attempts=node.attempt if begun is not None else 0,
            begun_at=None if begun is None else begun.at,
            ended_at=end.at if end is not None else self.task.updated_at if is_cut else None,
            exit_code=None if end is None else end.exit_code,
            reason=None if end is None else end.reason,
            error=None if end is None else end.error,
            output="" if end is None else end.output,
            child=self.child(node.name, node.attempt),
        )

    def attempts(self, step: str) -> list[StoredAttempt]:
        """Return the attempts at a step by number."""
        return [self._attempt(step, number, *pair) for number, pair in sorted(self._attempts.get(step, {}).items())]

    def _attempt(self, step: str, number: int, begun: StepStarted | None, ended: StepEnded | None) -> StoredAttempt:
        common: dict[str, Any] = {"number": number, "child": self.child(step, number)}
        common["begun_at"] = None if begun is None else begun.at
        if ended is None:
            is_cut = self.is_over
            end = self.task.updated_at if is_cut else None
            return StoredAttempt(status=CANCELLED if is_cut else "running", ended_at=end, **common)
        return StoredAttempt(
            status=ended.status,
            ended_at=ended.at,
            exit_code=ended.exit_code,
            error=ended.error,
            output=ended.output,
            **common,
        )

    def child(self, step: str, attempt: int) -> str | None:
        """Return the child task of an attempt, if there is one."""
        entry = self.entries.get(child_key(step, attempt))
        return None if entry is None else msgspec.json.decode(entry, type=str)

    def input_of(self, step: str) -> str:
        """Return the prompt, command, list or other input of a step with its templates evaluated.

        Variables of the environment stay names: more people may see a run than the environment.
        """
        node = self._state.nodes[step]
        fields = () if node.step is None else node.step.row.shows
        given = next((value for name in fields if (value := getattr(node.step, name)) not in (None, "", {})), "")
        if not isinstance(given, str):
            return msgspec.json.encode(given).decode()
        try:
            return step_values(self._state, node, run={"id": self.task.task_id}).text(given)
        except Unresolved:
            return given

    def waits(self) -> list[RunWait]:
        """Return the waits of the run, except those for agents."""
        if self.is_over:
            return []
        running = self._state.running.values()
        return [_wait(node, node.step) for node in running if node.step is not None and node.step.row.is_waiting]


def _wait(node: PlanNode, step: Step) -> RunWait:
    if step.row.has_decision or step.event is not None:
        return RunWait(
            step=node.name, event=step.event, attempt=1 if node.last_start is None else node.last_start.attempt
        )
    return RunWait(step=node.name, until=0 if node.last_start is None else node.last_start.until or 0)


def is_reused(node: PlanNode) -> bool:
    """Whether an earlier run executed the step: it completed without a start in this run."""
    if node.status != "completed" or node.step is None:
        return False
    if node.is_map:
        return bool(node.items) and all(is_reused(item) for item in node.items or ())
    return node.last_start is None


async def load_stored_run(store: Store, run_id: str) -> StoredRun | None:
    """Return a run, or None if the id is unknown."""
    runs = await queries.list_runs(store, RunListQuery(task_id=run_id, inner=True, limit=1))
    if not runs:
        return None
    return StoredRun(runs[0], await queries.load_steps(store, runs[0].tenant, run_id))


def encode_decision(*, is_approved: bool, comment: str = "") -> dict[str, Any]:
    """Return the signal that decides an approval."""
    return {"approved": is_approved, "comment": comment}
