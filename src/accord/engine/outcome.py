"""Outcome of an execution: the meaning of exceptions, and the broadcast to waiters."""

import asyncio
import traceback

import msgspec
from msgspec import Struct

from accord.engine.context import Failed, Rejected
from accord.errors import AccordError
from accord.model import Task, TaskState
from accord.storage.commands.tasks import Fenced
from accord.storage.store import StoreUnavailable

TRACEBACK_LENGTH = 32 * 1024
"""Characters of a traceback that are stored. The end is kept, which contains the exception."""


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
    match _unwrapped(error):
        case Fenced() | StoreUnavailable() as lost:
            raise lost from None
        case Rejected() as meant:
            return TaskState.REJECTED, str(meant)
        case Failed() | AccordError() as meant:
            return TaskState.FAILED, str(meant)
    return None


def _unwrapped(error: Exception) -> Exception:
    """Return the single exception in a group, at any depth, or the exception itself."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_being_cancelled() -> bool:
    """Whether this asyncio task was asked to cancel. An agent may also raise CancelledError itself.

    Only meaningful after a CancelledError: in Python 3.11 a failed task group leaves the request behind.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ResultBroadcast:
    """Broadcasts an execution's result to all waiters: the settled task, or None if the execution was lost."""

    __slots__ = ("_loop", "_task", "_waiting", "is_told")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Create a broadcast without waiters in `loop`."""
        self.is_told = False
        self._loop = loop
        self._task: Task | None = None
        self._waiting: list[asyncio.Future[Task | None]] = []

    def tell(self, task: Task | None) -> None:
        """Set the result for current and later waiters. The first result counts."""
        if self.is_told:
            return
        self.is_told, self._task = True, task
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(task)
        self._waiting.clear()

    async def wait(self) -> Task | None:
        """Wait for the result."""
        if self.is_told:
            return self._task
        waiting: asyncio.Future[Task | None] = self._loop.create_future()
        self._waiting.append(waiting)
        return await waiting
