"""An agent over HTTP: JSON-RPC in any dialect, HTTP+JSON in A2A 1.0 or 0.3.

An operation becomes one request, its reply a result, its event stream events. A link retries nothing. Envelopes and
addresses are here, the content is the dialect's.
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

from accord.client.exchange import AuthDriver, ClientAuth, HttpExchange
from accord.client.retries import error_of_reply
from accord.client.transports import (
    TIMEOUT_SECONDS,
    HttpReply,
    HttpRequest,
    HttpTransport,
    OpenReply,
    StreamBroken,
    StreamEndedEarly,
    Unreachable,
)
from accord.engine.ids import new_id
from accord.errors import (
    AccordError,
    InvalidAgentResponse,
    InvalidParams,
    ParseError,
    RemoteError,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
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
from accord.protocol import jsonrpc
from accord.protocol.dialects import DIALECTS, REST_DIALECTS, Dialect
from accord.protocol.dialects.base import path_from_request, query_from_params
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.lifecycle import ENDED, INTERRUPTED
from accord.protocol.negotiation import DIALECT_HEADER, VERSION_HEADER
from accord.protocol.operations import ROWS, DialectName, Operation, RestRoute, method_name
from accord.protocol.sse import MAX_EVENT_BYTES, Decoder, Frame, FrameTooLarge

STREAM_END_STATES = ENDED | INTERRUPTED
"""States in which A2A ends a stream: nothing more comes until the caller speaks."""

KEEP_ALIVE_EVENTS = frozenset({"ping", "heartbeat", "keepalive", "keep-alive"})
"""Names of events that some servers send only to keep the connection open."""

MAX_DIGITS = 18
"""Digits of an event's number; a longer one is no sequence."""

ReadFrame = Callable[[Frame], EventBody]


class EventStream:
    """The events of one stream, from the bytes it is made of."""

    def __init__(self, read: ReadFrame, *, max_bytes: int = MAX_EVENT_BYTES) -> None:
        """Read events with `read`; one may have `max_bytes`."""
        self.is_numbered = False
        self._read = read
        self._decoder = Decoder(max_bytes=max_bytes)
        self._state: TaskState | None = None
        self._is_answered = self._has_begun = False
        self._count = 0

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Yield the events that some bytes complete; an error that the agent reports is raised in its place."""
        try:
            frames, failure = self._decoder.feed(piece), None
        except FrameTooLarge as error:
            frames, failure = error.frames, error
        for frame in frames:
            if frame.data and frame.event not in KEEP_ALIVE_EVENTS:
                yield self.numbered(self._read(frame), frame.id)
        if failure is not None:
            raise InvalidAgentResponse(f"An event has more than {failure.limit} bytes")

    def cut(self, error: Unreachable) -> None:
        """Raise what cut the stream off, unless nothing is missing: the task has ended."""
        if not self._has_reached(ENDED):
            raise error

    def finish(self) -> None:
        """Raise `Broken` if the stream must not end yet, `EndedEarly` before its first event."""
        if not self._has_reached(STREAM_END_STATES):
            raise (StreamBroken if self._has_begun else StreamEndedEarly)("The stream ended before the task did")

    def numbered(self, body: EventBody, number: str | None) -> Event:
        """Return an event under the agent's own number, or under a running one where it gives none."""
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

VERSION_NAMES: Mapping[DialectName, str] = {DialectName.V1: "1.0", DialectName.V03: "0.3"}
"""What a dialect says as `A2A-Version`; the others have no version of A2A's."""

JSON = ("Content-Type", "application/json")
STREAM = "text/event-stream"


