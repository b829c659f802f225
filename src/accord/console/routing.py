"""A table of routes, with authentication, error replies and page tokens.

A section of the API is an `ApiSection` with `route` methods. Requests without credentials have a rate limit per client
address.
"""

import asyncio
import base64
import inspect
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar, get_args, get_origin
from urllib.parse import parse_qs

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from accord.a2a import Caller
from accord.api import BadValue, Presented, StoreUnavailable
from accord.api.access import OK, Audit, Bucket, CallerUsage, OpenStreams, Quotas, entry
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    InternalError,
    InvalidParams,
    ParseError,
    PermissionDenied,
    RateLimited,
    UnsupportedMediaType,
)
from accord.http.asgi import (
    JSON,
    QUOTAS,
    Admit,
    CachedDocument,
    Headers,
    Receive,
    Scope,
    Send,
    address_of,
    cancel_when_gone,
    check_head,
    error_headers,
    header,
    presented,
    respond,
    respond_with_document,
)
from accord.http.request_bodies import read_request
from accord.http.response_bodies import PIECE, RESPONSE_BODIES, ClientGone, account_of
from accord.model.base import timestamp_ms
from accord.protocol import codec
from accord.protocol.codec import invalid_field
from accord.protocol.operations import DialectName

T = TypeVar("T")
V = TypeVar("V", bound=Struct)
H = TypeVar("H", bound=Callable[..., Awaitable[Any]])

MAX_BODY = 1024 * 1024
"""Maximum bytes of a request body: four times the largest card."""

MAX_TENANT = 256
MAX_PARAMETERS = 100

VISITOR_RATE, VISITOR_BURST = 100 / 60, 100
"""Requests per second of an unauthenticated address: 100 a minute, as in AgentVault's registry."""

PRIVATE: Headers = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
"""Headers of every response that is private to its caller."""

UNPROCESSABLE = 422
"""Status for invalid fields, as FastAPI uses and AgentVault's clients expect."""

log = logging.getLogger("accord.console")

Visit = Callable[[Presented], Awaitable[Caller | None]]
"""Returns the caller of a request, None without credentials, or raises for invalid ones."""


def view_of(kind: type[V], source: Any, /, **fields: Any) -> V:
    """Return a view with these fields, and the members of `source` that have the names of the others."""
    return kind(**fields, **{name: getattr(source, name) for name in kind.__struct_fields__ if name not in fields})


def write_token(value: Any) -> str:
    """Return a value as a URL-safe token."""
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def read_token(token: str, kind: type[T]) -> T:
    """Return the value of a token. Raises ValueError for an invalid token."""
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None


def read_page(token: str | None, kind: type[T]) -> T | None:
    """Return the position in a page token, or None without a token (the first page)."""
    try:
        return read_token(token, kind) if token else None
    except ValueError:
        raise invalid_field("page", "Not a token that this server gave out") from None


