"""What is kept of measurements, and docs/performance.md, which is made of that and nothing else.

Each benchmark is a part of its own, with the machine that it ran on: running one replaces its part and leaves the
others. `make bench` writes both files; `bench/results/latest.md` is the page under another name.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Table, markdown

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "bench" / "results" / "latest.json"
PAGE = ROOT / "docs" / "performance.md"

ABOUT = (
    "What accord costs, measured side by side with what it is compared to, in turn and on the same machine. Times on a"
    " shared machine move by a third between runs; ratios within one run are what counts, so most targets are ratios."
)
REPEAT = (
    "`make bench` measures everything and writes this page, `make bench ARGS=server` measures one part and replaces it"
    " here. Nothing on it is written by hand. What must hold is listed below each table, with whether it held."
)


@dataclass(frozen=True)
class Run:
    """One benchmark, as it was run last."""

    setting: str
    tables: tuple[Table, ...]

    def plain(self) -> dict[str, Any]:
        return {"setting": self.setting, "tables": [table.plain() for table in self.tables]}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Run":
        return cls(plain["setting"], tuple(map(Table.of, plain["tables"])))


Runs = Mapping[str, Run]


def kept(path: Path = KEPT) -> dict[str, Run]:
    """Return what is known of earlier runs."""
    if not path.exists():
        return {}
    return {name: Run.of(plain) for name, plain in json.loads(path.read_text(encoding="utf-8")).items()}


def keep(runs: Runs, order: Sequence[str], path: Path = KEPT, page: Path = PAGE) -> None:
    """Add runs to those that are kept, and write the page again; a benchmark that is gone is gone from both."""
    known = {**kept(path), **runs}
    known = {name: known[name] for name in order if name in known}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({name: run.plain() for name, run in known.items()}, indent=1) + "\n", encoding="utf-8")
    page.write_text(text(known), encoding="utf-8")


def text(runs: Runs) -> str:
    """Return the page."""
    every = [table for run in runs.values() for table in run.tables]
    missed = [line for table in every for line in table.missed()]
    count = sum(len(table.targets) for table in every)
    parts = ["# Performance\n", ABOUT + "\n", REPEAT + "\n", f"{count - len(missed)} of {count} targets held.\n"]
    if missed:
        parts += ["Missed:\n", "".join(f"- {line}\n" for line in missed)]
    for name, run in runs.items():
        head, *rest = run.tables
        said = f"`make bench ARGS={name}`: {run.setting}."
        title, _, body = markdown(head).partition("\n")
        parts += [f"{title}\n\n{said}\n{body}", *map(markdown, rest)]
    return "\n".join(parts)
