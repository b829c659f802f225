"""Failures of commands that call an agent: exit codes, names, messages and hints.

The exit code says whether the command did its job, not how the task ended. Codes and JSON form are those of the
official command line's specification (11.4, 11.6, appendices B and D).
"""

import shlex
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from accord.errors import AccordError


UNKNOWN_CALLER = "Bring credentials: --bearer, --api-key, or `accord creds set`"
FORBIDDEN = "The credentials are known, but not enough: whoever runs the agent can give their holder another role"


class Exit(IntEnum):
    """What the code of a process means; `WAITS` is for who runs a workflow that somebody has to answer first."""

    DONE = 0
    FAILED = 1
    MISUSED = 2
    UNREACHABLE = 3
    UNAUTHENTICATED = 4
    TIMED_OUT = 5
    WAITS = 6
    INTERRUPTED = 130


class ExplainedFailure(NamedTuple):
    """Why a command did not do its job.

    `code` is the name of the agent's own error, or `A2ACLI_ERR_*` where there was no answer; `number` is the agent's
    number for it. `hint` is what to do about it.
    """

    exit: Exit
    code: str
    message: str
    hint: str | None = None
    number: int | None = None

    def document(self) -> dict[str, Any]:
        """Return it for programs."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint, "a2aCode": self.number}}


class CommandError(Exception):
    """Something that ends a command, already explained."""

    def __init__(self, failure: ExplainedFailure) -> None:
        """Keep why."""
        super().__init__(failure.message)
        self.failure = failure


def command_error(message: str, hint: str | None = None) -> CommandError:
    """Return what to raise where the command itself cannot go on."""
    return CommandError(ExplainedFailure(Exit.FAILED, "A2ACLI_ERR_INTERNAL", message, hint))


def explain_failure(error: Exception) -> ExplainedFailure | None:
    """Return why an error ended the command, or None for what nobody foresaw."""
    from accord.errors import AccordError, AuthenticationFailed, PermissionDenied

    match error:
        case CommandError(failure=failure):
            return failure
        case typer.BadParameter():
            return ExplainedFailure(Exit.MISUSED, "A2ACLI_ERR_USAGE", error.message)
        case AuthenticationFailed() | PermissionDenied():
            hint = FORBIDDEN if isinstance(error, PermissionDenied) else UNKNOWN_CALLER
            return ExplainedFailure(Exit.UNAUTHENTICATED, "A2ACLI_ERR_AUTH_FAILED", error.message, hint, _number(error))
        case AccordError():
            return ExplainedFailure(
                Exit.FAILED, _name(error.row.reason), _with_fields(error), _hint(error), _number(error)
            )
    cause = getattr(error, "because", error)  # of a message whose answer was lost
    for kind, exit, code in _own_failures():
        if isinstance(cause, kind) and (exit is not Exit.TIMED_OUT or getattr(cause, "was_sent", True)):
            return ExplainedFailure(exit, code, str(error) or "It took too long", _remedy(exit, error))
    return None


def _remedy(exit: Exit, error: Exception) -> str | None:
    from accord.client.discovery import BadCard
    from accord.client.interfaces import NOT_SPEAKING_FOR

    if exit is Exit.UNREACHABLE:
        return "See that the agent runs, and that its address is right"
    if isinstance(error, BadCard) and NOT_SPEAKING_FOR in str(error):
        return "Ask it at the address that the card names, or go there all the same with --trust-host"
    return None


def _number(error: "AccordError") -> int:
    """Return the number that the agent gave an error, or else the one that A2A 1.0 gives it."""
    stated = error.metadata.get("code", "")
    return int(stated) if stated.lstrip("-").isdecimal() else error.row.code


def _hint(error: "AccordError") -> str | None:
    if error.retry_after is not None:
        return f"Try again in {error.retry_after} seconds"
    return "The agent does not offer this" if error.row.reason == "METHOD_NOT_FOUND" else None


def _own_failures() -> list[tuple[type[Exception], Exit, str]]:
    """Return what happens before or instead of an agent's answer; of two that match, the first.

    Who was never reached, even after a long time, is unreachable.
    """
    from accord.client.auth import NoCredentials
    from accord.client.credentials import KeyManagementError
    from accord.client.discovery import BadCard, CardNotFound
    from accord.client.interfaces import NoWay
    from accord.client.transports import TimedOut, Unreachable

    return [
        (NoCredentials, Exit.UNAUTHENTICATED, "A2ACLI_ERR_CREDENTIALS_MISSING"),
        (CardNotFound, Exit.UNREACHABLE, "A2ACLI_ERR_CARD_NOT_FOUND"),
        (BadCard, Exit.FAILED, "A2ACLI_ERR_CARD_INVALID"),
        (TimedOut, Exit.TIMED_OUT, "A2ACLI_ERR_TIMEOUT"),
        (TimeoutError, Exit.TIMED_OUT, "A2ACLI_ERR_TIMEOUT"),
        (Unreachable, Exit.UNREACHABLE, "A2ACLI_ERR_UNREACHABLE"),
        (NoWay, Exit.FAILED, "A2ACLI_ERR_INTERNAL"),
        (KeyManagementError, Exit.FAILED, "A2ACLI_ERR_INTERNAL"),
        (ImportError, Exit.FAILED, "A2ACLI_ERR_INTERNAL"),  # an extra that is not installed, which it names
    ]


def _name(reason: str) -> str:
    """Return the specification's name of an error: TASK_NOT_FOUND is TaskNotFoundError."""
    return "".join(word.capitalize() for word in reason.removesuffix("_ERROR").split("_")) + "Error"


def _with_fields(error: "AccordError") -> str:
    """Return an error's sentence with the fields that are wrong, unless it names them itself."""
    told = [f"{field}: {why}" for field, why in error.violations if why not in error.message]
    return "; ".join([error.message, *told])


def shell_command(*words: str | None) -> str:
    """Return a command to be copied."""
    return shlex.join(["accord", *(word for word in words if word is not None)])
