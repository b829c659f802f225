"""An agent over HTTP: JSON-RPC in any dialect, HTTP+JSON in A2A 1.0 or 0.3.

An operation becomes one request, its reply a result, its event stream events. A link retries nothing. This module
has envelopes and addresses. The dialects have the content.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import cached_property
from typing import ClassVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord import errors
from accord.client.exchange import AuthDriver, ClientAuth, HttpExchange, whole_reply
from accord.client.retries import error_of_reply
from accord.engine.ids import new_id
from accord.errors import AccordError
from accord.model import (
    ArtifactUpdate,
    CancelRequest,
    CardRequest,
    Event,
    EventBody,
    Message,
    Request,
    Result,
    SendRequest,
    StatusUpdate,
    Task,
    TaskFilter,
    TaskState,
)
from accord.outbound import (
    TIMEOUT_SECONDS,
    HttpReply,
    HttpRequest,
    HttpTransport,
    StreamBroken,
    StreamEndedEarly,
    Unreachable,
)
from accord.protocol import jsonrpc
from accord.protocol.dialects import DIALECTS, REST_DIALECTS, Dialect
from accord.protocol.dialects.fields import path_from_request, query_from_params
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.negotiation import DIALECT_HEADER, VERSION_HEADER
from accord.protocol.operations import ROWS, DialectName, Operation, RestRoute, method_name
from accord.protocol.sse import MAX_EVENT_BYTES, Decoder, Frame, FrameTooLarge

STREAM_END_STATES = ENDED | INTERRUPTED
"""States in which A2A ends a stream until the caller sends a message."""

KEEP_ALIVE_EVENTS = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
"""Event names that some servers send only to keep the connection open."""

MAX_DIGITS = 18
"""Maximum digits of an event's sequence number. A longer number is ignored."""

ReadFrame = Callable[[Frame], EventBody]


