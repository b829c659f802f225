"""The HTTP+JSON binding: an address and a verb per operation, in A2A 1.0 and 0.3.

`protocol.operations` finds operation and dialect by the address, the dialect decodes and encodes, the service executes.
Every refusal is the dialect's error object, under the HTTP status of `errors.TABLE`.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Hashable
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote

from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import A2A, Call, Caller, Handler, TaskEvents, handler_of
from accord.auth.authentication import Access
from accord.auth.rate_limits import Quotas
from accord.errors import AccordError, InternalError, InvalidRequest, MethodNotFound, UnsupportedMediaType
from accord.http import cards
from accord.http.asgi import (
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
    header,
    idempotency_key,
    presented,
    query,
    respond,
    shutdown_refusal,
)
from accord.http.files import FileLinks, large_file_linker
from accord.http.request_bodies import read_request
from accord.http.response_bodies import ClientGone, account_of
from accord.http.sse import STREAM_HEADERS, LargeEvent, SseWriter, encode_frame, last_event_id
from accord.model import AgentCard, Event, Request
from accord.protocol import sse
from accord.protocol.dialects import REST_DIALECTS, RestDialect
from accord.protocol.dialects.fields import params_from_body, params_from_query
from accord.protocol.negotiation import ALL_DIALECTS, DIALECT_HEADER, VERSION_HEADER, check_version
from accord.protocol.operations import ROWS, DialectName, MethodsAllowed, RestMatch, match_rest
from accord.protocol.sse import Frame

log = logging.getLogger("accord.rest")

BINDING = "rest"

BODY_TYPES = ("application/json", "application/a2a+json")
"""Media types of request bodies: A2A 1.0 prefers the second (11.1), 0.3 has only the first."""

NO_STORE = (b"cache-control", b"no-store")
"""Responses belong to their caller and are soon stale, and those about webhooks contain the caller's tokens."""

V1, V03 = DialectName.V1, DialectName.V03

OPERATION_PLACES = {
    V1: "POST /message:send, tasks are at GET /tasks/{id}",
    V03: "POST /v1/message:send, tasks are at GET /v1/tasks/{id}",
}
"""Hint to the right addresses, for requests to unknown ones."""


class RestResult(NamedTuple):
    """The result of a request, its dialect, and the account whose limits it counts against."""

    content: bytes | TaskEvents
    dialect: RestDialect
    account: Hashable
    shorten: Callable[[Event], Event] | None = None


class RestRequest(NamedTuple):
    """A decoded request, its caller and the dialect of the response."""

    request: Request
    caller: Caller
    dialect: RestDialect


