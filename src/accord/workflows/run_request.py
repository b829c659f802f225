"""The request of a run: its input, its origin, and the records that it reuses.

A caller gives an input, values of declared inputs and the name of a workflow. Runs, schedules, webhooks and commands
give a whole `RunRequest`, which may name an earlier run. Steps that completed there are not executed again.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.api import Context, Rejected
from accord.api.access import SKILL_KEYS
from accord.api.storage import ORIGIN_STEP
from accord.workflows.attempts import INNER
from accord.workflows.document import Document, Step
from accord.workflows.plan import Plan
from accord.workflows.records import BY_START, Record, StepEnded, StepStarted, decode_records
from accord.workflows.references import in_order, reachable
from accord.workflows.state import PlanNode, RunState

PLAN, DOCUMENT, SOURCE = "flow-plan", "flow-document", "flow-source"
"""Journal keys of a run's plan, its document, and the text of the document.

`ORIGIN_STEP` identifies a task as a run. A document that was built without a file has no text.
"""


class RunRequest(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """The request of a run, as a program sends it in the data of a message.

    With `check_agents` the run starts only if all its A2A agents can be reached.
    """

    input: str = ""
    inputs: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    workflow: str | None = None
    start_from: str | None = None
    previous_run: str | None = None
    check_agents: bool = False


class RunOrigin(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The origin of a run: its document by name, its workflow, and its request.

    `directory` and `vars` are those with which the document was served. With them and the document, the same agent can
    be made again.
    """

    name: str
    workflow: str
    directory: str
    vars: dict[str, Any] = {}
    wish: RunRequest = RunRequest()

    @property
    def title(self) -> str:
        """The name of the document, and of its workflow if that is another."""
        return self.name if self.name == self.workflow else f"{self.name}/{self.workflow}"


def origin_entries(origin: RunOrigin, document: str, text: str | None = None) -> dict[str, str]:
    """Return the journal entries of a run's origin: the document as JSON, and the text of its file."""
    entries = {ORIGIN_STEP: msgspec.json.encode(origin).decode(), DOCUMENT: document}
    return entries if text is None else {**entries, SOURCE: text}


def origin_of(entry: str) -> RunOrigin:
    """Return the origin in a journal entry."""
    return msgspec.json.decode(entry, type=RunOrigin)


def document_of(entry: str) -> Document:
    """Return the document in a journal entry."""
    return msgspec.json.decode(entry, type=Document)


def own_name(document: Document, directory: Path, vars: Mapping[str, Any]) -> str:
    """Return the unique name of the agent that runs a document for a command.

    All commands share one store, and two documents may have the same name. They must not execute each other's tasks.
    """
    content = msgspec.json.encode((document, str(directory), dict(vars)), order="deterministic")
    return f"{document.name}@{hashlib.sha256(content).hexdigest()[:12]}"


def read_run_request(ctx: Context, document: Document) -> RunRequest:
    """Return the request of a run; raises Rejected."""
    data, metadata = ctx.data, ctx.message.metadata or {}
    if metadata.get(INNER) is True and _is_internal(ctx):
        return _decode_request(data)
    skill = _requested_workflow(metadata) or _requested_workflow(
        ctx.task.metadata or {}
    )  # a task has the metadata of the request that started it
    if skill is not None and document.workflow(skill) is None:
        names = ", ".join(workflow.name for workflow in document.workflows) or "none"
        raise Rejected(f"There is no workflow {skill!r}: there are {names}")
    if not isinstance(data, dict):
        return RunRequest(input=ctx.text, workflow=skill)
    unknown = ", ".join(map(repr, sorted(data.keys() - document.inputs.keys())))
    if unknown:
        raise Rejected(f"There is no input {unknown}: there are {', '.join(document.inputs) or 'none'}")
    text = "".join(part.text or "" for part in ctx.message.parts)
    return RunRequest(input=text, inputs=data, workflow=skill)


def _requested_workflow(metadata: Mapping[str, Any]) -> str | None:
    return next((metadata[key] for key in SKILL_KEYS if isinstance(metadata.get(key), str)), None)


def _is_internal(ctx: Context) -> bool:
    """Whether a message comes from another run, or from a caller without an origin.

    Every edge of the server sets one.
    """
    return ctx.is_child or ctx.caller.origin is None


def _decode_request(data: object) -> RunRequest:
    try:
        return msgspec.convert(data, RunRequest)
    except msgspec.ValidationError as error:
        raise Rejected(str(error)) from error


R = TypeVar("R", StepStarted, StepEnded)


