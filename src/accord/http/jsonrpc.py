"""The JSON-RPC binding: one HTTP body in, one response or event stream out.

`protocol.negotiation` finds the dialect, the dialect decodes and encodes, the service executes. Every refusal is a
JSON-RPC error object. The HTTP status is 200 unless `errors.TABLE` defines another.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import ExitStack, aclosing
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import A2A, Call, Caller, Handler, handler_of
from accord.auth.authentication import Access, ExpiringCache
from accord.auth.rate_limits import Quotas
from accord.errors import AccordError, InternalError, InvalidRequest, UnsupportedMediaType
from accord.http import cards
from accord.http.asgi import (
    IDEMPOTENCY_HEADER,
    JSON,
    LONG_OPERATIONS,
    QUOTAS,
    Admit,
    Headers,
    Receive,
    Scope,
    Send,
    activated_extensions,
    await_unless_gone,
    check_head,
    declared_extensions,
    error_headers,
    headers_of,
    presented,
    query,
    respond,
    shutdown_refusal,
)
from accord.http.files import FileLinks, large_file_linker
from accord.http.request_bodies import SMALL_BODY, read_request
from accord.http.response_bodies import PIECE, RESPONSE_BODIES, ClientGone, account_of
from accord.http.sse import (
    NO_ENVELOPE,
    STREAM_HEADERS,
    LargeEvent,
    SseWriter,
    encode_frame,
    last_event_id,
)
from accord.model import AgentCard, Event, Request
from accord.protocol import jsonrpc, sse
from accord.protocol.dialects import BY_MEMBER, DIALECTS
from accord.protocol.dialects.base import Dialect
from accord.protocol.jsonrpc import Batch, Entry, Rejected, RpcCall
from accord.protocol.negotiation import (
    ALL_DIALECTS,
    DIALECT_HEADER,
    VERSION_HEADER,
    DialectRoute,
    Inquiry,
    Rejection,
    answer_dialect,
    negotiate,
)
from accord.protocol.operations import ROWS, SENDS, DialectName
from accord.protocol.sse import Frame

log = logging.getLogger("accord.jsonrpc")

BINDING = "jsonrpc"

MAX_REMEMBERED_CALLERS, DAY_SECONDS = 10_000, 86_400.0
"""Number of callers, and seconds, for which their last dialect is remembered. It is the guess for an unknown task."""

_DIALECT, _VERSION = DIALECT_HEADER.encode(), VERSION_HEADER.encode()
_NAMES = {name: name.value for name in DialectName}
_DIALECT_HEADERS = {name: (_DIALECT, name.value.encode()) for name in DialectName}

_TEXT: Headers = [(b"content-type", b"text/plain; charset=utf-8")]
_ONLY_POST = b"Messages are sent here with POST, as JSON-RPC; /.well-known/agent-card.json says how\n"

LinkFiles = Callable[[Any], Any]
"""Replaces files by URLs, in a result or an event."""

FindOrigin = Callable[[str, Caller], Awaitable[str | None]]
"""Looks up the dialect that a caller's task was created in."""


class JsonRpcReply(Struct, frozen=True):
    """One finished response. The body is empty for a notification, whose errors only the HTTP status reports."""

    body: bytes
    dialect: DialectName
    status: int = 200
    headers: Headers = []


class JsonRpcRequest(Struct, frozen=True):
    """The data of one HTTP request besides its entries."""

    scope: Scope
    body: bytes
    version: str | None
    wished: str | None
    path: str
    caller: Caller | None = None
    """The caller, where already authenticated."""

    key: str | None = None
    """The idempotency key. In a batch it ends with the call's position."""


class RoutedCall(Struct, frozen=True):
    """A call with its dialect, its caller and the headers of its response."""

    call: RpcCall
    route: DialectRoute
    caller: Caller
    headers: Headers
    scope: Scope
    dialect: Dialect
    """The codec of the response."""


