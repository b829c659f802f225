"""Webhooks over HTTP: deliveries to subscribers, and incoming reports of remote agents.

A delivery is one POST in the dialect of its subscriber. Any 2xx is success, 410 is final, and all other statuses are
retried by `engine.webhook_delivery`. A report gets 204, or an error:

- 400: invalid
- 401: not the token of this task
- 404: signed but unknown
- 413: too large
- 429: too many
- 503: try again

Without a known token no body is read. `remote.tasks` and `remote.flow_reports` interpret reports.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.auth.rate_limits import Bucket, Quotas
from accord.engine import tracing
from accord.engine.tracing import UNTRACED, ReportSpan, Span
from accord.engine.webhook_delivery import Exchange, ExchangeSide, NotDelivered, WebhookDelivery
from accord.errors import AccordError, AuthenticationFailed, InvalidParams, RateLimited
from accord.http.asgi import QUOTAS, Receive, Scope, Send, error_headers, header, query, respond
from accord.http.files import FileLinks
from accord.http.request_bodies import identify_nobody, read_request
from accord.http.response_bodies import ClientGone
from accord.model import PushConfig, PushFormat
from accord.outbound import HttpSession, TargetRefused, Unreachable, read_retry_after
from accord.protocol import http_headers
from accord.protocol.codec import invalid_field
from accord.protocol.dialects import DIALECTS, Dialect
from accord.protocol.operations import DialectName
from accord.remote.tasks import ReportCredentials, ReportSender

GONE_STATUS = 410
"""The only status that stops deliveries. All others are retried: an ingress returns 404, 403 or 302 for minutes while
its backend is replaced. Giving up would also suppress all later events of the task.
"""


MAX_SHOWN_BYTES = 4096
"""Bytes of a body that are stored for display."""

SHOWN_SECONDS = 1.0
"""Seconds to wait for the body of a response: only its status counts."""

OPEN_HEADERS = frozenset(
    {"content-type", "content-length", "date", "location", "retry-after", "server", "user-agent", "x-request-id"}
    | {"x-a2a-task-id", "x-a2a-event-id", "traceparent", "tracestate"}
)
"""Headers whose values are displayed. Any other may be a secret: besides `Authorization`, webhooks use header names of
their own for tokens.
"""


class HttpWebhookSender:
    """Posts deliveries to their webhooks."""

    def __init__(
        self,
        outbound: HttpSession,
        *,
        keys: Sequence[str] = (),
        links: FileLinks | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Post through `outbound`, signed with keys derived from the server's `keys` and with the webhook's token.

        `links` replaces files by URLs, for dialects that need it.
        """
        self._outbound = outbound
        self._links = links
        self._keys = tuple(keys)
        self._clock = clock

    def check(self, config: PushConfig) -> None:
        """Raise InvalidParams for a webhook that could never be called, so that its creator gets the error at once."""
        http_headers.check_push_config(config)
        try:
            self._outbound.check(config.url)
        except TargetRefused as refused:
            raise invalid_field("url", str(refused)) from None

    def form(self, dialect: str) -> PushFormat:
        """Return the default body format of webhooks in a dialect."""
        return _dialect(dialect).push_format

    async def send(self, delivery: WebhookDelivery) -> Exchange:
        """Deliver, or raise NotDelivered."""
        config, dialect = delivery.config, _dialect(delivery.dialect)
        event, task = delivery.event, delivery.task
        if self._links is not None and dialect.links_files:
            event, task = self._links.linked(event, delivery.tenant), self._links.linked(task, delivery.tenant)
        body = dialect.encode_push(event, task, config.payload_format)
        headers = self._headers(delivery, body) | {"Content-Type": _media_type(dialect, config), **tracing.headers()}
        asked = _exchange_side(headers, body)
        try:
            self.check(config)
            answer = await self._outbound.request(
                "POST", config.url, headers=headers, body=body, max_bytes=MAX_SHOWN_BYTES, body_seconds=SHOWN_SECONDS
            )
        except (InvalidParams, TargetRefused) as refused:
            raise NotDelivered(str(refused), is_final=True, sent=Exchange(request=asked)) from None
        except Unreachable as failure:
            raise NotDelivered(str(failure), sent=Exchange(request=asked)) from None
        sent = Exchange(request=asked, response=_exchange_side(answer.headers, answer.body), status=answer.status)
        if not 200 <= answer.status < 300:
            raise NotDelivered(
                f"The webhook answers {answer.status}",
                is_final=answer.status == GONE_STATUS,
                retry_after=read_retry_after(answer.headers, self._clock()),
                sent=sent,
            )
        return sent

    def _headers(self, delivery: WebhookDelivery, body: bytes) -> dict[str, str]:
        config = delivery.config
        found = http_headers.push_headers(config, delivery.task.id, delivery.event.seq)
        keys = [http_headers.receiver_key(key, config.url, delivery.tenant) for key in self._keys]
        if keys := [*keys, *([config.token] if config.token else ())]:
            found[http_headers.SIGNATURE_HEADER] = http_headers.sign_webhook(body, int(self._clock()), keys)
        return found


