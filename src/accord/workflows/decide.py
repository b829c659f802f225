"""Decide the next steps of a run: which steps start, are skipped or retried, and how the run ends.

This is a function of the plan, the records and the time alone. It has no effects, does not wait, and reads no value of
a step except the result of its `if`. `runner` applies each decision and writes the records.

- A step starts when all its dependencies have ended. If one has failed for good, its dependents are skipped, and
  theirs. With `onError: continue` they run, and can read its output. With `onError: skip` the step itself counts as
  skipped, its dependents are skipped as well, and the run does not fail.
- A step whose own `if` is false is skipped alone. Its dependents run, as after a step without output.
- An `if` with `always()` or `failed(x)` is evaluated even after a failed or skipped dependency, and even when the run
  has failed. Cleanup steps use this.
- After a failure nothing else starts, and running steps are canceled. With the strategy `continue`, everything that
  does not depend on the failure still runs.
- Items of a map are steps without dependencies. At most `concurrency` of them are active, retries included. A map fails
  when an item fails, and its own `onError` decides what that means. The map is not retried, its items are. With
  `onError: continue` the other items still run.
- A barrier completes when all, any or more than half of its steps have ended well. It skips its dependents when that
  has become impossible. Its timeout starts when the first of them starts.
"""

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct

from accord.workflows.document import OnError, Step
from accord.workflows.executors import Result
from accord.workflows.records import (
    BY_CONDITION,
    BY_END_OF_RUN,
    BY_FAILURE,
    ITEM_FAILED,
    TIMED_OUT,
    UNDECIDABLE,
    Status,
    StepEnded,
)
from accord.workflows.state import FINAL, PlanNode, RunState, SkipCause
from accord.workflows.values import Unresolved

EvaluateCondition = Callable[[PlanNode], bool]
"""Evaluates the `if` of a step whose dependencies have all ended; raises `Unresolved`."""

RETRIES = 2
"""Default number of retries with `onError: retry`."""

RETRY_DELAY = 1.0
BACKOFF = 2.0
"""Defaults: seconds before the second attempt, and the factor for each further attempt."""

LONGEST_DELAY = 3600.0
"""Maximum delay between two attempts, in seconds."""


class RunOutcome(Struct, frozen=True, kw_only=True):
    """How a run ended, and the steps that failed it."""

    status: Literal["completed", "failed"]
    failed: tuple[str, ...] = ()
    error: str | None = None


class RunDecision(Struct, frozen=True, kw_only=True):
    """The next actions of a run.

    `begin` contains steps and the number of their attempt. They are repeated until their `StepStarted` is applied.
    `ends` are ends without execution, already applied to the state. `cancel` contains running steps whose result is not
    needed anymore: each ends as `make_cancel_record` returns. With an `outcome` the run is over.
    """

    begin: tuple[tuple[str, int], ...] = ()
    ends: tuple[StepEnded, ...] = ()
    cancel: tuple[str, ...] = ()
    wake_at: int | None = None
    outcome: RunOutcome | None = None


def decide(state: RunState, now: int, holds: EvaluateCondition, stop: str | None = None) -> RunDecision:
    """Return the next actions. With `stop`, nothing new starts for that reason, as after a failure."""
    if stop is not None:
        state.stop(stop)
    state.fire_due_timers(now)
    ends: list[StepEnded] = []
    while state.nodes_to_check:
        node = state.nodes_to_check.popleft()
        end = _end_of(state, node, now, holds)
        if end is not None:
            ends.append(end)
            state.apply(end)
        elif _can_begin(node):
            state.enqueue(node)
    return RunDecision(
        begin=tuple((node.name, node.attempt + 1) for node in state.ready()),
        ends=tuple(ends),
        cancel=tuple(state.steps_to_cancel),
        wake_at=state.next_timer(),
        outcome=_outcome(state) if state.open_nodes == 0 else None,
    )