class JsonRpcBinding:
    """An ASGI application that answers POST requests on one path."""

    def __init__(
        self,
        service: A2A | Handler,
        *,
        origin: FindOrigin | None = None,
        enabled: frozenset[DialectName] = ALL_DIALECTS,
        admit: Admit | None = None,
        extensions: frozenset[str] = frozenset(),
        quotas: Quotas = QUOTAS,
        links: FileLinks | None = None,
        agent: str = "",
    ) -> None:
        """Serve `service` to callers that `admit` authenticates; `origin` looks up the dialect that created a task.

        `extensions` are those of the agent's card. `links` replaces files by URLs, for dialects that need it. `agent`
        is the agent's name in errors.
        """
        self._agent = agent
        self._links = links
        self._extensions = extensions
        self._quotas = quotas
        self._origin = origin
        self._enabled = enabled
        self._spoken: ExpiringCache[tuple[str | None, str], DialectName] = ExpiringCache(
            MAX_REMEMBERED_CALLERS, DAY_SECONDS, time.monotonic
        )
        self._admit = admit or Access().admit
        self._handler = handler_of(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] != "POST":
            is_head = scope["method"] == "HEAD"
            await respond(send, 405, _ONLY_POST, [(b"allow", b"POST"), *_TEXT], head=is_head)
            return
        try:
            asked, entry = await self._read(scope, receive)
            try:
                if isinstance(entry, Batch):
                    await await_unless_gone(receive, self._answer_batch(asked, entry, send))
                    return
                understood = await self._understand(asked, entry)
                if isinstance(understood, JsonRpcReply):
                    await _write(send, understood)
                elif ROWS[understood.route.operation].streams:
                    await self._stream(understood, scope, receive, send)
                else:
                    answer = self._answer(understood)
                    is_long = understood.route.operation in LONG_OPERATIONS
                    await self._write(
                        send, understood, await (await_unless_gone(receive, answer) if is_long else answer)
                    )
            except asyncio.CancelledError:
                if (refusal := shutdown_refusal(scope)) is None:
                    raise
                await _write(send, self._refused(asked, entry, refusal))
        except ClientGone:
            return

    async def _read(self, scope: Scope, receive: Receive) -> tuple[JsonRpcRequest, Entry | Batch]:
        given = headers_of(scope)
        version: str | None = given.get(_VERSION, b"").decode("latin-1")
        wished: str | None = given.get(_DIALECT, b"").decode("latin-1")
        if scope.get("query_string"):
            version, wished = version or query(scope, "A2A-Version"), wished or query(scope, "dialect")
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        media_type = given.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        key = None if IDEMPOTENCY_HEADER not in given else given[IDEMPOTENCY_HEADER].decode("latin-1") or None
        body, caller = b"", None
        try:
            check_head(scope, self._quotas)
            caller, body = await read_request(scope, receive, self._admit, self._quotas)
            if media_type != "application/json":
                stated = f"not {media_type[:60]}" if media_type else "and the request has none"
                raise UnsupportedMediaType(f"Content-Type must be application/json, {stated}")
            if caller is None and len(body) > SMALL_BODY:  # decoding takes time, so authenticate first
                caller = await self._admit(presented(scope, body))
        except asyncio.CancelledError:
            if (refusal := shutdown_refusal(scope)) is None:
                raise
            return JsonRpcRequest(scope, body, version, wished, path), Rejected(refusal)
        except AccordError as error:
            return JsonRpcRequest(scope, body, version, wished, path), Rejected(error)
        return JsonRpcRequest(scope, body, version, wished, path, caller, key), jsonrpc.decode(body)

    async def _understand(self, asked: JsonRpcRequest, entry: Entry) -> RoutedCall | JsonRpcReply:
        if isinstance(entry, Rejected):
            return self._refused(asked, entry, entry.error)
        route = self._route(asked, entry)
        try:
            caller = asked.caller or await self._admit(presented(asked.scope, asked.body))
            if isinstance(route, Rejection):
                return self._failure(entry.id, route.error, route.dialect)
            if route.ask_task and self._origin:
                origin = await self._origin(route.ask_task, caller)
                route = route.settle(DialectName(origin) if origin else None, self._spoken.get(caller.account))
            elif caller.owner and route.operation in SENDS:  # sending shows which dialect a caller speaks
                self._spoken.put(caller.account, route.dialect)
        except AccordError as error:
            return self._failure(entry.id, error, route.dialect)
        dialect = BY_MEMBER if route.by_member else DIALECTS[route.dialect]
        scope, extensions = asked.scope, declared_extensions(asked.scope)
        known = replace(
            caller,
            origin=_NAMES[route.dialect],
            binding=BINDING,
            extensions=extensions,
            idempotency_key=asked.key,
            wants_task=not dialect.knows_messages(entry.method),
            files_at=None if self._links is None else cards.request_origin(scope) or "",
        )
        return RoutedCall(
            entry, route, known, activated_extensions(scope, self._extensions & extensions), scope, dialect
        )

    def _route(self, asked: JsonRpcRequest, call: RpcCall) -> DialectRoute | Rejection:
        inquiry = Inquiry(
            method=call.method,
            params=call.params,
            path=asked.path,
            dialect=asked.wished,
            version=asked.version,
            enabled=self._enabled,
        )
        return negotiate(inquiry)

    def _refused(self, asked: JsonRpcRequest, entry: Entry | Batch, error: AccordError) -> JsonRpcReply:
        if isinstance(entry, RpcCall):
            return self._failure(entry.id, error, self._route(asked, entry).dialect)
        identifier = entry.id if isinstance(entry, Rejected) else jsonrpc.NULL_ID
        return self._failure(identifier, error, answer_dialect(asked.path, asked.wished, asked.version))

    async def _answer(self, understood: RoutedCall) -> JsonRpcReply:
        call, name, operation = understood.call, understood.route.dialect, understood.route.operation
        dialect = understood.dialect
        try:
            request = dialect.decode_request(operation, call.params)
            result = await self._handler.handle(Call(operation, request, understood.caller))
            if isinstance(result, AgentCard):
                result = cards.card_at_origin(result, cards.request_origin(understood.scope))
            if understood.dialect.links_files and self._links is not None:
                result = self._linking(understood, request)(result)
            encoded = dialect.encode_result(operation, result)
            if len(encoded) > self._quotas.inline_files:
                shorten = large_file_linker(self._links, request, understood.caller, self._quotas.inline_files)
                encoded = dialect.encode_result(operation, shorten(result))
            body = _success(call, encoded)
            return JsonRpcReply(body, name, headers=understood.headers)
        except AccordError as error:
            stated = dialect.error_as_result(operation, error)
            if stated is not None:
                return JsonRpcReply(_success(call, stated), name)
            return self._failure(call.id, error, name)
        except Exception:  # the caller gets no detail of it, the log everything
            log.exception("request.failed", extra={"method": call.method})
            return self._failure(call.id, InternalError(), name)

    async def _write(self, send: Send, understood: RoutedCall, answer: JsonRpcReply) -> None:
        """Write a response, or an error if it is too large at present."""
        try:
            await _write(send, answer, account_of(understood.caller), self._quotas)
        except AccordError as error:
            await _write(send, self._failure(understood.call.id, error, understood.route.dialect))

    async def _answer_batch(self, asked: JsonRpcRequest, entries: Batch, send: Send) -> None:
        try:  # one request has one sender, whose signature is valid for one request
            caller = asked.caller or await self._admit(presented(asked.scope, asked.body))
        except AccordError as error:
            await _write(send, self._refused(asked, entries, error))
            return
        asked, answers, key = replace(asked, caller=caller), list[JsonRpcReply](), asked.key
        with ExitStack() as held:  # the responses of a batch are held until all are complete
            for position, entry in enumerate(entries.entries):
                answer = await self._answer_entry(
                    asked if key is None else replace(asked, key=f"{key}[{position}]"), entry
                )
                if len(answer.body) > PIECE:
                    try:
                        held.enter_context(
                            RESPONSE_BODIES.hold(answer.body, account_of(caller), self._quotas, is_written=False)
                        )
                    except AccordError as error:
                        answer = self._failure(entry.id, error, answer.dialect)
                if answer.body:
                    answers.append(answer)
        if not answers:
            await respond(send, 204, b"")
            return
        spoken = {answer.dialect for answer in answers}
        said = [_DIALECT_HEADERS[name] for name in spoken] if len(spoken) == 1 else []
        used = activated_extensions(asked.scope, self._extensions & declared_extensions(asked.scope))
        whole = jsonrpc.batch([answer.body for answer in answers])
        try:
            await respond(send, 200, whole, [*JSON, *said, *used], account=account_of(caller), quotas=self._quotas)
        except AccordError as error:
            await _write(send, self._refused(asked, entries, error))

    async def _answer_entry(self, asked: JsonRpcRequest, entry: Entry) -> JsonRpcReply:
        understood = await self._understand(asked, entry)
        if isinstance(understood, RoutedCall) and ROWS[understood.route.operation].streams:
            refused = InvalidRequest("A stream cannot be part of a batch")
            return self._failure(understood.call.id, refused, understood.route.dialect)
        return understood if isinstance(understood, JsonRpcReply) else await self._answer(understood)

    # --- streams --------------------------------------------------------------------------------------------------

    async def _stream(self, understood: RoutedCall, scope: Scope, receive: Receive, send: Send) -> None:
        call, name, operation = understood.call, understood.route.dialect, understood.route.operation
        try:
            request = understood.dialect.decode_request(operation, call.params)
            after = last_event_id(scope)
            if after is None and operation in understood.dialect.replays:
                after = 0
            pending = self._handler.follow(Call(operation, request, understood.caller, after))
            stream = await await_unless_gone(receive, pending)
        except AccordError as error:
            await self._write_refusal(send, understood, error, scope)
            return
        except ClientGone:
            return
        except Exception:  # as in _answer
            log.exception("stream.failed", extra={"method": call.method})
            await self._write_refusal(send, understood, InternalError(), scope)
            return
        if call.is_notification:
            async with aclosing(stream):
                await _write(send, JsonRpcReply(b"", name))
            return
        dialect, most = understood.dialect, self._quotas.inline_files
        linking = self._linking(understood, request) if dialect.links_files and self._links is not None else None
        shorten = large_file_linker(self._links, request, understood.caller, most)
        envelope = jsonrpc.around(call.id) if dialect.wraps_events else NO_ENVELOPE
        encode_event = partial(_encode_event, dialect, envelope, linking, shorten, most)
        broke, account = partial(self._stream_error, understood), account_of(understood.caller)
        writer = SseWriter(send, encode_event, broke, account=account, quotas=self._quotas)
        try:
            await writer.run(stream, receive, [_DIALECT_HEADERS[name], *understood.headers])
        except AccordError as error:  # too many of the caller's requested bytes are unread
            await self._write_refusal(send, understood, error, scope)

    # --- refusals -----------------------------------------------------------------------------------------------------

    def _failure(self, identifier: bytes, error: AccordError, name: DialectName) -> JsonRpcReply:
        """Return the error of a call; a notification gets no response, even on failure (JSON-RPC 2.0, 4.1)."""
        is_unanswered = identifier == jsonrpc.NO_ID
        body = b"" if is_unanswered else jsonrpc.failure(identifier, DIALECTS[name].encode_error(error, self._agent))
        return JsonRpcReply(body, name, error.row.rpc_http, error_headers(error))

    async def _write_refusal(self, send: Send, understood: RoutedCall, error: AccordError, scope: Scope) -> None:
        """Refuse a stream, by an event if the dialect and the caller's `Accept` require it and the status is 200."""
        answer = self._failure(understood.call.id, error, understood.route.dialect)
        if understood.dialect.refuses_by_event and _wants_events(scope) and answer.status == 200 and answer.body:
            await respond(
                send, 200, sse.encode(Frame(data=answer.body)), [*STREAM_HEADERS, _DIALECT_HEADERS[answer.dialect]]
            )
        else:
            await _write(send, answer)

    def _stream_error(self, understood: RoutedCall, error: AccordError) -> bytes:
        dialect = understood.dialect
        if dialect.wraps_events:
            return sse.encode(Frame(data=jsonrpc.failure(understood.call.id, dialect.encode_error(error, self._agent))))
        return sse.encode(dialect.encode_stream_error(error))

    # --- files ----------------------------------------------------------------------------------------------------

    def _linking(self, understood: RoutedCall, request: Request) -> LinkFiles:
        """Return a function that replaces files by URLs, for a dialect that cannot carry bytes."""
        assert self._links is not None  # the caller has checked it
        tenant = request.tenant or understood.caller.tenant
        return partial(self._links.linked, tenant=tenant, origin=cards.request_origin(understood.scope))


