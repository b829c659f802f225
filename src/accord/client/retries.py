"""What may be sent again, and when: never what could do something twice.

A message that may have been accepted is repeated only to an agent that is known to take it as the same message;
reading, and what has the same effect twice as once, is repeated whenever that could help. It only decides: `peer` and
`resume` wait and send.
"""

import random
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from accord.client.links.answers import STATUS_KEY
from accord.client.wire import TimedOut, Unreachable
from accord.errors import AccordError, AgentUnavailable, InternalError, RateLimited, RemoteError
from accord.model import PushConfig, Request
from accord.protocol.operations import DialectName, Operation

HARMLESS: Final = frozenset(
    {
        Operation.GET,
        Operation.LIST,
        Operation.SUBSCRIBE,
        Operation.PUSH_GET,
        Operation.PUSH_LIST,
        Operation.EXTENDED_CARD,
        Operation.CANCEL,  # a task is canceled once, however often it is asked for
        Operation.PUSH_DELETE,
    }
)
"""Operations that have the same effect twice as once."""

NAMED_MESSAGES: Final = frozenset({DialectName.V1, DialectName.V03, DialectName.GEN, DialectName.RELAY})
"""Dialects whose messages carry the id by which an agent knows one again; AgentVault's have none."""

PASSING: Final = frozenset({"500", "502", "503", "504"})
"""HTTP statuses of servers, and of proxies in front of them, that may be gone a moment later."""

TURNED_AWAY: Final = frozenset({None, "429", "503"})
"""Statuses of who has no time now and says when it will; what a proxy answers of a request that it had already passed
on is another."""


class Retries(Struct, frozen=True, kw_only=True):
    """How often, and after how long.

    `attempts` are the repetitions of one request, `following` those of a stream that makes no progress between them:
    about four seconds and about a minute, which a server that is restarted needs. A `Retry-After` is honoured up to
    `patience_seconds`; an agent that wants more is reported as it is. A task that can only be looked at is looked at
    after `first_poll_seconds`, and while nothing changes less and less often.
    """

    attempts: int = 4
    following: int = 10
    first_seconds: float = 0.25
    most_seconds: float = 10.0
    patience_seconds: float = 60.0
    first_poll_seconds: float = 0.2
    most_poll_seconds: float = 10.0

    def delay(self, attempt: int, error: Exception, *, draw: Callable[[], float] = random.random) -> float | None:
        """Return how long to wait before a repetition, counted from 0, or None if the agent wants too long."""
        grown = min(self.most_seconds, self.first_seconds * 2.0 ** min(attempt, 32))
        wanted = error.retry_after if isinstance(error, AccordError) else None
        if wanted is not None and wanted > self.patience_seconds:
            return None
        # Half of it by chance: clients that were cut off together must not come back together.
        return max(grown * (0.5 + draw() / 2), float(wanted or 0))


def was_turned_away(error: Exception) -> bool:
    """Whether a request certainly has not been acted on and may be welcome later: it never left, or was put off.

    Who only says that it is too much, or cannot now, may have begun: a limit may be met while the work is done. Who
    says when to come back asks for the same request again.
    """
    match error:
        case Unreachable():
            return not error.was_sent
        case RateLimited(retry_after=int()) | AgentUnavailable(retry_after=int()):
            return error.metadata.get(STATUS_KEY) in TURNED_AWAY
    return False


def may_repeat(operation: Operation, request: Request, error: Exception, *, is_idempotent: bool) -> bool:
    """Whether to send a request again that ended in an error; `is_idempotent` if messages are known again."""
    if was_turned_away(error):
        return True
    match error:
        case TimedOut() if operation is Operation.SEND:
            return False  # it is not lost but slow, and the caller's time is up
        case Unreachable() | InternalError() | AgentUnavailable() | RateLimited():
            return _has_effect_once(operation, request, is_idempotent)
        case RemoteError():
            return error.metadata.get(STATUS_KEY) in PASSING and _has_effect_once(operation, request, is_idempotent)
    return False


def _has_effect_once(operation: Operation, request: Request, is_idempotent: bool) -> bool:
    match request:
        case PushConfig():
            return request.id is not None  # under its id it replaces itself
    return operation in HARMLESS or is_idempotent
