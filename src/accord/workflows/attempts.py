"""Attempts at steps: their setup, the values they can use, and their start.

Starting has no effects: `start_attempt` returns the record to write and the call to make, and `runner` does both. An
attempt whose values are missing ends at once.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from accord.api import ChildCall, Context, Store, storage
from accord.api.storage import ValueNamespace
from accord.client.credentials import Keys
from accord.model import Message, Part, Role
from accord.workflows import members, prompts
from accord.workflows.decide import ended
from accord.workflows.document import Step
from accord.workflows.members import Member
from accord.workflows.plan import Plan
from accord.workflows.records import StepEnded, StepStarted
from accord.workflows.state import PlanNode, RunState
from accord.workflows.steps import Executor, Executors, Result
from accord.workflows.values import StepValue, Unresolved, UnsafeCommand, Values

SET = "flow-set:"
"""Prefix of the journal keys of values that steps have set."""


class SharedValues:
    """The values of one run, and those that other runs of the same namespace have set."""

    def __init__(self, ctx: Context, plan: Plan, store: Store | None) -> None:
        """Store values for the caller of `ctx`; without a `store`, only with the run."""
        self._ctx, self._state = ctx, plan.state
        is_kept = plan.state is not None and plan.state.backend == "database"
        self._store = store if is_kept else None
        self._shelf = ValueNamespace(ctx.caller.owner, (plan.state.namespace if plan.state else None) or plan.name)
        self.values: dict[str, Any] = {}

    async def load(self) -> None:
        """Load the values of other runs, then apply those of this run."""
        if self._store is not None:
            found = await storage.load_values(self._store, self._ctx.tenant, self._shelf)
            self.values = {key: msgspec.json.decode(value) for key, value in found.items()}
        entries = (entry for _, entry in self._ctx.journal.entries(SET))
        own = [msgspec.json.decode(entry, type=tuple[int, dict[str, Any]]) for entry in entries]
        for at, values in sorted(own, key=lambda one: one[0]):
            await self.put(values, at)

    def entry(self, step: str, attempt: int, values: dict[str, Any], at: int) -> dict[str, str]:
        """Return the journal entry for the values that a step sets."""
        return {f"{SET}{step}:{attempt}": msgspec.json.encode((at, values)).decode()}

    async def put(self, values: dict[str, Any], at: int) -> None:
        """Set values, also for other runs if the document shares them. The journal entry must be written before."""
        self.values.update(values)
        if self._store is None:
            return
        ttl_ms = None if self._state is None or self._state.ttl is None else round(self._state.ttl * 1000)
        kept = {key: msgspec.json.encode(value).decode() for key, value in values.items()}
        await storage.put_values(self._store, self._ctx.tenant, self._shelf, kept, at, ttl_ms)


EXECUTORS: Mapping[str, Executor] = Executors()
"""Type of a step -> its executor, for types that are executed in the process of the run."""


class RunSetup(Struct, frozen=True, kw_only=True):
    """The environment of a run.

    `flow` is the agent whose task the run is; nested workflow runs are its child tasks. `hosted` are the members on
    this node. `run` contains the values of `{{run...}}`. `env` has the variables that the document may name, and
    `commands` is the environment of its commands. `store_files` are files of the store, which change with every task.
    """

    flow: str
    plan: Plan
    hosted: Mapping[str, Member]
    env: Mapping[str, str]
    commands: Mapping[str, str]
    now_ms: Callable[[], int]
    keys: Keys
    shared: SharedValues
    run: Mapping[str, Any] = {}
    executors: Mapping[str, Executor] = EXECUTORS
    store_files: frozenset[Path] = frozenset()

    @property
    def directory(self) -> Path:
        """The directory of the run."""
        return Path(self.plan.directory)


class EndedSteps(Mapping[str, StepValue]):
    """The ended steps of a run by name. For an item of a map, the name of the map means the item itself."""

    def __init__(self, state: RunState, item: PlanNode | None = None) -> None:
        self._state = state
        self._own = {} if item is None else {top_of(item).name: item}

    def __getitem__(self, name: str) -> StepValue:
        end = (self._own.get(name) or self._state.nodes[name]).end
        if end is None:
            raise KeyError(name)
        return StepValue(status=end.status, output=end.output, exit_code=end.exit_code)

    def __iter__(self) -> Iterator[str]:
        return (name for name, node in self._state.nodes.items() if node.end is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def top_of(node: PlanNode) -> PlanNode:
    """Return the step of the plan that an item belongs to, through all nested maps."""
    while node.parent is not None:
        node = node.parent
    return node


def step_values(
    state: RunState,
    node: PlanNode,
    shared: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    run: Mapping[str, Any] | None = None,
) -> Values:
    """Return the values of a step.

    `shared` is the state that runs share, `env` the environment of the document, and `run` the values of `{{run...}}`.
    """
    plan = state.plan
    above = node.parent
    return Values(
        input=plan.input,
        inputs=plan.inputs,
        vars=plan.vars,
        steps=EndedSteps(state, node),
        state=shared or {},
        env=env or {},
        run=run or {},
        needs=node.after,
        item=node.item,
        index=None if above is None else node.index,
        name="item" if above is None or above.step is None else above.step.as_,
        around=_around(above),
    )


def _around(node: PlanNode | None) -> dict[str, Any]:
    """Return the items of the enclosing maps by name. Inner maps hide outer ones."""
    found: dict[str, Any] = {}
    while node is not None and node.parent is not None:
        if node.parent.step is not None:
            found.setdefault(node.parent.step.as_, node.item)
        node = node.parent
    return found


def run_output(state: RunState, env: Mapping[str, str] | None = None, run: Mapping[str, Any] | None = None) -> str:
    """Return the output of an ended run: the workflow's `output`, or the outputs of its last steps in order.

    Raises Unresolved.
    """
    plan = state.plan
    if plan.output is not None:
        values = Values(
            input=plan.input, inputs=plan.inputs, vars=plan.vars, steps=EndedSteps(state), env=env or {}, run=run or {}
        )
        return values.text(plan.output)
    last = [node for node in state.nodes.values() if node.step is not None and not node.dependents and not node.parent]
    said = [node.end.output for node in last if node.end is not None and node.end.status == "completed"]
    return "\n\n".join(text for text in said if text)


CHILDREN = frozenset({"agent", "a2a", "workflow"})
"""Types of steps that a child task executes."""

MAX_ITEMS = 10_000
"""Maximum number of items of a map. A longer list is taken for a mistake."""

WITH_ADVICE = "failed_verification_with_diagnostic"

TOLD_WHY = frozenset({"failed_verification", WITH_ADVICE})
"""Reasons of a failed attempt that the prompt of the next attempt contains."""


class CannotStart(Exception):
    """A step cannot start as it is defined."""


class AttemptStart(Struct, frozen=True, kw_only=True):
    """The start of an attempt: a record and possibly a call, or an immediate end."""

    begun: StepStarted | None = None
    call: ChildCall | None = None
    ended: StepEnded | None = None


class StepAttempt(Struct, frozen=True, kw_only=True):
    """An attempt to start, and the values of its step."""

    node: PlanNode
    number: int
    at: int
    values: Values
    run_id: str
    means: RunSetup

    @property
    def step(self) -> Step:
        """The step."""
        assert self.node.step is not None
        return self.node.step

    @property
    def key(self) -> str:
        """The journal key of its child task."""
        return child_key(self.node.name, self.number)

    def begun(self, **more: Any) -> StepStarted:
        """Return the record of its start."""
        return StepStarted(step=self.node.name, attempt=self.number, at=self.at, **more)

    def text(self) -> str:
        """Return the prompt. After a failed verification it contains the reason."""
        said = self.values.text(self.step.task or "")
        before = self.node.ended
        if before is not None and before.reason in TOLD_WHY:
            said += f"\n\nThe last attempt failed. {before.error}"
        return said


def child_key(step: str, attempt: int) -> str:
    """Return the journal key of an attempt's child task."""
    return f"flow:{step}:{attempt}:child"


