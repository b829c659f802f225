"""docs/interop.md, from what was measured and nothing else, and back again, so that a test can hold it to that.

Every cell and every reason comes out of an `Outcome`; only the words around the tables are written here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from interop.outcome import Operation, Outcome, Verdict

PAGE = Path(__file__).resolve().parent.parent / "docs" / "interop.md"

MARKS = {Verdict.WORKED: "✓", Verdict.NOT_OFFERED: "·", Verdict.FAILED: "✗"}


class Direction(StrEnum):
    """Who calls whom."""

    CALLS_US = "Peers that call accord"
    IS_CALLED = "Peers that accord calls"


ABOUT = {
    Direction.CALLS_US: "Each is the peer's own client, against a running `accord serve`. A peer in several rows is"
    " used over several bindings or versions of A2A. The AI SDK speaks to the console's chat and not A2A.",
    Direction.IS_CALLED: "Each is the peer's own server, in a process of its own, and `accord.Client` calls it.",
}


class Subject(NamedTuple):
    """What a row is about."""

    name: str
    release: str
    binding: str
    version: str


class Row(NamedTuple):
    """A subject, and what came of it."""

    direction: Direction
    subject: Subject
    outcomes: Mapping[Operation, Outcome]

    @property
    def cells(self) -> list[str]:
        """What the table shows of it."""
        return [*self.subject, *(MARKS[self.outcomes[operation].verdict] for operation in Operation)]


def written(rows: Sequence[Row], missing: Iterable[str], accord_version: str) -> str:
    """Return the page."""
    lines = [
        "# Interoperability",
        "",
        f"What accord {accord_version} and other implementations of A2A do with each other, as `make interop` measured"
        " it. The command runs every peer, judges every answer and writes this page; nothing in the tables is written"
        " by hand, and the tests fail when a row is no longer true.",
        "",
        "✓ worked, · is not offered by the peer, ✗ failed. The reasons are below each table.",
    ]
    for direction in Direction:
        lines += ["", f"## {direction}", "", ABOUT[direction], ""]
        found = [row for row in rows if row.direction is direction]
        lines += [*_table(found), "", "Why not everywhere:", "", *_reasons(found)]
    if missing := sorted(missing):
        lines += ["", "## Not measured", "", "What could not be installed where this page was made:", ""]
        lines += [f"- {one}" for one in missing]
    return "\n".join(lines) + "\n"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    heads = ["peer", "release", "binding", "A2A", *Operation]
    yield _line(heads)
    yield _line(["---"] * len(heads))
    for row in rows:
        yield _line(row.cells)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _reasons(rows: Iterable[Row]) -> Iterator[str]:
    for row in rows:
        short: dict[tuple[str, str], list[str]] = {}
        for operation, outcome in row.outcomes.items():
            if outcome.verdict is not Verdict.WORKED:
                short.setdefault((MARKS[outcome.verdict], outcome.reason), []).append(operation)
        if short:
            name, release, binding, version = row.subject
            yield f"- {name} {release}, {binding}, {version}"
            for (mark, reason), operations in short.items():
                yield f"    - {mark} {', '.join(operations)}: {_literal(reason)}"


def _literal(reason: str) -> str:
    """A reason as it was said, where it was said by a program."""
    words = reason.replace("`", "'")
    return f"`{words}`" if any(sign in words for sign in "<>[]{}*_:'") else words


class Shown(NamedTuple):
    """What a page shows of a peer."""

    release: str
    marks: dict[Operation, str]


def shown_in(text: str) -> dict[tuple[str, str, str, str], Shown]:
    """Return the rows of a page's tables, by direction, name, binding and version of A2A."""
    found = {}
    direction = ""
    for line in text.splitlines():
        if line.startswith("## "):
            direction = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith(("| peer |", "| --- |")):
            name, release, binding, version, *marks = line.strip("| ").split(" | ")
            found[direction, name, binding, version] = Shown(release, dict(zip(Operation, marks, strict=True)))
    return found