def split_page(rows: Sequence[T], limit: int, position: Callable[[T], Any]) -> tuple[Sequence[T], str | None]:
    """Return the first `limit` of `limit + 1` rows, and the token of the next page."""
    page = rows[:limit]
    return page, write_token(position(page[-1])) if len(rows) > limit else None


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request. `visitor` is its caller, or None, and `parts` are the groups of the path pattern."""

    visitor: Caller | None
    parts: Mapping[str, str]
    query: Mapping[str, list[str]]
    body: bytes
    scope: Scope

    @property
    def caller(self) -> Caller:
        """The caller, for routes that require one."""
        if self.visitor is None:
            raise AuthenticationFailed
        return self.visitor


class ApiReply(NamedTuple):
    """A response: `body` becomes JSON.

    A public `document`, last changed at `changed_ms`, is sent as is. `stream` is sent piece by piece and closed when
    the client disconnects. `data` is bytes of another type than JSON. For `data` and `stream`, `headers` must contain
    the content type. `about` is the subject in the audit log.
    """

    status: int = 200
    body: Any = None
    document: bytes | None = None
    changed_ms: int | None = None
    data: bytes | None = None
    stream: AsyncIterator[bytes] | None = None
    headers: Headers = []  # noqa: RUF012  # never mutated
    about: str = ""


class ApiRoute(NamedTuple):
    """A route: method, path pattern and handler.

    Visitors may only use `is_open` routes. `audited` is the operation's name in the audit log. A body has up to
    `max_body` bytes, or the server's limit if that is lower. A route that `streams` is refused before it does anything
    if the caller has too many open streams. `query`, `body` and `result` are the structures of the query parameters,
    the JSON body, which may be empty if it `is_optional`, and the response with `status`.
    """

    method: str
    pattern: str
    handler: Callable[..., Awaitable[Any]]
    is_open: bool = False
    audited: str | None = None
    query: Any = None
    body: Any = None
    is_optional: bool = False
    result: Any = None
    status: int = 200
    max_body: int = MAX_BODY
    streams: bool = False

    async def call(self, request: ApiRequest) -> ApiReply:
        """Call the handler with the decoded query parameters and body."""
        arguments: dict[str, Any] = {}
        if self.query is not None:
            arguments["query"] = _parameters(request, self.query)
        if self.body is not None:
            is_missing = self.is_optional and not request.body
            arguments["body"] = None if is_missing else codec.decode(request.body, _decoder(self.body))
        result = await self.handler(request, **arguments)
        return result if isinstance(result, ApiReply) else ApiReply(self.status, result)


def route(method: str, pattern: str, **fields: Any) -> Callable[[H], H]:
    """Serve a method of an `ApiSection` at a path. `fields` are those of `ApiRoute`.

    Its argument `query` receives the query parameters, and `body` the JSON body. Results other than an `ApiReply` are
    sent as JSON.
    """

    def register(handler: H) -> H:
        types = inspect.get_annotations(handler, eval_str=True)
        body, result = types.get("body"), types["return"]
        derived: dict[str, Any] = {
            "query": types.get("query"),
            "body": next(iter(get_args(body)), body),
            "is_optional": bool(get_args(body)),
            "result": None if result in (ApiReply, None) else result,
        }
        declared = ApiRoute(method, pattern, handler, **(derived | fields))
        vars(handler).setdefault("api_routes", []).insert(
            0, declared
        )  # decorators are applied from the last to the first
        return handler

    return register


class ApiSection:
    """A section of an API: an object with `route` methods."""

    def routes(self) -> list[ApiRoute]:
        """Return the routes in the order of the class."""
        members = [(name, getattr(member, "api_routes", ())) for name, member in vars(type(self)).items()]
        return [declared._replace(handler=getattr(self, name)) for name, routes in members for declared in routes]


class Refusal(NamedTuple):
    """The reply to an exception, and its reason in the audit log."""

    status: int
    reason: str
    more: Callable[[Any], dict[str, Any]] = lambda _: {}


Refusals = Mapping[type[Exception], Refusal]


class ApiApplication:
    """An ASGI application over a table of routes."""

    def __init__(
        self,
        routes: Iterable[ApiRoute],
        *,
        admit: Admit,
        visit: Visit,
        usage: CallerUsage,
        refusals: Refusals,
        audit: Audit | None = None,
        standing: OpenStreams | None = None,
    ) -> None:
        """Serve `routes`. `refusals` maps exceptions other than AccordErrors to replies."""
        self._routes = [(re.compile(route.pattern), route) for route in routes]
        self._admit = admit
        self._visit = visit
        self._usage = usage
        self._refusals = refusals
        self._audit = audit
        self._streams = standing or OpenStreams()
        self._visitors = Bucket(VISITOR_RATE, VISITOR_BURST)
        self._quotas: Quotas = usage.quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        matches = [(match, route) for pattern, route in self._routes if (match := pattern.fullmatch(path))]
        if not matches:
            await _reply(scope, send, ApiReply(404, {"detail": "There is nothing at this path"}), [])
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        for match, route in matches:
            if route.method == method:
                await self._handle(route, match.groupdict(), scope, receive, send)
                return
        allowed = ", ".join(sorted({route.method for _, route in matches}))
        await _reply(scope, send, ApiReply(405, {"detail": f"Allowed are {allowed}"}), [(b"allow", allowed.encode())])

    async def _handle(
        self, route: ApiRoute, parts: Mapping[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        request: ApiRequest | None = None
        caller: Caller | None = None
        headers: Headers = []
        try:
            request = await self._read(route, parts, scope, receive)
            caller = request.visitor
            if route.streams:
                self._usage.check_streams(request.caller)
            reply, outcome = await route.call(request), OK
            if reply.stream is not None and caller is not None and scope["method"] != "HEAD":
                self._usage.open_stream(caller)
            # Public responses may be read by pages of any origin.
            headers = [] if caller is not None else [(b"access-control-allow-origin", b"*")]
        except ClientGone:
            return
        except Exception as error:
            reply, outcome, headers = self._refused(error, scope)
        if caller is not None and route.audited is not None and self._audit is not None and self._audit.is_on:
            agent = parts.get("id") or reply.about or _agent_of(reply)
            task_id = parts.get("task") or parts.get("run")
            self._audit.note(entry(route.audited, caller, agent, task_id, outcome, self._audit.now_ms()))
        if reply.stream is None or scope["method"] == "HEAD":
            account = address_of(scope) if caller is None else account_of(caller)
            try:
                await _reply(scope, send, reply, headers, account, self._quotas)
            except AccordError as error:  # it is too large at the moment
                refusal, _, more = self._refused(error, scope)
                await _reply(scope, send, refusal, more)
            return
        try:
            await self._stream(reply, caller, receive, send, headers)
        finally:
            if caller is not None:
                self._usage.close_stream(caller)

    async def _stream(
        self, reply: ApiReply, caller: Caller | None, receive: Receive, send: Send, headers: Headers
    ) -> None:
        """Send a stream until it ends, its client disconnects, or its caller's access ends."""
        assert reply.stream is not None
        all_headers = [*PRIVATE, *reply.headers, *headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": all_headers})
        task = asyncio.current_task()
        assert task is not None  # ASGI always runs in a task
        gone = asyncio.create_task(cancel_when_gone(receive, task))
        checked = self._streams.kept(reply.stream, None if caller is None else caller.ticket)
        try:
            async with aclosing(reply.stream), aclosing(checked) as pieces:  # type: ignore[type-var]  # generators
                async for piece in pieces:
                    if len(piece) <= PIECE:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                        continue
                    with RESPONSE_BODIES.hold(piece, account_of(caller), self._quotas, shares=True) as pending:
                        await RESPONSE_BODIES.write(send, pending, more=True)
        except (RateLimited, AgentUnavailable) as error:
            log.info("stream.refused", extra={"reason": error.row.reason})  # the page reconnects
        except AuthenticationFailed:
            log.info("access.stream_ended")  # and gets the error on reconnecting
        except asyncio.CancelledError:
            if not gone.done() or task.uncancel():
                raise
            return
        finally:
            gone.cancel()
        await send({"type": "http.response.body", "body": b""})

    def _refused(self, error: Exception, scope: Scope) -> tuple[ApiReply, str, Headers]:
        """Return the reply, audit reason and headers for an error. Unexpected errors are logged and hidden."""
        match error:
            case AccordError():
                shown = error
            case StoreUnavailable():
                log.warning("store.unavailable", extra={"reason": str(error)})
                shown = AgentUnavailable("Try again in a moment", retry_after=1)
            case BadValue():
                shown = InvalidParams(str(error))
            case _ if type(error) in self._refusals:
                status, reason, more = self._refusals[type(error)]
                return ApiReply(status, {"detail": str(error), **more(error)}), reason, []
            case _:
                log.error("console.request_failed", exc_info=error, extra={"path": scope["path"]})
                shown = InternalError()
        status = UNPROCESSABLE if isinstance(shown, InvalidParams | ParseError) else shown.row.http
        body: dict[str, Any] = {"detail": shown.message}
        if shown.violations:
            body["findings"] = [{"field": field, "problem": problem} for field, problem in shown.violations]
        return ApiReply(status, body), shown.row.reason, error_headers(shown)

    async def _read(self, route: ApiRoute, parts: Mapping[str, str], scope: Scope, receive: Receive) -> ApiRequest:
        """Return an authenticated and counted request."""
        quotas = replace(self._quotas, body=min(route.max_body, self._quotas.body))
        check_head(scope, quotas)
        identify = partial(self._identify, is_open=route.is_open)
        caller, body = await read_request(scope, receive, identify, quotas)
        if body and (header(scope, b"content-type") or "").partition(";")[0].strip().lower() != "application/json":
            # A page of another origin can send any other type without a preflight request (CSRF).
            raise UnsupportedMediaType("The body has to be application/json")
        try:
            query = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=MAX_PARAMETERS)
        except ValueError:
            raise InvalidParams(f"There are more than {MAX_PARAMETERS} parameters") from None
        caller = caller or await identify(presented(scope, body))
        if caller is not None:
            self._usage.take(caller)
        elif wait := self._visitors.take(address_of(scope)):
            again = max(1, round(wait))
            raise RateLimited("Too many requests without credentials", retry_after=again, metadata={"limit": "rate"})
        return ApiRequest(visitor=_in_tenant(caller, query), parts=parts, query=query, body=body, scope=scope)

    async def _identify(self, credentials: Presented, *, is_open: bool) -> Caller | None:
        if not is_open:
            return await self._admit(credentials)
        try:
            return await self._visit(credentials)
        except AuthenticationFailed:
            return await self._admit(credentials)  # which also refuses it, and records that