def start_attempt(attempt: StepAttempt) -> AttemptStart:
    """Return how an attempt starts; nothing is executed yet."""
    try:
        return _KINDS.get(attempt.step.kind, _plainly)(attempt)
    except (Unresolved, UnsafeCommand, CannotStart) as error:
        result = Result(ok=False, error=str(error))
        return AttemptStart(ended=ended(attempt.step, attempt.number, result, attempt.at))


def _plainly(attempt: StepAttempt) -> AttemptStart:
    return AttemptStart(begun=attempt.begun())


def _wait(attempt: StepAttempt) -> AttemptStart:
    step = attempt.step
    if step.for_ is not None:
        return AttemptStart(begun=attempt.begun(until=attempt.at + round(step.for_ * 1000)))
    if step.until is None:
        return _plainly(attempt)
    said = attempt.values.text(step.until)
    try:
        until = datetime.fromisoformat(said)
    except ValueError:
        raise CannotStart(f"{said!r} is no time: write one like 2030-01-31T18:00:00Z") from None
    aware = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return AttemptStart(begun=attempt.begun(until=round(aware.timestamp() * 1000)))


def _map(attempt: StepAttempt) -> AttemptStart:
    over = attempt.step.over
    found = attempt.values.value(over) if isinstance(over, str) else over
    items = _items(found)
    if len(items) > MAX_ITEMS:
        raise CannotStart(f"It would go over {len(items)} items, and at most {MAX_ITEMS} are possible")
    return AttemptStart(begun=attempt.begun(items=items))


