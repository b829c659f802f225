"""Tables of measurements: how they are kept and shown, and which targets they missed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """What a measurement must reach: at least so much, or at most."""

    row: str
    column: str
    at_least: float | None = None
    at_most: float | None = None

    @property
    def asked(self) -> str:
        limits = (("at least", self.at_least), ("at most", self.at_most))
        return " and ".join(f"{word} {limit:,g}" for word, limit in limits if limit is not None)

    def is_met(self, value: float) -> bool:
        enough = self.at_least is None or value >= self.at_least
        return enough and (self.at_most is None or value <= self.at_most)


@dataclass(frozen=True)
class Table:
    """Rows of measurements, ratios between them, and what was compared how."""

    title: str
    unit: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, float]]
    targets: tuple[Target, ...] = field(default=())
    notes: tuple[str, ...] = field(default=())

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> "Table":
        """Return the table that `plain` was said about."""
        targets = tuple(Target(**target) for target in plain["targets"])
        listed = {name: tuple(plain[name]) for name in ("columns", "notes")}
        return cls(**{**plain, **listed, "targets": targets})

    def missed(self) -> list[str]:
        found = ((target, self.rows[target.row][target.column]) for target in self.targets)
        return [
            f"{self.title}, {target.row}: {target.column} is {number(value)}, must be {target.asked}"
            for target, value in found
            if not target.is_met(value)
        ]


def side_by_side(found: Mapping[str, Mapping[str, float]], ratio: str) -> dict[str, dict[str, float]]:
    """Put what was measured as "row/contender" into one row, and compare the two by one of the columns."""
    rows: dict[str, dict[str, float]] = {}
    for name, taken in found.items():
        row, _, contender = name.partition("/")
        rows.setdefault(row, {}).update({f"{contender} {column}": value for column, value in taken.items()})
    for values in rows.values():
        ours, theirs = (value for column, value in values.items() if column.endswith(ratio))
        values["times"] = ours / theirs
    return rows


def markdown(table: Table) -> str:
    """Return a table with what it says, what must hold and whether it held."""
    lines = [f"## {table.title}", ""]
    for note in table.notes:
        lines += [note, ""]
    lines.append(f"| {table.unit} | " + " | ".join(table.columns) + " |")
    lines.append("|---" * (len(table.columns) + 1) + "|")
    for name, values in table.rows.items():
        lines.append(f"| {name} | " + " | ".join(number(values.get(column)) for column in table.columns) + " |")
    if table.targets:
        lines += ["", *(_judged(table, target) for target in table.targets)]
    return "\n".join(lines) + "\n"


def _judged(table: Table, target: Target) -> str:
    value = table.rows[target.row][target.column]
    verdict = "held" if target.is_met(value) else "**missed**"
    return f"- {verdict}: {target.row}, {target.column}: {number(value)}, must be {target.asked}"


def number(value: float | None) -> str:
    """Return a measurement as it is shown."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
