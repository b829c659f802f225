"""Messages of a run: posts to its channel, and questions to its caller.

Posts are statuses of the run's task: text for people, metadata for programs. A task shows one question at a time.
"""

from typing import Any

from msgspec import Struct

from accord.engine.child_tasks import answer_to
from accord.engine.context import Context
from accord.engine.journal import StatusEntry
from accord.model import Message, TaskState
from accord.protocol import lifecycle
from accord.workflows.document import Step
from accord.workflows.plan import Plan
from accord.workflows.records import StepEnded


class OpenQuestion:
    """Somebody's question: the message, and whether it asks for credentials."""

    def __init__(self, message: Message, state: TaskState = TaskState.INPUT_REQUIRED) -> None:
        self.message = message
        self.state = state


class OpenQuestions:
    """The open questions of one run, by the step that asks, oldest first."""

    def __init__(self, ctx: Context) -> None:
        """Ask the caller of `ctx`."""
        self._ctx = ctx
        self._open: dict[str, OpenQuestion] = {}
        status = ctx.task.status
        self._shown = status.message.message_id if status.state in lifecycle.INTERRUPTED and status.message else None

    def __bool__(self) -> bool:
        return bool(self._open) or self._shown is not None

    def open(self, step: str, question: OpenQuestion) -> None:
        """Let a step ask."""
        self._open[step] = question

    def close(self, step: str) -> None:
        """Let a step ask no longer."""
        self._open.pop(step, None)

    @property
    def first(self) -> str | None:
        """The step whose question is shown, or is next."""
        return next(iter(self._open), None)

    def answer(self) -> Message | None:
        """Return what the caller said to the question that is shown, if anything."""
        first = self.first
        if first is None:
            return None
        return answer_to(self._open[first].message, self._ctx.history)

    def forget(self) -> None:
        """Know that whatever was shown is shown no longer: something else was said."""
        self._shown = None

    def show(self) -> StatusEntry | None:
        """Return what shows the first question, or none any more, if that is not shown already."""
        first = self.first
        if first is None:
            was, self._shown = self._shown, None
            return None if was is None else StatusEntry(TaskState.WORKING)
        question = self._open[first]
        if self._shown == question.message.message_id:
            return None
        self._shown = question.message.message_id
        return StatusEntry(question.state, question.message)


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


def end_post(step: Step, end: StepEnded, seconds: float | None = None) -> Post:
    """Return the post for the end of an attempt."""
    about: dict[str, Any] = {"step": end.step, "status": _status(end), "attempt": end.attempt}
    if seconds is not None:
        about["seconds"] = round(seconds, 3)
    for name in ("exit_code", "reason", "error"):
        if (value := getattr(end, name)) is not None:
            about[name] = value
    return Post(_said(step, end), about)


def progress_post(step: str, chunks: int) -> Post:
    """Return the post for a streamed answer on its way."""
    return Post(f"**[{step}]** A2A streaming... ({chunks} chunks)", {"step": step, "chunks": chunks})


def line_post(step: str, text: str) -> Post:
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


def channels_of(plan: Plan, step: Step | None, post: Post) -> list[str]:
    """Return the channels that a post about a step is for: the document's, its agent's, and that for failures."""
    agent = None if step is None else plan.agent(step.agent)
    found = [plan.channel, *(agent.channels if agent is not None else ())]
    if post.about.get("status") in FAILURES:
        found.append(plan.notify_channel)
    return list(dict.fromkeys(name for name in found if name is not None))


def _status(end: StepEnded) -> str:
    return "retrying" if end.again_at is not None else end.status


def _said(step: Step, end: StepEnded) -> str:
    name = f"**[{end.step}]**"
    if end.status == "completed":
        rest = "\n...(truncated)" if len(end.output) > SHOWN else ""
        shown = f"\n{end.output[:SHOWN]}{rest}" if end.output else ""
        return f"{name} Completed ({step.kind}){shown}"
    if end.again_at is not None:
        return f"{name} Failed, will be tried again: {end.error}"
    word = "Failed" if end.status == "failed" else "Skipped"
    return f"{name} {word}: {end.error}" if end.error else f"{name} {word}"