def _items(found: Any) -> tuple[Any, ...]:
    """Return the items of a list, of a JSON array in a string, or the lines of any other string."""
    if isinstance(found, str):
        try:
            found = msgspec.json.decode(found)
        except msgspec.DecodeError:
            return tuple(line for line in found.splitlines() if line.strip())
    if not isinstance(found, list | tuple):
        raise CannotStart(f"It goes over a list, and this is none: {str(found)[:100]!r}")
    return tuple(found)


def _child(attempt: StepAttempt) -> AttemptStart:
    """Start a step that a member executes."""
    step, means = attempt.step, attempt.means
    name, member = members.member_of(means.plan, step), members.member_for(means.plan, step)
    if member is None:
        raise CannotStart(f"There is no agent called {step.agent!r}")
    if means.hosted.get(name) != member:
        raise CannotStart(f"The agent {name} is not what it was when this run began, or is not here")
    directory = means.directory
    if step.cwd is not None or member.agent.cwd is not None:
        directory /= attempt.values.text(step.cwd or member.agent.cwd or ".")
    env = {key: attempt.values.text(value) for key, value in step.env.items()}
    message = prompts.child_message(
        member,
        step,
        attempt.text(),
        id=f"{attempt.run_id}/{attempt.key}",
        run_id=attempt.run_id,
        directory=directory,
        env=env,
    )
    limit = step.timeout or member.agent.timeout
    call = ChildCall(
        agent=name, message=message, key=attempt.key, timeout_ms=None if limit is None else round(limit * 1000)
    )
    return AttemptStart(begun=attempt.begun(), call=call)


def _workflow(attempt: StepAttempt) -> AttemptStart:
    """Start a step that runs another workflow, of the same document or of another file."""
    step, means = attempt.step, attempt.means
    said: dict[str, Any] = {"input": attempt.values.text(step.input or "")}
    if step.workflow is not None:
        said["workflow"] = step.workflow
    if step.vars:
        said["vars"] = {
            name: attempt.values.value(value) if isinstance(value, str) else value for name, value in step.vars.items()
        }
    message = Message(
        message_id=f"{attempt.run_id}/{attempt.key}", role=Role.USER, parts=(Part(data=said),), metadata={INNER: True}
    )
    agent = means.flow if step.file is None else f"{means.plan.name}/{step.file}"
    limit = None if step.timeout is None else round(step.timeout * 1000)
    return AttemptStart(
        begun=attempt.begun(), call=ChildCall(agent=agent, message=message, key=attempt.key, timeout_ms=limit)
    )


INNER = "workflow"
"""Metadata key of a message with which a run starts another; its data is the request."""

_KINDS: Mapping[str, Callable[[StepAttempt], AttemptStart]] = {
    "agent": _child,
    "a2a": _child,
    "wait": _wait,
    "workflow": _workflow,
    "map": _map,
}
"""Types with a start function of their own; the others use `_plainly`."""