def carry_over_records(plan: Plan, entries: Mapping[str, str], start_from: str | None, now: int) -> list[Record]:
    """Return the records of an earlier run, given by key, that a new run starts with.

    A step is reused if it ended well and all its dependencies are reused. An approval that the owner may not give is
    valid for one run, and is never reused. For a map that has not ended well, its list and the records of the items
    that ended well are reused. With `start_from`, that step and all later ones run again, and all earlier ones must be
    reusable. Without an earlier run they are skipped. Raises ValueError.
    """
    state = RunState(plan, _matching_records(plan, entries))
    if start_from is not None and (start_from not in state.nodes or state.nodes[start_from].step is None):
        raise ValueError(f"There is no step called {start_from!r} to start from")
    again = set() if start_from is None else {start_from, *_reachable(state, start_from, forward=True)}
    if start_from is not None:
        _check_approvals(state, start_from)
    kept = _reusable_steps(state, again)
    records = [record for name in state.nodes if "[" not in name for record in _carried(state, name, kept, again, now)]
    if start_from is None:
        return records
    before = _reachable(state, start_from, forward=False)
    missing = [name for name, node in state.nodes.items() if name in before - kept and node.step is not None]
    if missing and entries:
        raise ValueError(f"The earlier run has not completed {', '.join(missing)}, which {start_from} comes after")
    return [*records, *(_skipped_before(name, start_from, now) for name in missing)]


def _check_approvals(state: RunState, start_from: str) -> None:
    """Refuse to start after an approval that the owner of the run may not give, because that would give it."""
    steps = [state.nodes[name].step for name in _reachable(state, start_from, forward=False)]
    if ruled := sorted(step.name for step in steps if step is not None and step.is_ruled_approval):
        raise ValueError(f"No run can start from {start_from!r}: it comes after the approval {', '.join(ruled)}")


def _matching_records(plan: Plan, entries: Mapping[str, str]) -> list[Record]:
    """Return the records whose steps exist in the plan. Records of maps must belong to maps."""
    steps = {step.name: step for step in plan.steps}
    return [record for record in decode_records(entries.items()) if _matches_plan(steps, record)]


def _matches_plan(steps: Mapping[str, Step], record: Record) -> bool:
    name, *indexes = record.step.split("[")
    step = steps.get(name)
    for _ in indexes:
        step = None if step is None else step.step
    is_map = step is not None and step.row.executor == "items"
    return step is not None and (isinstance(record, StepEnded) or (record.items is not None) == is_map)


def _reusable_steps(state: RunState, again: set[str]) -> set[str]:
    """Return the steps that ended well and depend only on such steps. A barrier needs as many as its mode demands."""
    kept: set[str] = set()
    for name in in_order({node.name: node.dependencies for node in state.nodes.values() if node.parent is None}):
        node = state.nodes[name]
        held = sum(name in kept for name in node.dependencies)
        if (
            node.name in again
            or held < node.required_dependencies
            or (node.step is not None and node.step.is_ruled_approval)
        ):
            continue
        if node.barrier is not None or _ended_well(node):
            kept.add(node.name)
    return kept


def _ended_well(node: PlanNode) -> bool:
    return node.final_end is not None and node.final_end.cause is None


def _reachable(state: RunState, start: str, *, forward: bool) -> set[str]:
    nodes = state.nodes.values()
    if forward:
        return reachable({node.name: [other.name for other in node.dependents] for node in nodes}, start)
    return reachable({node.name: node.dependencies for node in nodes}, start)


def _carried(state: RunState, name: str, kept: set[str], again: set[str], now: int) -> Iterator[Record]:
    node = state.nodes[name]
    if name not in again and all(other in kept for other in node.dependencies):
        yield from _item_records(node, now, every=name in kept)
    if name in kept and node.step is not None and node.final_end is not None:
        yield _as_first_attempt(node.final_end, now)


def _item_records(node: PlanNode, now: int, *, every: bool) -> Iterator[Record]:
    """Yield the list of a map and the records of its items: of every item, or of those that ended well."""
    if node.items is None or node.last_start is None:
        return
    yield _as_first_attempt(node.last_start, now)
    for item in node.items:
        is_kept = every or _ended_well(item)
        yield from _item_records(item, now, every=is_kept)
        if is_kept and item.final_end is not None:
            yield _as_first_attempt(item.final_end, now)


def _as_first_attempt(record: R, now: int) -> R:
    return replace(record, attempt=1, at=now)


def _skipped_before(name: str, start_from: str, now: int) -> StepEnded:
    error = f"The run starts from {start_from!r}"
    return StepEnded(step=name, attempt=1, at=now, status="skipped", reason=BY_START, error=error)
