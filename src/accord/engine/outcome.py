"""Ends of an execution: the exceptions that an agent raises, and the broadcast of the result to waiters."""

import asyncio
import traceback
from collections.abc import Callable

import msgspec
from msgspec import Struct

from accord.engine.messages import text_of
from accord.errors import AccordError
from accord.model import Task, TaskState
from accord.storage.commands.tasks import Fenced
from accord.storage.store import StoreUnavailable

TRACEBACK_LENGTH = 32 * 1024
"""Characters of a traceback that are stored. The end is kept, which contains the exception."""


class Suspended(BaseException):
    """The task is suspended. Not an `Exception`, so that an agent's `except Exception` does not catch it."""


class Rejected(Exception):
    """The agent refuses the task. The caller sees the text."""


class Failed(Exception):
    """The agent failed. The caller sees the text, unlike that of any other exception."""


class OverBudget(Failed):
    """The task exceeded its budget and has failed."""


class CallFailed(Exception):
    """A called agent did not complete its task."""

    def __init__(self, task: Task) -> None:
        """Store the task, whose status contains the reason."""
        reason = text_of(task.status.message.parts) if task.status.message else ""
        super().__init__(f"The task is {task.status.state.name}{': ' + reason if reason else ''}")
        self.task = task


class AgentFailure(Struct, frozen=True, kw_only=True):
    """The exception that failed a task, for the operators of its server."""

    exception: str
    """The type and message of the exception."""

    traceback: str


def failure_entry(error: Exception) -> str:
    """Return the entry (`steps.FAILURE_STEP`) that stores an exception with its task. Callers never read it."""
    text = "".join(traceback.format_exception(error))
    lines = "".join(traceback.format_exception_only(error)).strip()
    return msgspec.json.encode(
        AgentFailure(exception=_printable(lines)[:2000], traceback=_printable(text)[-TRACEBACK_LENGTH:])
    ).decode()


def _printable(text: str) -> str:
    """Return a text that UTF-8 can encode, without NUL, which PostgreSQL refuses."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def failure_status(error: Exception) -> tuple[TaskState, str] | None:
    """Return the final state and the message for the caller, or None for an unexpected exception.

    Raises errors that are not the agent's: `Fenced` for a lost claim, `StoreUnavailable` for an unavailable store.
    """
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    match error:
        case Fenced() | StoreUnavailable():
            raise error from None
        case Rejected():
            return TaskState.REJECTED, str(error)
        case Failed() | AccordError():
            return TaskState.FAILED, str(error)
    return None


def is_being_cancelled() -> bool:
    """Whether this asyncio task was asked to cancel. An agent may also raise CancelledError itself.

    Only meaningful after a CancelledError: in Python 3.11 a failed task group leaves the request behind.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ResultBroadcast:
    """Broadcasts an execution's result to all waiters: the task when it settles, and None if the execution was lost.

    A task settles when it asks, and works again after an answer. With the end of the execution its result is final.
    """

    __slots__ = ("_at_end", "_waiters", "is_final", "is_settled", "task")

    def __init__(self) -> None:
        """Create a broadcast without waiters."""
        self.is_settled = self.is_final = False
        self.task: Task | None = None
        self._waiters: list[asyncio.Future[Task | None]] = []
        self._at_end: set[Callable[[], object]] = set()

    def settle(self, task: Task | None) -> None:
        """Set the result for current and later waiters, until the task works again. The first result counts."""
        if self.is_settled:
            return
        self.is_settled, self.task = True, task
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(task)
        self._waiters.clear()

    def reopen(self) -> None:
        """Make later waiters wait again, because the task works again."""
        self.is_settled = self.is_final

    def end(self, task: Task | None) -> None:
        """Set the final result."""
        self.settle(task)
        self.is_final, self.task = True, task
        for callback in self._at_end:
            callback()
        self._at_end.clear()

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call a function when the result is final, or now if it is."""
        if self.is_final:
            callback()
        else:
            self._at_end.add(callback)

    def not_at_end(self, callback: Callable[[], object]) -> None:
        """Do not call a function any more."""
        self._at_end.discard(callback)

    async def wait(self) -> Task | None:
        """Wait until the task settles, and return it."""
        if self.is_settled:
            return self.task
        waiter: asyncio.Future[Task | None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return await waiter