def make_end_record(step: Step, attempt: int, result: Result, now: int, rule: OnError | None = None) -> StepEnded:
    """Return the end of an attempt, with the time of the next attempt if there is one.

    A `rule` replaces the step's `onError` and its retries: a rejected approval is not retried.
    """
    if result.ok:
        status: Status = "completed"
        again_at = cause = None
    else:
        again_at = _again_at(step, attempt, now) if rule is None else None
        status, cause = ("failed", None) if again_at is not None else _failure(step, rule)
    return StepEnded(
        step=step.name,
        attempt=attempt,
        at=now,
        status=status,
        output=result.output,
        exit_code=result.exit_code,
        reason=result.reason,
        error=result.error,
        cause=cause,
        again_at=again_at,
    )


def make_cancel_record(state: RunState, name: str, now: int) -> StepEnded:
    """Return the end of a running step that was canceled because its result is not needed anymore."""
    node = state.nodes[name]
    skip_cause = state.skip_cause(node) or SkipCause(None, "it was cancelled")
    return _end_of_skipped(node, node.attempt, skip_cause, now)


def _again_at(step: Step, attempt: int, now: int) -> int | None:
    retries = step.retries if step.retries is not None else RETRIES if step.on_error == "retry" else 0
    if attempt > retries or step.row.executor == "items":
        return None
    delay = RETRY_DELAY if step.retry_delay is None else step.retry_delay
    factor = BACKOFF if step.backoff is None else step.backoff
    try:
        delay = min(delay * factor ** (attempt - 1), LONGEST_DELAY)
    except OverflowError:
        delay = LONGEST_DELAY
    return now + round(delay * 1000)


def _failure(step: Step, rule: OnError | None = None) -> tuple[Status, str | None]:
    """Return the status of a step that failed for good, and the cause for skipping its dependents, if any."""
    match rule or step.on_error:
        case "continue":
            return "failed", None
        case "skip":
            return "skipped", step.name
        case _:
            return "failed", step.name


def _can_begin(node: PlanNode) -> bool:
    if node.status == "waiting":
        return node.is_due
    return (
        node.status == "pending"
        and node.open_dependencies == 0
        and not node.exceeds_concurrency
        and node.step is not None
    )


# --- ends without execution -------------------------------------------------------------------------------------------


def _end_of(state: RunState, node: PlanNode, now: int, holds: EvaluateCondition) -> StepEnded | None:
    """Return how a node ends without execution, or by itself; None if it does not."""
    if node.status in FINAL:
        return None
    if node.step is None:
        return _end_of_barrier(state, node, now)
    skip_cause = state.skip_cause(node)
    if node.status == "running":
        return _end_of_running(state, node, node.step, skip_cause, now)
    # Steps to skip wait for their dependencies too, so that cleanup starts only when nothing before it runs.
    if node.open_dependencies:
        return None
    if skip_cause is not None:
        return _end_of_skipped(node, node.attempt + 1, skip_cause, now)
    if node.status == "waiting" or node.exceeds_concurrency:
        return None
    return _end_before_start(state, node, now, holds)


def _end_before_start(state: RunState, node: PlanNode, now: int, holds: EvaluateCondition) -> StepEnded | None:
    """Return how a step ends that could start but must not; None if it may start."""
    if not node.ignores_failures and node.satisfied_dependencies < node.required_dependencies:
        return _skipped_after(state, node, now)
    step = node.step
    if step is None or step.if_ is None:
        return None
    try:
        if holds(node):
            return None
    except Unresolved as error:
        status, cause = _failure(step)
        return _make_end(node, now, status, reason=UNDECIDABLE, error=str(error), cause=cause)
    return _make_end(node, now, "skipped", reason=BY_CONDITION, error=f"its if is false: {step.if_}")


def _skipped_after(state: RunState, node: PlanNode, now: int) -> StepEnded:
    """Return the end of a node whose dependency skips its dependents."""
    dependency_ends = (state.nodes[name].last_end for name in node.dependencies)
    cause = next(end.cause for end in dependency_ends if end is not None and end.cause is not None)
    status = state.nodes[cause].status
    return _make_end(node, now, "skipped", reason=BY_FAILURE, error=f"{cause!r} {_PAST[status]}", cause=cause)


