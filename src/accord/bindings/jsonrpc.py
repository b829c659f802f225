"""The JSON-RPC binding: one HTTP body in, one answer or one event stream out, in the caller's dialect.

It knows framing only: `protocol.negotiate` finds the dialect, the dialect decodes and encodes, the service does the
work.
Every refusal is a JSON-RPC error object; the HTTP status is 200 but for those that `errors.TABLE` says otherwise.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from msgspec import Struct

from accord.bindings.http import JSON, ClientGone, Headers, Receive, Scope, Send, header, query, read_body, respond
from accord.core.interface import A2A, Caller
from accord.errors import AccordError, InternalError, InvalidRequest, UnsupportedMediaType
from accord.model import Event
from accord.protocol import jsonrpc, sse
from accord.protocol.dialects import DIALECTS
from accord.protocol.dialects.base import Dialect
from accord.protocol.jsonrpc import Batch, Call, Entry, Rejected
from accord.protocol.negotiate import (
    ALL_DIALECTS,
    DIALECT_HEADER,
    VERSION_HEADER,
    Inquiry,
    Rejection,
    Route,
    answer_dialect,
    negotiate,
)
from accord.protocol.operations import ROWS, DialectName, Operation
from accord.protocol.sse import Frame

log = logging.getLogger("accord.jsonrpc")

EVENT_STREAM: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class Answer(Struct, frozen=True):
    """One finished answer; an empty body answers a notification."""

    body: bytes
    dialect: DialectName
    status: int = 200
    retry_after: int | None = None


class Understood(Struct, frozen=True):
    """A call with its route settled."""

    call: Call
    route: Route

    @property
    def dialect(self) -> Dialect:
        """The codec to answer with."""
        return DIALECTS[self.route.dialect]


class JsonRpc:
    """An ASGI application that answers POST requests on one path."""

    def __init__(
        self,
        service: A2A,
        *,
        origin: Callable[[str], Awaitable[str | None]] | None = None,
        enabled: frozenset[DialectName] = ALL_DIALECTS,
    ) -> None:
        """Serve `service`; `origin` looks up the dialect that a task was created in."""
        self._origin = origin
        self._enabled = enabled
        self._answering: dict[Operation, Callable[[Any, Caller], Awaitable[Any]]] = {
            Operation.SEND: service.send,
            Operation.GET: service.get,
            Operation.LIST: service.list,
            Operation.CANCEL: service.cancel,
            Operation.PUSH_SET: service.push_set,
            Operation.PUSH_GET: service.push_get,
            Operation.PUSH_LIST: service.push_list,
            Operation.PUSH_DELETE: service.push_delete,
            Operation.EXTENDED_CARD: service.extended_card,
        }
        self._streaming: dict[Operation, Callable[[Any, Caller], AsyncIterator[Event]]] = {
            Operation.STREAM: service.stream,
            Operation.SUBSCRIBE: service.subscribe,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] != "POST":
            await respond(send, 405, b"", [(b"allow", b"POST")])
            return
        try:
            entry = await self._read(scope, receive)
        except ClientGone:
            return
        if isinstance(entry, Batch):
            await self._answer_batch(scope, entry, send)
            return
        understood = await self._understand(scope, entry)
        if isinstance(understood, Understood) and ROWS[understood.route.operation].streams:
            await self._stream(understood, receive, send)
            return
        await _write(send, understood if isinstance(understood, Answer) else await self._answer(understood))

    async def _read(self, scope: Scope, receive: Receive) -> Entry | Batch:
        media_type = (header(scope, b"content-type") or "").partition(";")[0].strip().lower()
        try:
            body = await read_body(receive)
            if media_type != "application/json":
                stated = f"not {media_type[:60]}" if media_type else "and the request has none"
                raise UnsupportedMediaType(f"Content-Type must be application/json, {stated}")
        except AccordError as error:
            return Rejected(error)
        return jsonrpc.decode(body)

    async def _understand(self, scope: Scope, entry: Entry) -> Understood | Answer:
        version = header(scope, VERSION_HEADER.encode()) or query(scope, "A2A-Version")
        wished = header(scope, DIALECT_HEADER.encode()) or query(scope, "dialect")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if isinstance(entry, Rejected):
            return _failure(entry.id, entry.error, answer_dialect(path, wished, version))
        inquiry = Inquiry(
            method=entry.method,
            params=entry.params,
            path=path,
            dialect=wished,
            version=version,
            enabled=self._enabled,
        )
        route = negotiate(inquiry)
        if isinstance(route, Rejection):
            return _failure(entry.id, route.error, route.dialect)
        try:
            origin = await self._origin(route.ask_task) if route.ask_task and self._origin else None
        except AccordError as error:
            return _failure(entry.id, error, route.dialect)
        return Understood(entry, route.settle(DialectName(origin)) if origin else route)

    async def _answer(self, understood: Understood) -> Answer:
        call, name, operation = understood.call, understood.route.dialect, understood.route.operation
        dialect = understood.dialect
        try:
            request = dialect.decode_request(operation, call.params)
            result = await self._answering[operation](request, Caller(origin=name.value))
            return Answer(
                _unless_notification(call, jsonrpc.success(call.id, dialect.encode_result(operation, result))), name
            )
        except AccordError as error:
            stated = dialect.error_as_result(operation, error)
            if stated is not None:
                return Answer(_unless_notification(call, jsonrpc.success(call.id, stated)), name)
            return _failure(call.id, error, name)
        except Exception:  # whatever it is, the caller learns nothing of it and the log everything
            log.exception("request failed", extra={"method": call.method})
            return _failure(call.id, InternalError(), name)

    async def _answer_batch(self, scope: Scope, entries: Batch, send: Send) -> None:
        answers: list[Answer] = []
        for entry in entries.entries:
            understood = await self._understand(scope, entry)
            if isinstance(understood, Understood) and ROWS[understood.route.operation].streams:
                refused = InvalidRequest("A stream cannot be part of a batch")
                understood = _failure(understood.call.id, refused, understood.route.dialect)
            answer = understood if isinstance(understood, Answer) else await self._answer(understood)
            if answer.body:
                answers.append(answer)
        if not answers:
            await respond(send, 204, b"")
            return
        spoken = {answer.dialect for answer in answers}
        said = [(DIALECT_HEADER.encode(), name.value.encode()) for name in spoken] if len(spoken) == 1 else []
        await respond(send, 200, jsonrpc.batch([answer.body for answer in answers]), [*JSON, *said])

    # --- streams --------------------------------------------------------------------------------------------------

    async def _stream(self, understood: Understood, receive: Receive, send: Send) -> None:
        call, name, operation = understood.call, understood.route.dialect, understood.route.operation
        try:
            request = understood.dialect.decode_request(operation, call.params)
            events = self._streaming[operation](request, Caller(origin=name.value))
            first = await anext(events)
        except AccordError as error:
            await _write(send, _failure(call.id, error, name))
            return
        except Exception:  # as in _answer
            log.exception("stream failed", extra={"method": call.method})
            await _write(send, _failure(call.id, InternalError(), name))
            return
        if call.is_notification:
            await _write(send, Answer(b"", name))
            return
        headers = [*EVENT_STREAM, (DIALECT_HEADER.encode(), name.value.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        writer = asyncio.ensure_future(_write_events(understood, first, events, send))
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait({writer, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            writer.cancel()
            await asyncio.gather(writer, gone, return_exceptions=True)  # what went wrong has been logged


async def _write_events(understood: Understood, first: Event, rest: AsyncIterator[Event], send: Send) -> None:
    async with aclosing(rest) as events:  # type: ignore[type-var]  # every service stream is an async generator
        try:
            await _write_event(understood, first, send)
            async for event in events:
                await _write_event(understood, event, send)
        except Exception:  # the status is sent: the error can only be an event
            log.exception("stream broke", extra={"method": understood.call.method})
            await _write_stream_error(understood, send)
    await send({"type": "http.response.body", "body": b""})


async def _write_event(understood: Understood, event: Event, send: Send) -> None:
    frame = understood.dialect.encode_event(event)
    if frame is None:
        return
    data = jsonrpc.success(understood.call.id, frame.data) if understood.dialect.wraps_events else frame.data
    written = sse.encode(Frame(id=str(event.seq), event=frame.event, data=data))
    await send({"type": "http.response.body", "body": written, "more_body": True})


async def _write_stream_error(understood: Understood, send: Send) -> None:
    dialect, error = understood.dialect, InternalError()
    if dialect.wraps_events:
        frame = Frame(data=jsonrpc.failure(understood.call.id, dialect.encode_error(error)))
    else:
        frame = dialect.encode_stream_error(error)
    await send({"type": "http.response.body", "body": sse.encode(frame), "more_body": True})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _unless_notification(call: Call, body: bytes) -> bytes:
    return b"" if call.is_notification else body


def _failure(identifier: bytes, error: AccordError, name: DialectName) -> Answer:
    if identifier == jsonrpc.NO_ID:
        return Answer(b"", name)
    body = jsonrpc.failure(identifier, DIALECTS[name].encode_error(error))
    return Answer(body, name, error.row.rpc_http, error.retry_after)


async def _write(send: Send, answer: Answer) -> None:
    headers = [(DIALECT_HEADER.encode(), answer.dialect.value.encode())]
    if answer.retry_after is not None:
        headers.append((b"retry-after", b"%d" % answer.retry_after))
    if not answer.body:
        await respond(send, 204, b"", headers)
        return
    await respond(send, answer.status, answer.body, [*JSON, *headers])