def _dialect(name: str) -> Dialect:
    """Return the dialect of a webhook. A webhook set within the process has none, and gets A2A 1.0."""
    return DIALECTS[DialectName(name) if name else DialectName.V1]


def _media_type(dialect: Dialect, config: PushConfig) -> str:
    return "application/json" if config.payload_format is PushFormat.SIMPLE else dialect.push_media_type


def _exchange_side(headers: Mapping[str, str], body: bytes) -> ExchangeSide:
    """Return one side of an exchange, for display."""
    told = {name: value[:200] if name.lower() in OPEN_HEADERS else "***" for name, value in headers.items()}
    return ExchangeSide(headers=told, body=body[:MAX_SHOWN_BYTES].decode(errors="replace"))


MAX_REPORTS = 1000
"""Reports processed concurrently: as many as a store commits within a second. More would only wait, and time out."""

MAX_UNPROVEN_REPORTS = 64
"""Concurrent reports of senders with only a signature, which cannot be verified before the whole body has arrived."""

RETRY_SECONDS = 1

TEXT = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]


class ReportSink(Protocol):
    """Consumer of reports; both methods raise AccordError for invalid ones."""

    async def admit(self, evidence: ReportCredentials) -> ReportSender:
        """Identify the sender of a report, before its body is read."""

    async def accept(self, sender: ReportSender, body: bytes) -> None:
        """Process a report."""


log = logging.getLogger("accord.receiver")

_TOKEN, _SIGNATURE, _EVENT_ID = (
    name.lower().encode() for name in (http_headers.TOKEN, http_headers.SIGNATURE_HEADER, http_headers.EVENT_ID)
)


_LOOKED_UP, _KNOWN, _UNPROVEN = "looked up", "known", "unproven"


class WebhookEndpoint:
    """An ASGI application for one webhook endpoint."""

    def __init__(
        self,
        reports: ReportSink,
        *,
        reads: Callable[[Scope], ReportCredentials] | None = None,
        quotas: Quotas = QUOTAS,
        rate: float | None = None,
        most: int = MAX_REPORTS,
        most_unproven: int = MAX_UNPROVEN_REPORTS,
    ) -> None:
        """Pass reports to `reports`: at most `rate` a second per address, and `most` concurrently.

        At most `most_unproven` concurrent reports may have senders that cannot be verified before their body is read.
        `reads` extracts the credentials from a request.
        """
        self._reports = reports
        self._reads = reads or report_credentials
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
            log.info("report.refused", extra={"status": status, "reason": error.message, "peer": _peer_address(scope)})
            await respond(send, status, error.message.encode() + b"\n", [*TEXT, *error_headers(error)])
        else:
            await respond(send, 204, b"")

    async def _answer(self, scope: Scope, receive: Receive) -> None:
        wait = self._bucket.take(_peer_address(scope)) if self._bucket is not None else 0
        if wait:
            raise _too_many(wait)
        with self._place(_LOOKED_UP):
            sender = await self._reports.admit(self._reads(scope))
        with self._place(_KNOWN if sender.is_known else _UNPROVEN), _traced(scope, sender):
            identify = _identify_as_known if sender.is_known else identify_nobody
            _, body = await read_request(scope, receive, identify, self._quotas)
            await self._reports.accept(sender, body)

    @contextmanager
    def _place(self, kind: str) -> Iterator[None]:
        """Take one of the slots for a kind of sender."""
        if self._waiting[kind] >= self._most[kind]:
            raise _too_many()
        self._waiting[kind] += 1
        try:
            yield
        finally:
            self._waiting[kind] -= 1


async def _identify_as_known(_presented: Presented) -> Caller | None:
    return Caller()


@contextmanager
def _traced(scope: Scope, sender: ReportSender) -> Iterator[None]:
    """Trace a report as part of its sender's trace.

    A sender without valid credentials leaves no span: a span that does not end is not recorded.
    """
    span: Span = UNTRACED if tracing.tracer is None else tracing.tracer.begin(_span_start(scope, sender))
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


def _span_start(scope: Scope, sender: ReportSender) -> ReportSpan:
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


def report_credentials(scope: Scope) -> ReportCredentials:
    """Return the credentials of a report."""
    return ReportCredentials(
        token=header(scope, _TOKEN) or _bearer(header(scope, b"authorization")),
        signature=header(scope, _SIGNATURE),
        event_id=header(scope, _EVENT_ID),
    )


def query_credentials(scope: Scope) -> ReportCredentials:
    """Return the token in the URL, for senders that cannot set headers, else that of a header.

    A URL ends up in logs more easily, so a token in a header is accepted as well.
    """
    found = report_credentials(scope)
    return ReportCredentials(token=query(scope, "token") or found.token)


def _bearer(authorization: str | None) -> str | None:
    scheme, _, credentials = (authorization or "").partition(" ")
    return credentials.strip() or None if scheme.lower() == "bearer" else None


def _peer_address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