class RestBinding:
    """An ASGI application that answers below one path."""

    def __init__(
        self,
        service: A2A | Handler,
        *,
        enabled: frozenset[DialectName] = ALL_DIALECTS,
        admit: Admit | None = None,
        extensions: frozenset[str] = frozenset(),
        quotas: Quotas = QUOTAS,
        links: FileLinks | None = None,
    ) -> None:
        """Serve `service` to callers that `admit` authenticates, in the enabled dialects that have this binding.

        `extensions` are those of the agent's card; `links` replaces large files by URLs.
        """
        self._links = links
        self._enabled = enabled & REST_DIALECTS.keys()
        self._extensions = extensions
        self._quotas = quotas
        self._admit = admit or Access().admit
        self._handler = handler_of(service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        path, verb = _own_path(scope), scope["method"]
        found = match_rest("GET" if verb == "HEAD" else verb, path, self._enabled)
        if isinstance(found, MethodsAllowed):
            verbs = (*found.verbs, "HEAD") if "GET" in found.verbs else found.verbs
            await respond(send, 405, b"", [(b"allow", ", ".join(verbs).encode())])
            return
        if found is None:
            dialect = REST_DIALECTS[self._likely(path)]
            await RestReply(scope, send, dialect).fail(self._nothing_at(verb, path, dialect.name))
            return
        reply = RestReply(scope, send, REST_DIALECTS[found.dialect])
        try:
            result = await self._answer(found, scope, receive)
        except ClientGone:
            return
        except asyncio.CancelledError:
            if (refusal := shutdown_refusal(scope)) is None:
                raise
            await reply.fail(refusal)
        except AccordError as error:
            await reply.fail(error)
        except Exception:  # the caller gets no detail of it, the log everything
            log.exception("request.failed", extra={"operation": found.operation.value})
            await reply.fail(InternalError())
        else:
            await self._write(
                reply, result, receive, activated_extensions(scope, self._extensions & declared_extensions(scope))
            )

    async def _write(self, reply: "RestReply", result: RestResult, receive: Receive, headers: Headers) -> None:
        """Write a response or a stream, or an error if it is too large at present."""
        try:
            if isinstance(result.content, TaskEvents):
                reply = replace(reply, dialect=result.dialect)
                await reply.stream(result.content, result, receive, headers, self._quotas)
            else:
                await reply.write(200, result.content, headers, result.account, self._quotas)
        except AccordError as error:
            await reply.fail(error)

    async def _answer(self, match: RestMatch, scope: Scope, receive: Receive) -> RestResult:
        operation = match.operation
        request, caller, dialect = await self._understand(match, scope, receive)
        most = self._quotas.inline_files
        shorten: Callable[[Any], Any] = large_file_linker(self._links, request, caller, most)
        if ROWS[operation].streams:
            pending = self._handler.follow(Call(operation, request, caller, last_event_id(scope)))
            return RestResult(await await_unless_gone(receive, pending), dialect, account_of(caller), shorten)
        answer = self._handler.handle(Call(operation, request, caller))
        result = await (await_unless_gone(receive, answer) if operation in LONG_OPERATIONS else answer)
        if isinstance(result, AgentCard):
            result = cards.card_at_origin(result, cards.request_origin(scope))
        encoded = dialect.encode_result(operation, result)
        if len(encoded) > most:
            encoded = dialect.encode_result(operation, shorten(result))
        return RestResult(encoded, dialect, account_of(caller))

    async def _understand(self, match: RestMatch, scope: Scope, receive: Receive) -> RestRequest:
        check_head(scope, self._quotas)
        caller, body = await read_request(scope, receive, self._admit, self._quotas)
        caller = caller or await self._admit(presented(scope, body))
        check_version(header(scope, VERSION_HEADER.encode()) or query(scope, "A2A-Version"), match.dialect)
        dialect, stated = REST_DIALECTS[match.dialect], _parameters(match, scope, body)
        request = dialect.decode_request(match.operation, stated)
        caller = replace(
            caller,
            origin=match.dialect.value,
            binding=BINDING,
            extensions=declared_extensions(scope),
            idempotency_key=idempotency_key(scope),
            files_at=None if self._links is None else cards.request_origin(scope) or "",
        )
        return RestRequest(request, caller, dialect.answering(match.operation, stated))

    def _likely(self, path: str) -> DialectName:
        if V03 in self._enabled and (V1 not in self._enabled or path.startswith("/v1/")):
            return V03
        return V1

    def _nothing_at(self, verb: str, path: str, dialect: DialectName) -> MethodNotFound:
        places = OPERATION_PLACES[dialect] if dialect in self._enabled else "POST / as JSON-RPC"
        return MethodNotFound(
            f"There is nothing at {verb[:20]} {path[:100]}; messages go to {places}, "
            "and /.well-known/agent-card.json describes the agent"
        )


class RestReply(Struct, frozen=True):
    """Writes the response to one request, in a dialect and the media type that the caller prefers."""

    scope: Scope
    send: Send
    dialect: RestDialect

    @property
    def _says_dialect(self) -> tuple[bytes, bytes]:
        return DIALECT_HEADER.encode(), self.dialect.name.value.encode()

    @property
    def _is_head(self) -> bool:
        return bool(self.scope["method"] == "HEAD")

    async def write(
        self, status: int, body: bytes, headers: Headers, account: Hashable = None, quotas: Quotas = QUOTAS
    ) -> None:
        """Write a whole response."""
        accept = header(self.scope, b"accept") or "*/*"
        named = (b"content-type", _preferred_type(accept, self.dialect.media_types).encode())
        stated = [named, self._says_dialect, NO_STORE, *headers]
        await respond(self.send, status, body, stated, head=self._is_head, account=account, quotas=quotas)

    async def fail(self, error: AccordError) -> None:
        """Write an error."""
        await self.write(error.row.http, self.dialect.encode_http_error(error), error_headers(error))

    async def stream(
        self, opened: TaskEvents, result: RestResult, receive: Receive, headers: Headers, quotas: Quotas
    ) -> None:
        """Write events until they end or the client disconnects."""
        stated = [self._says_dialect, *headers]
        if self._is_head:
            async with aclosing(opened):
                await self.send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *stated]})
                await self.send({"type": "http.response.body", "body": b""})
            return
        encode_event = partial(self._event, result.shorten, quotas.inline_files)
        writer = SseWriter(self.send, encode_event, self._broke, account=result.account, quotas=quotas)
        await writer.run(opened, receive, stated)

    def _event(self, shorten: Callable[[Event], Event] | None, most: int, event: Event) -> bytes | LargeEvent | None:
        frame = self.dialect.encode_event(event)
        if shorten is not None and frame is not None and len(frame.data) > most:
            frame = self.dialect.encode_event(shorten(event))
        if frame is None:
            return None
        return encode_frame(Frame(id=str(event.seq), event=frame.event, data=frame.data))

    def _broke(self, error: AccordError) -> bytes:
        return sse.encode(self.dialect.encode_stream_error(error))


