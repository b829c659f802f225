"""What an HTTP answer that is no success means: one of our errors, with all that its sender said.

The body has been read by a dialect or could not be; here the status and the headers have their say. It sends nothing
and retries nothing: `http` stands above.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from accord.client.wire import Reply
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    HeadersTooLarge,
    InternalError,
    InvalidRequest,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    RemoteError,
    RequestTimeout,
    RequestTooLarge,
    UnsupportedMediaType,
    UnsupportedOperation,
)

STATUSES: Mapping[int, type[AccordError]] = {
    400: InvalidRequest,
    401: AuthenticationFailed,
    403: PermissionDenied,
    404: MethodNotFound,
    405: MethodNotFound,
    408: RequestTimeout,
    410: MethodNotFound,
    413: RequestTooLarge,
    415: UnsupportedMediaType,
    422: InvalidRequest,
    429: RateLimited,
    431: HeadersTooLarge,
    500: InternalError,
    501: UnsupportedOperation,
    503: AgentUnavailable,
}
"""What a status says by itself; any other is an error without a name here."""

CLEAR = frozenset({401, 403, 429, 503})
"""Statuses that say more than any code beside them: who answers them is often not the agent, but what is in front."""

STATUS_KEY = "status"
"""The fact of an error that tells the status of the answer it came with."""

MAX_RETRY_SECONDS = 24 * 60 * 60
"""The longest pause that is taken seriously."""

MAX_SENTENCE = 300
"""Characters of a sentence that is taken from a body of unknown form."""


def failure(reply: Reply, stated: AccordError | None) -> AccordError:
    """Return the error that an answer is; `stated` is what the dialect read in its body."""
    status = reply.status
    error = stated
    if error is None or status in CLEAR or isinstance(error, RemoteError):
        kind = STATUSES.get(status, RemoteError)
        error = stated if isinstance(stated, kind) else _as(kind, reply, stated)
    if error.retry_after is None:
        error.retry_after = retry_after(reply.headers)
    if isinstance(error, AuthenticationFailed):
        challenge = reply.headers.get("www-authenticate")
        error.challenges = (challenge,) if challenge else ()
    error.metadata = {**error.metadata, STATUS_KEY: str(status)}
    return error


def _as(kind: type[AccordError], reply: Reply, stated: AccordError | None) -> AccordError:
    if stated is not None:
        return kind(
            stated.message,
            violations=stated.violations,
            retry_after=stated.retry_after,
            metadata=stated.metadata,
        )
    said = _sentence(reply.body)
    return kind(f"The agent answered with HTTP {reply.status}{': ' + said if said else ''}")


def _sentence(body: bytes) -> str:
    """Return what a body of unknown form says to people, if it says it where most do."""
    try:
        found: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    for _ in range(2):
        if isinstance(found, dict):
            members = found
            found = next((members[name] for name in ("message", "detail", "error", "title") if name in members), "")
    return found[:MAX_SENTENCE] if isinstance(found, str) else ""


def retry_after(headers: Mapping[str, str]) -> int | None:
    """Return the seconds of a `Retry-After`, which is a number of them or a date (RFC 9110, 10.2.3)."""
    stated = (headers.get("retry-after") or "").strip()
    if stated.isascii() and stated.isdigit():
        return min(int(stated[:10]), MAX_RETRY_SECONDS)
    until, now = _date(stated), _date(headers.get("date") or "") or datetime.now(UTC)
    if until is None:
        return None
    return min(max(int((until - now).total_seconds()), 0), MAX_RETRY_SECONDS)


def _date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, OverflowError, TypeError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
