"""Filters and functions of expressions, and votes.

They are pure and total: a value that does not fit raises `Unsuitable`. A vote is a line such as `VOTE: APPROVE` in an
answer. An answer without such a line is an abstention.
"""

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
from msgspec import Struct

MARKERS = ("VOTE", "DECISION", "REVIEW_DECISION", "VERDICT")
"""The first words of a vote line. The last such line in an answer counts."""

APPROVE, REJECT = "APPROVE", "REJECT"

QUORUM = 2 / 3
"""The share of all voters that must vote in a quorum, without a threshold."""

_BEGIN = r"^(?:[^\S\n]|[>*_`#-])*"
"""Text that may precede a marker in its line. With line breaks in it, 10000 blank lines took 4 s."""

_VOTE = re.compile(rf"{_BEGIN}(?:{'|'.join(MARKERS)})[*_`]*\s*:[\s*_`\"']*([\w.-]+)", re.MULTILINE | re.IGNORECASE)
_SCORE = re.compile(rf"{_BEGIN}(?:BID|SCORE)[*_`]*\s*:[\s*_`]*(-?\d+(?:\.\d+)?)", re.MULTILINE | re.IGNORECASE)
_LOOKS_GOOD = re.compile(r"\bLGTM\b")

_SAME = {"APPROVED": APPROVE, "ACCEPT": APPROVE, "YES": APPROVE, "REJECTED": REJECT, "NO": REJECT}
"""Synonyms of votes."""


def vote_in(text: str) -> str:
    """Return the vote of an answer in capitals, or an empty string. A bare LGTM approves."""
    votes: list[str] = _VOTE.findall(text)
    if votes:
        word = votes[-1].rstrip(".").upper()
        return _SAME.get(word, word)
    return APPROVE if _LOOKS_GOOD.search(text) else ""


def score_in(text: str) -> float | None:
    """Return the bid or score of an answer: the number in its last line `BID: 3` or `SCORE: 3`."""
    scores = _SCORE.findall(text)
    return float(scores[-1]) if scores else None


def tally(texts: Iterable[str]) -> dict[str, int]:
    """Count votes, the most frequent first, equal counts by name."""
    counts = Counter(vote for text in texts if (vote := vote_in(text)))
    return dict(sorted(counts.items(), key=lambda row: (-row[1], row[0])))


def consensus(strategy: str, threshold: float | None, texts: Iterable[str], voters: int) -> str:
    """Return the vote that voters agree on, or an empty string.

    - majority: more than half of all voters, or the share in `threshold`.
    - unanimous: all voters.
    - quorum: the share in `threshold` [default: two thirds] has voted, and more than half of the votes agree.
    """
    counts = tally(texts)
    word, most = next(iter(counts.items()), ("", 0))
    cast = sum(counts.values())
    if strategy == "unanimous":
        return word if voters and most == voters else ""
    if strategy == "quorum":
        return (
            word if cast >= _share(threshold if threshold is not None else QUORUM, voters) and 2 * most > cast else ""
        )
    if strategy != "majority":
        raise ValueError(f"there is no strategy {strategy!r}; there are majority, quorum, unanimous")
    enough = 2 * most > voters if threshold is None else most >= _share(threshold, voters)
    is_ahead = sum(count == most for count in counts.values()) == 1
    return word if enough and is_ahead else ""


def best_score(texts: Iterable[str]) -> int:
    """Return the index of the answer with the highest bid or score, the first of equals; -1 without any."""
    scored = [(score, -place) for place, text in enumerate(texts) if (score := score_in(text)) is not None]
    return -max(scored)[1] if scored else -1


def _share(threshold: float, voters: int) -> float:
    """Return the number of voters for a share, at least one."""
    return max(1.0, threshold * voters - 1e-9)


MANY = 1_000
TRUNCATED = "...(truncated)"