class EventStream:
    """The events of one stream, decoded from its bytes."""

    def __init__(self, read: ReadFrame, *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        """Decode events with `read`, each of at most `max_bytes`."""
        self.is_numbered = False
        self._read = read
        self._decoder = Decoder(max_bytes=max_bytes)
        self._state: TaskState | None = None
        self._is_answered = self._has_begun = False
        self._count = 0

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete. An error event is raised."""
        try:
            frames, failure = self._decoder.feed(piece), None
        except FrameTooLarge as error:
            frames, failure = error.frames, error
        for frame in frames:
            if frame.data and frame.event not in KEEP_ALIVE_EVENTS:
                yield self.numbered(self._read(frame), frame.id)
        if failure is not None:
            raise errors.InvalidAgentResponse(f"An event has more than {failure.limit} bytes")

    def cut(self, error: Unreachable) -> None:
        """Raise the error that cut the stream, unless the task has already ended."""
        if not self._has_reached(ENDED):
            raise error

    def finish(self) -> None:
        """Raise `StreamBroken` if the stream ended too soon, or `StreamEndedEarly` if it had no event."""
        if not self._has_reached(STREAM_END_STATES):
            raise (StreamBroken if self._has_begun else StreamEndedEarly)("The stream ended before the task did")

    def numbered(self, body: EventBody, number: str | None) -> Event:
        """Return an event with the agent's sequence number, or with a running count where it has none."""
        self._has_begun = True
        if type(body) is not ArtifactUpdate:
            self._note(body)
        if number is not None and number.isdecimal() and number.isascii() and len(number) <= MAX_DIGITS:
            self.is_numbered = True
            return Event(seq=int(number), body=body)
        self._count += 1
        return Event(seq=self._count, body=body)

    def _note(self, body: EventBody) -> None:
        if isinstance(body, StatusUpdate | Task):
            self._state = body.status.state
        elif isinstance(body, Message):
            self._is_answered = True

    def _has_reached(self, states: frozenset[TaskState]) -> bool:
        return self._is_answered or self._state in states


Headers = tuple[tuple[str, str], ...]


def header_pairs(headers: Mapping[str, str] | Headers | None) -> Headers:
    """Return headers as pairs."""
    return tuple(headers.items()) if isinstance(headers, Mapping) else headers or ()


VERSION_NAMES: Mapping[DialectName, str] = {DialectName.V1: "1.0", DialectName.V03: "0.3"}
"""Dialect -> its `A2A-Version`. The other dialects have no A2A version."""

JSON = ("Content-Type", "application/json")
STREAM = "text/event-stream"


class HttpLink(ABC):
    """A link to one agent over HTTP."""

    binding: ClassVar[str]
    codecs: ClassVar[Mapping[DialectName, Dialect]]
    """The dialects of the binding, with their codecs."""

    def __init__(
        self,
        transport: HttpTransport,
        url: str,
        dialect: DialectName,
        *,
        auth: ClientAuth | AuthDriver | None = None,
        headers: Mapping[str, str] | Headers = (),
        extensions: Iterable[str] = (),
        seconds: float | None = TIMEOUT_SECONDS,
    ) -> None:
        """Call the agent at `url`. `headers` are sent with every request, `extensions` are the ones to activate."""
        if dialect not in self.codecs:
            raise ValueError(f"There is no {self.binding} in dialect {dialect.value}")
        self.url = url
        self.dialect = dialect
        self.codec = self.codecs[dialect]
        self.resumable = False
        self.seconds = seconds
        self._exchange = HttpExchange(transport, auth)
        self.headers: Headers = (*version_headers(dialect, extensions), *header_pairs(headers))

    @abstractmethod
    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> HttpRequest:
        """Return the HTTP request of an operation."""

    @abstractmethod
    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Decode the body of an answer, or raise its error."""

    def streamed(self, frame: Frame) -> EventBody:
        """Decode one event of a stream, or raise its error."""
        return self.codec.decode_streamed(frame)

    @abstractmethod
    def whole_event(self, body: bytes) -> EventBody:
        """Decode an answer that is not a stream although one was requested, or raise its error."""

    @abstractmethod
    def decode_error_reply(self, reply: HttpReply, request: Request) -> AccordError | None:
        """Decode the error in an answer. Returns None if its form is unknown."""

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Send one request and return the answer."""
        patience = self.seconds if seconds is None else seconds
        reply = await self._exchange.fetch(self.outgoing(operation, request, patience))
        if not 200 <= reply.status < 300:
            raise error_of_reply(reply, self.decode_error_reply(reply, request))
        return self.result(operation, reply.body, request)

    async def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Open a stream and yield its events."""
        outgoing = self.outgoing(operation, request, self.seconds)
        resumed = () if after is None else (("Last-Event-ID", str(after)),)
        others = [pair for pair in outgoing.headers if pair[0] != "Accept"]
        headers = (*others, ("Accept", STREAM), *resumed)
        opened = await self._exchange.open(replace(outgoing, headers=headers, streams=True))
        stream = EventStream(self.streamed)
        if not 200 <= opened.status < 300:
            reply = await whole_reply(opened)
            raise error_of_reply(reply, self.decode_error_reply(reply, request))
        if not opened.headers.get("content-type", "").lower().startswith(STREAM):
            yield stream.numbered(self.whole_event(await opened.read()), None)
            return
        try:
            async with aclosing(opened.pieces()) as pieces:  # type: ignore[type-var]  # a generator in every transport
                async for piece in pieces:
                    for event in stream.feed(piece):
                        self.resumable = stream.is_numbered
                        yield event
        except Unreachable as error:
            stream.cut(error)
        else:
            stream.finish()

    async def close(self) -> None:  # noqa: B027 - no subclass needs to say so
        """Do nothing: the caller owns the transport."""


def missing_operation(operation: Operation, dialect: DialectName) -> errors.UnsupportedOperation:
    """Return the refusal of an operation that a dialect lacks in a binding."""
    return errors.UnsupportedOperation(f"{operation.value} does not exist in dialect {dialect.value}")


def version_headers(dialect: DialectName, extensions: Iterable[str]) -> Headers:
    """Return the headers that state the version: A2A's own, and the dialect for an Accord server."""
    version = VERSION_NAMES.get(dialect)
    names = ", ".join(extensions)
    headers = [(VERSION_HEADER, version)] if version else []
    if dialect is not DialectName.V1:
        headers.append((DIALECT_HEADER, dialect.value))
    if names:
        headers.append(("a2a-extensions", names))
        if dialect is not DialectName.V1:
            headers.append(("x-a2a-extensions", names))
    return tuple(headers)


KIND_MEMBER = b'"kind"'
"""Objects of 0.3 have this member, which names their type. 1.0 has none, though data may."""


class _Tagged(Struct):
    kind: str


class _TaggedAnswer(Struct):
    result: _Tagged


class JsonRpcLink(HttpLink):
    """A link to one agent over JSON-RPC."""

    binding: ClassVar = "JSONRPC"
    codecs: ClassVar = DIALECTS

    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> HttpRequest:
        """Return the JSON-RPC call of an operation."""
        method = method_name(operation, self.dialect)
        if method is None:
            raise missing_operation(operation, self.dialect)
        params = self.codec.encode_request(operation, request)
        body = jsonrpc.request(new_id(), method, params)
        return HttpRequest(method="POST", url=self.url, headers=(JSON, *self.headers), body=body, seconds=seconds)

    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Decode the result of an answer, or raise its error."""
        return self.codec.decode_result(operation, self._answer(body), request)

    def streamed(self, frame: Frame) -> EventBody:
        """Decode one event of a stream. Some servers start a stream in 1.0 and continue it in the form of 0.3."""
        if self.dialect is DialectName.V1 and KIND_MEMBER in frame.data and _is_tagged(frame.data):
            return DIALECTS[DialectName.V03].decode_streamed(frame)
        return super().streamed(frame)

    def whole_event(self, body: bytes) -> EventBody:
        """Decode the result of an answer as the only event."""
        return self.codec.decode_event(Frame(data=self._answer(body)))

    def decode_error_reply(self, reply: HttpReply, request: Request) -> AccordError | None:
        """Decode the error object of an answer."""
        try:
            answer = jsonrpc.read_answer(reply.body)
        except (errors.InvalidParams, errors.ParseError):
            return None
        return self.codec.decode_error(answer) if isinstance(answer, ErrorObject) else None

    def _answer(self, body: bytes) -> bytes:
        try:
            answer = jsonrpc.read_answer(body)
        except (errors.InvalidParams, errors.ParseError) as error:
            raise errors.InvalidAgentResponse(f"The answer is not JSON-RPC: {error.message}") from None
        if isinstance(answer, ErrorObject):
            raise self.codec.decode_error(answer)
        return answer


def _is_tagged(data: bytes) -> bool:
    """Whether the result of an answer has a `kind`, as in 0.3."""
    try:
        msgspec.json.decode(data, type=_TaggedAnswer)
    except msgspec.MsgspecError:
        return False
    return True


V03_PREFIX = "/v1"


class RestLink(HttpLink):
    """A link to one agent over HTTP+JSON."""

    binding: ClassVar = "HTTP+JSON"
    codecs: ClassVar = REST_DIALECTS

    @cached_property
    def _base(self) -> str:
        """The base address of all routes. Some cards of 0.3 already include its version prefix."""
        base = self.url.rstrip("/")
        return base.removesuffix(V03_PREFIX) + V03_PREFIX if self.dialect is DialectName.V03 else base

    @cached_property
    def _accepting(self) -> Headers:
        return (("Accept", ", ".join(REST_DIALECTS[self.dialect].media_types)), *self.headers)

    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> HttpRequest:
        """Return the HTTP request of an operation: path parameters in the address, the others in body or query."""
        route = self._route(operation)
        params = self.codec.encode_request(operation, request)
        url = self._base + self._tenant(request) + path_from_request(route, request)
        if route.verb == "POST":
            return HttpRequest(method="POST", url=url, headers=(JSON, *self._accepting), body=params, seconds=seconds)
        query = urlencode(query_from_params(route, params))
        return HttpRequest(
            method=route.verb, url=f"{url}?{query}" if query else url, headers=self._accepting, seconds=seconds
        )

    def _tenant(self, request: Request) -> str:
        """Return the path prefix that names a tenant, which only 1.0 has (11.3)."""
        tenant = request.tenant if self.dialect is DialectName.V1 else None
        return f"/{quote(tenant, safe='')}" if tenant else ""

    def _route(self, operation: Operation) -> RestRoute:
        row = ROWS[operation]
        routes = row.rest if self.dialect is DialectName.V1 else row.rest_v03
        if not routes:
            raise missing_operation(operation, self.dialect)
        return routes[0]

    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Decode the body of an answer."""
        return self.codec.decode_result(operation, body, request)

    def whole_event(self, body: bytes) -> EventBody:
        """Decode the body of an answer as the only event."""
        return self.codec.decode_event(Frame(data=body))

    def decode_error_reply(self, reply: HttpReply, request: Request) -> AccordError | None:
        """Decode the error in an answer. An unnamed 404 or 409 refers to the requested task."""
        error = REST_DIALECTS[self.dialect].decode_http_error(reply.body)
        if not isinstance(error, errors.RemoteError):
            return error
        if reply.status == 404 and _names_task(request):
            return errors.TaskNotFound(error.message, metadata=error.metadata)
        if reply.status == 409 and isinstance(request, CancelRequest):
            return errors.TaskNotCancelable(error.message, metadata=error.metadata)
        return error


def _names_task(request: Request) -> bool:
    if isinstance(request, SendRequest):
        return request.message.task_id is not None
    return not isinstance(request, CardRequest | TaskFilter)