_PAST = {"failed": "failed", "skipped": "was skipped"}


def _end_of_skipped(node: PlanNode, attempt: int, skip_cause: SkipCause, now: int) -> StepEnded:
    return StepEnded(
        step=node.name,
        attempt=attempt,
        at=now,
        status="skipped",
        reason=BY_END_OF_RUN,
        error=skip_cause.error,
        cause=skip_cause.cause or node.name,
    )


def _make_end(
    node: PlanNode,
    now: int,
    status: Status,
    *,
    reason: str | None = None,
    error: str | None = None,
    cause: str | None = None,
) -> StepEnded:
    attempt = node.attempt + (node.status != "running")
    return StepEnded(step=node.name, attempt=attempt, at=now, status=status, reason=reason, error=error, cause=cause)


# --- ends of running steps, maps and barriers -------------------------------------------------------------------------


def _end_of_running(
    state: RunState, node: PlanNode, step: Step, skip_cause: SkipCause | None, now: int
) -> StepEnded | None:
    if node.items is not None and node.open_items == 0:
        return _end_of_map(node, step, node.items, now)
    if (
        node.is_due
        and node.last_start is not None
        and node.last_start.until is not None
        and node.last_start.until <= now
    ):
        return _make_end(node, now, "completed")
    if node.is_due and step.row.executor == "signal":
        error = f"it took longer than {step.timeout:g} s"
        return msgspec.structs.replace(
            make_end_record(step, node.attempt, Result(ok=False, error=error), now), reason=TIMED_OUT
        )
    if skip_cause is not None and not node.is_map:
        state.steps_to_cancel[node.name] = node
    return None


def _end_of_map(node: PlanNode, step: Step, items: list[PlanNode], now: int) -> StepEnded:
    """Return the end of a map, with the outputs of its items in order. The output of a skipped item is null."""
    ends = [item.last_end for item in items if item.last_end is not None]
    failed_items = [end for end in ends if end.fails]
    output = msgspec.json.encode([None if end.status == "skipped" else end.output for end in ends]).decode()
    if node.is_due and any(end.reason == BY_END_OF_RUN for end in ends):
        status, cause = _failure(step)
        end = _make_end(
            node, now, status, reason=TIMED_OUT, error=f"it took longer than {step.timeout:g} s", cause=cause
        )
    elif failed_items:
        status, cause = _failure(step)
        error = f"{len(failed_items)} of {len(items)} items failed, the first is {failed_items[0].step!r}"
        end = _make_end(node, now, status, reason=ITEM_FAILED, error=error, cause=cause)
    elif skipped_items := [end for end in ends if end.reason == BY_END_OF_RUN]:
        first = skipped_items[0]
        cause = node.name if first.cause == first.step else first.cause
        end = _make_end(node, now, "skipped", reason=BY_END_OF_RUN, error=first.error, cause=cause)
    else:
        end = _make_end(node, now, "completed")
    return msgspec.structs.replace(end, output=output)


def _end_of_barrier(state: RunState, node: PlanNode, now: int) -> StepEnded | None:
    barrier = node.barrier
    if barrier is None:
        return None
    if node.satisfied_dependencies >= node.required_dependencies:
        return _make_end(node, now, "completed")
    if node.open_dependencies == 0:
        return _skipped_after(state, node, now)
    if node.is_due:
        error = f"it waited longer than {barrier.timeout:g} s for {', '.join(node.dependencies)}"
        return _make_end(node, now, "failed", reason=TIMED_OUT, error=error, cause=node.name)
    return None


def _outcome(state: RunState) -> RunOutcome:
    failed = tuple(node.name for node in sorted(state.failed, key=lambda node: node.order))
    if failed:
        first = state.nodes[failed[0]].last_end
        return RunOutcome(status="failed", failed=failed, error=first.error if first is not None else None)
    if state.halted is not None:
        return RunOutcome(status="failed", error=state.halted.error)
    return RunOutcome(status="completed")
