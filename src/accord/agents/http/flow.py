"""The webhook of a flow: options, request bodies and posts.

Names, defaults and precedence are those of a2a-adapter's n8n adapter, so that its settings can be reused. A mapper
overrides everything else. Next comes a text that is a JSON object, if `parse_json_input` is set. Otherwise the text is
put into one field. Tasks are not accessed here. Their ids are for the log and the Idempotency-Key.
"""

import asyncio
import base64
import logging
import math
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec
from msgspec import UNSET, Meta, Struct, field

from accord.agents.http.responses import (
    FlowResponse,
    UnreadableResponse,
    failure_reason,
    json_value,
    one_line,
    response_reader,
)
from accord.agents.messages import OCTETS, file_parts, media_kind
from accord.api import Failed, text_of, tracing
from accord.api.agent_types import Options, Seconds
from accord.errors import InvalidAgentResponse
from accord.model import Part
from accord.outbound import (
    MAX_BYTES,
    HttpRequest,
    HttpTransport,
    OpenReply,
    Policy,
    TimedOut,
    Unreachable,
    open_transport,
    too_large,
)
from accord.protocol import urls
from accord.protocol.sse import FrameTooLarge
from accord.retries import RetryPolicy


class HttpOptions(Options, frozen=True, kw_only=True):
    """A flow: its URL, its requests and its way of answering.

    In the mode `callback`, the flow only acknowledges a message and reports to its `callbackUrl`; the task is suspended
    meanwhile. `timeout` limits one answer of the flow, or the time between two pieces of a stream. `task_timeout`
    limits the whole task.
    """

    url: str | None = None
    webhook_url: str | None = None
    """Alias of `url`."""

    mode: Literal["answer", "callback"] = "answer"
    timeout: Seconds | None = 30.0
    task_timeout: Seconds | None = None
    headers: dict[str, str] = field(default_factory=dict)
    max_retries: Annotated[int, Meta(ge=0)] = 2
    backoff: Annotated[float, Meta(ge=0)] = 0.25
    max_bytes: Annotated[int, Meta(ge=1)] = MAX_BYTES

    payload_template: dict[str, Any] = field(default_factory=dict)
    message_field: str = "message"
    default_inputs: dict[str, Any] = field(default_factory=dict)
    input_mapper: str | None = None
    parse_json_input: bool = False
    """Use a text that is a JSON object as the flow's input. Off by default, unlike in a2a-adapter.

    A caller's text that happens to be JSON must not become the flow's input unless the operator allows it.
    """

    multimodal_mode: bool = False
    file_field: str = "files"
    image_field: str = "images"
    encode_files_base64: bool = True

    callback_field: str = "callbackUrl"
    callback_url: str | None = None
    """URL where the flow reaches this server's `/api/callbacks`, if it differs from the server's own address."""

    sla_seconds: Annotated[float, Meta(gt=0)] = 1800.0
    """Maximum time without a report before the task is given up as unknown, in seconds, as for remote agents."""

    @property
    def address(self) -> str:
        """URL of the flow."""
        if bool(self.url) == bool(self.webhook_url):
            raise ValueError("url: An HTTP agent needs the address of its webhook, as url or as webhook_url")
        address = self.url or self.webhook_url or ""
        if not urls.is_http_url(address):
            raise ValueError("url: The address of a webhook begins with http:// or https://, and has a host")
        return address

    def __repr__(self) -> str:
        return f"HttpOptions(url={(self.url or self.webhook_url or '').partition('?')[0]!r})"  # the rest may be secret


PLACEHOLDER = re.compile(r"\{\{\s*([A-Za-z]+)\s*\}\}")

NAMES = frozenset({"text", "message", "data", "files", "images", "contextId", "taskId", "messageId", "callbackUrl"})
"""Names that a template may have in double braces; `text` and `message` are the same."""

Mapper = Callable[[str, str | None], Mapping[str, Any]]
"""Makes the payload from a caller's text and the conversation's id."""


