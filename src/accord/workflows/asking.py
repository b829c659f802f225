"""What a run asks its caller: approvals of its own, and what its members ask, one question at a time.

A task shows one question; the others wait for their turn, and any of them may be answered from elsewhere meanwhile.
What the caller says next after a question in the history is its answer, so nothing has to be remembered.
"""

from accord.engine.child_tasks import answer_to
from accord.engine.context import Context
from accord.engine.journal import StatusEntry
from accord.model import Message, TaskState
from accord.protocol import lifecycle


class Question:
    """Somebody's question: the message, and whether it asks for credentials."""

    def __init__(self, message: Message, state: TaskState = TaskState.INPUT_REQUIRED) -> None:
        self.message = message
        self.state = state


class Questions:
    """The open questions of one run, by the step that asks, oldest first."""

    def __init__(self, ctx: Context) -> None:
        """Ask the caller of `ctx`."""
        self._ctx = ctx
        self._open: dict[str, Question] = {}
        status = ctx.task.status
        self._shown = status.message.message_id if status.state in lifecycle.INTERRUPTED and status.message else None

    def __bool__(self) -> bool:
        return bool(self._open) or self._shown is not None

    def open(self, step: str, question: Question) -> None:
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
