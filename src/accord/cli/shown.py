"""How somebody sees a run while it goes: as a tree in a terminal, as lines where there is none, or as lines of JSON.

A `Shown` is told everything that happens and, at the end, what came of it. On standard output is the output of the run,
or JSON; all the rest is for people, on standard error.
"""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from accord.cli import output
from accord.cli.steps import News, Steps, spelled

if TYPE_CHECKING:
    from accord.cli.tree import Tree
    from accord.workflows.stored_run import StoredStep


class Shown(Protocol):
    """What shows a run."""

    hears: bool
    """Whether it wants to know what the agents of steps are saying."""

    def begun(self, run_id: str) -> None:
        """Say which run it is."""

    def learn(self, lines: "Iterable[StoredStep]") -> None:
        """Know how steps stand by what is written down."""

    def news(self, news: News) -> None:
        """Show what has happened."""

    def heard(self, step: str, text: str) -> None:
        """Show what a step's agent is saying: the end of it."""

    def pause(self) -> None:
        """Leave the terminal to others, who have something else to say."""

    def go_on(self) -> None:
        """Show what has happened meanwhile, and what comes."""

    def end(self, run: dict[str, Any]) -> None:
        """Show what came of the run."""


def shown_as(*, is_json: bool) -> Shown:
    """Return what shows a run here."""
    if is_json:
        return JsonLines()
    if sys.stderr.isatty():
        from rich.console import Console

        console = Console(stderr=True)
        if console.is_terminal and not console.is_dumb_terminal:
            from accord.cli.tree import Tree

            steps = Steps()
            return Live(steps, Tree(console, steps))
    return PlainLines()


class JsonLines:
    """A line of JSON for each thing that happens, and one for what came of it."""

    hears = False

    def begun(self, run_id: str) -> None:
        """Print it."""
        output.write(output.compact({"event": "begun", "run": run_id}) + "\n")
        _begun(run_id)

    def learn(self, lines: "Iterable[StoredStep]") -> None:
        """What is written down is in the last line."""

    def news(self, news: News) -> None:
        """Print it."""
        output.write(output.compact(news) + "\n")

    def heard(self, step: str, text: str) -> None:
        """It is part of what its task said."""

    def pause(self) -> None:
        """Every line is whole."""

    def go_on(self) -> None:
        """Nothing was kept back."""

    def end(self, run: dict[str, Any]) -> None:
        """Print it."""
        output.write(output.compact(run) + "\n")


class PlainLines:
    """A line for each thing that happens, and below the end of a step what it said."""

    hears = False

    def begun(self, run_id: str) -> None:
        """Print it."""
        _begun(run_id)

    def learn(self, lines: "Iterable[StoredStep]") -> None:
        """Lines tell only what is new."""

    def news(self, news: News) -> None:
        """Print it; what a step is printing just now is in its end."""
        if news.event == "output":
            return
        step = output.line(news.step or "run")
        first, *rest = _told(news).splitlines() or [""]
        output.tell(f"{step}: {output.line(first)}")
        for line in rest:
            output.tell(f"{step} | {output.safe(line)}")

    def heard(self, step: str, text: str) -> None:
        """It is in the end of the step."""

    def pause(self) -> None:
        """Every line is whole."""

    def go_on(self) -> None:
        """Nothing was kept back."""

    def end(self, run: dict[str, Any]) -> None:
        """Print the output of the run."""
        _finish(run)


def _told(news: News) -> str:
    """Return what is to be said of what happened."""
    match news.event:
        case "started":
            return "started"
        case "ended":
            took = f" after {spelled(news.seconds)}" if news.seconds is not None else ""
            if news.status == "completed":
                said = (news.text or "").partition("\n")[2]
                return f"completed{took}\n{said}"
            why = f": {news.error}" if news.error else ""
            if news.status == "retrying":
                return f"failed{took}, will be tried again{why}"
            return f"{news.status}{took}{why}"
        case "asks":
            return f"asks: {news.text or ''}"
    return news.text or ""


class Live:
    """A tree that moves."""

    hears = True

    def __init__(self, steps: Steps, tree: "Tree") -> None:
        """Draw nothing yet."""
        self._steps, self._tree = steps, tree
        self._is_paused = False

    def begun(self, run_id: str) -> None:
        """Print it above the tree."""
        _begun(run_id)

    def learn(self, lines: "Iterable[StoredStep]") -> None:
        """Draw steps as they stand."""
        self._steps.learn(lines)
        self._draw()

    def news(self, news: News) -> None:
        """Draw it."""
        self._steps.take(news)
        self._draw()

    def heard(self, step: str, text: str) -> None:
        """Draw it."""
        self._steps.heard(step, text)

    def pause(self) -> None:
        """Leave what is drawn where it is."""
        self._is_paused = True
        self._tree.stop()

    def go_on(self) -> None:
        """Draw a new tree."""
        self._is_paused = False
        self._draw()

    def _draw(self) -> None:
        if not self._is_paused:
            self._tree.start()

    def end(self, run: dict[str, Any]) -> None:
        """Leave the tree, and print the output of the run."""
        self._tree.stop()
        _finish(run)


def _begun(run_id: str) -> None:
    output.tell(f"Run {run_id}")


def _finish(run: dict[str, Any]) -> None:
    """Print the output of a run that has completed, and of another what became of it."""
    if run["state"] == "completed":
        if text := run["output"]:
            output.write(output.safe(text).removesuffix("\n") + "\n" if sys.stdout.isatty() else _whole(text))
    elif run.get("error"):
        output.tell(f"accord: {output.safe(run['error'])}")


def _whole(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"
