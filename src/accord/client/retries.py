"""Errors of HTTP replies, and rules for retries.

A reply that is not a success becomes one of our errors, by its status, its headers and the dialect's error in its
body. A message that may have been accepted is retried only with an agent that recognizes duplicates. Idempotent
operations are retried whenever that could help. Nothing waits or sends here.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from accord import errors
from accord.errors import AccordError
from accord.model import PushConfig, Request
from accord.outbound import HttpReply, TimedOut, Unreachable, read_retry_after
from accord.protocol.operations import DialectName, Operation
from accord.retries import RetryPolicy

HTTP_ERRORS: Mapping[int, type[AccordError]] = {
    400: errors.InvalidRequest,
    401: errors.AuthenticationFailed,
    403: errors.PermissionDenied,
    404: errors.MethodNotFound,
    405: errors.MethodNotFound,
    408: errors.RequestTimeout,
    410: errors.MethodNotFound,
    413: errors.RequestTooLarge,
    415: errors.UnsupportedMediaType,
    422: errors.InvalidRequest,
    429: errors.RateLimited,
    431: errors.HeadersTooLarge,
    500: errors.InternalError,
    501: errors.UnsupportedOperation,
    503: errors.AgentUnavailable,
}
"""HTTP status -> error, where nothing else identifies it. Other statuses are a RemoteError."""

DECISIVE_STATUSES = frozenset({401, 403, 429, 503})
"""Statuses that take precedence over an error code in the body, because a proxy often sends them."""

STATUS_KEY = "status"
"""The error's metadata key for the HTTP status of the answer."""

MAX_SENTENCE = 300
"""Maximum characters of a message from a body of unknown form."""


def error_of_reply(reply: HttpReply, stated: AccordError | None) -> AccordError:
    """Return the error for an answer. `stated` is the error that the dialect decoded from its body."""
    status = reply.status
    error = stated
    if error is None or status in DECISIVE_STATUSES or isinstance(error, errors.RemoteError):
        kind = HTTP_ERRORS.get(status, errors.RemoteError)
        error = stated if isinstance(stated, kind) else _with_kind(kind, reply, stated)
    if error.retry_after is None:
        error.retry_after = read_retry_after(reply.headers)
    if isinstance(error, errors.AuthenticationFailed):
        challenge = reply.headers.get("www-authenticate")
        error.challenges = (challenge,) if challenge else ()
    error.metadata = {**error.metadata, STATUS_KEY: str(status)}
    return error


def _with_kind(kind: type[AccordError], reply: HttpReply, stated: AccordError | None) -> AccordError:
    if stated is not None:
        return kind(
            stated.message,
            violations=stated.violations,
            retry_after=stated.retry_after,
            metadata=stated.metadata,
        )
    sentence = _sentence(reply.body)
    return kind(f"The agent answered with HTTP {reply.status}{': ' + sentence if sentence else ''}")


def _sentence(body: bytes) -> str:
    """Return the message in a body of unknown form, if one of the usual members has it."""
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    for _ in range(2):
        if isinstance(value, dict):
            members = value
            value = next((members[name] for name in ("message", "detail", "error", "title") if name in members), "")
    return value[:MAX_SENTENCE] if isinstance(value, str) else ""


IDEMPOTENT_OPERATIONS: Final = frozenset(
    {
        Operation.GET,
        Operation.LIST,
        Operation.SUBSCRIBE,
        Operation.PUSH_GET,
        Operation.PUSH_LIST,
        Operation.EXTENDED_CARD,
        Operation.CANCEL,  # a repeated cancel has no further effect
        Operation.PUSH_DELETE,
    }
)
"""Operations that may be repeated without a further effect."""

MESSAGE_ID_DIALECTS: Final = frozenset({DialectName.V1, DialectName.V03, DialectName.GEN, DialectName.RELAY})
"""Dialects whose messages have an id, by which an agent recognizes duplicates. AgentVault's have none."""

TRANSIENT_STATUSES: Final = frozenset({"500", "502", "503", "504"})
"""Transient HTTP statuses of servers and of proxies before them."""

DEFERRING_STATUSES: Final = frozenset({None, "429", "503"})
"""Statuses that, with a `Retry-After`, mean that the request was not accepted. A proxy's other statuses may concern
a request that it had already forwarded.
"""


class Retries(Struct, frozen=True, kw_only=True):
    """The number and the delays of retries.

    `attempts` is the limit of retries of one request, `following` that of a stream without progress between them:
    about four seconds and about a minute, enough for a server restart. A `Retry-After` is honored up to
    `patience_seconds`. A longer one is reported as an error. A task without a stream is polled after
    `first_poll_seconds`, and less often while nothing changes.
    """

    attempts: int = 4
    following: int = 10
    first_seconds: float = 0.25
    most_seconds: float = 10.0
    patience_seconds: float = 60.0
    first_poll_seconds: float = 0.2
    most_poll_seconds: float = 10.0

    def delay(self, attempt: int, error: Exception, *, draw: Callable[[], float] = random.random) -> float | None:
        """Return the delay before a retry, counted from 0, or None if the agent requests too long a delay."""
        wanted = error.retry_after if isinstance(error, AccordError) else None
        if wanted is not None and wanted > self.patience_seconds:
            return None
        policy = RetryPolicy(first_seconds=self.first_seconds, max_seconds=self.most_seconds)
        return max(policy.delay(attempt + 1, draw=draw), float(wanted or 0))


def was_not_accepted(error: Exception) -> bool:
    """Whether a request certainly had no effect and may be retried: it was never sent, or was deferred.

    An agent that reports a limit or an overload without a retry time may have begun the work. With a retry time it
    asks for the same request again.
    """
    match error:
        case Unreachable():
            return not error.was_sent
        case errors.RateLimited(retry_after=int()) | errors.AgentUnavailable(retry_after=int()):
            return error.metadata.get(STATUS_KEY) in DEFERRING_STATUSES
    return False


def may_retry(operation: Operation, request: Request, error: Exception, *, is_idempotent: bool) -> bool:
    """Whether to retry a failed request. `is_idempotent` means that the agent recognizes duplicate messages."""
    if was_not_accepted(error):
        return True
    match error:
        case TimedOut() if operation is Operation.SEND:
            return False  # it is slow, not lost, and the caller's timeout has expired
        case Unreachable() | errors.InternalError() | errors.AgentUnavailable() | errors.RateLimited():
            return _has_effect_once(operation, request, is_idempotent)
        case errors.RemoteError():
            return error.metadata.get(STATUS_KEY) in TRANSIENT_STATUSES and _has_effect_once(
                operation, request, is_idempotent
            )
    return False


def _has_effect_once(operation: Operation, request: Request, is_idempotent: bool) -> bool:
    match request:
        case PushConfig():
            return request.id is not None  # with an id it replaces itself
    return operation in IDEMPOTENT_OPERATIONS or is_idempotent
