"""Decides the next steps of a run: which steps start, are skipped or retried, and how the run ends.

A function of the plan, the records and the time alone: it does nothing, waits for nothing and knows no value of a step
but the answer to its `if`. The driver of a run stands above, does what is decided here and writes it down.

- A step begins when all that it depends on has ended. One that failed for good is the end of everything after it: its
  dependents are skipped, and theirs. With `onError: continue` they run, and what it said is there for them; with
  `onError: skip` the step itself counts as skipped, its dependents are skipped as well, and the run does not fail.
- A step whose own `if` is false is skipped alone: what comes after it runs, as after a step with nothing to say.
- An `if` with `always()` or `failed(x)` is asked even when something before it failed or was skipped, and even when the
  run has failed: that is how one cleans up.
- After a failure nothing else begins, and what runs is to be cancelled; with the strategy `continue`, all that does not
  depend on the failure is still done.
- Items of a map are steps without dependencies, at most `concurrency` of them under way, retries included. A map fails
  with an item that fails, and what that means is its own `onError`; it is not tried again, its items are. With
  `onError: continue` the other items of it are done even so.
- A barrier is passed when all, any or more than half of what it waits for has ended well, and skips what comes after it
  when that has become impossible; its time runs from when the first of them began.
"""

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct

from accord.workflows.document import OnError, Step
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
from accord.workflows.state import FINAL, PARKED, PlanNode, RunState, SkipCause
from accord.workflows.steps import Result
from accord.workflows.values import Unresolved

Holds = Callable[[PlanNode], bool]
"""Answers the `if` of a step of which all that it comes after has ended; raises `Unresolved`."""

RETRIES = 2
"""How often `onError: retry` tries again when nothing says how often."""

RETRY_DELAY = 1.0
BACKOFF = 2.0
"""Seconds before the second attempt, and how many times longer before each further one, unless the step says so."""

LONGEST_DELAY = 3600.0
"""Seconds: longer than that nobody expects a run to stand still between two attempts."""


class RunOutcome(Struct, frozen=True, kw_only=True):
    """How a run ended, and the steps that it failed with."""

    status: Literal["completed", "failed"]
    failed: tuple[str, ...] = ()
    error: str | None = None


class RunDecision(Struct, frozen=True, kw_only=True):
    """What happens next.

    `begin` are steps and the number of their attempt; they are named again until their `Begun` is applied. `ends` are
    those that end without being done, already applied to the state. `cancel` are running steps that nobody needs any
    more: each ends as `cancelled` says. With an `outcome` there is nothing left to do.
    """

    begin: tuple[tuple[str, int], ...] = ()
    ends: tuple[StepEnded, ...] = ()
    cancel: tuple[str, ...] = ()
    wake_at: int | None = None
    outcome: RunOutcome | None = None


def decide(state: RunState, now: int, holds: Holds, stop: str | None = None) -> RunDecision:
    """Return what happens next; with `stop` nothing new begins for that reason, as after a failure."""
    if stop is not None:
        state.stop(stop)
    state.ring(now)
    ends: list[StepEnded] = []
    while state.touched:
        node = state.touched.popleft()
        end = _end_of(state, node, now, holds)
        if end is not None:
            ends.append(end)
            state.apply(end)
        elif _can_begin(node):
            state.offer(node)
    return RunDecision(
        begin=tuple((node.name, node.attempt + 1) for node in state.ready()),
        ends=tuple(ends),
        cancel=tuple(state.condemned),
        wake_at=state.next_alarm(),
        outcome=_outcome(state) if state.open == 0 else None,
    )