@cache
def _decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind)


@cache
def _list_parameters(kind: type[Struct]) -> frozenset[str]:
    types = {field.encode_name: (field.type, *get_args(field.type)[:1]) for field in msgspec.structs.fields(kind)}
    return frozenset(name for name, pair in types.items() if any(get_origin(kind) is list for kind in pair))


def _parameters(request: ApiRequest, kind: type[Struct]) -> Struct:
    """Return the query parameters as a structure. Unknown ones are ignored. Only lists have more than one value."""
    lists = _list_parameters(kind)
    members = {name: values if name in lists else values[0] for name, values in request.query.items()}
    return codec.convert(members, kind, strict=False)


def time_of(at: int | None) -> str | None:
    """Return a time in milliseconds as an ISO timestamp."""
    return None if at is None else timestamp_ms(at)


def _in_tenant(caller: Caller | None, query: Mapping[str, list[str]]) -> Caller | None:
    """Return the caller in the requested tenant, if it may choose one. Its origin is external, as with A2A requests."""
    tenant = query.get("tenant", [""])[0]
    caller = None if caller is None else replace(caller, origin=DialectName.V1.value)
    if caller is None or not tenant or tenant == caller.tenant:
        return caller
    if not caller.roams:
        raise PermissionDenied("This tenant is not yours")
    if len(tenant) > MAX_TENANT or not tenant.isprintable():
        raise invalid_field("tenant", f"It has up to {MAX_TENANT} characters, all of them printable")
    return replace(caller, tenant=tenant)


def _agent_of(reply: ApiReply) -> str:
    """Return the name of the agent that a reply is about."""
    key = "human_readable_id"
    name = reply.body.get(key) if isinstance(reply.body, dict) else getattr(reply.body, key, None)
    return name if isinstance(name, str) else ""


async def _reply(
    scope: Scope,
    send: Send,
    reply: ApiReply,
    headers: Headers,
    account: Hashable = None,
    quotas: Quotas = QUOTAS,
) -> None:
    if reply.document is not None:
        changed = datetime.fromtimestamp((reply.changed_ms or 0) / 1000, UTC)
        await respond_with_document(scope, send, CachedDocument.of(reply.document, changed, headers))
        return
    if reply.data is not None or reply.stream is not None:
        data, kind = reply.data or b"", Headers()
    else:
        data = b"" if reply.status == 204 else codec.encode(reply.body)
        kind = JSON if data else []
    all_headers = [*kind, *PRIVATE, *reply.headers, *headers]
    is_head = scope["method"] == "HEAD"
    await respond(send, reply.status, data, all_headers, head=is_head, account=account, quotas=quotas)