class HttpLink(ABC):
    """One agent over HTTP."""

    binding: ClassVar[str]
    codecs: ClassVar[Mapping[DialectName, Dialect]]
    """The dialects that the binding has, as it speaks them."""

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
        """Talk to the agent at `url`; `headers` go with every request, `extensions` are those to be used."""
        if dialect not in self.codecs:
            raise ValueError(f"There is no {self.binding} in dialect {dialect.value}")
        self.url = url
        self.dialect = dialect
        self.codec = self.codecs[dialect]
        self.resumable = False
        self.seconds = seconds
        self._exchange = HttpExchange(transport, auth)
        stated = tuple(headers.items()) if isinstance(headers, Mapping) else tuple(headers)
        self.headers: Headers = (*version_headers(dialect, extensions), *stated)

    @abstractmethod
    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> HttpRequest:
        """Return the HTTP request of an operation."""

    @abstractmethod
    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Read the body of an answer; an error in it is raised."""

    def streamed(self, frame: Frame) -> EventBody:
        """Read one event of a stream; an error that ends it is raised."""
        return self.codec.decode_streamed(frame)

    @abstractmethod
    def whole_event(self, body: bytes) -> EventBody:
        """Read the body of an answer that should have been a stream; an error in it is raised."""

    @abstractmethod
    def stated_error(self, reply: HttpReply, request: Request) -> AccordError | None:
        """Read the body of an answer that is an error, or return None for one of unknown form."""

    async def ask(self, operation: Operation, request: Request, *, seconds: float | None = None) -> Result:
        """Ask once and return the answer."""
        patience = self.seconds if seconds is None else seconds
        opened = await self._exchange.open(self.outgoing(operation, request, patience))
        body = await opened.read()
        if not 200 <= opened.status < 300:
            raise self._failure(opened, body, request)
        return self.result(operation, body, request)

    async def follow(self, operation: Operation, request: Request, after: int | None = None) -> AsyncIterator[Event]:
        """Ask for a stream and yield its events."""
        outgoing = self.outgoing(operation, request, self.seconds)
        resumed = () if after is None else (("Last-Event-ID", str(after)),)
        others = [pair for pair in outgoing.headers if pair[0] != "Accept"]
        headers = (*others, ("Accept", STREAM), *resumed)
        opened = await self._exchange.open(replace(outgoing, headers=headers, streams=True))
        stream = EventStream(self.streamed)
        if not 200 <= opened.status < 300:
            raise self._failure(opened, await opened.read(), request)
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

    def _failure(self, opened: OpenReply, body: bytes, request: Request) -> AccordError:
        reply = HttpReply(status=opened.status, headers=opened.headers, body=body)
        return error_of_reply(reply, self.stated_error(reply, request))

    async def close(self) -> None:  # noqa: B027 - nothing here is the link's alone, and no subclass needs to say so
        """Do nothing: the transport belongs to whoever gave it."""


def missing_operation(operation: Operation, dialect: DialectName) -> UnsupportedOperation:
    """Return the refusal of an operation that a version of A2A does not have over a binding."""
    return UnsupportedOperation(f"{operation.value} does not exist in dialect {dialect.value}")


def version_headers(dialect: DialectName, extensions: Iterable[str]) -> Headers:
    """Return the headers that say what is spoken: A2A's own, and for a server like ours the dialect itself."""
    version = VERSION_NAMES.get(dialect)
    stated = ", ".join(extensions)
    found = [(VERSION_HEADER, version)] if version else []
    if dialect is not DialectName.V1:
        found.append((DIALECT_HEADER, dialect.value))
    if stated:
        found.append(("a2a-extensions", stated))
        if dialect is not DialectName.V1:
            found.append(("x-a2a-extensions", stated))
    return tuple(found)


KIND_MEMBER = b'"kind"'
"""By which objects of 0.3 say what they are; 1.0 has no such member, though data may have."""


class _Tagged(Struct):
    kind: str


class _TaggedAnswer(Struct):
    result: _Tagged


