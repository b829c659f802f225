"""Attempts at steps: their setup, the values they can use, and their start.

Starting has no effects: `start_attempt` returns the record to write and the call to make, and `runner` does both. An
attempt whose values are missing ends at once.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from accord.api import ChildCall, Context, Store, storage
from accord.api.storage import ValueNamespace
from accord.client.credentials import Keys
from accord.model import Task
from accord.workflows.agent_definition import AgentDef
from accord.workflows.channel import OpenQuestion
from accord.workflows.decide import make_end_record
from accord.workflows.document import Document, OnError, Step
from accord.workflows.executors import Executor, Result
from accord.workflows.findings import CheckProblem, Where
from accord.workflows.members import Member
from accord.workflows.plan import Plan
from accord.workflows.records import StepEnded, StepStarted
from accord.workflows.state import PlanNode, RunState
from accord.workflows.step_types import step_type
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
            stored = await storage.load_values(self._store, self._ctx.tenant, self._shelf)
            self.values = {key: msgspec.json.decode(value) for key, value in stored.items()}
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
        encoded = {key: msgspec.json.encode(value).decode() for key, value in values.items()}
        await storage.put_values(self._store, self._ctx.tenant, self._shelf, encoded, at, ttl_ms)


class RunSetup(Struct, frozen=True, kw_only=True):
    """The environment of a run.

    `flow` is the agent whose task the run is; nested workflow runs are its child tasks. `hosted` are the members on
    this node. `run` contains the values of `{{run...}}`. `env` has the variables that the document may name, and
    `commands` is the environment of its commands. `store_files` are files of the store, which change with every task.
    `executors` replaces executors by type of step.
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
    executors: Mapping[str, Executor] = {}
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
        end = (self._own.get(name) or self._state.nodes[name]).final_end
        if end is None:
            raise KeyError(name)
        return StepValue(status=end.status, output=end.output, exit_code=end.exit_code)

    def __iter__(self) -> Iterator[str]:
        return (name for name, node in self._state.nodes.items() if node.final_end is not None)

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
        needs=node.dependencies,
        item=node.item,
        index=None if above is None else node.index,
        name="item" if above is None or above.step is None else above.step.as_,
        around=_enclosing_items(above),
    )


def _enclosing_items(node: PlanNode | None) -> dict[str, Any]:
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
    texts = [
        node.final_end.output for node in last if node.final_end is not None and node.final_end.status == "completed"
    ]
    return "\n\n".join(text for text in texts if text)


FAILED_WITH_DIAGNOSTIC = "failed_verification_with_diagnostic"

REASONS_IN_PROMPT = frozenset({"failed_verification", FAILED_WITH_DIAGNOSTIC})
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
    setup: RunSetup

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
        task = self.values.text(self.step.task or "")
        before = self.node.last_end
        if before is not None and before.reason in REASONS_IN_PROMPT:
            task += f"\n\nThe last attempt failed. {before.error}"
        return task


def child_key(step: str, attempt: int) -> str:
    """Return the journal key of an attempt's child task."""
    return f"flow:{step}:{attempt}:child"


def signal_key(what: str, attempt: int = 1) -> str:
    """Return the key of a step's signal: a decision, or an event."""
    return f"step/{what}" if attempt == 1 else f"step/{what}/{attempt}"


StepCheck = Callable[[Step, Where, AgentDef | None, Document], Iterator[CheckProblem]]
"""Checks the rules of one type for a step, its place in the file and its agent."""


def first_line(text: str | None) -> str:
    """Return the first line of a text that is not blank."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def describe(step: Step) -> str:
    """Return the first line of a step's task, command or name of work."""
    return first_line(step.task or step.command_line or step.branch or step.workflow or step.file)


class StepBehavior(Struct, frozen=True, kw_only=True):
    """The code of a type of step. Runner, validation and dry run call it."""

    start: Callable[[StepAttempt], AttemptStart] = lambda attempt: AttemptStart(begun=attempt.begun())
    """Returns how an attempt starts."""

    checks: tuple[StepCheck, ...] = ()
    describe: Callable[[Step], str] = describe
    """Returns a line for the report of a dry run."""

    agent: Callable[[RunSetup, Step], str] | None = None
    conclude: Callable[[Task], Result] | None = None
    """For a child task: its agent, and its result if no member of the workflow executes it."""

    signal: Callable[[PlanNode], str | None] | None = None
    question: Callable[[Context, PlanNode, Values, int], OpenQuestion] | None = None
    result_of_signal: Callable[[Step, object], tuple[Result, OnError | None]] | None = None
    """For a signal: its key, the question to the caller, and the result of a value with a rule for failures."""


@cache
def behavior_of(name: str) -> StepBehavior:
    """Return the code of a type. The executor of a type is all its code besides the defaults."""
    if step_type(name).executor == "process":
        return StepBehavior()
    behavior: StepBehavior = import_module(f"accord.workflows.steps.{name}").BEHAVIOR
    return behavior


def start_attempt(attempt: StepAttempt) -> AttemptStart:
    """Return how an attempt starts; nothing is executed yet."""
    try:
        return behavior_of(attempt.step.kind).start(attempt)
    except (Unresolved, UnsafeCommand, CannotStart) as error:
        result = Result(ok=False, error=str(error))
        return AttemptStart(ended=make_end_record(attempt.step, attempt.number, result, attempt.at))


INNER = "workflow"
"""Metadata key of a message with which a run starts another; its data is the request."""
