"""What a run says in its channel: one post for everything that happens to a step.

Posts are statuses of the run's task. Their text is for people; what they are about is in their metadata, for whatever
shows a run. Nothing is decided here, and nothing is sent: the driver of a run does.
"""

from typing import Any

from msgspec import Struct

from accord.workflows.document import Step
from accord.workflows.plan import Plan
from accord.workflows.records import Ended

METADATA = "workflow"
"""Metadata key of what a post is about."""

SHOWN = 500
"""Characters of an output that a post shows."""

FAILURES = frozenset({"failed", "retrying"})
"""What the channel for failures hears of."""

LOGGED = 1024 * 1024
"""Characters of an attempt's output that posts carry line by line: as much as its output keeps."""

CHUNKS = 10
"""Pieces of a streamed answer between two posts."""


class Post(Struct, frozen=True):
    """One post: a text, which may be empty, and what it is about."""

    text: str
    about: dict[str, Any]


def ended(step: Step, end: Ended, seconds: float | None = None) -> Post:
    """Return the post for the end of an attempt."""
    about: dict[str, Any] = {"step": end.step, "status": _status(end), "attempt": end.attempt}
    if seconds is not None:
        about["seconds"] = round(seconds, 3)
    for name in ("exit_code", "reason", "error"):
        if (value := getattr(end, name)) is not None:
            about[name] = value
    return Post(_said(step, end), about)


def progress(step: str, chunks: int) -> Post:
    """Return the post for a streamed answer on its way."""
    return Post(f"**[{step}]** A2A streaming... ({chunks} chunks)", {"step": step, "chunks": chunks})


def line(step: str, text: str) -> Post:
    """Return the post for something that is said about a step."""
    return Post(f"**[{step}]** {text}", {"step": step})


class Printed:
    """Output of one attempt of a step that no post shows yet.

    Posts carry every line of the first `LOGGED` characters; after that, the last line between two posts.
    """

    def __init__(self, step: str) -> None:
        """Start with nothing printed by `step`."""
        self._step = step
        self._room = LOGGED
        self._lines: list[str] = []
        self._last = ""

    def add(self, text: str) -> None:
        """Add whole lines."""
        if self._room <= 0:
            self._last = last_line(text) or self._last
            return
        self._lines.append(text)
        self._room -= len(text) + 1
        if self._room <= 0:
            self._lines.append(f"[the log has {LOGGED} characters of this attempt; from here on it skips lines]")

    def take(self) -> Post | None:
        """Return the post for the lines added since the last one; None without any."""
        lines = [*self._lines, self._last] if self._last else self._lines
        self._lines, self._last = [], ""
        return Post("", {"step": self._step, "output": "\n".join(lines)}) if lines else None


def last_line(text: str) -> str:
    """Return the last line of what was printed that says something."""
    return next((line[-SHOWN:] for line in reversed(text.splitlines()) if line.strip()), "")


def heard_in(plan: Plan, step: Step | None, post: Post) -> list[str]:
    """Return the channels that a post about a step is for: the document's, its agent's, and that for failures."""
    agent = None if step is None else plan.agent(step.agent)
    found = [plan.channel, *(agent.channels if agent is not None else ())]
    if post.about.get("status") in FAILURES:
        found.append(plan.notify_channel)
    return list(dict.fromkeys(name for name in found if name is not None))


def _status(end: Ended) -> str:
    return "retrying" if end.again_at is not None else end.status


def _said(step: Step, end: Ended) -> str:
    name = f"**[{end.step}]**"
    if end.status == "completed":
        rest = "\n...(truncated)" if len(end.output) > SHOWN else ""
        shown = f"\n{end.output[:SHOWN]}{rest}" if end.output else ""
        return f"{name} Completed ({step.kind}){shown}"
    if end.again_at is not None:
        return f"{name} Failed, will be tried again: {end.error}"
    word = "Failed" if end.status == "failed" else "Skipped"
    return f"{name} {word}: {end.error}" if end.error else f"{name} {word}"
