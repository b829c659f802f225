"""The filters and functions that expressions may use, one row each: how they are written, and what they do.

They are pure and total over what agents say: a value that does not fit is Unsuitable, never a crash. Filters are given
values, functions what is known of steps; `expressions` checks how they are used, `values` calls them.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

from accord.workflows import votes

MANY = 1_000
TRUNCATED = "...(truncated)"

_FENCED = re.compile(r"^```(?:json)?[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NO_SLUG = re.compile(r"[^a-z0-9]+")


class Unsuitable(ValueError):
    """A filter or a comparison was given what it cannot work with."""


class Signature(Struct, frozen=True, kw_only=True):
    """How a filter or a function is used, and what it does.

    A function about steps has `plain`: how many values come before the names of steps that it is given.
    """

    usage: str
    does: Callable[..., Any]
    least: int = 0
    most: int = 0
    plain: int | None = None
    heeds_failure: bool = False


class StepValue(Struct, frozen=True):
    """What is known of a step that has ended."""

    status: Literal["completed", "failed", "skipped"] = "completed"
    output: str = ""
    exit_code: int | None = None


# --- values -----------------------------------------------------------------------------------------------------------


def as_text(value: Any) -> str:
    """Return a value as text: texts as they are, everything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def from_json(text: Any) -> Any:
    """Return what a text says in JSON: all of it, or the last block of it that is fenced."""
    if not isinstance(text, str):
        return text
    for candidate in (text, *reversed(_FENCED.findall(text))):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue
    raise Unsuitable(f"is not JSON: {text.strip()[:80]!r}")


def is_true(value: Any) -> bool:
    """Whether a value counts as true: not null, false, 0, "false", and nothing empty."""
    return value.strip().lower() not in ("", "false") if isinstance(value, str) else bool(value)


def number(value: Any) -> float:
    """Return a value as a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise Unsuitable(f"is not a number: {as_text(value)[:80]!r}") from None


def _lines(value: Any) -> list[str]:
    return [line for line in as_text(value).splitlines() if line.strip()]


def _count(value: Any) -> int:
    found = number(value)
    if found != int(found) or found < 0:
        raise Unsuitable(f"is not a count: {as_text(value)}")
    return int(found)


def _truncated(value: Any, length: Any) -> str:
    text, most = as_text(value), _count(length)
    return text if len(text) <= most else text[:most] + TRUNCATED


def _joined(value: Any, separator: Any = "\n") -> str:
    if not isinstance(value, list | tuple):
        raise Unsuitable("is not a list, and only a list can be joined")
    return as_text(separator).join(map(as_text, value))


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | list | tuple | dict) else len(as_text(value))


def _slug(value: Any) -> str:
    return _NO_SLUG.sub("-", as_text(value).lower())[:60].strip("-")


def _defaulted(value: Any, other: Any) -> Any:
    return other if value is None or value == "" else value


FILTERS: dict[str, Signature] = {
    "first-line": Signature(usage="first-line", does=lambda value: next(iter(_lines(value)), "")),
    "last-line": Signature(usage="last-line", does=lambda value: next(reversed(_lines(value)), "")),
    "lines": Signature(usage="lines", does=_lines),
    "json": Signature(usage="json", does=lambda value: msgspec.json.encode(value).decode()),
    "parse-json": Signature(usage="parse-json", does=from_json),
    "truncate": Signature(usage="truncate(500)", does=_truncated, least=1, most=1),
    "trim": Signature(usage="trim", does=lambda value: as_text(value).strip()),
    "default": Signature(usage="default('other')", does=_defaulted, least=1, most=1),
    "join": Signature(usage="join(', ')", does=_joined, most=1),
    "length": Signature(usage="length", does=_length),
    "slug": Signature(usage="slug", does=_slug),
    "lower": Signature(usage="lower", does=lambda value: as_text(value).lower()),
    "upper": Signature(usage="upper", does=lambda value: as_text(value).upper()),
}
"""What can stand after `|`."""


# --- functions --------------------------------------------------------------------------------------------------------


def _any_is(status: str) -> Callable[..., bool]:
    return lambda *steps: any(step.status == status for step in steps)


def _all_are(status: str) -> Callable[..., bool]:
    return lambda *steps: all(step.status == status for step in steps)


def _texts(steps: Iterable[StepValue]) -> list[str]:
    return [step.output for step in steps if step.status == "completed"]


def _latest(steps: Iterable[StepValue]) -> str:
    return next(iter(reversed(_texts(steps))), "")


def _best(steps: Iterable[StepValue]) -> int:
    return votes.best([step.output if step.status == "completed" else "" for step in steps])


FUNCTIONS: dict[str, Signature] = {
    "text": Signature(usage="text(VALUE, ..)", does=lambda *parts: "".join(map(as_text, parts)), least=1, most=MANY),
    "always": Signature(usage="always()", does=lambda: True, heeds_failure=True),
    "failed": Signature(usage="failed(STEP, ..)", does=_any_is("failed"), most=MANY, plain=0, heeds_failure=True),
    "succeeded": Signature(usage="succeeded(STEP, ..)", does=_all_are("completed"), most=MANY, plain=0),
    "skipped": Signature(usage="skipped(STEP, ..)", does=_any_is("skipped"), most=MANY, plain=0),
    "vote": Signature(usage="vote(STEP)", does=lambda step: votes.vote_in(step.output), least=1, most=1, plain=0),
    "votes": Signature(
        usage="votes('WORD', STEP, ..)",
        does=lambda word, *steps: votes.tally(_texts(steps)).get(str(word).upper(), 0),
        least=2,
        most=MANY,
        plain=1,
    ),
    "tally": Signature(
        usage="tally(STEP, ..)", does=lambda *steps: votes.tally(_texts(steps)), least=1, most=MANY, plain=0
    ),
    "consensus": Signature(
        usage="consensus('majority', THRESHOLD, STEP, ..)",
        does=lambda strategy, threshold, *steps: votes.consensus(
            str(strategy), None if threshold is None else number(threshold), _texts(steps), len(steps)
        ),
        least=3,
        most=MANY,
        plain=2,
    ),
    "best": Signature(usage="best(STEP, ..)", does=lambda *steps: _best(steps), least=1, most=MANY, plain=0),
    "latest": Signature(usage="latest(STEP, ..)", does=lambda *steps: _latest(steps), least=1, most=MANY, plain=0),
}
"""What can be called. `text` joins values; `succeeded` is also true of no step at all; `best` is the place, from 0, of
the step that bids or scores most, -1 if none does; `latest` is what the last of the steps said that was completed."""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return what to say of a name that is none: the one that may be meant, or which there are."""
    known = sorted(names)
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