class FlowMessage(Struct, frozen=True, kw_only=True):
    """A caller's message with the ids of its conversation and task."""

    parts: tuple[Part, ...]
    context_id: str
    task_id: str
    message_id: str
    callback_url: str | None = None

    @property
    def text(self) -> str:
        """Text of the message."""
        return text_of(self.parts)

    @property
    def data(self) -> Any:
        """First data of the message, or None."""
        return next((part.data for part in self.parts if part.data is not UNSET), None)


class RequestBody(Struct, frozen=True):
    """A request's body and its media type."""

    content: bytes
    media_type: str


def check_template(template: Any) -> None:
    """Raise ValueError for a template with an unknown placeholder."""
    unknown = sorted({name for name in _placeholders(template) if name not in NAMES})
    if unknown:
        raise ValueError(f"payload_template: There is no {{{{{unknown[0]}}}}}; there are {', '.join(sorted(NAMES))}")


def build_body(options: HttpOptions, message: FlowMessage, mapper: Mapper | None = None) -> RequestBody:
    """Return the body: JSON, or a multipart form if files are not sent as base64."""
    payload = _payload(options, message, mapper)
    if file_parts(message.parts) and options.multimodal_mode and not options.encode_files_base64:
        return _form(payload, _group_files(options, message.parts))
    return RequestBody(msgspec.json.encode(payload), "application/json")


def _payload(options: HttpOptions, message: FlowMessage, mapper: Mapper | None) -> dict[str, Any]:
    values = _values(options, message)
    payload: dict[str, Any] = _fill(options.payload_template, values) | options.default_inputs
    parsed = _parse_object(message.text) if options.parse_json_input else None
    if mapper is not None:
        payload |= dict(mapper(message.text, message.context_id))
    elif parsed is not None:
        payload |= parsed
    else:
        _add_message(payload, options, message)
    used = set(_placeholders(options.payload_template))
    if options.multimodal_mode and options.encode_files_base64:
        for name, key in (("files", options.file_field), ("images", options.image_field)):
            if values[name] and name not in used:
                payload[key] = values[name]
    if message.callback_url is not None and "callbackUrl" not in used:
        payload[options.callback_field] = message.callback_url
    return payload


def _add_message(payload: dict[str, Any], options: HttpOptions, message: FlowMessage) -> None:
    """Add the text, the data and the conversation's id, unless a template contains them."""
    used = set(_placeholders(options.payload_template))
    if not used & {"text", "message"}:
        payload[options.message_field] = message.text
    if message.data is not None and "data" not in used:
        payload.setdefault("data", message.data)
    if not options.payload_template:
        payload.setdefault("metadata", {"context_id": message.context_id, "task_id": message.task_id})
    elif "contextId" not in used:
        payload.setdefault("context_id", message.context_id)


def _values(options: HttpOptions, message: FlowMessage) -> dict[str, Any]:
    groups = _group_files(options, message.parts) if options.encode_files_base64 else {}
    return {
        "text": message.text,
        "message": message.text,
        "data": message.data,
        "files": [_file(part) for part in groups.get(options.file_field, ())],
        "images": [_file(part) for part in groups.get(options.image_field, ())],
        "contextId": message.context_id,
        "taskId": message.task_id,
        "messageId": message.message_id,
        "callbackUrl": message.callback_url,
    }


def _group_files(options: HttpOptions, parts: Iterable[Part]) -> dict[str, list[Part]]:
    """Return files by the name of their field."""
    groups: dict[str, list[Part]] = {}
    for part in file_parts(parts):
        groups.setdefault(options.image_field if media_kind(part) == "image" else options.file_field, []).append(part)
    return groups


