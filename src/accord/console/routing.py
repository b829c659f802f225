"""A table of routes, with authentication, error replies and page tokens.

A route is a method, a pattern and a function from a request with a bounded body to a reply: JSON, bytes or a stream.
Routes that need no credentials have a rate limit per client address.
"""

import asyncio
import base64
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple, TypeVar
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


class PageToken:
    """Encodes and decodes page tokens."""

    @staticmethod
    def write(position: Any) -> str:
        """Return the token of a position."""
        return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")

    @staticmethod
    def read(token: str | None, kind: type[T]) -> T | None:
        """Return the position in a token, or None without a token (the first page)."""
        if not token:
            return None
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=kind)
        except (ValueError, msgspec.DecodeError):
            raise invalid_field("page", "Not a token that this server gave out") from None


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


class ApiRequest(Struct, frozen=True, kw_only=True):
    """A request. `caller` is missing for a visitor, and `parts` are the groups of the path pattern."""

    caller: Caller | None
    parts: Mapping[str, str]
    query: Mapping[str, list[str]]
    body: bytes
    scope: Scope

    @property
    def known(self) -> Caller:
        """The caller, for routes that require one."""
        if self.caller is None:
            raise AuthenticationFailed
        return self.caller

    def header(self, name: str) -> str | None:
        """Return the first header of that name, which must be lower-case."""
        return header(self.scope, name.encode())

    def found(self, kind: type[T], *lists: str) -> T:
        """Return the query parameters as a structure. Unknown parameters are ignored.

        Of a repeated parameter the first value counts, unless it is one of the `lists`.
        """
        given = {name: values if name in lists else values[0] for name, values in self.query.items()}
        return codec.convert(given, kind, strict=False)


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


Handler = Callable[[ApiRequest], Awaitable[ApiReply]]


