"""Map steps: their step is executed for each item of a list."""

from typing import Any

import msgspec

from accord.workflows.attempts import AttemptStart, CannotStart, StepAttempt, StepBehavior, behavior_of, first_line
from accord.workflows.document import Step

MAX_ITEMS = 10_000
"""Maximum number of items of a map. A longer list is taken for a mistake."""


def start(attempt: StepAttempt) -> AttemptStart:
    """Start a map: its list is stored with its record."""
    over = attempt.step.over
    items = _items(attempt.values.value(over) if isinstance(over, str) else over)
    if len(items) > MAX_ITEMS:
        raise CannotStart(f"It would go over {len(items)} items, and at most {MAX_ITEMS} are possible")
    return AttemptStart(begun=attempt.begun(items=items))


def _items(value: Any) -> tuple[Any, ...]:
    """Return the items of a list, of a JSON array in a string, or the lines of any other string."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return tuple(line for line in value.splitlines() if line.strip())
    if not isinstance(value, list | tuple):
        raise CannotStart(f"`over` is not a list: {str(value)[:100]!r}")
    return tuple(value)


def describe(step: Step) -> str:
    """Return the list of a map, and what its step does unless the map has a description."""
    over = step.over if isinstance(step.over, str) else msgspec.json.encode(step.over).decode()
    inner = "" if step.step is None else behavior_of(step.step.kind).describe(step.step)
    return f"{first_line(step.description) or inner} (for each of {over})"


BEHAVIOR = StepBehavior(start=start, describe=describe)
