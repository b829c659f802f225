"""What an exception of an agent means: how its task ends, and what its caller is told.

Only what is meant for callers is told, and nothing is logged or written here; `core.run`, which stands above, does
that. Task groups put even a single exception into a group, so one that is alone in there counts as raised by itself.
"""

import asyncio
import traceback

import msgspec
from msgspec import Struct

from accord.core.context import Failed, Rejected
from accord.errors import AccordError
from accord.model import TaskState
from accord.storage.commands.tasks import Fenced
from accord.storage.store import StoreUnavailable

KEPT = 32 * 1024
"""Characters of a traceback that are kept: its end, which has the exception."""


class Failure(Struct, frozen=True, kw_only=True):
    """The exception that failed a task, for the operators of its server."""

    exception: str
    """Its type and message."""

    traceback: str


def kept(error: Exception) -> str:
    """Return the entry (`steps.FAILURE`) that keeps an exception with its task; callers never read it."""
    text = "".join(traceback.format_exception(error))
    lines = "".join(traceback.format_exception_only(error)).strip()
    return msgspec.json.encode(Failure(exception=_printable(lines)[:2000], traceback=_printable(text)[-KEPT:])).decode()


def _printable(text: str) -> str:
    """Return a text as UTF-8 can hold it, without NUL, which PostgreSQL refuses."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def told(error: Exception) -> tuple[TaskState, str] | None:
    """Return how a task ends and the message for its caller, or None without one.

    Raises what is not the agent's fault: `Fenced` for a lost run, `StoreUnavailable` for a store that cannot be used.
    """
    match _lone(error):
        case Fenced() | StoreUnavailable() as lost:
            raise lost from None
        case Rejected() as meant:
            return TaskState.REJECTED, str(meant)
        case Failed() | AccordError() as meant:
            return TaskState.FAILED, str(meant)
    return None


def _lone(error: Exception) -> Exception:
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
