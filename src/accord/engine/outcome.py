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
"""Characters of a traceback that are kept: its end, which has the exception."""


class AgentFailure(Struct, frozen=True, kw_only=True):
    """The exception that failed a task, for the operators of its server."""

    exception: str
    """Its type and message."""

    traceback: str


def failure_entry(error: Exception) -> str:
    """Return the entry (`steps.FAILURE`) that keeps an exception with its task; callers never read it."""
    text = "".join(traceback.format_exception(error))
    lines = "".join(traceback.format_exception_only(error)).strip()
    return msgspec.json.encode(
        AgentFailure(exception=_printable(lines)[:2000], traceback=_printable(text)[-TRACEBACK_LENGTH:])
    ).decode()


def _printable(text: str) -> str:
    """Return a text as UTF-8 can hold it, without NUL, which PostgreSQL refuses."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def failure_status(error: Exception) -> tuple[TaskState, str] | None:
    """Return how a task ends and the message for its caller, or None without one.

    Raises what is not the agent's fault: `Fenced` for a lost run, `StoreUnavailable` for a store that cannot be used.
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
    """Return the exception that is alone in a group, however deep, and any other as it is."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_being_cancelled() -> bool:
    """Whether somebody wants this asyncio task to stop; an agent may also raise CancelledError of its own accord.

    Of one that raises none it says nothing: a task group that fails leaves such a wish behind in Python 3.11.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ResultBroadcast:
    """The task when nothing more happens to it by itself, or None if the run was lost."""

    __slots__ = ("_loop", "_task", "_waiting", "is_told")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with nobody who waits in `loop`."""
        self.is_told = False
        self._loop = loop
        self._task: Task | None = None
        self._waiting: list[asyncio.Future[Task | None]] = []

    def tell(self, task: Task | None) -> None:
        """Tell those who wait, and whoever comes later; what is told first counts."""
        if self.is_told:
            return
        self.is_told, self._task = True, task
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_result(task)
        self._waiting.clear()

    async def wait(self) -> Task | None:
        """Wait until it is told."""
        if self.is_told:
            return self._task
        waiting: asyncio.Future[Task | None] = self._loop.create_future()
        self._waiting.append(waiting)
        return await waiting
