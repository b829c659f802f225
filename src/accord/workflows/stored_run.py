"""A stored run: the status of its steps, and its waits.

It only reads; the agent and the runner write, and `signals` delivers what a run waits for.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Struct

from accord.model.base import timestamp_ms
from accord.protocol.lifecycle import ENDED
from accord.storage.commands import steps, workflow_runs
from accord.storage.commands.workflow_runs import ListedRun, RunListQuery
from accord.storage.store import Store
from accord.workflows.attempts import child_key
from accord.workflows.document import Document, Step
from accord.workflows.plan import Plan
from accord.workflows.records import Record
from accord.workflows.run_request import DOCUMENT, PLAN, SOURCE, RunOrigin, document_of, origin_of
from accord.workflows.runner import PREFIX
from accord.workflows.source import write_document
from accord.workflows.state import FINAL, PARKED, PlanNode, RunState

CANCELLED = "cancelled"
"""What a step is that had begun and not ended when its run did: nothing is written down about its end."""

_decoder = msgspec.json.Decoder(Record)


class StoredStep(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One step as it stands; `depth` is how many maps it is an item of, times are milliseconds since 1970."""

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
        """How long its last attempt took, if that has ended."""
        return None if self.begun_at is None or self.ended_at is None else (self.ended_at - self.begun_at) / 1000


class RunWait(Struct, frozen=True, kw_only=True):
    """What a run waits for: a decision about a step, an event by its name, or a time in milliseconds since 1970."""

    step: str
    event: str | None = None
    until: int | None = None
    attempt: int = 1
    """Which time the step waits: a loop asks for an approval again."""

    @property
    def is_approval(self) -> bool:
        """Whether somebody has to decide."""
        return self.event is None and self.until is None

    def __str__(self) -> str:
        if self.until is not None:
            return f"{self.step} until {timestamp_ms(self.until)}"
        return f"approval of {self.step}" if self.event is None else f"event {self.event}"


class StoredRun(Struct, frozen=True):
    """A run as it is written down: what is known of its task, where it comes from, and its journal."""

    task: ListedRun
    entries: dict[str, str]

    @property
    def is_over(self) -> bool:
        """Whether it has ended, so that nothing more becomes of its steps."""
        return self.task.state in ENDED

    @property
    def origin(self) -> RunOrigin:
        """Where it comes from."""
        return origin_of(self.task.origin)

    @property
    def plan(self) -> Plan:
        """What it follows."""
        return msgspec.json.decode(self.entries[PLAN], type=Plan)

    @property
    def document(self) -> Document:
        """The document that it is of, as it was when it began."""
        return document_of(self.entries[DOCUMENT])

    @property
    def text(self) -> str:
        """That document as its file has it, or would have it."""
        return self.entries.get(SOURCE) or write_document(self.document)

    @property
    def records(self) -> dict[str, str]:
        """What is written down of its steps, by the keys of the records."""
        return {key.removeprefix(PREFIX): entry for key, entry in self.entries.items() if key.startswith(PREFIX)}

    def state(self) -> RunState:
        """Return where it stands."""
        found = (_decoder.decode(entry) for key, entry in self.records.items() if key.endswith((":begun", ":ended")))
        return RunState(self.plan, found)

    def lines(self, state: RunState | None = None) -> list[StoredStep]:
        """Return its steps in the order of the plan, items below their maps; of its state, for whoever has it."""
        nodes = (state or self.state()).nodes.values()
        return [line for node in nodes if node.parent is None for line in self._lines(node, 0)]

    def _lines(self, node: PlanNode, depth: int) -> Iterator[StoredStep]:
        if node.step is not None:
            yield self._line(node, node.step, depth)
        for item in node.items or ():
            yield from self._lines(item, depth + 1)

    def _line(self, node: PlanNode, step: Step, depth: int) -> StoredStep:
        begun, ended = node.begun, node.ended
        is_over = ended is not None and (begun is None or ended.attempt >= begun.attempt)
        end = ended if is_over else None
        is_cut = self.is_over and begun is not None and node.standing not in FINAL
        return StoredStep(
            name=node.name,
            type=step.kind,
            status=CANCELLED if is_cut else node.standing,
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

    def child(self, step: str, attempt: int) -> str | None:
        """Return the task that does an attempt at a step, or did it, if one does."""
        entry = self.entries.get(child_key(step, attempt))
        return None if entry is None else msgspec.json.decode(entry, type=str)

    def waits(self, state: RunState | None = None) -> list[RunWait]:
        """Return what it waits for, besides its agents; of its state, for whoever has it."""
        if self.is_over:
            return []
        running = (state or self.state()).running.values()
        return [_wait(node, node.step) for node in running if node.step is not None and node.step.type in PARKED]


def _wait(node: PlanNode, step: Step) -> RunWait:
    if step.type == "approval" or step.event is not None:
        return RunWait(step=node.name, event=step.event, attempt=1 if node.begun is None else node.begun.attempt)
    return RunWait(step=node.name, until=0 if node.begun is None else node.begun.until or 0)


async def load_stored_run(store: Store, run_id: str) -> StoredRun | None:
    """Return a run; None if there is none of that id."""
    found = await store.read(workflow_runs.list_runs, RunListQuery(task_id=run_id, inner=True, limit=1))
    if not found:
        return None
    return StoredRun(found[0], await store.read(steps.load_steps, found[0].tenant, run_id))


def encode_decision(*, is_approved: bool, comment: str = "") -> dict[str, Any]:
    """Return what is handed in to an approval."""
    return {"approved": is_approved, "comment": comment}
