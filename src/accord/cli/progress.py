"""What people see while they wait: that something goes on, for how long, and the last words of it.

It is drawn on standard error and only if that is a terminal, and it is gone when the answer is printed: what is on
standard output never depends on it.
"""

import sys
import time
from typing import TYPE_CHECKING, Self

from accord.cli import output
from accord.model import ArtifactUpdate, Event, Message, MessageUpdate, StatusUpdate, Task, TaskStatus
from accord.protocol.states import LOWER

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.spinner import Spinner

ROWS = 6
"""How many rows of the text are shown while it grows."""

KEPT = 4000
"""Characters of the text that are kept for that."""


class Progress:
    """A few rows at the bottom of the terminal, or nothing where there is none."""

    def __init__(self, doing: str = "waiting") -> None:
        """Draw nothing yet."""
        self._is_seen = sys.stderr.isatty()
        self._doing, self._said, self._text = doing, "", ""
        self._since = time.monotonic()
        self._live: Live | None = None
        self._spinner: Spinner | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Draw, if there is a terminal."""
        if not self._is_seen or self._live is not None:
            return
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner

        console = Console(stderr=True)
        if not console.is_terminal or console.is_dumb_terminal:
            self._is_seen = False
            return
        self._spinner = self._spinner or Spinner("dots")
        self._live = Live(
            console=console,
            transient=True,
            refresh_per_second=8,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self._drawn,
        )
        self._live.start()

    def stop(self) -> None:
        """Leave nothing of it."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, doing: str) -> None:
        """Show what is done now."""
        self._doing = doing

    def event(self, event: Event) -> None:
        """Show what happened."""
        if not self._is_seen:
            return
        match event.body:
            case Task(status=status):
                self._status(status)
            case StatusUpdate(status=status, metadata=metadata):
                self._status(status, (metadata or {}).get("node"))
            case ArtifactUpdate(artifact=artifact):
                self._text = (self._text + output.safe(output.text_of(artifact.parts)))[-KEPT:]
            case Message() | MessageUpdate():
                pass
        self.start()

    def _status(self, status: TaskStatus, node: object = None) -> None:
        """Show a status: its message, or the node of a graph that ended."""
        self._doing = LOWER[status.state]
        if isinstance(node, str):
            self._said = output.line(node)
        if status.message is not None:
            self._said = " ".join(output.safe(output.text_of(status.message.parts)).split())

    def _drawn(self) -> "RenderableType":
        from rich.console import Group
        from rich.text import Text

        if self._live is None or self._spinner is None:
            return ""
        seconds = time.monotonic() - self._since
        about = Text.assemble((self._doing, "bold"), (f"  {seconds:.0f}s  ", "dim"), self._said)
        about.truncate(max(self._live.console.width - 4, 1), overflow="ellipsis")
        self._spinner.update(text=about)
        if not self._text:
            return self._spinner
        return Group(Text("\n".join(self._tail(self._live.console.width)), style="dim"), self._spinner)

    def _tail(self, width: int) -> list[str]:
        """Return the last rows of the text, none wider than the terminal."""
        rows = [row[at : at + width] for row in self._text.split("\n") for at in range(0, max(len(row), 1), width)]
        return rows[-ROWS:]