# --- reading requests -----------------------------------------------------------------------------------------------


def _own_path(scope: Scope) -> str:
    """Return the path below the mount, still encoded: an encoded `/` or `:` separates nothing."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "").rstrip("/")
    raw: bytes = scope.get("raw_path") or quote(path, safe="/:").encode()
    depth = root.count("/") if path.startswith(root + "/") else 0
    return "/" + "/".join(raw.decode("latin-1").split("/")[depth + 1 :])


def _parameters(match: RestMatch, scope: Scope, body: bytes) -> bytes:
    """Return all parameters of a request as one object; a body counts only with POST."""
    try:
        values = {name: _text(value) for name, value in match.values.items()}
        if scope["method"] == "POST":
            _check_type(scope, body)
            return params_from_body(body, values)
        asked: bytes = scope.get("query_string", b"")
        return params_from_query(parse_qsl(asked.decode(), keep_blank_values=True, errors="strict"), values)
    except UnicodeDecodeError:
        raise InvalidRequest("The address is not UTF-8") from None


def _text(value: str) -> str:
    return unquote(value.encode("latin-1").decode(), errors="strict")


def _check_type(scope: Scope, body: bytes) -> None:
    """Refuse a body whose type is not JSON, such as any web page can make a browser send.

    The official client subscribes without a body and then sends no type.
    """
    stated = header(scope, b"content-type")
    name = (stated or "").partition(";")[0].strip().lower()
    if name not in BODY_TYPES and (body or stated):
        found = f"not {name[:60]}" if name else "and the request has none"
        raise UnsupportedMediaType(f"Content-Type must be {' or '.join(BODY_TYPES)}, {found}")


_WEIGHT = re.compile(r"q=([01](?:\.[0-9]{0,3})?)")


@lru_cache(64)  # clients of one kind send the same header
def _preferred_type(accept: str, media_types: tuple[str, ...]) -> str:
    """Return the media type that a caller prefers, the first among equals."""
    return max(media_types, key=lambda name: _quality(accept, name))


def _quality(accept: str, media_type: str) -> float:
    """Return a caller's weight for a media type, from the most specific matching range (RFC 9110, 12.5.1)."""
    ranges = ("*/*", media_type.partition("/")[0] + "/*", media_type)
    found = (-1, 0.0)
    for item in accept.lower().split(","):
        name, *parameters = (piece.strip() for piece in item.split(";"))
        if name in ranges:
            weights = (_WEIGHT.fullmatch(parameter) for parameter in parameters)
            found = max(found, (ranges.index(name), next((float(weight[1]) for weight in weights if weight), 1.0)))
    return found[1]