def _file(part: Part) -> dict[str, Any]:
    """Return a file as JSON; a link is passed on for the flow to fetch."""
    facts = {"name": part.filename or "file", "mime_type": part.media_type or OCTETS}
    if part.url is not None:
        return facts | {"uri": part.url}
    return facts | {"data": base64.b64encode(part.raw or b"").decode()}


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return a text as a JSON object, or None."""
    value = json_value(text.encode(errors="replace")) if text.lstrip().startswith("{") else None
    return value if isinstance(value, dict) else None


# --- templates --------------------------------------------------------------------------------------------------------


def _placeholders(template: Any) -> Iterable[str]:
    if isinstance(template, str):
        yield from PLACEHOLDER.findall(template)
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from _placeholders(value)
    elif isinstance(template, list | tuple):
        for value in template:
            yield from _placeholders(value)


def _fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Return a template with its placeholders replaced; replacements are not expanded again."""
    if isinstance(template, str):
        whole = PLACEHOLDER.fullmatch(template)
        if whole is not None:
            return values[whole[1]]  # as a JSON value, not as text
        return PLACEHOLDER.sub(lambda match: _as_text(values[match[1]]), template)
    if isinstance(template, Mapping):
        return {name: _fill(value, values) for name, value in template.items()}
    if isinstance(template, list | tuple):
        return [_fill(value, values) for value in template]
    return template


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


# --- forms ------------------------------------------------------------------------------------------------------------


def _form(payload: Mapping[str, Any], files: Mapping[str, list[Part]]) -> RequestBody:
    """Return a multipart form (RFC 7578): a field for each key of the payload, and the files unencoded."""
    boundary = uuid4().hex
    pieces: list[bytes] = []
    for name, value in payload.items():
        pieces += (_part_head(boundary, name), _as_text(value).encode())
    for name, parts in files.items():
        for part in parts:
            if part.raw is None:
                pieces += (_part_head(boundary, f"{name}_uri"), (part.url or "").encode())
            else:
                pieces += (_part_head(boundary, name, part.filename or "file", part.media_type or OCTETS), part.raw)
    pieces.append(f"\r\n--{boundary}--\r\n".encode())
    return RequestBody(b"".join(pieces).removeprefix(b"\r\n"), f"multipart/form-data; boundary={boundary}")