_FENCED = re.compile(r"^```(?:json)?[ \t]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_NO_SLUG = re.compile(r"[^a-z0-9]+")


class Unsuitable(ValueError):
    """An argument does not fit its filter or comparison."""


class FunctionSignature(Struct, frozen=True, kw_only=True):
    """The usage and implementation of a filter or function.

    For a function about steps, `plain` is the number of values before the names of steps.
    """

    usage: str
    does: Callable[..., Any]
    least: int = 0
    most: int = 0
    plain: int | None = None
    heeds_failure: bool = False


class StepValue(Struct, frozen=True):
    """The result of an ended step."""

    status: Literal["completed", "failed", "skipped"] = "completed"
    output: str = ""
    exit_code: int | None = None


# --- values -----------------------------------------------------------------------------------------------------------


def as_text(value: Any) -> str:
    """Return a value as text: strings unchanged, everything else as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def from_json(text: Any) -> Any:
    """Return the JSON in a text: the whole text, or its last fenced block that is valid."""
    if not isinstance(text, str):
        return text
    for candidate in (text, *reversed(_FENCED.findall(text))):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            continue
    raise Unsuitable(f"is not JSON: {text.strip()[:80]!r}")


def is_true(value: Any) -> bool:
    """Whether a value counts as true: not null, false, 0, "false" or empty."""
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
    value_as_number = number(value)
    if value_as_number != int(value_as_number) or value_as_number < 0:
        raise Unsuitable(f"is not a count: {as_text(value)}")
    return int(value_as_number)


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


FILTERS: dict[str, FunctionSignature] = {
    "first-line": FunctionSignature(usage="first-line", does=lambda value: next(iter(_lines(value)), "")),
    "last-line": FunctionSignature(usage="last-line", does=lambda value: next(reversed(_lines(value)), "")),
    "lines": FunctionSignature(usage="lines", does=_lines),
    "json": FunctionSignature(usage="json", does=lambda value: msgspec.json.encode(value).decode()),
    "parse-json": FunctionSignature(usage="parse-json", does=from_json),
    "truncate": FunctionSignature(usage="truncate(500)", does=_truncated, least=1, most=1),
    "trim": FunctionSignature(usage="trim", does=lambda value: as_text(value).strip()),
    "default": FunctionSignature(usage="default('other')", does=_defaulted, least=1, most=1),
    "join": FunctionSignature(usage="join(', ')", does=_joined, most=1),
    "length": FunctionSignature(usage="length", does=_length),
    "slug": FunctionSignature(usage="slug", does=_slug),
    "lower": FunctionSignature(usage="lower", does=lambda value: as_text(value).lower()),
    "upper": FunctionSignature(usage="upper", does=lambda value: as_text(value).upper()),
}
"""Filters for `|`."""


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
    return best_score([step.output if step.status == "completed" else "" for step in steps])


FUNCTIONS: dict[str, FunctionSignature] = {
    "text": FunctionSignature(
        usage="text(VALUE, ..)", does=lambda *parts: "".join(map(as_text, parts)), least=1, most=MANY
    ),
    "always": FunctionSignature(usage="always()", does=lambda: True, heeds_failure=True),
    "failed": FunctionSignature(
        usage="failed(STEP, ..)", does=_any_is("failed"), most=MANY, plain=0, heeds_failure=True
    ),
    "succeeded": FunctionSignature(usage="succeeded(STEP, ..)", does=_all_are("completed"), most=MANY, plain=0),
    "skipped": FunctionSignature(usage="skipped(STEP, ..)", does=_any_is("skipped"), most=MANY, plain=0),
    "vote": FunctionSignature(usage="vote(STEP)", does=lambda step: vote_in(step.output), least=1, most=1, plain=0),
    "votes": FunctionSignature(
        usage="votes('WORD', STEP, ..)",
        does=lambda word, *steps: tally(_texts(steps)).get(str(word).upper(), 0),
        least=2,
        most=MANY,
        plain=1,
    ),
    "tally": FunctionSignature(
        usage="tally(STEP, ..)", does=lambda *steps: tally(_texts(steps)), least=1, most=MANY, plain=0
    ),
    "consensus": FunctionSignature(
        usage="consensus('majority', THRESHOLD, STEP, ..)",
        does=lambda strategy, threshold, *steps: consensus(
            str(strategy), None if threshold is None else number(threshold), _texts(steps), len(steps)
        ),
        least=3,
        most=MANY,
        plain=2,
    ),
    "best": FunctionSignature(usage="best(STEP, ..)", does=lambda *steps: _best(steps), least=1, most=MANY, plain=0),
    "latest": FunctionSignature(
        usage="latest(STEP, ..)", does=lambda *steps: _latest(steps), least=1, most=MANY, plain=0
    ),
}
"""Functions of expressions.

- `text` joins values.
- `succeeded` is also true without any step.
- `best` is the index of the step with the highest bid or score, from 0; -1 without any.
- `latest` is the output of the last step that completed.
"""


def nearest(name: str, names: Iterable[str]) -> str:
    """Return a hint for an unknown name: the most similar name, or the list of names."""
    known = sorted(names)
    near = closest(name, known)
    return f"; did you mean {near!r}?" if near else f"; there are {', '.join(known)}"


def closest(word: str, known: Iterable[str]) -> str | None:
    """Return the most similar known word, or None."""
    lower = {name.lower(): name for name in reversed(list(known))}
    close = difflib.get_close_matches(word.lower(), lower, 1)
    return lower[close[0]] if close else None