def _encode_event(
    dialect: Dialect,
    envelope: tuple[bytes, bytes],
    linking: LinkFiles | None,
    shorten: LinkFiles,
    most: int,
    event: Event,
) -> bytes | LargeEvent | None:
    if linking is not None:
        event = linking(event)
    frame = dialect.encode_event(event)
    if frame is not None and len(frame.data) > most:
        frame = dialect.encode_event(shorten(event))
    if frame is None:
        return None
    written = encode_frame(Frame(id=str(event.seq), event=frame.event, data=frame.data), envelope)
    failure = dialect.encode_failure(event) if dialect.reports_failures else None
    if failure is None:
        return written
    more = sse.encode(failure)
    return written._replace(after=written.after + more) if isinstance(written, LargeEvent) else written + more


def _wants_events(scope: Scope) -> bool:
    """Whether a client accepts events but not JSON; the official 0.3 client adds a second header to its `*/*`."""
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept").lower()
    return b"text/event-stream" in accepted and b"application/json" not in accepted


def _success(call: RpcCall, result: bytes) -> bytes:
    return b"" if call.is_notification else jsonrpc.success(call.id, result)


async def _write(send: Send, answer: JsonRpcReply, account: Hashable = None, quotas: Quotas = QUOTAS) -> None:
    if answer.body:
        said = [*JSON, _DIALECT_HEADERS[answer.dialect], *answer.headers]
        await respond(send, answer.status, answer.body, said, account=account, quotas=quotas)
    else:
        status = 204 if answer.status == 200 else answer.status
        await respond(send, status, b"", [_DIALECT_HEADERS[answer.dialect], *answer.headers])
