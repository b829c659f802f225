"""The tables of docs/operations.md are those of the code, word for word."""

import re
from pathlib import Path

from accord.bindings import health
from accord.bindings.metrics import METRICS, READERS
from accord.core.roles import BUILT_IN
from accord.storage.commands.metrics import MAX_ROWS
from accord.telemetry import metrics, waiting
from accord.telemetry.tally import Metric

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(accord_\w+)` \| (\w+) \|([^|]*)\| ([^|]+) \|$", re.MULTILINE)


def test_every_metric_is_documented_as_it_is() -> None:
    documented = [
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, labels, meaning in ROW.findall(PAGE)
    ]
    known = [found for module in (metrics, waiting) for found in vars(module).values() if isinstance(found, Metric)]
    assert documented == [(found.name, found.kind.value, found.labels, found.help) for found in known]


def test_what_the_page_says_beside_the_tables_is_so() -> None:
    for path in (health.HEALTH, health.READY, METRICS):
        assert f"| `{path}` |" in PAGE
    assert {f"{seconds:.0f} seconds" for seconds in (waiting.PATIENCE_SECONDS,)} <= set(
        re.findall(r"\d+ seconds", PAGE)
    )
    assert "five\nseconds old" in PAGE
    assert (waiting.FRESH_SECONDS, waiting.REST) == (5, 20)
    assert f"Numbers end at {MAX_ROWS:,}" in PAGE
    assert {role.name for role in BUILT_IN if role.sees_all} == READERS
    assert "the role `admin` or `operator`" in PAGE


def test_the_queries_name_metrics_that_there_are() -> None:
    known = {
        found.name for module in (metrics, waiting) for found in vars(module).values() if isinstance(found, Metric)
    }
    named = {name.removesuffix("_bucket") for name in re.findall(r"accord_[a-z_]+", PAGE)} - {"accord_info"}
    assert named == known
