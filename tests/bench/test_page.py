"""docs/performance.md is made of measurements and of nothing else, part by part."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.page import KEPT, PAGE, Run, keep, kept, text
from bench.report import Table, Target, markdown

ROOT = Path(__file__).parent.parent.parent


def run(title: str, value: float = 3.0, setting: str = "a machine", **limits: float) -> Run:
    targets = (Target("ours", "per second", **limits),) if limits else ()
    rows = {"ours": {"per second": value, "times": value / 2}, "theirs": {"per second": 2.0}}
    table = Table(title, "sends", ("per second", "times"), rows, targets, ("How it was done.",))
    return Run(setting, (table,))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "results" / "latest.json", tmp_path / "performance.md"


def test_a_run_is_kept_as_it_was(files: tuple[Path, Path]) -> None:
    path, page = files
    runs = {"a": run("First", at_least=1.0), "b": run("Second")}
    keep(runs, ("a", "b"), path, page)
    assert kept(path) == runs
    assert page.read_text() == text(runs)


def test_one_part_is_replaced_and_the_others_stay(files: tuple[Path, Path]) -> None:
    path, page = files
    keep({"a": run("First"), "b": run("Second"), "gone": run("Third")}, ("a", "b", "gone"), path, page)
    keep({"b": run("Second", 7.0, "another machine")}, ("b", "a"), path, page)
    shown = page.read_text()
    assert list(kept(path)) == ["b", "a"]
    assert shown.index("## Second") < shown.index("## First"), "in the order of the benchmarks"
    assert "`make bench ARGS=b`: another machine." in shown
    assert "`make bench ARGS=a`: a machine." in shown
    assert "| ours | 7.00 | 3.50 |" in shown
    assert "Third" not in shown


def test_missed_targets_are_listed_first_and_in_place(files: tuple[Path, Path]) -> None:
    shown = text({"a": run("First", at_least=5.0), "b": run("Second", at_most=5.0)})
    assert "1 of 2 targets held." in shown
    top, _, rest = shown.partition("## First")
    assert "- First, ours: per second is 3.00, must be at least 5" in top
    assert "- **missed**: ours, per second: 3.00, must be at least 5" in rest
    assert "- held: ours, per second: 3.00, must be at most 5" in rest
    assert "Missed" not in text({"b": run("Second", at_most=5.0)})


def test_a_value_that_was_not_measured_is_an_empty_cell() -> None:
    assert "| theirs | 2.00 |  |" in markdown(run("First").tables[0])


def test_the_committed_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == text(kept(KEPT)), "`make bench` writes both"


def test_a_real_run_measures_imports_and_a_quick_one_leaves_the_page() -> None:
    before = PAGE.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "bench", "imports", "--quick"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| import accord |" in done.stdout
    assert "accord --help, ms:" in done.stdout
    assert PAGE.read_bytes() == before


def test_everything_that_is_kept_is_plain_json() -> None:
    stored = json.loads(KEPT.read_text(encoding="utf-8"))
    assert {key for part in stored.values() for key in part} == {"setting", "tables"}
