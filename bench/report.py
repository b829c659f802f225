"""Tables of measurements: how they are kept and shown, and which targets they missed."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Target:
    """What a ratio must reach, and why it is asked."""

    row: str
    ratio: str
    at_least: float


@dataclass(frozen=True)
class Table:
    """Rows of measurements in one unit, and ratios between them."""

    title: str
    unit: str
    columns: tuple[str, ...]
    rows: dict[str, dict[str, float]]
    targets: tuple[Target, ...] = field(default=())

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    def missed(self) -> list[str]:
        return [
            f"{self.title}, {target.row}: {target.ratio} is {self.rows[target.row][target.ratio]:.1f}, "
            f"must be at least {target.at_least:g}"
            for target in self.targets
            if self.rows[target.row][target.ratio] < target.at_least
        ]


def markdown(tables: list[Table], subtitle: str) -> str:
    lines = [
        "# Measurements",
        "",
        f"{subtitle}. Times on a shared machine move; ratios within one run are what counts.",
        "",
    ]
    for table in tables:
        lines += [f"## {table.title}", "", f"| {table.unit} | " + " | ".join(table.columns) + " |"]
        lines.append("|---" * (len(table.columns) + 1) + "|")
        for name, values in table.rows.items():
            lines.append(f"| {name} | " + " | ".join(_number(values.get(column)) for column in table.columns) + " |")
        lines.append("")
        lines += [f"- {target.row}: {target.ratio} must be at least {target.at_least:g}" for target in table.targets]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
