"""Wait steps: they wait for a time or an event."""

from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from accord.workflows.agent_definition import AgentDef
from accord.workflows.attempts import AttemptStart, CannotStart, StepAttempt, StepBehavior, signal_key
from accord.workflows.document import Document, Step
from accord.workflows.executors import Result
from accord.workflows.findings import CheckProblem, Where
from accord.workflows.notation import format_duration
from accord.workflows.state import PlanNode


def start(attempt: StepAttempt) -> AttemptStart:
    """Start a wait; its record has the time at which it ends."""
    step = attempt.step
    if step.for_ is not None:
        return AttemptStart(begun=attempt.begun(until=attempt.at + round(step.for_ * 1000)))
    if step.until is None:
        return AttemptStart(begun=attempt.begun())
    text = attempt.values.text(step.until)
    try:
        until = datetime.fromisoformat(text)
    except ValueError:
        raise CannotStart(f"{text!r} is not a valid time: write one like 2030-01-31T18:00:00Z") from None
    aware = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return AttemptStart(begun=attempt.begun(until=round(aware.timestamp() * 1000)))


def signal(node: PlanNode) -> str | None:
    """Return the key of the event that a step waits for."""
    event = None if node.step is None else node.step.event
    return None if event is None else signal_key(f"event/{event}", node.attempt)


def result_of_signal(step: Step, value: object) -> tuple[Result, None]:
    """Return the result of an event: its data is the output."""
    return Result(ok=True, output=value if isinstance(value, str) else msgspec.json.encode(value).decode()), None


def describe(step: Step) -> str:
    """Return the time or event that a step waits for."""
    given = {"for": step.for_ and format_duration(step.for_), "until": step.until, "for the event": step.event}
    return ", ".join(f"waits {how} {time}" for how, time in given.items() if time)


def check_one_end(step: Step, where: Where, agent: AgentDef | None, document: Document) -> Iterator[CheckProblem]:
    """Check that a wait has one end."""
    given = [
        name for name, value in (("for", step.for_), ("until", step.until), ("event", step.event)) if value is not None
    ]
    if step.use is None and len(given) > 1:
        message = f"`{given[0]}` and `{given[1]}` both say how long"
        yield CheckProblem("CONFLICT", (*where, given[1]), message, "make two steps of it", at_key=True)


def check_time(step: Step, where: Where, agent: AgentDef | None, document: Document) -> Iterator[CheckProblem]:
    """Check that the time of a wait is valid and has a zone."""
    until = step.until
    if until is None or "{{" in until:
        return
    try:
        moment = datetime.fromisoformat(until)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        message = f"{until} is not a valid time with a zone"
        yield CheckProblem("BAD_TIME", (*where, "until"), message, "write it like 2030-01-31T08:00:00Z")


BEHAVIOR = StepBehavior(
    start=start, signal=signal, result_of_signal=result_of_signal, describe=describe, checks=(check_one_end, check_time)
)
