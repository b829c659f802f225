"""Display of a run in progress: a live tree, lines, or JSON.

Standard output gets the output of the run, or JSON. All the rest goes to standard error.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from accord.cli import agent_output
from accord.model import Event, StatusUpdate
from accord.protocol.lifecycle import INTERRUPTED
from accord.workflows.channel import METADATA, QuestionOrigin
from accord.workflows.state import FINAL
from accord.workflows.step_types import step_type

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from accord.workflows.stored_run import StoredStep


ITEM = "["
"""Separator between the name of a map and the rest of an item's name."""


class RunEvent(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An event of a step, or of the run without a `step`.

    `event` is started, ended, said, output or asks. `status` is the final status of a step, or `retrying`. `channels`
    are the channels that it was posted to.
    """

    event: str
    at: str | None = None
    step: str | None = None
    status: str | None = None
    attempt: int | None = None
    seconds: float | None = None
    exit_code: int | None = None
    reason: str | None = None
    error: str | None = None
    text: str | None = None
    channels: tuple[str, ...] = ()


def run_events(event: Event) -> Iterator[RunEvent]:
    """Yield the run events in an event of a run's log."""
    body = event.body
    if not isinstance(body, StatusUpdate):
        return
    said = body.status.message
    text = "".join(part.text or "" for part in said.parts) if said is not None else None
    if body.status.state in INTERRUPTED:
        yield RunEvent(event="asks", at=event.at, step=QuestionOrigin.of(said).step, text=text)
        return
    about = (body.metadata or {}).get(METADATA)
    if not isinstance(about, dict):
        return
    if about.get("step") is not None:
        yield _about_step(about, text, event.at)
    for name in about.get("started") or ():
        yield RunEvent(event="started", at=event.at, step=name, channels=_channels(about))


def _about_step(about: dict[str, Any], text: str | None, at: str | None) -> RunEvent:
    step, channels = about["step"], _channels(about)
    if "status" in about:
        known = {name: about.get(name) for name in ("attempt", "seconds", "exit_code", "reason", "error")}
        return RunEvent(event="ended", at=at, step=step, status=about["status"], text=text, channels=channels, **known)
    if "output" in about:
        return RunEvent(event="output", at=at, step=step, text=str(about["output"]), channels=channels)
    said = (text or "").removeprefix(f"**[{step}]** ")
    return RunEvent(event="said", at=at, step=step, text=said, channels=channels)


def _channels(about: dict[str, Any]) -> tuple[str, ...]:
    return tuple(about.get("channels") or ())


class StepRow(Struct):
    """The row of a step: its state and its last output. Times are milliseconds since 1970."""

    name: str
    depth: int = 0
    type: str = ""
    status: str = "pending"
    attempt: int = 0
    since: int | None = None
    seconds: float | None = None
    said: str = ""

    @property
    def is_over(self) -> bool:
        """Whether the step has ended."""
        return self.status in FINAL


class StepRows:
    """All steps of a run in the order of its plan, with the items of a map after it."""

    def __init__(self) -> None:
        """Create an empty table."""
        self._rows: dict[str, StepRow] = {}
        self._items: dict[str, list[str]] = {}
        self._starts: Counter[str] = Counter()

    def load(self, lines: "Iterable[StoredStep]") -> None:
        """Set the state of steps from their stored records."""
        for line in lines:
            row = self._row(line.name)
            row.type, row.status, row.attempt = line.type, line.status, line.attempts
            row.since, row.seconds = line.begun_at, line.seconds
            row.said = row.said or _last_line(line.error or line.output)

    def apply(self, event: RunEvent) -> None:
        """Apply an event."""
        if event.step is None:
            return
        row = self._row(event.step)
        match event.event:
            case "started":
                self._starts[row.name] += 1  # stored records may be ahead of events
                row.status, row.seconds, row.said = "running", None, ""
                row.since = None if event.at is None else round(datetime.fromisoformat(event.at).timestamp() * 1000)
                row.attempt = max(row.attempt, self._starts[row.name])
            case "ended":
                row.status = "waiting" if event.status == "retrying" else event.status or row.status
                row.seconds, row.attempt = event.seconds, event.attempt or row.attempt
                row.said = _last_line(event.error) or row.said or _last_line((event.text or "").partition("\n")[2])
            case "asks":
                row.said = _last_line(event.text)
            case _:
                row.said = _last_line(event.text) or row.said

    def set_text(self, step: str, text: str) -> None:
        """Set the last output of a step's agent."""
        row = self._row(step)
        row.said = _last_line(text) or row.said

    def rows(self) -> Iterator[StepRow]:
        """Yield the rows."""
        for name, row in self._rows.items():
            if row.depth == 0:
                yield from self._with_items(name)

    def _with_items(self, name: str) -> Iterator[StepRow]:
        yield self._rows[name]
        for item in self._items.get(name, ()):
            yield from self._with_items(item)

    def _row(self, name: str) -> StepRow:
        found = self._rows.get(name)
        if found is None:
            parent = name.rpartition(ITEM)[0]
            found = self._rows[name] = StepRow(name)
            if parent:
                found.depth = self._row(parent).depth + 1
                self._items.setdefault(parent, []).append(name)
        return found


def _last_line(text: str | None) -> str:
    return next((line.strip() for line in reversed((text or "").splitlines()) if line.strip()), "")


def format_duration(seconds: float) -> str:
    """Return a duration as text."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


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
"""Marks for terminals without Unicode."""

MARGIN = 4
"""Rows of the terminal that are left free."""

WIDEST = 40
"""Maximum characters of a step's name."""


class StepTree:
    """The live tree of a run's steps."""

    def __init__(self, console: "Console", steps: StepRows) -> None:
        """Create the tree without drawing it."""
        from rich.spinner import Spinner

        self._console, self._steps = console, steps
        self._spinner: Spinner = Spinner("dots" if not console.options.ascii_only else "line")
        self._live: Live | None = None
        self._since = time.time()

    def start(self) -> None:
        """Start drawing."""
        if self._live is not None:
            return
        from rich.live import Live

        self._live = Live(
            console=self._console,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=True,  # log records appear above the tree
            get_renderable=self._drawn,
        )
        self._live.start()

    def stop(self) -> None:
        """Stop drawing. The last state remains."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _drawn(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        rows = list(self._steps.rows())
        shown = _rows_that_fit(rows, max(self._console.height - MARGIN, 1))
        width = min(max((len(row.name) + 2 * row.depth for row in shown), default=0), WIDEST)
        lines = [self._line(row, width) for row in shown]
        if len(shown) < len(rows):
            lines.append(Text(f"  ... and {len(rows) - len(shown)} more", style="dim"))
        return Group(*lines, Text(self._summed(rows), style="dim"))

    def _line(self, row: StepRow, width: int) -> "Text":
        from rich.text import Text

        name = "  " * row.depth + agent_output.line(row.name)
        took = row.seconds
        if took is None and row.status == "running" and row.since is not None:
            took = max(time.time() - row.since / 1000, 0.0)
        again = f" x{row.attempt}" if row.attempt > 1 else ""
        line = Text.assemble(
            self._mark(row),
            " ",
            (name[:width].ljust(width), "bold" if row.status == "running" else ""),
            (f" {format_duration(took) if took is not None else '':>7}{again} ", "dim"),
            (agent_output.line(row.said), "red" if row.status == "failed" else "dim"),
        )
        line.truncate(max(self._console.width - 1, 1), overflow="ellipsis")
        return line

    def _mark(self, row: StepRow) -> "Text":
        from rich.text import Text

        status = "asked" if row.status == "running" and step_type(row.type).is_waiting else row.status
        if status not in MARKS:
            drawn = self._spinner.render(self._console.get_time())
            return drawn if isinstance(drawn, Text) else Text("*")
        mark, style = MARKS[status]
        return Text(PLAIN_MARKS[status] if self._console.options.ascii_only else mark, style=style)

    def _summed(self, rows: list[StepRow]) -> str:
        steps = [row for row in rows if row.depth == 0]
        done, failed = sum(row.is_over for row in steps), sum(row.status == "failed" for row in steps)
        amiss = f", {failed} failed" if failed else ""
        return f"{done} of {len(steps)} steps{amiss}  {format_duration(time.time() - self._since)}"


def _rows_that_fit(rows: list[StepRow], height: int) -> list[StepRow]:
    """Return as many rows as fit: active and failed steps first, then finished ones, then the rest."""
    if len(rows) <= height:
        return rows
    ranks = {"running": 0, "failed": 0, "waiting": 0, "completed": 1, "skipped": 1}
    ranked = sorted(range(len(rows)), key=lambda at: (ranks.get(rows[at].status, 2), -at if rows[at].is_over else at))
    return [rows[at] for at in sorted(ranked[:height])]


class RunDisplay:
    """Displays a run: by default its id at the start, and its output or error at the end."""

    shows_text = False
    """Whether it shows the streamed text of steps' agents."""

    def start(self, run_id: str) -> None:
        """Show the run's id."""
        agent_output.notice(f"Run {run_id}")

    def show_steps(self, lines: "Iterable[StoredStep]") -> None:
        """Show the steps from their stored records."""

    def show_event(self, event: RunEvent) -> None:
        """Show an event."""

    def show_text(self, step: str, text: str) -> None:
        """Show the last part of a step's streamed text."""

    def pause(self) -> None:
        """Clear the terminal for other output."""

    def resume(self) -> None:
        """Resume drawing, with the events of the pause."""

    def end(self, run: dict[str, Any]) -> None:
        """Print the output of a completed run, or the error of a failed one."""
        if run["state"] == "completed":
            if text := run["output"]:
                agent_output.write(agent_output.answer_text(text).removesuffix("\n") + "\n")
        elif run.get("error"):
            agent_output.notice(f"accord: {agent_output.safe(run['error'])}")


class JsonRunDisplay(RunDisplay):
    """Displays each event as a line of JSON, and the result as the last line."""

    def start(self, run_id: str) -> None:
        """Print the start of the run."""
        agent_output.write(agent_output.compact({"event": "begun", "run": run_id}) + "\n")
        super().start(run_id)

    def show_event(self, event: RunEvent) -> None:
        """Print the event."""
        agent_output.write(agent_output.compact(event) + "\n")

    def end(self, run: dict[str, Any]) -> None:
        """Print the result."""
        agent_output.write(agent_output.compact(run) + "\n")


class LineRunDisplay(RunDisplay):
    """Displays each event as a line, and the output of a step below its end."""

    def show_event(self, event: RunEvent) -> None:
        """Print the event. The streamed output of a step is part of its end."""
        if event.event == "output":
            return
        step = agent_output.line(event.step or "run")
        first, *rest = _event_text(event).splitlines() or [""]
        agent_output.notice(f"{step}: {agent_output.line(first)}")
        for line in rest:
            agent_output.notice(f"{step} | {agent_output.safe(line)}")


def _event_text(event: RunEvent) -> str:
    """Return the text of an event."""
    match event.event:
        case "started":
            return "started"
        case "ended":
            took = f" after {format_duration(event.seconds)}" if event.seconds is not None else ""
            if event.status == "completed":
                said = (event.text or "").partition("\n")[2]
                return f"completed{took}\n{said}"
            why = f": {event.error}" if event.error else ""
            if event.status == "retrying":
                return f"failed{took}, will be retried{why}"
            return f"{event.status}{took}{why}"
        case "asks":
            return f"asks: {event.text or ''}"
    return event.text or ""


class LiveRunDisplay(RunDisplay):
    """Displays the run as a live tree."""

    shows_text = True

    def __init__(self, steps: StepRows, tree: "StepTree") -> None:
        """Create the display without drawing it."""
        self._steps, self._tree = steps, tree
        self._is_paused = False

    def show_steps(self, lines: "Iterable[StoredStep]") -> None:
        """Draw the steps in their stored state."""
        self._steps.load(lines)
        self._draw()

    def show_event(self, event: RunEvent) -> None:
        """Draw the event."""
        self._steps.apply(event)
        self._draw()

    def show_text(self, step: str, text: str) -> None:
        """Draw the text."""
        self._steps.set_text(step, text)

    def pause(self) -> None:
        """Stop drawing. The last state remains."""
        self._is_paused = True
        self._tree.stop()

    def resume(self) -> None:
        """Draw a new tree."""
        self._is_paused = False
        self._draw()

    def _draw(self) -> None:
        if not self._is_paused:
            self._tree.start()

    def end(self, run: dict[str, Any]) -> None:
        """Stop drawing, and print the output of the run."""
        self._tree.stop()
        super().end(run)


def run_display(*, is_json: bool) -> RunDisplay:
    """Return the display for the terminal or format."""
    if is_json:
        return JsonRunDisplay()
    if sys.stderr.isatty():
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal and not console.is_dumb_terminal:
            steps = StepRows()
            return LiveRunDisplay(steps, StepTree(console, steps))
    return LineRunDisplay()
