"""The dashboard and the alarms in deploy/ ask for what there is: every metric of ours, by labels that it has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from accord.telemetry import exposition, metrics
from accord.telemetry.exposition import Exposition
from accord.telemetry.metrics import Metric, MetricType, Tally
from docs.reference.events import MEANINGS
from tests.cases import each
from tests.telemetry.promql import Query

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "accord.json").read_text(encoding="utf-8"))
RULES: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "accord.rules.yml").read_text(encoding="utf-8"))

OURS = [found for module in (metrics, exposition) for found in vars(module).values() if isinstance(found, Metric)]
OTHERS: dict[str, tuple[str, ...]] = {
    "accord_info": ("version",),
    "process_resident_memory_bytes": (),
    "process_cpu_seconds_total": (),
    "process_open_fds": (),
}
"""What comes with them (`telemetry.exposition`)."""


def known() -> dict[str, tuple[str, ...]]:
    """Every series, with its labels."""
    found = dict(OTHERS)
    for metric in OURS:
        if metric.kind is MetricType.HISTOGRAM:
            found |= {f"{metric.name}_{part}": metric.labels for part in ("sum", "count")}
            found[f"{metric.name}_bucket"] = (*metric.labels, "le")
        else:
            found[metric.name] = metric.labels
    return found


def panels() -> Iterator[dict[str, Any]]:
    return (panel for panel in BOARD["panels"] if panel["type"] != "row")


def queries() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


@each("query", [*queries(), *(rule["expr"] for rule in RULES["groups"][0]["rules"])])
def test_every_query_is_one(query: str) -> None:
    assert Query(query, known()).used


def test_every_metric_is_on_the_board() -> None:
    used = {name for query in queries() for name in Query(query, known()).used}
    shown = {name.removesuffix("_bucket") for name in used}
    assert shown == {metric.name for metric in OURS} | OTHERS.keys()


class Nothing:
    """A store of which nothing is known."""

    async def counts(self) -> tuple[Tally, ...]:
        return ()


async def test_shipped_alerts_and_dashboards_are_documented() -> None:
    page, _ = await Exposition(metrics.Metrics(), Nothing(), version="1")("")  # type: ignore[arg-type]
    names = {line.split(" ")[0].partition("{")[0] for line in page.decode().splitlines() if not line.startswith("#")}
    assert OTHERS.keys() <= names


def test_legends_name_labels_that_the_query_leaves() -> None:
    for panel in panels():
        for target in panel["targets"]:
            kept = re.search(r"by \(([\w, ]+)\)", target["expr"])
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            left = set(re.split(r", ", kept[1])) - {"le"} if kept else {"instance", "worker"} if named else set()
            assert named == left, panel["title"]


def test_the_board_can_be_imported_anywhere() -> None:
    sources = [panel["datasource"] for panel in panels()] + [
        target["datasource"] for panel in panels() for target in panel["targets"]
    ]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    variables = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "agent"]
    for name in ("job", "agent"):
        asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variables[name]["definition"])
        assert asked is not None
        assert asked[2] in {*known()[asked[1]], "job"}
    assert {name for query in queries() for name in re.findall(r"\$(\w+)", query)} <= {
        *variables,
        "__rate_interval",
        "__range",
    }
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_panels_do_not_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_alerts_have_a_fix_and_existing_events() -> None:
    rules = RULES["groups"][0]["rules"]
    assert len({rule["alert"] for rule in rules}) == len(rules) >= 6
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}
        named = set(re.findall(r"\b(?:request|store|run|node)\.[a-z_]+", rule["annotations"]["description"]))
        assert named <= set(MEANINGS), rule["alert"]


@each(
    ("query", "reason"),
    [
        ("rate(accord_gone_total[5m])", "accord_gone_total"),
        ("sum by (gone) (accord_tasks)", "gone"),
        ('accord_tasks{gone="x"}', "gone"),
        ("sum(rate(accord_requests_total[5m])", "expected"),
        ("rate(accord_requests_total)", "arguments of rate"),
        ("sum(accord_tasks[5m]) +", "expected"),
        ("histogram_quantile(0.9, sum(rate(accord_request_seconds_bucket[5m])))", "by le"),
        ("sum by (agent) (sum(accord_streams_open))", "agent"),
        ("accord_tasks !", "written like"),
        ("accord_tasks accord_tasks", "nothing more"),
    ],
)
def test_a_query_that_is_wrong_is_noticed(query: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Query(query, known())
