"""A run as a tree in a terminal: a line for each step, which moves while the step is done.

It is drawn on standard error and knows only rows; when it stops, the last of it stays there to be read.
"""

import time
from typing import TYPE_CHECKING

from accord.cli import output
from accord.cli.steps import Row, Steps, spelled

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

MARKS = {
    "pending": ("·", "dim"),
    "waiting": ("↻", "yellow"),
    "completed": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("-", "dim"),
    "cancelled": ("-", "dim"),
    "asked": ("?", "yellow"),
}
PLAIN_MARKS = {
    "pending": ".",
    "waiting": "~",
    "completed": "+",
    "failed": "x",
    "skipped": "-",
    "cancelled": "-",
    "asked": "?",
}
"""For terminals that have no other signs."""

MARGIN = 4
"""Rows of the terminal that are left to others."""

WIDEST = 40
"""Characters of a step's name that are shown."""


class Tree:
    """The steps of a run, drawn again and again."""

    def __init__(self, console: "Console", steps: Steps) -> None:
        """Draw nothing yet."""
        from rich.spinner import Spinner

        self._console, self._steps = console, steps
        self._spinner: Spinner = Spinner("dots" if not console.options.ascii_only else "line")
        self._live: Live | None = None
        self._since = time.time()

    def start(self) -> None:
        """Draw."""
        if self._live is not None:
            return
        from rich.live import Live

        self._live = Live(
            console=self._console,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=True,  # what is logged meanwhile stands above it
            get_renderable=self._drawn,
        )
        self._live.start()

    def stop(self) -> None:
        """Draw no more; what was drawn last stays."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _drawn(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        rows = list(self._steps.rows())
        shown = _fitting(rows, max(self._console.height - MARGIN, 1))
        width = min(max((len(row.name) + 2 * row.depth for row in shown), default=0), WIDEST)
        lines = [self._line(row, width) for row in shown]
        if len(shown) < len(rows):
            lines.append(Text(f"  ... and {len(rows) - len(shown)} more", style="dim"))
        return Group(*lines, Text(self._summed(rows), style="dim"))

    def _line(self, row: Row, width: int) -> "Text":
        from rich.text import Text

        name = "  " * row.depth + output.line(row.name)
        took = row.seconds if row.seconds is not None or row.status != "running" else _since(row.since)
        again = f" x{row.attempt}" if row.attempt > 1 else ""
        line = Text.assemble(
            self._mark(row),
            " ",
            (name[:width].ljust(width), "bold" if row.status == "running" else ""),
            (f" {spelled(took) if took is not None else '':>7}{again} ", "dim"),
            (output.line(row.said), "red" if row.status == "failed" else "dim"),
        )
        line.truncate(max(self._console.width - 1, 1), overflow="ellipsis")
        return line

    def _mark(self, row: Row) -> "Text":
        from rich.text import Text

        status = "asked" if row.status == "running" and row.type in ("approval", "wait") else row.status
        if status not in MARKS:
            drawn = self._spinner.render(self._console.get_time())
            return drawn if isinstance(drawn, Text) else Text("*")
        mark, style = MARKS[status]
        return Text(PLAIN_MARKS[status] if self._console.options.ascii_only else mark, style=style)

    def _summed(self, rows: list[Row]) -> str:
        steps = [row for row in rows if row.depth == 0]
        done, failed = sum(row.is_over for row in steps), sum(row.status == "failed" for row in steps)
        amiss = f", {failed} failed" if failed else ""
        return f"{done} of {len(steps)} steps{amiss}  {spelled(time.time() - self._since)}"


def _since(at: int | None) -> float | None:
    return None if at is None else max(time.time() - at / 1000, 0.0)


def _fitting(rows: list[Row], height: int) -> list[Row]:
    """Return as many rows as fit: what goes on or went wrong before what is done, and that before the rest."""
    if len(rows) <= height:
        return rows
    ranks = {"running": 0, "failed": 0, "waiting": 0, "completed": 1, "skipped": 1}
    ranked = sorted(range(len(rows)), key=lambda at: (ranks.get(rows[at].status, 2), -at if rows[at].is_over else at))
    return [rows[at] for at in sorted(ranked[:height])]
