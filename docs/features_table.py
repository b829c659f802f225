"""Writes features.md: every requirement, where it lives and the tests that prove it.

`python -m docs.features_table` writes it anew from tests/requirements.toml and from what the tests claim, which
`tests.claims` reads; a test fails until then. It decides nothing: what a test that is run claims is proven.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.claims import MANIFEST, REQUIREMENTS, ROOT, Claim, claims_under

PAGE = Path(__file__).parent / "features.md"

SHOWN = 3
"""How many tests of a requirement are named; some have a hundred."""

PARTS: Mapping[str, str] = {
    "0": "Chat application: acknowledge, then webhook, with a table of tasks",
    "1": "Workflows with A2A steps, and a workspace exposed as an A2A server",
    "2": "The AgentVault profile",
    "3": "A server for LangGraph agents",
    "4": "The generic dialect",
    "B": "One server for all dialects",
    "C": "Where the founding documents leave gaps",
    "": "The A2A 1.0 specification, by the ids of its conformance kit",
}

HEAD = """# Features, and the tests that prove them

This page is written by [features_table.py](features_table.py) from
[tests/requirements.toml](../tests/requirements.toml) and from the marks of the tests. A test carries the ids that it
proves (`@pytest.mark.proves("1-24")`, `proves` in a golden case, `// proves: 0-14` in a test of the pages), and the
suite fails if an id has no test, if a test names an id that does not exist, or if this page is not current.

Ids 0-.. to 4-.. come from the five documents that Accord was founded on, B-.. are the places where these contradict
each other, C-.. the questions that they leave open. *Lives in* is where to begin reading, below `src/accord` unless it
begins with `web` or `examples`. Of a requirement with many tests the first {shown} are named. To run one:
`.venv/bin/pytest tests/remote/test_receiver.py -k test_a_token_may_expire`. A name below `tests/conformance/table.py`
is a row of the conformance matrix (`pytest tests/conformance -k send-at-once`), a number below `tests/golden` a case
of `tests/protocol/test_golden.py`.
"""


def is_founding(id_: str) -> bool:
    """Whether an id is one of ours, not one of the conformance kit's."""
    return re.fullmatch(r"[0-4BC]-\w+", id_) is not None


def place(lives: str) -> str:
    """Return where something lives, from the top of the repository."""
    return lives if lives.startswith(("web/", "examples/")) else f"src/accord/{lives}"


def page(claims: Iterable[Claim]) -> str:
    """Return the whole page."""
    proofs: dict[str, list[str]] = {id_: [] for id_ in REQUIREMENTS}
    for claim in claims:
        if claim.place not in proofs[claim.id]:
            proofs[claim.id].append(claim.place)
    sections = [line for part in PARTS for line in _section(part, proofs)]
    return "\n".join([HEAD.format(shown=SHOWN), *_milestones(), *sections]) + "\n"


def _milestones() -> Iterator[str]:
    yield "| part of the work | what it proves | requirements |"
    yield "| --- | --- | --- |"
    for milestone, meaning in MANIFEST["milestones"].items():
        count = sum(row["milestone"] == milestone for row in REQUIREMENTS.values())
        yield f"| {milestone} | {meaning} | {count} |"


def _section(part: str, proofs: Mapping[str, list[str]]) -> Iterator[str]:
    yield f"\n## {PARTS[part]}\n"
    yield "| id | requirement | lives in | proven by |" if part else "| id | requirement | proven by |"
    yield "| --- | --- | --- | --- |" if part else "| --- | --- | --- |"
    for id_, row in REQUIREMENTS.items():
        if (id_[0] if is_founding(id_) else "") == part:
            lives = [f"`{row['lives']}`"] if part else []
            yield f"| {' | '.join([id_, row['title'], *lives, _named(proofs[id_])])} |"


def _named(places: list[str]) -> str:
    """Name the first tests, those that are written out before the golden cases."""
    ordered = sorted(places, key=lambda one: one.startswith("tests/golden/"))
    more = f" and {len(places) - SHOWN} more" if len(places) > SHOWN else ""
    return "<br>".join(f"`{one}`" for one in ordered[:SHOWN]) + more


if __name__ == "__main__":
    PAGE.write_text(page(claims_under(ROOT)), encoding="utf-8")
