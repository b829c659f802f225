"""Webhooks over HTTP: one event becomes one POST in the dialect of whoever asked for it.

When to send, in which order and how often to try again is `core.push`; where a request may go is `outbound`. The
receiver's status decides: any 2xx is a delivery, 410 means never again, and everything else may be otherwise later.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import parsedate_to_datetime

from accord.bindings.links import Links
from accord.engine import tracing
from accord.engine.webhook_delivery import Exchange, ExchangeSide, NotDelivered, WebhookDelivery
from accord.errors import InvalidParams
from accord.model import PushConfig, PushFormat
from accord.outbound import HostUnreachable, Outbound, OutboundReply, TargetRefused
from accord.protocol import http_headers
from accord.protocol.codec import invalid_field
from accord.protocol.dialects import DIALECTS, Dialect
from accord.protocol.operations import DialectName

GONE = 410
"""The one status that asks not to be called again. All others are retried: an ingress says 404, 403 or 302 for minutes
while what is behind it is replaced, and giving up would also keep back everything that happens to the task later."""


MAX_SHOWN = 4096
"""Bytes of a body that are kept to be shown."""

SHOWN_SECONDS = 1.0
"""How long the body of an answer is waited for: only its status counts."""

OPEN_HEADERS = frozenset(
    {"content-type", "content-length", "date", "location", "retry-after", "server", "user-agent", "x-request-id"}
    | {"x-a2a-task-id", "x-a2a-event-id", "traceparent", "tracestate"}
)
"""Headers whose values are shown. Any other may be a secret: of an `Authorization` nobody would doubt it, but receivers
have their own names for tokens."""


class PushSender:
    """Posts deliveries to their webhooks."""

    def __init__(
        self,
        outbound: Outbound,
        *,
        keys: Sequence[str] = (),
        links: Links | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Post through `outbound`, signed with what the server's `keys` give its receiver, and with its token.

        `links` gives files addresses, for dialects that need some.
        """
        self._outbound = outbound
        self._links = links
        self._keys = tuple(keys)
        self._clock = clock

    def check(self, config: PushConfig) -> None:
        """Raise InvalidParams for a webhook that could never be called: for whoever sets it to know at once."""
        http_headers.check_push_config(config)
        try:
            self._outbound.check(config.url)
        except TargetRefused as refused:
            raise invalid_field("url", str(refused)) from None

    def form(self, dialect: str) -> PushFormat:
        """Return what bodies hold in a dialect, of webhooks that ask for nothing else."""
        return _dialect(dialect).push_format

    async def send(self, delivery: WebhookDelivery) -> Exchange:
        """Deliver, or raise NotDelivered."""
        config, dialect = delivery.config, _dialect(delivery.dialect)
        event, task = delivery.event, delivery.task
        if self._links is not None and dialect.links_files:
            event, task = self._links.linked(event, delivery.tenant), self._links.linked(task, delivery.tenant)
        body = dialect.encode_push(event, task, config.payload_format)
        headers = self._headers(delivery, body) | {"Content-Type": _media_type(dialect, config), **tracing.headers()}
        asked = _shown(headers, body)
        try:
            self.check(config)
            answer = await self._outbound.request(
                "POST", config.url, headers=headers, body=body, max_bytes=MAX_SHOWN, body_seconds=SHOWN_SECONDS
            )
        except (InvalidParams, TargetRefused) as refused:
            raise NotDelivered(str(refused), is_final=True, sent=Exchange(request=asked)) from None
        except HostUnreachable as failure:
            raise NotDelivered(str(failure), sent=Exchange(request=asked)) from None
        sent = Exchange(request=asked, response=_shown(answer.headers, answer.body), status=answer.status)
        if not 200 <= answer.status < 300:
            raise NotDelivered(
                f"The webhook answers {answer.status}",
                is_final=answer.status == GONE,
                retry_after=self._retry_after(answer),
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

    def _retry_after(self, answer: OutboundReply) -> float | None:
        """Return how many seconds the receiver asks to wait: a number, or a date (RFC 9110, 10.2.3)."""
        stated = answer.headers.get("Retry-After", "").strip()
        if stated.isascii() and stated.isdecimal():
            return float(stated)
        try:
            return parsedate_to_datetime(stated).timestamp() - self._clock()
        except (ValueError, OverflowError):
            return None


def _dialect(name: str) -> Dialect:
    """Return the dialect of a webhook; one that was set within the process has none, and gets the model's own."""
    return DIALECTS[DialectName(name) if name else DialectName.V1]


def _media_type(dialect: Dialect, config: PushConfig) -> str:
    return "application/json" if config.payload_format is PushFormat.SIMPLE else dialect.push_media_type


def _shown(headers: Mapping[str, str], body: bytes) -> ExchangeSide:
    """Return what people may see of one side of an exchange."""
    told = {name: value[:200] if name.lower() in OPEN_HEADERS else "***" for name, value in headers.items()}
    return ExchangeSide(headers=told, body=body[:MAX_SHOWN].decode(errors="replace"))
