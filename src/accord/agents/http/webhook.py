"""Webhook of a flow: post a message, read the answer.

It has no access to tasks; their ids are for the log and the Idempotency-Key.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager

import msgspec
from msgspec import Struct

from accord.agents.http.payload import HttpOptions, RequestBody
from accord.agents.http.responses import FlowResponse, UnreadableResponse, failure_reason, one_line, response_reader
from accord.client import transports
from accord.client.transports import HttpRequest, HttpTransport, OpenReply, TimedOut, Unreachable, too_large
from accord.engine import tracing
from accord.engine.context import Failed
from accord.errors import InvalidAgentResponse
from accord.outbound import Policy
from accord.protocol.sse import FrameTooLarge

IDEMPOTENCY = "Idempotency-Key"
"""Header that is the same in every retry of a message, so that a flow can detect duplicates."""

ACCEPT = "application/json, text/event-stream, application/x-ndjson, text/plain;q=0.9, */*;q=0.5"

CONNECT_SECONDS = 10.0
"""Maximum time to connect, in seconds. A reachable server accepts within one or two."""

MAX_ERROR_BYTES = 16 * 1024
"""Maximum number of bytes read from an error's body."""

log = logging.getLogger("accord.http")


class DeliveryUnknown(Failed):
    """It is unknown whether a flow received the message: it was sent, and there was no response."""


class WebhookAddress(Struct, frozen=True):
    """URL of a flow, shown without its query, which may contain a secret."""

    url: str

    def __str__(self) -> str:
        return self.url.partition("?")[0]


class PostedMessage(Struct, frozen=True):
    """A message of a task, by its number."""

    task_id: str
    number: int

    @property
    def key(self) -> str:
        """Idempotency key of this message."""
        return f"{self.task_id}-{self.number}"