class JsonRpcLink(HttpLink):
    """One agent over JSON-RPC."""

    binding: ClassVar = "JSONRPC"
    codecs: ClassVar = DIALECTS

    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> HttpRequest:
        """Return the call of an operation."""
        method = method_name(operation, self.dialect)
        if method is None:
            raise missing_operation(operation, self.dialect)
        params = self.codec.encode_request(operation, request)
        body = jsonrpc.request(new_id(), method, params)
        return HttpRequest(method="POST", url=self.url, headers=(JSON, *self.headers), body=body, seconds=seconds)

    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Read the result of an answer, or raise its error."""
        return self.codec.decode_result(operation, self._answer(body), request)

    def streamed(self, frame: Frame) -> EventBody:
        """Read one event of a stream; some servers begin one as 1.0 does and go on in the shapes of 0.3."""
        if self.dialect is DialectName.V1 and KIND_MEMBER in frame.data and _is_tagged(frame.data):
            return DIALECTS[DialectName.V03].decode_streamed(frame)
        return super().streamed(frame)

    def whole_event(self, body: bytes) -> EventBody:
        """Read the result of an answer as the only event."""
        return self.codec.decode_event(Frame(data=self._answer(body)))

    def stated_error(self, reply: HttpReply, request: Request) -> AccordError | None:
        """Read the error object of an answer."""
        try:
            answer = jsonrpc.read_answer(reply.body)
        except (InvalidParams, ParseError):
            return None
        return self.codec.decode_error(answer) if isinstance(answer, ErrorObject) else None

    def _answer(self, body: bytes) -> bytes:
        try:
            answer = jsonrpc.read_answer(body)
        except (InvalidParams, ParseError) as error:
            raise InvalidAgentResponse(f"The answer is not JSON-RPC: {error.message}") from None
        if isinstance(answer, ErrorObject):
            raise self.codec.decode_error(answer)
        return answer


def _is_tagged(data: bytes) -> bool:
    """Whether the result of an answer says what it is, as 0.3 does."""
    try:
        msgspec.json.decode(data, type=_TaggedAnswer)
    except msgspec.MsgspecError:
        return False
    return True


V03_PREFIX = "/v1"


class RestLink(HttpLink):
    """One agent over HTTP+JSON."""

    binding: ClassVar = "HTTP+JSON"
    codecs: ClassVar = REST_DIALECTS

    @cached_property
    def _base(self) -> str:
        """The address below which all others are; some cards of 0.3 already name the version that they begin with."""
        base = self.url.rstrip("/")
        return base.removesuffix(V03_PREFIX) + V03_PREFIX if self.dialect is DialectName.V03 else base

    @cached_property
    def _accepting(self) -> Headers:
        return (("Accept", ", ".join(REST_DIALECTS[self.dialect].media_types)), *self.headers)

    def outgoing(self, operation: Operation, request: Request, seconds: float | None) -> HttpRequest:
        """Return the request of an operation: the address holds what its route names, body or query the rest."""
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
        """Return the prefix that names a tenant, which 1.0 has (11.3)."""
        tenant = request.tenant if self.dialect is DialectName.V1 else None
        return f"/{quote(tenant, safe='')}" if tenant else ""

    def _route(self, operation: Operation) -> RestRoute:
        row = ROWS[operation]
        routes = row.rest if self.dialect is DialectName.V1 else row.rest_v03
        if not routes:
            raise missing_operation(operation, self.dialect)
        return routes[0]

    def result(self, operation: Operation, body: bytes, request: Request) -> Result:
        """Read the body of an answer."""
        return self.codec.decode_result(operation, body, request)

    def whole_event(self, body: bytes) -> EventBody:
        """Read the body of an answer as the only event."""
        return self.codec.decode_event(Frame(data=body))

    def stated_error(self, reply: HttpReply, request: Request) -> AccordError | None:
        """Read the error in an answer; servers that do not say which one mean the task that was named."""
        found = REST_DIALECTS[self.dialect].decode_http_error(reply.body)
        if not isinstance(found, RemoteError):
            return found
        if reply.status == 404 and _names_task(request):
            return TaskNotFound(found.message, metadata=found.metadata)
        if reply.status == 409 and isinstance(request, CancelRequest):
            return TaskNotCancelable(found.message, metadata=found.metadata)
        return found


def _names_task(request: Request) -> bool:
    if isinstance(request, SendRequest):
        return request.message.task_id is not None
    return not isinstance(request, CardRequest | TaskFilter)