def _part_head(boundary: str, name: str, filename: str | None = None, media_type: str | None = None) -> bytes:
    lines = [f"\r\n--{boundary}", f'Content-Disposition: form-data; name="{_quote(name)}"']
    if filename is not None:
        lines[-1] += f'; filename="{_quote(filename)}"'
    if media_type is not None:
        lines.append("Content-Type: " + re.sub(r"[\r\n]", "", media_type))
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _quote(text: str) -> str:
    """Return a name as browsers encode it (WHATWG HTML, multipart/form-data encoding)."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")


# --- posts ------------------------------------------------------------------------------------------------------------

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
        self._url = options.address
        self._retries = RetryPolicy(first_seconds=options.backoff, attempts=options.max_retries + 1, jitter=(1.0, 1.0))
        self._transport: HttpTransport | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._transport is not None:
            await self._transport.close()
            self._transport = None

    @asynccontextmanager
    async def post(self, body: RequestBody, posting: PostedMessage) -> AsyncIterator[AsyncIterator[FlowResponse]]:
        """Post a message and yield the responses as they arrive; raises Failed with a message for the caller."""
        opened = await self._post_accepted(body, posting)
        try:
            async with aclosing(self._answer(opened, posting)) as answer:
                yield answer
        finally:
            await opened.close()

    async def submit(self, body: RequestBody, posting: PostedMessage) -> None:
        """Post a message and ignore the content of the acknowledgement."""
        opened = await self._post_accepted(body, posting)
        try:
            await self._read_start(opened, posting)
        finally:
            await opened.close()

    def _request(self, body: RequestBody, key: str) -> HttpRequest:
        own = {name.lower() for name in self._options.headers}
        always = {"Content-Type": body.media_type, "Accept": ACCEPT, IDEMPOTENCY: key}
        headers = {name: value for name, value in always.items() if name.lower() not in own} | self._options.headers
        return HttpRequest(
            method="POST",
            url=self._url,
            headers=(*headers.items(), *tracing.headers().items()),
            body=body.content,
            seconds=self._options.timeout,
            streams=True,
        )

    async def _post_accepted(self, body: RequestBody, posting: PostedMessage) -> OpenReply:
        """Return a successful response. Retry if the flow could not be reached or failed with a 5xx status."""
        request = self._request(body, posting.key)
        failures = 0
        while True:
            failures += 1
            try:
                opened = await self._open(request)
            except Unreachable as error:
                log.warning(
                    "http.not_answered", extra=self._log_extra(posting, tries=failures, reason=error.reason)
                )  # which contains addresses that callers must not see
                if error.was_sent:
                    in_time = " in time" if isinstance(error, TimedOut) else ""
                    raise DeliveryUnknown(f"The flow did not answer{in_time}") from error
                if self._retries.is_exhausted(failures):
                    raise Failed("The flow could not be reached") from error
            else:
                if 200 <= opened.status < 300:
                    return opened
                refusal = await self._refusal(opened, posting)
                log.warning("http.not_answered", extra=self._log_extra(posting, tries=failures, reason=str(refusal)))
                if opened.status < 500 or self._retries.is_exhausted(failures):
                    raise refusal
            await asyncio.sleep(self._retries.delay(failures))

    async def _open(self, request: HttpRequest) -> OpenReply:
        if self._transport is None:
            seconds = self._options.timeout
            # The operator names the flow, which may be on a private network.
            self._transport = open_transport(
                "aiohttp",
                policy=Policy(allow_private=True),
                max_bytes=self._options.max_bytes,
                # Less than for an answer: without a connection the flow has not received the message.
                connect_seconds=min(CONNECT_SECONDS, (seconds or math.inf) / 2),
                silent_seconds=seconds or 0.0,
            )
        return await self._transport.open(request)

    def _log_extra(self, posting: PostedMessage, **more: object) -> dict[str, object]:
        """Return extra values for the log. The query of the URL is left out, because it may contain a secret."""
        return {"task_id": posting.task_id, "url": self._url.partition("?")[0], **more}

    async def _refusal(self, opened: OpenReply, posting: PostedMessage) -> Failed:
        """Return the flow's error as a failure that callers may see; the log contains the body."""
        body = await self._read_start(opened, posting)
        log.warning("http.refused", extra=self._log_extra(posting, status=opened.status, body=body[:2048]))
        if 300 <= opened.status < 400:
            return Failed(f"The flow is somewhere else: HTTP {opened.status}")
        reason = _reason(body, opened.headers.get("Content-Type", ""))
        verb = "failed" if opened.status >= 500 else "refused the message"
        return Failed(f"The flow {verb}: HTTP {opened.status}{': ' + reason if reason else ''}")

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
                    for response in reads.feed(piece):
                        yield response
            for response in reads.end():
                yield response
        except Unreachable as error:
            log.warning("http.answer_cut", extra=self._log_extra(posting, reason=error.reason))
            raise DeliveryUnknown("The flow's answer was cut off") from error
        except (InvalidAgentResponse, FrameTooLarge) as error:
            raise Failed(f"The flow's answer cannot be taken: {error}") from error
        except UnreadableResponse as error:
            raise Failed(f"The flow's answer cannot be read: {error}") from error

    async def _read_start(self, opened: OpenReply, posting: PostedMessage) -> bytes:
        """Return the first bytes of a body. A body that breaks off is only logged."""
        start = b""
        try:
            async with aclosing(opened.pieces()) as pieces:  # type: ignore[type-var]  # transports give generators
                async for piece in pieces:
                    start += piece
                    if len(start) >= MAX_ERROR_BYTES:
                        break
        except (Unreachable, InvalidAgentResponse) as error:
            log.warning("http.error_cut", extra=self._log_extra(posting, reason=str(error)))
        return start[:MAX_ERROR_BYTES]


def _reason(body: bytes, media_type: str) -> str | None:
    """Return the message in an error's body, or None. It is read from JSON or plain text, not from HTML."""
    kind = media_type.partition(";")[0].strip().lower()
    if kind == "text/plain":
        return one_line(body.decode("utf-8", "replace")) or None
    return failure_reason(json_value(body)) if "json" in kind else None