class ApiRoute(NamedTuple):
    """A route: method, path pattern and handler.

    Visitors may only use `is_open` routes. `noted` is the operation's name in the audit log. A body has up to
    `max_body` bytes, or the server's limit if that is lower. A route that `streams` is refused before it does anything
    if the caller has too many open streams. For the OpenAPI document: `takes` is the structure of the body, `finds` of
    the query parameters, and `gives` of the response with `status`.
    """

    method: str
    pattern: str
    handler: Handler
    is_open: bool = False
    noted: str | None = None
    takes: Any = None
    finds: Any = None
    gives: Any = None
    status: int = 200
    max_body: int = MAX_BODY
    streams: bool = False


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
        routes: Sequence[ApiRoute],
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
        self._standing = standing or OpenStreams()
        self._visitors = Bucket(VISITOR_RATE, VISITOR_BURST)
        self._quotas: Quotas = usage.quotas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        found = [(match, route) for pattern, route in self._routes if (match := pattern.fullmatch(path))]
        if not found:
            await _reply(scope, send, ApiReply(404, {"detail": "There is nothing at this path"}), [])
            return
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        for match, route in found:
            if route.method == method:
                await self._handle(route, match.groupdict(), scope, receive, send)
                return
        allowed = ", ".join(sorted({route.method for _, route in found}))
        await _reply(scope, send, ApiReply(405, {"detail": f"Allowed are {allowed}"}), [(b"allow", allowed.encode())])

    async def _handle(
        self, route: ApiRoute, parts: Mapping[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        asked: ApiRequest | None = None
        headers: Headers = []
        try:
            asked = await self._asked(route, parts, scope, receive)
            if route.streams:
                self._usage.check_streams(asked.known)
            reply, outcome = await route.handler(asked), OK
            if reply.stream is not None and asked.caller is not None and scope["method"] != "HEAD":
                self._usage.open_stream(asked.caller)
            # Public responses may be read by pages of any origin.
            headers = [] if asked.caller is not None else [(b"access-control-allow-origin", b"*")]
        except ClientGone:
            return
        except Exception as error:
            reply, outcome, headers = self._refused(error, scope)
        if asked is not None and asked.caller is not None and route.noted is not None:
            about = parts.get("id") or reply.about or _about(reply)
            self._note(route.noted, asked.caller, about, parts.get("task") or parts.get("run"), outcome)
        if reply.stream is None or scope["method"] == "HEAD":
            await self._write(reply, asked, scope, send, headers)
            return
        try:
            await self._streamed(reply, None if asked is None else asked.caller, receive, send, headers)
        finally:
            if asked is not None and asked.caller is not None:
                self._usage.close_stream(asked.caller)

    async def _write(
        self, reply: ApiReply, asked: "ApiRequest | None", scope: Scope, send: Send, headers: Headers
    ) -> None:
        """Send a reply, or an error if it is too large at the moment."""
        account = address_of(scope) if asked is None or asked.caller is None else account_of(asked.caller)
        try:
            await _reply(scope, send, reply, headers, account, self._quotas)
        except AccordError as error:
            refused, _, more = self._refused(error, scope)
            await _reply(scope, send, refused, more)

    async def _streamed(
        self, reply: ApiReply, caller: Caller | None, receive: Receive, send: Send, headers: Headers
    ) -> None:
        """Send a stream until it ends, its client disconnects, or its caller's access ends."""
        assert reply.stream is not None
        said = [*PRIVATE, *reply.headers, *headers]
        await send({"type": "http.response.start", "status": reply.status, "headers": said})
        task = asyncio.current_task()
        assert task is not None  # ASGI always runs in a task
        gone = asyncio.create_task(cancel_when_gone(receive, task))
        kept = self._standing.kept(reply.stream, None if caller is None else caller.ticket)
        try:
            async with aclosing(reply.stream), aclosing(kept) as pieces:  # type: ignore[type-var]  # they are generators
                async for piece in pieces:
                    if len(piece) <= PIECE:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                        continue
                    account = account_of(caller)
                    with RESPONSE_BODIES.hold(piece, account, self._quotas, shares=True) as pending:
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
                known = error
            case StoreUnavailable():
                log.warning("store.unavailable", extra={"reason": str(error)})
                known = AgentUnavailable("Try again in a moment", retry_after=1)
            case BadValue():
                known = InvalidParams(str(error))
            case _ if type(error) in self._refusals:
                status, reason, more = self._refusals[type(error)]
                return ApiReply(status, {"detail": str(error), **more(error)}), reason, []
            case _:
                log.error("console.request_failed", exc_info=error, extra={"path": scope["path"]})
                known = InternalError()
        status = UNPROCESSABLE if isinstance(known, InvalidParams | ParseError) else known.row.http
        body: dict[str, Any] = {"detail": known.message}
        if known.violations:
            body["findings"] = [{"field": field, "problem": problem} for field, problem in known.violations]
        return ApiReply(status, body), known.row.reason, error_headers(known)

    def _note(self, operation: str, caller: Caller, agent: str, task_id: str | None, outcome: str) -> None:
        audit = self._audit
        if audit is not None and audit.is_on:
            audit.note(entry(operation, caller, agent, task_id, outcome, audit.now_ms()))

    async def _asked(self, route: ApiRoute, parts: Mapping[str, str], scope: Scope, receive: Receive) -> ApiRequest:
        quotas = replace(self._quotas, body=min(route.max_body, self._quotas.body))
        check_head(scope, quotas)
        identify = partial(self._who, is_open=route.is_open)
        caller, body = await read_request(scope, receive, identify, quotas)
        if body and (header(scope, b"content-type") or "").partition(";")[0].strip().lower() != "application/json":
            # A page of another origin can send any other type without a preflight request (CSRF).
            raise UnsupportedMediaType("The body has to be application/json")
        query = _query(scope)
        caller = caller or await identify(presented(scope, body))
        self._count(caller, scope)
        return ApiRequest(caller=_in_tenant(caller, query), parts=parts, query=query, body=body, scope=scope)

    async def _who(self, brought: Presented, *, is_open: bool) -> Caller | None:
        if not is_open:
            return await self._admit(brought)
        try:
            return await self._visit(brought)
        except AuthenticationFailed:
            return await self._admit(brought)  # which also refuses it, and records that

    def _count(self, caller: Caller | None, scope: Scope) -> None:
        if caller is not None:
            self._usage.take(caller)
        elif wait := self._visitors.take(address_of(scope)):
            again = max(1, round(wait))
            raise RateLimited("Too many requests without credentials", retry_after=again, metadata={"limit": "rate"})


def _query(scope: Scope) -> dict[str, list[str]]:
    try:
        return parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=MAX_PARAMETERS)
    except ValueError:
        raise InvalidParams(f"There are more than {MAX_PARAMETERS} parameters") from None


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
        raise codec.invalid_field("tenant", f"It has up to {MAX_TENANT} characters, all of them printable")
    return replace(caller, tenant=tenant)


def _about(reply: ApiReply) -> str:
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
    said = [*kind, *PRIVATE, *reply.headers, *headers]
    is_head = scope["method"] == "HEAD"
    await respond(send, reply.status, data, said, head=is_head, account=account, quotas=quotas)
