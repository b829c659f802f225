"""Messages of a run: posts to its channel, and questions to its caller.

Posts are statuses of the run's task: text for people, metadata for programs. A task shows one question at a time.
"""

from typing import Any, NamedTuple

from msgspec import Struct

from accord.api import APPROVAL, Context, StatusEntry, answer_to
from accord.model import Message, TaskState
from accord.protocol import lifecycle
from accord.workflows.document import Step
from accord.workflows.plan import Plan
from accord.workflows.records import StepEnded


class OpenQuestion:
    """A question of a step: the message, and the task state that it needs (input or authentication)."""

    def __init__(self, message: Message, state: TaskState = TaskState.INPUT_REQUIRED) -> None:
        self.message = message
        self.state = state


class OpenQuestions:
    """The open questions of one run, by step, oldest first."""

    def __init__(self, ctx: Context) -> None:
        """Ask the caller of `ctx`."""
        self._ctx = ctx
        self._open: dict[str, OpenQuestion] = {}
        status = ctx.task.status
        self._shown = status.message.message_id if status.state in lifecycle.INTERRUPTED and status.message else None

    def __bool__(self) -> bool:
        return bool(self._open) or self._shown is not None

    def open(self, step: str, question: OpenQuestion) -> None:
        """Add the question of a step."""
        self._open[step] = question

    def close(self, step: str) -> None:
        """Remove the question of a step."""
        self._open.pop(step, None)

    @property
    def first(self) -> str | None:
        """The step whose question is shown, or is next."""
        return next(iter(self._open), None)

    def answer(self) -> Message | None:
        """Return the caller's answer to the shown question, or None."""
        first = self.first
        if first is None:
            return None
        return answer_to(self._open[first].message, self._ctx.history)

    def forget(self) -> None:
        """Record that the question is not shown anymore, because another status has replaced it."""
        self._shown = None

    def show(self) -> StatusEntry | None:
        """Return the status that shows the first question, or that ends the last; None if nothing changes."""
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
"""Metadata key of the structured content of a post or a question."""


class QuestionOrigin(NamedTuple):
    """The step of a run that asks a question.

    `task` is a child task whose question the run passes on. `is_ruled` means that no message can decide it.
    """

    step: str | None = None
    task: str | None = None
    is_approval: bool = False
    is_ruled: bool = False

    @classmethod
    def of(cls, question: Message | None) -> "QuestionOrigin":
        """Return the origin of a question; without a step if no run asks it."""
        metadata = (question.metadata if question is not None else None) or {}
        about = metadata.get(METADATA)
        if not isinstance(about, dict):
            about = {}
        step, task = (about[name] if isinstance(about.get(name), str) else None for name in ("step", "task"))
        is_ruled = bool(about.get("approvers") or about.get("notByStarter"))
        return cls(step, task, metadata.get(APPROVAL) is True, is_ruled)


SHOWN = 500
"""Maximum number of output characters in a post."""

FAILURES = frozenset({"failed", "retrying"})
"""Statuses that are posted to the channel for failures."""

LOGGED = 1024 * 1024
"""Maximum number of characters of an attempt's output that posts contain line by line.

An output is stored up to the same size.
"""

CHUNKS = 10
"""Chunks of a streamed answer between two posts."""


class Post(Struct, frozen=True):
    """One post: a text, which may be empty, and its metadata."""

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
    """Return the post for the progress of a streamed answer."""
    return Post(f"**[{step}]** A2A streaming... ({chunks} chunks)", {"step": step, "chunks": chunks})


def line_post(step: str, text: str) -> Post:
    """Return a post with a text about a step."""
    return Post(f"**[{step}]** {text}", {"step": step})


class Printed:
    """Output of one attempt that no post contains yet.

    Posts contain every line of the first `LOGGED` characters, and after that only the last line since the previous
    post.
    """

    def __init__(self, step: str) -> None:
        """Start with no output of `step`."""
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
        """Return the post for the lines added since the last call; None if there are none."""
        lines = [*self._lines, self._last] if self._last else self._lines
        self._lines, self._last = [], ""
        return Post("", {"step": self._step, "output": "\n".join(lines)}) if lines else None


def last_line(text: str) -> str:
    """Return the last non-blank line of an output."""
    return next((line[-SHOWN:] for line in reversed(text.splitlines()) if line.strip()), "")


def channels_of(plan: Plan, step: Step | None, post: Post) -> list[str]:
    """Return the channels for a post about a step: the document's, its agent's, and the one for failures."""
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