def ended(step: Step, attempt: int, result: Result, now: int, rule: OnError | None = None) -> StepEnded:
    """Return how an attempt ended, and when the next begins if there is one.

    A `rule` takes the place of the step's `onError` and of its retries: what a person rejected is not tried again.
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


def cancelled(state: RunState, name: str, now: int) -> StepEnded:
    """Return how a running step ends that was cancelled because nobody needs it any more."""
    node = state.nodes[name]
    doom = state.doom(node) or SkipCause(None, "it was cancelled")
    return _given_up(node, node.attempt, doom, now)


def _again_at(step: Step, attempt: int, now: int) -> int | None:
    retries = step.retries if step.retries is not None else RETRIES if step.on_error == "retry" else 0
    if attempt > retries or step.type == "map":
        return None
    delay = RETRY_DELAY if step.retry_delay is None else step.retry_delay
    growth = BACKOFF if step.backoff is None else step.backoff
    try:
        delay = min(delay * growth ** (attempt - 1), LONGEST_DELAY)
    except OverflowError:
        delay = LONGEST_DELAY
    return now + round(delay * 1000)


def _failure(step: Step, rule: OnError | None = None) -> tuple[Status, str | None]:
    """Return as what a step counts that failed for good, and because of whom what comes after it is skipped."""
    match rule or step.on_error:
        case "continue":
            return "failed", None
        case "skip":
            return "skipped", step.name
        case _:
            return "failed", step.name


def _can_begin(node: PlanNode) -> bool:
    if node.standing == "waiting":
        return node.due
    return node.standing == "pending" and node.open == 0 and not node.held and node.step is not None


# --- ends without work ------------------------------------------------------------------------------------------------


def _end_of(state: RunState, node: PlanNode, now: int, holds: Holds) -> StepEnded | None:
    """Return how a node ends without being done, or by itself, if it does."""
    if node.standing in FINAL:
        return None
    if node.step is None:
        return _end_of_barrier(state, node, now)
    doom = state.doom(node)
    if node.standing == "running":
        return _end_of_running(state, node, node.step, doom, now)
    if node.open:  # also those given up wait: who cleans up after them begins when nothing before them runs any more
        return None
    if doom is not None:
        return _given_up(node, node.attempt + 1, doom, now)
    if node.standing == "waiting" or node.held:
        return None
    return _unwanted(state, node, now, holds)


def _unwanted(state: RunState, node: PlanNode, now: int, holds: Holds) -> StepEnded | None:
    """Return how a step ends that could begin, but is not to."""
    if not node.immune and node.passed < node.needed:
        return _skipped_after(state, node, now)
    step = node.step
    if step is None or step.if_ is None:
        return None
    try:
        if holds(node):
            return None
    except Unresolved as error:
        status, cause = _failure(step)
        return _end(node, now, status, reason=UNDECIDABLE, error=str(error), cause=cause)
    return _end(node, now, "skipped", reason=BY_CONDITION, error=f"its if is false: {step.if_}")


def _skipped_after(state: RunState, node: PlanNode, now: int) -> StepEnded:
    """Return how a node ends after one that nothing comes after."""
    before = (state.nodes[name].ended for name in node.after)
    cause = next(end.cause for end in before if end is not None and end.cause is not None)
    how = state.nodes[cause].standing
    return _end(node, now, "skipped", reason=BY_FAILURE, error=f"{cause!r} {_PAST[how]}", cause=cause)


_PAST = {"failed": "failed", "skipped": "was skipped"}


def _given_up(node: PlanNode, attempt: int, doom: SkipCause, now: int) -> StepEnded:
    return StepEnded(
        step=node.name,
        attempt=attempt,
        at=now,
        status="skipped",
        reason=BY_END_OF_RUN,
        error=doom.error,
        cause=doom.cause or node.name,
    )


def _end(
    node: PlanNode,
    now: int,
    status: Status,
    *,
    reason: str | None = None,
    error: str | None = None,
    cause: str | None = None,
) -> StepEnded:
    attempt = node.attempt + (node.standing != "running")
    return StepEnded(step=node.name, attempt=attempt, at=now, status=status, reason=reason, error=error, cause=cause)


# --- ends by themselves -----------------------------------------------------------------------------------------------


def _end_of_running(state: RunState, node: PlanNode, step: Step, doom: SkipCause | None, now: int) -> StepEnded | None:
    if node.items is not None and node.items_open == 0:
        return _end_of_map(node, step, node.items, now)
    if node.due and node.begun is not None and node.begun.until is not None and node.begun.until <= now:
        return _end(node, now, "completed")
    if node.due and step.type in PARKED:
        error = f"it took longer than {step.timeout:g} s"
        return msgspec.structs.replace(ended(step, node.attempt, Result(ok=False, error=error), now), reason=TIMED_OUT)
    if doom is not None and not node.is_map:
        state.condemned[node.name] = node
    return None


def _end_of_map(node: PlanNode, step: Step, items: list[PlanNode], now: int) -> StepEnded:
    """Return how a map ends: with what its items said, in their order; of those that were skipped, nothing."""
    ends = [item.ended for item in items if item.ended is not None]
    broken = [end for end in ends if end.fails]
    output = msgspec.json.encode([None if end.status == "skipped" else end.output for end in ends]).decode()
    if node.due and any(end.reason == BY_END_OF_RUN for end in ends):
        status, cause = _failure(step)
        end = _end(node, now, status, reason=TIMED_OUT, error=f"it took longer than {step.timeout:g} s", cause=cause)
    elif broken:
        status, cause = _failure(step)
        error = f"{len(broken)} of {len(items)} items failed, the first is {broken[0].step!r}"
        end = _end(node, now, status, reason=ITEM_FAILED, error=error, cause=cause)
    elif given_up := [end for end in ends if end.reason == BY_END_OF_RUN]:
        first = given_up[0]
        cause = node.name if first.cause == first.step else first.cause
        end = _end(node, now, "skipped", reason=BY_END_OF_RUN, error=first.error, cause=cause)
    else:
        end = _end(node, now, "completed")
    return msgspec.structs.replace(end, output=output)


def _end_of_barrier(state: RunState, node: PlanNode, now: int) -> StepEnded | None:
    barrier = node.barrier
    if barrier is None:
        return None
    if node.passed >= node.needed:
        return _end(node, now, "completed")
    if node.open == 0:
        return _skipped_after(state, node, now)
    if node.due:
        error = f"it waited longer than {barrier.timeout:g} s for {', '.join(node.after)}"
        return _end(node, now, "failed", reason=TIMED_OUT, error=error, cause=node.name)
    return None


def _outcome(state: RunState) -> RunOutcome:
    failed = tuple(node.name for node in sorted(state.failed, key=lambda node: node.order))
    if failed:
        first = state.nodes[failed[0]].ended
        return RunOutcome(status="failed", failed=failed, error=first.error if first is not None else None)
    if state.halted is not None:
        return RunOutcome(status="failed", error=state.halted.error)
    return RunOutcome(status="completed")
