"""Failures of commands that call an agent: exit codes, names, messages and hints.

The exit code reports whether the command succeeded, not how the task ended. Codes and JSON form are those of the
official command line's specification (11.4, 11.6, appendices B and D).
"""

import shlex
from collections.abc import Callable, Coroutine
from enum import IntEnum
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import typer

from accord.cli import CLICK_ERROR
from accord.cli.tables import printable

if TYPE_CHECKING:
    from accord.errors import AccordError


P = ParamSpec("P")

UNKNOWN_CALLER = "Set credentials with --bearer, --api-key or `accord creds set`"
FORBIDDEN = "The credentials are valid but lack permission. Ask the agent's operator for another role"


class Exit(IntEnum):
    """Exit codes. `WAITS` means that a workflow run waits for an answer."""

    DONE = 0
    FAILED = 1
    MISUSED = 2
    UNREACHABLE = 3
    UNAUTHENTICATED = 4
    TIMED_OUT = 5
    WAITS = 6
    INTERRUPTED = 130


class ExplainedFailure(NamedTuple):
    """The reason why a command failed.

    `code` is the name of the agent's error, or `A2ACLI_ERR_*` without a response. `number` is the agent's number for
    it. `hint` is a remedy.
    """

    exit: Exit
    code: str
    message: str
    hint: str | None = None
    number: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the failure as a JSON document."""
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint, "a2aCode": self.number}}


class CommandError(Exception):
    """An error that ends a command, with its explanation."""

    def __init__(self, failure: ExplainedFailure) -> None:
        """Keep the failure."""
        super().__init__(failure.message)
        self.failure = failure


def command_error(message: str, hint: str | None = None) -> CommandError:
    """Return an error of the command itself."""
    return CommandError(ExplainedFailure(Exit.FAILED, "A2ACLI_ERR_INTERNAL", message, hint))


def explain_failure(error: Exception) -> ExplainedFailure | None:
    """Return the explanation of an error, or None if it is unexpected."""
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
            words = error.row.reason.removesuffix("_ERROR").split("_")  # TASK_NOT_FOUND is TaskNotFoundError
            fields = [f"{field}: {why}" for field, why in error.violations if why not in error.message]
            return ExplainedFailure(
                Exit.FAILED,
                "".join(word.capitalize() for word in words) + "Error",
                "; ".join([error.message, *fields]),
                _hint(error),
                _number(error),
            )
    cause = getattr(error, "because", error)  # of a message whose answer was lost
    for kind, exit, code in _own_failures():
        if isinstance(cause, kind) and (exit is not Exit.TIMED_OUT or getattr(cause, "was_sent", True)):
            return ExplainedFailure(exit, code, str(error) or "The operation timed out", _remedy(exit, error))
    return None


def async_command(name: str) -> Callable[[Callable[P, Coroutine[Any, Any, int]]], Callable[P, None]]:
    """Make an async function a command that exits with its result; its errors are printed after `name`."""

    def decorate(work: Callable[P, Coroutine[Any, Any, int]]) -> Callable[P, None]:
        @wraps(work)
        def command(*args: P.args, **kwargs: P.kwargs) -> None:
            run_and_exit(name, work(*args, **kwargs))

        return command

    return decorate


def run_and_exit(command: str, work: Coroutine[Any, Any, int]) -> None:
    """Run the work, and exit with its code. A user error is one line, not a traceback."""
    import asyncio

    try:
        code = asyncio.run(work)
    except BrokenPipeError:
        raise  # the reader closed the pipe; typer exits quietly
    except Exception as error:
        if isinstance(error, CLICK_ERROR) or (failure := _operator_failure(error) or explain_failure(error)) is None:
            raise
        typer.echo(f"{command}: {printable(' '.join(failure.message.split()))}", err=True)
        if failure.hint:
            typer.echo(failure.hint, err=True)
        code = failure.exit
    raise typer.Exit(code)


def _operator_failure(error: Exception) -> ExplainedFailure | None:
    """Return the explanation of an error of settings, the store or the registry."""
    from accord.api import StoreRefused, StoreUnavailable
    from accord.api.administration import BadAddress
    from accord.api.directory import InvalidCard, RegistryRefused, UnreachableServer
    from accord.client.credentials import KeyManagementError
    from accord.server.settings_loader import BadSettings

    match error:
        case BadAddress() | BadSettings():
            exit = Exit.MISUSED
        case UnreachableServer():
            exit = Exit.UNREACHABLE
        case RegistryRefused(status=401 | 403):
            exit = Exit.UNAUTHENTICATED
        case InvalidCard() | RegistryRefused() | StoreRefused() | StoreUnavailable() | KeyManagementError() | OSError():
            exit = Exit.FAILED
        case _:
            return None
    return ExplainedFailure(exit, "A2ACLI_ERR_INTERNAL", str(error))


def _remedy(exit: Exit, error: Exception) -> str | None:
    from accord.client.discovery import BadCard
    from accord.client.interfaces import UNTRUSTED_HOST

    if exit is Exit.UNREACHABLE:
        return "Check that the agent is running and that its URL is correct"
    if isinstance(error, BadCard) and UNTRUSTED_HOST in str(error):
        return "Use the URL in the card, or allow its host with --trust-host"
    return None


def _number(error: "AccordError") -> int:
    """Return the agent's number of an error, else the number in A2A 1.0."""
    stated = error.metadata.get("code", "")
    return int(stated) if stated.lstrip("-").isdecimal() else error.row.code


def _hint(error: "AccordError") -> str | None:
    if error.retry_after is not None:
        return f"Retry in {error.retry_after} seconds"
    return "The agent does not support this operation" if error.row.reason == "METHOD_NOT_FOUND" else None


def _own_failures() -> list[tuple[type[Exception], Exit, str]]:
    """Return the errors without a response of the agent, most specific first.

    An agent that was never reached counts as unreachable, even after a timeout.
    """
    from accord.client.auth import NoCredentials
    from accord.client.credentials import KeyManagementError
    from accord.client.discovery import BadCard, CardNotFound
    from accord.client.interfaces import NoUsableEndpoint
    from accord.outbound import TimedOut, Unreachable

    return [
        (NoCredentials, Exit.UNAUTHENTICATED, "A2ACLI_ERR_CREDENTIALS_MISSING"),
        (CardNotFound, Exit.UNREACHABLE, "A2ACLI_ERR_CARD_NOT_FOUND"),
        (BadCard, Exit.FAILED, "A2ACLI_ERR_CARD_INVALID"),
        (TimedOut, Exit.TIMED_OUT, "A2ACLI_ERR_TIMEOUT"),
        (TimeoutError, Exit.TIMED_OUT, "A2ACLI_ERR_TIMEOUT"),
        (Unreachable, Exit.UNREACHABLE, "A2ACLI_ERR_UNREACHABLE"),
        (NoUsableEndpoint, Exit.FAILED, "A2ACLI_ERR_INTERNAL"),
        (KeyManagementError, Exit.FAILED, "A2ACLI_ERR_INTERNAL"),
        (ImportError, Exit.FAILED, "A2ACLI_ERR_INTERNAL"),  # an extra that is not installed, which it names
    ]


def shell_command(*words: str | None) -> str:
    """Return a shell command, for copying."""
    return shlex.join(["accord", *(word for word in words if word is not None)])
