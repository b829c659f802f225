"""Webhooks that come in: `POST /api/webhook/tasks`, where agents elsewhere report on the tasks that they do for us, and
`POST /api/callbacks?token=...`, where flows do.

Who shows no token that is known is refused before a body is read. Then it reads one bounded body and answers 204, or
the status of what is wrong: 400 no report, 401 not this task's token, 404 signed but unknown, or ended without the
sender, 413 too large, 429 too many at once, 503 try again. Whose report it is and what it means is `core.remotes` and
`core.callbacks`; there is nothing here of A2A's versions.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.auth.rate_limits import Bucket, Quotas
from accord.bindings.bodies import read_request, stranger
from accord.bindings.http import (
    QUOTAS,
    Receive,
    Scope,
    Send,
    error_headers,
    header,
    query,
    respond,
)
from accord.bindings.outgoing import ClientGone
from accord.engine import tracing
from accord.engine.tracing import UNTRACED, ReportSpan, Span
from accord.errors import AccordError, AuthenticationFailed, RateLimited
from accord.protocol import http_headers
from accord.remote.tasks import ReportCredentials, ReportSender

MAX_WAITING = 1000
"""Reports that are worked on at a time: what a store commits within a second. More would only wait, and time out."""

MAX_UNPROVEN = 64
"""The same for who has only a signature, of which nobody can tell before the whole body is here, however slowly."""

RETRY_SECONDS = 1

TEXT = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]


class Reports(Protocol):
    """Where reports go; either method raises what is wrong."""

    async def admit(self, evidence: ReportCredentials) -> ReportSender:
        """Say whose report it is, before its body is read."""

    async def take(self, sender: ReportSender, body: bytes) -> None:
        """Take it in."""


log = logging.getLogger("accord.receiver")

_TOKEN, _SIGNATURE, _EVENT_ID = (
    name.lower().encode() for name in (http_headers.TOKEN, http_headers.SIGNATURE_HEADER, http_headers.EVENT_ID)
)


_LOOKED_UP, _KNOWN, _UNPROVEN = "looked up", "known", "unproven"


class Receiver:
    """An ASGI application for one address."""

    def __init__(
        self,
        reports: Reports,
        *,
        reads: Callable[[Scope], ReportCredentials] | None = None,
        quotas: Quotas = QUOTAS,
        rate: float | None = None,
        most: int = MAX_WAITING,
        most_unproven: int = MAX_UNPROVEN,
    ) -> None:
        """Hand reports on: at most `rate` a second from one address, and `most` at a time from all.

        `most_unproven` of those may be by senders of whom nothing is known before their body is. `reads` says what a
        request brings to show whose report it is.
        """
        self._reports = reports
        self._reads = reads or evidence
        self._quotas = quotas
        self._bucket = None if rate is None else Bucket(rate, round(rate))
        self._most = {_LOOKED_UP: most, _KNOWN: most, _UNPROVEN: most_unproven}
        self._waiting = Counter[str]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["method"] != "POST":
            await respond(send, 405, b"", [(b"allow", b"POST")])
            return
        try:
            await self._answer(scope, receive)
        except ClientGone:
            return
        except AccordError as error:
            status = error.row.http
            log.info("webhook refused", extra={"status": status, "reason": error.message, "peer": _peer(scope)})
            await respond(send, status, error.message.encode() + b"\n", [*TEXT, *error_headers(error)])
        else:
            await respond(send, 204, b"")

    async def _answer(self, scope: Scope, receive: Receive) -> None:
        wait = self._bucket.take(_peer(scope)) if self._bucket is not None else 0
        if wait:
            raise _too_many(wait)
        with self._place(_LOOKED_UP):
            sender = await self._reports.admit(self._reads(scope))
        with self._place(_KNOWN if sender.is_known else _UNPROVEN), _traced(scope, sender):
            identify = _identified if sender.is_known else stranger
            _, body = await read_request(scope, receive, identify, self._quotas)
            await self._reports.take(sender, body)

    @contextmanager
    def _place(self, kind: str) -> Iterator[None]:
        """Take one of the places that there are for a kind of senders."""
        if self._waiting[kind] >= self._most[kind]:
            raise _too_many()
        self._waiting[kind] += 1
        try:
            yield
        finally:
            self._waiting[kind] -= 1


async def _identified(_presented: Presented) -> Caller | None:
    return Caller()


@contextmanager
def _traced(scope: Scope, sender: ReportSender) -> Iterator[None]:
    """Trace that a report is taken in, as a part of what its sender does.

    Who turns out to have no right to report leaves no span: one that does not end is not recorded.
    """
    span: Span = UNTRACED if tracing.tracer is None else tracing.tracer.begin(_receiving(scope, sender))
    try:
        with span.current():
            yield
        span.note(status=204)
    except AuthenticationFailed:
        raise
    except Exception as error:
        _note_failure(span, error)
        span.end()
        raise
    span.end()


def _note_failure(span: Span, error: Exception) -> None:
    status = error.row.http if isinstance(error, AccordError) else None
    span.note(status=status)
    if isinstance(error, ClientGone) or (status is not None and status < 500):
        span.refused(tracing.failure(error))
    else:
        span.note(error=tracing.failure(error))


def _receiving(scope: Scope, sender: ReportSender) -> ReportSpan:
    parent, state = (header(scope, name.encode()) for name in (http_headers.TRACEPARENT, http_headers.TRACESTATE))
    link = sender.link
    return ReportSpan(
        path=scope["path"],
        agent=None if link is None else link.agent,
        task_id=None if link is None else link.task_id,
        trace=http_headers.join_trace(parent, state),
    )


def _too_many(wait: float = 0) -> RateLimited:
    return RateLimited("Too many reports at once; try again", retry_after=max(RETRY_SECONDS, round(wait)))


def evidence(scope: Scope) -> ReportCredentials:
    """Return what a request brings to say whose report it is."""
    return ReportCredentials(
        token=header(scope, _TOKEN) or _bearer(header(scope, b"authorization")),
        signature=header(scope, _SIGNATURE),
        event_id=header(scope, _EVENT_ID),
    )


def in_query(scope: Scope) -> ReportCredentials:
    """Return the token that is in the address, where that is all that can be told to a sender; else that of a header.

    An address ends up in logs more easily, so a token in a header is as good.
    """
    found = evidence(scope)
    return ReportCredentials(token=query(scope, "token") or found.token)


def _bearer(authorization: str | None) -> str | None:
    scheme, _, credentials = (authorization or "").partition(" ")
    return credentials.strip() or None if scheme.lower() == "bearer" else None


def _peer(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
