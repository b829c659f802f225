"""The request of a run: its input, its origin, and the records that it reuses.

Callers give an input, values of declared inputs and the name of a workflow. Runs, schedules, webhooks and commands give
a whole `RunRequest`, which may name an earlier run: steps that completed there are not executed again.
"""

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.auth.roles import SKILL_KEYS
from accord.engine.context import Context, Rejected
from accord.storage.commands.workflow_runs import ORIGIN_STEP
from accord.workflows.attempts import INNER
from accord.workflows.document import Document, Step
from accord.workflows.plan import Plan
from accord.workflows.records import BY_START, Record, StepEnded, StepStarted
from accord.workflows.state import PlanNode, RunState

PLAN, DOCUMENT, SOURCE = "flow-plan", "flow-document", "flow-source"
"""What the plan of a run, the document that it was made of and the text of that are kept under; `ORIGIN` is what tells
that it is one. What was built without a file has no text."""


class RunRequest(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a run is asked for: as whoever begins one for another says it, in the data of a message.

    With `check_agents` it begins only if all of its A2A agents are there.
    """

    input: str = ""
    inputs: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    workflow: str | None = None
    start_from: str | None = None
    previous_run: str | None = None
    check_agents: bool = False


class RunOrigin(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Of which document a run is, by its own name, which of its workflows, and what it was asked for.

    `directory` and `vars` are what the document was served with: with them and the document the same agent is made.
    """

    name: str
    workflow: str
    directory: str
    vars: dict[str, Any] = {}
    wish: RunRequest = RunRequest()


def origin_entries(origin: RunOrigin, document: str, text: str | None = None) -> dict[str, str]:
    """Return what is written down with a run; the document is its JSON, and the text what its file says."""
    found = {ORIGIN_STEP: msgspec.json.encode(origin).decode(), DOCUMENT: document}
    return found if text is None else {**found, SOURCE: text}


def origin_of(entry: str) -> RunOrigin:
    """Return where a run comes from, as it was written down."""
    return msgspec.json.decode(entry, type=RunOrigin)


def document_of(entry: str) -> Document:
    """Return the document of a run, as it was written down."""
    return msgspec.json.decode(entry, type=Document)


def own_name(document: Document, directory: Path, vars: Mapping[str, Any]) -> str:
    """Return what the agent is called that runs a document for a command: a name that no other document has.

    Whoever runs things for commands shares one store, and two documents may well have the same name: they must not do
    each other's work.
    """
    told = msgspec.json.encode((document, str(directory), dict(vars)), order="deterministic")
    return f"{document.name}@{hashlib.sha256(told).hexdigest()[:12]}"


def read_run_request(ctx: Context, document: Document) -> RunRequest:
    """Return what a run is asked for; raises Rejected."""
    said, metadata = ctx.data, ctx.message.metadata or {}
    if metadata.get(INNER) is True and _is_ours(ctx):
        return _converted(said)
    skill = _requested_workflow(metadata) or _requested_workflow(
        ctx.task.metadata or {}
    )  # a task has the metadata of the request that began it
    if skill is not None and document.workflow(skill) is None:
        names = ", ".join(one.name for one in document.workflows) or "none"
        raise Rejected(f"There is no workflow {skill!r}: there are {names}")
    if not isinstance(said, dict):
        return RunRequest(input=ctx.text, workflow=skill)
    unknown = ", ".join(map(repr, sorted(said.keys() - document.inputs.keys())))
    if unknown:
        raise Rejected(f"There is no input {unknown}: there are {', '.join(document.inputs) or 'none'}")
    text = "".join(part.text or "" for part in ctx.message.parts)
    return RunRequest(input=text, inputs=said, workflow=skill)


def _requested_workflow(metadata: Mapping[str, Any]) -> str | None:
    """Return the workflow that somebody names."""
    return next((metadata[key] for key in SKILL_KEYS if isinstance(metadata.get(key), str)), None)


def _is_ours(ctx: Context) -> bool:
    """Whether a message came from here: by another run, or through no edge of the server, each of which says so."""
    return ctx.is_child or ctx.caller.origin is None


def _converted(said: object) -> RunRequest:
    try:
        return msgspec.convert(said, RunRequest)
    except msgspec.ValidationError as error:
        raise Rejected(str(error)) from error


_decoder = msgspec.json.Decoder(Record)

R = TypeVar("R", StepStarted, StepEnded)


def carry_over_records(plan: Plan, entries: Mapping[str, str], start_from: str | None, now: int) -> list[Record]:
    """Return the records of an earlier run, given by their keys, with which a new one begins.

    Kept is what has ended well, and comes only after what is kept. An approval that the owner may not give is for one
    run, and is never kept. Of a map that has not, its items are kept, and what
    has ended well of them. With `start_from`, that step and all after it is done again, and all before it must be
    kept; without an earlier run it is left out. Raises ValueError.
    """
    state = RunState(plan, _fitting(plan, entries))
    if start_from is not None and (start_from not in state.nodes or state.nodes[start_from].step is None):
        raise ValueError(f"There is no step called {start_from!r} to start from")
    again = set() if start_from is None else {start_from, *_reached(state, start_from, forward=True)}
    if start_from is not None:
        _check_approvals(state, start_from)
    kept = _kept(state, again)
    records = [record for name in state.nodes if "[" not in name for record in _held(state, name, kept, again, now)]
    if start_from is None:
        return records
    before = _reached(state, start_from, forward=False)
    missing = [name for name, node in state.nodes.items() if name in before - kept and node.step is not None]
    if missing and entries:
        raise ValueError(f"The earlier run has not completed {', '.join(missing)}, which {start_from} comes after")
    return [*records, *(_left_out(name, start_from, now) for name in missing)]


def _check_approvals(state: RunState, start_from: str) -> None:
    """Refuse to start after an approval that the owner of the run may not give: that would be giving it."""
    steps = [state.nodes[name].step for name in _reached(state, start_from, forward=False)]
    if ruled := sorted(step.name for step in steps if step is not None and step.is_ruled_approval):
        raise ValueError(f"No run can start from {start_from!r}: it comes after the approval {', '.join(ruled)}")


def _fitting(plan: Plan, entries: Mapping[str, str]) -> list[Record]:
    """Return the records that are of steps of the plan, and of maps if these are maps."""
    steps = {step.name: step for step in plan.steps}
    found = [_decoder.decode(entry) for key, entry in entries.items() if key.endswith((":begun", ":ended"))]
    return [record for record in found if _fits(steps, record)]


def _fits(steps: Mapping[str, Step], record: Record) -> bool:
    name, *indexes = record.step.split("[")
    step = steps.get(name)
    for _ in indexes:
        step = None if step is None else step.step
    is_map = step is not None and step.type == "map"
    return step is not None and (isinstance(record, StepEnded) or (record.items is not None) == is_map)


def _kept(state: RunState, again: set[str]) -> set[str]:
    """Return what has ended well and comes only after such; of what a barrier waits for, as much as it needs."""
    kept: set[str] = set()
    for node in _in_order(state):
        held = sum(name in kept for name in node.after)
        if node.name in again or held < node.needed or (node.step is not None and node.step.is_ruled_approval):
            continue
        if node.barrier is not None or _ended_well(node):
            kept.add(node.name)
    return kept


def _ended_well(node: PlanNode) -> bool:
    return node.end is not None and node.end.cause is None


def _in_order(state: RunState) -> Iterator[PlanNode]:
    """Yield steps and barriers, each after those that it comes after."""
    waits = {name: len(node.after) for name, node in state.nodes.items() if node.parent is None}
    ready = deque(name for name, count in waits.items() if not count)
    while ready:
        node = state.nodes[ready.popleft()]
        yield node
        for other in node.dependents:
            waits[other.name] -= 1
            if not waits[other.name]:
                ready.append(other.name)


def _reached(state: RunState, start: str, *, forward: bool) -> set[str]:
    """Return all that comes after a step, or all that it comes after."""
    found: set[str] = set()
    left = [start]
    while left:
        node = state.nodes[left.pop()]
        near = [other.name for other in node.dependents] if forward else node.after
        left += [name for name in near if name not in found]
        found.update(near)
    return found


def _held(state: RunState, name: str, kept: set[str], again: set[str], now: int) -> Iterator[Record]:
    """Yield the records of a step with which a new run begins."""
    node = state.nodes[name]
    if name not in again and all(other in kept for other in node.after):
        yield from _items(node, now, every=name in kept)
    if name in kept and node.step is not None and node.end is not None:
        yield _first(node.end, now)


def _items(node: PlanNode, now: int, *, every: bool) -> Iterator[Record]:
    """Yield what a map goes over and what has come of it: of every item, or of those that have ended well."""
    if node.items is None or node.begun is None:
        return
    yield _first(node.begun, now)
    for item in node.items:
        is_kept = every or _ended_well(item)
        yield from _items(item, now, every=is_kept)
        if is_kept and item.end is not None:
            yield _first(item.end, now)


def _first(record: R, now: int) -> R:
    """Return a record as that of the first attempt of the new run."""
    return replace(record, attempt=1, at=now)


def _left_out(name: str, start_from: str, now: int) -> StepEnded:
    """Return the end of a step that is passed over although nothing is known of it."""
    error = f"The run starts from {start_from!r}"
    return StepEnded(step=name, attempt=1, at=now, status="skipped", reason=BY_START, error=error)
