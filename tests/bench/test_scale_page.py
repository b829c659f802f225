"""The page on scale: its figures are those that were measured, and what its model says follows from them."""

import re

import pytest

from bench.page import KEPT, kept
from bench.report import Table
from tests.environments import ROOT

PAGE = ROOT / "docs" / "explanation" / "scale.md"
CALLER_US = 45
CORES = 2


def table(title: str) -> Table:
    (found,) = [table for table in kept(KEPT)["scale"].tables if table.title == title]
    return found


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def says(nodes: int) -> float:
    """What the model says, with the costs of one node."""
    one = table("What a send costs").rows["1 servers"]
    alone = 1e6 / one["node CPU us"]
    return min(nodes * alone, CORES * 1e6 / (one["node CPU us"] + one["PostgreSQL CPU us"] + CALLER_US))


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_the_model_is_shown_beside_measurements(nodes: int) -> None:
    (row,) = [cells(line) for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {nodes} |")]
    measured = table("What a send costs").rows[f"{nodes} servers"]
    assert row == [
        str(nodes),
        f"{round(says(nodes), -1):,.0f}",
        f"{measured['sends/s']:,.0f}",
        f"{measured['node CPU us']:.0f} + {measured['PostgreSQL CPU us']:.0f}",
        f"{measured['cores busy']:.2f}",
    ]


def test_kill_results_are_reported_as_measured() -> None:
    killed = table("Killing servers").rows["5,000 tasks"]
    text = " ".join(PAGE.read_text(encoding="utf-8").split())
    told = re.search(
        r"With (\d+) kills it took (\d+) seconds .*?, (\d+) events a second on average; ([\d,]+) streams were cut", text
    )
    assert told is not None
    kills, seconds, rate, broken = (int(figure.replace(",", "")) for figure in told.groups())
    assert (kills, broken, rate) == (killed["kills"], killed["broken streams"], round(killed["events/s"]))
    assert seconds == round(killed["events"] / killed["events/s"])