class FlowWebhook:
    """The webhook of one flow."""

    def __init__(self, options: HttpOptions) -> None:
        """Post to the URL of the options; the first message opens the connection."""
        self._options = options
        self._target = WebhookAddress(options.address)
        self._transport: HttpTransport | None = None

    def _connections(self) -> HttpTransport:
        # The operator names the flow, which may be on a private network.
        return transports.choose(
            "aiohttp",
            policy=Policy(allow_private=True),
            max_bytes=self._options.max_bytes,
            # Less than for an answer: without a connection the flow has not received the message.
            connect_seconds=min(CONNECT_SECONDS, (self._options.timeout or math.inf) / 2),
            silent_seconds=self._options.timeout or 0.0,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    def post(
        self, body: RequestBody, posting: PostedMessage
    ) -> AbstractAsyncContextManager[AsyncIterator[FlowResponse]]:
        """Post a message and yield the responses as they arrive; raises Failed with a message for the caller."""
        return self._posted(body, posting)

    async def tell(self, body: RequestBody, posting: PostedMessage) -> None:
        """Post a message and ignore the content of the acknowledgement."""
        opened = await self._accepted(body, posting)
        try:
            await self._beginning(opened, posting)
        finally:
            await opened.close()

    @asynccontextmanager
    async def _posted(self, body: RequestBody, posting: PostedMessage) -> AsyncIterator[AsyncIterator[FlowResponse]]:
        opened = await self._accepted(body, posting)
        try:
            async with aclosing(self._answer(opened, posting)) as answer:
                yield answer
        finally:
            await opened.close()

    def _request(self, body: RequestBody, key: str) -> HttpRequest:
        own = {name.lower() for name in self._options.headers}
        always = {"Content-Type": body.media_type, "Accept": ACCEPT, IDEMPOTENCY: key}
        headers = {name: value for name, value in always.items() if name.lower() not in own} | self._options.headers
        return HttpRequest(
            method="POST",
            url=self._target.url,
            headers=(*headers.items(), *tracing.headers().items()),
            body=body.content,
            seconds=self._options.timeout,
            streams=True,
        )

    async def _accepted(self, body: RequestBody, posting: PostedMessage) -> OpenReply:
        """Return a successful response. Retry if the flow could not be reached or failed with a 5xx status."""
        request = self._request(body, posting.key)
        for tries in range(self._options.max_retries + 1):
            is_last = tries == self._options.max_retries
            try:
                opened = await self._open(request)
            except Unreachable as error:
                log.warning(
                    "http.not_answered", extra=self._about(posting, tries=tries + 1, reason=error.reason)
                )  # which contains addresses that callers must not see
                if error.was_sent:
                    in_time = " in time" if isinstance(error, TimedOut) else ""
                    raise DeliveryUnknown(f"The flow did not answer{in_time}") from error
                if is_last:
                    raise Failed("The flow could not be reached") from error
            else:
                if 200 <= opened.status < 300:
                    return opened
                refusal = await self._refusal(opened, posting)
                log.warning("http.not_answered", extra=self._about(posting, tries=tries + 1, reason=str(refusal)))
                if opened.status < 500 or is_last:
                    raise refusal
            await asyncio.sleep(self._options.backoff * 2.0**tries)
        raise AssertionError("the last try returns or raises")

    async def _open(self, request: HttpRequest) -> OpenReply:
        if self._transport is None:
            self._transport = self._connections()
        return await self._transport.open(request)

    def _about(self, posting: PostedMessage, **more: object) -> dict[str, object]:
        return {"task_id": posting.task_id, "url": str(self._target), **more}

    async def _refusal(self, opened: OpenReply, posting: PostedMessage) -> Failed:
        """Return the flow's error as a failure that callers may see; the log contains the body."""
        body = await self._beginning(opened, posting)
        log.warning("http.refused", extra=self._about(posting, status=opened.status, body=body[:2048]))
        if 300 <= opened.status < 400:
            return Failed(f"The flow is somewhere else: HTTP {opened.status}")
        told = _reason(body, opened.headers.get("Content-Type", ""))
        who = "failed" if opened.status >= 500 else "refused the message"
        return Failed(f"The flow {who}: HTTP {opened.status}{': ' + told if told else ''}")

    async def _answer(self, opened: OpenReply, posting: PostedMessage) -> AsyncGenerator[FlowResponse, None]:
        headers = opened.headers
        reads = response_reader(headers.get("Content-Type", ""), headers.get("Content-Disposition", ""))
        size = 0
        try:
            async with aclosing(opened.pieces()) as pieces:  # type: ignore[type-var]  # transports give generators
                async for piece in pieces:
                    size += len(piece)
                    if size > self._options.max_bytes:
                        raise too_large(self._options.max_bytes)
                    for said in reads.feed(piece):
                        yield said
            for said in reads.end():
                yield said
        except Unreachable as error:
            log.warning("http.answer_cut", extra=self._about(posting, reason=error.reason))
            raise DeliveryUnknown("The flow's answer was cut off") from error
        except (InvalidAgentResponse, FrameTooLarge) as error:
            raise Failed(f"The flow's answer cannot be taken: {error}") from error
        except UnreadableResponse as error:
            raise Failed(f"The flow's answer cannot be read: {error}") from error

    async def _beginning(self, opened: OpenReply, posting: PostedMessage) -> bytes:
        """Return the first bytes of a body. A body that breaks off is only logged."""
        found = b""
        try:
            async with aclosing(opened.pieces()) as pieces:  # type: ignore[type-var]  # transports give generators
                async for piece in pieces:
                    found += piece
                    if len(found) >= MAX_ERROR_BYTES:
                        break
        except (Unreachable, InvalidAgentResponse) as error:
            log.warning("http.error_cut", extra=self._about(posting, reason=str(error)))
        return found[:MAX_ERROR_BYTES]


def _reason(body: bytes, media_type: str) -> str | None:
    """Return the message in an error's body, or None. It is read from JSON or plain text, not from HTML."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "text/plain":
        return one_line(body.decode("utf-8", "replace")) or None
    if "json" not in kind:
        return None
    return failure_reason(_decoded(body))


def _decoded(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
