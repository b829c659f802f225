"""`/api/inspect`: a request sent as written, and its response frame by frame.

A request to an agent of this server uses the caller's own rights. Only operators may inspect external servers, and only
at addresses that webhooks may have. Credentials are not shown. Request templates are encoded by the dialects.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Set
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct

from accord.a2a import Caller
from accord.api import new_id
from accord.console.exchanges import (
    ExchangeEnd,
    ResponseHead,
    RunExchange,
    TimedPiece,
    exchange_in_process,
    exchange_with_server,
    run_exchange,
    scope_of,
)
from accord.console.routing import ApiReply, ApiRequest, route, time_of
from accord.console.server_context import ServerSection
from accord.console.views import View
from accord.errors import AccordError, InvalidParams, PermissionDenied, TaskNotFound
from accord.http.sse import KEEP_ALIVE_SECONDS, STREAM_HEADERS
from accord.model import (
    CancelRequest,
    CardRequest,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Request,
    Role,
    SendRequest,
    SubscribeRequest,
    TaskFilter,
)
from accord.outbound import HttpRequest
from accord.protocol import codec, sse
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.dialects.fields import path_from_request, query_from_params
from accord.protocol.negotiation import MOUNTS
from accord.protocol.operations import TABLE, DialectName, Operation, OperationRow, method_name
from accord.protocol.sse import KEEP_ALIVE, Decoder, Frame, FrameTooLarge

TASK_ID = "TASK-ID"
"""Placeholder of a task id."""

CARD_PATH = "/.well-known/agent-card.json"

_PUSH_ID = "webhook-1"
_JSON = {"Content-Type": "application/json"}
_EVENTS = {"Accept": "text/event-stream"}
_V03_PREFIX = "/v1"

_VERSION_HEADERS: Mapping[DialectName, dict[str, str]] = {
    DialectName.V1: {"A2A-Version": "1.0"},
    DialectName.RELAY: {"X-A2A-Dialect": DialectName.RELAY.value},
}
"""Headers that select a dialect without a path of its own."""

_PATHS = {dialect: f"{path}/" for path, dialect in MOUNTS.items()}


class Template(View, frozen=True, kw_only=True):
    """A request to edit and send. `path` is below the agent's own, and `body` is JSON or null.

    `operation` is its name in A2A, and `label` its name in the binding.
    """

    operation: str
    label: str
    dialect: str
    binding: Literal["JSONRPC", "HTTP+JSON"]
    streams: bool
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any] | None


class TemplateList(View, frozen=True, kw_only=True):
    """Requests for each operation, dialect and binding. `task_id` is their placeholder for a task id."""

    items: list[Template]
    task_id: str


def _sample_message() -> SendRequest:
    return SendRequest(message=Message(message_id=new_id(), role=Role.USER, parts=(Part(text="Hello"),)))


_SAMPLES: Mapping[Operation, Callable[[], Request]] = {
    Operation.SEND: _sample_message,
    Operation.STREAM: _sample_message,
    Operation.GET: lambda: GetRequest(id=TASK_ID),
    Operation.LIST: lambda: TaskFilter(page_size=10),
    Operation.CANCEL: lambda: CancelRequest(id=TASK_ID),
    Operation.SUBSCRIBE: lambda: SubscribeRequest(id=TASK_ID),
    Operation.PUSH_SET: lambda: PushConfig(task_id=TASK_ID, id=_PUSH_ID, url="https://example.com/webhook"),
    Operation.PUSH_GET: lambda: PushGetRequest(task_id=TASK_ID, id=_PUSH_ID),
    Operation.PUSH_LIST: lambda: PushListRequest(task_id=TASK_ID),
    Operation.PUSH_DELETE: lambda: PushDeleteRequest(task_id=TASK_ID, id=_PUSH_ID),
    Operation.EXTENDED_CARD: CardRequest,
}


def request_templates(dialects: Set[DialectName]) -> list[Template]:
    """Return a request for each operation of these dialects, in each binding that has it."""
    templates: list[Template | None] = []
    for dialect in DialectName:
        if dialect not in dialects:
            continue
        templates += [_rpc(row, dialect) for row in TABLE]
        if dialect in REST_DIALECTS:
            templates += [*(_rest(row, dialect) for row in TABLE), _card(dialect)]
    return [template for template in templates if template is not None]


def _rpc(row: OperationRow, dialect: DialectName) -> Template | None:
    name = method_name(row.operation, dialect)
    if name is None:
        return None
    try:
        params = DIALECTS[dialect].encode_request(row.operation, _SAMPLES[row.operation]())
    except AccordError:  # the dialect has the method, but no encoding of such a request
        return None
    return _template(
        row,
        dialect,
        "JSONRPC",
        label=name,
        method="POST",
        path=_PATHS.get(dialect, "/"),
        headers=_JSON | _VERSION_HEADERS.get(dialect, {}),
        body={"jsonrpc": "2.0", "id": 1, "method": name, "params": msgspec.json.decode(params)},
    )


def _rest(row: OperationRow, dialect: DialectName) -> Template | None:
    routes = row.rest if dialect is DialectName.V1 else row.rest_v03
    if not routes:
        return None
    route, request = routes[0], _SAMPLES[row.operation]()
    prefix = "" if dialect is DialectName.V1 else _V03_PREFIX
    params = REST_DIALECTS[dialect].encode_request(row.operation, request)
    has_body = route.verb == "POST"
    query = "" if has_body else urlencode(query_from_params(route, params))
    path = prefix + path_from_request(route, request)
    return _template(
        row,
        dialect,
        "HTTP+JSON",
        label=f"{route.verb} {prefix}{route.path}",
        method=route.verb,
        path=f"{path}?{query}" if query else path,
        headers=_JSON if has_body else {},
        body=msgspec.json.decode(params) if has_body else None,
    )


def _card(dialect: DialectName) -> Template:
    return Template(
        operation="GetAgentCard",
        label=f"GET {CARD_PATH}",
        dialect=dialect.value,
        binding="HTTP+JSON",
        streams=False,
        method="GET",
        path=f"{CARD_PATH}?dialect={dialect.value}",
        headers={},
        body=None,
    )


def _template(
    row: OperationRow,
    dialect: DialectName,
    binding: Literal["JSONRPC", "HTTP+JSON"],
    *,
    headers: dict[str, str],
    **more: Any,
) -> Template:
    return Template(
        operation=row.operation.value,
        dialect=dialect.value,
        binding=binding,
        streams=row.streams,
        headers=headers | (_EVENTS if row.streams else {}),
        **more,
    )


MAX_BYTES = 1024 * 1024
"""Maximum bytes of a response that are shown."""

MAX_FRAMES = 1000
MAX_SECONDS = 60.0
"""Maximum duration of an inspected exchange in seconds."""

MAX_ABOUT = 200
"""Maximum length of the target in the audit log."""

ADMIN = "admin"
"""Role of operators that are not limited to one tenant."""

CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key"})
"""Headers that authenticate a caller."""

NOT_SHOWN = "(not shown)"

_FRAMING = frozenset({"host", "content-length", "connection", "transfer-encoding", "upgrade", "te", "trailer"})
"""Headers that the transport sets itself."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TARGET = re.compile(r"/[\x21\x22\x24-\x7e]*")


class Inspection(Struct, frozen=True, kw_only=True, rename="camel"):
    """A request to send: to an agent of this server, at a path below its own, or to an external `url`."""

    agent: str | None = None
    url: str | None = None
    method: Annotated[str, Meta(pattern="^(GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS)$")] = "POST"
    path: Annotated[str, Meta(max_length=4096)] = "/"
    headers: dict[str, str] = {}
    body: str | None = None


class TemplateQuery(Struct, frozen=True, kw_only=True):
    """Agent and dialect of the requested templates."""

    agent: str | None = None
    dialect: DialectName | None = None


class InspectedHead(View, frozen=True, kw_only=True):
    """Status and headers of a response, after `elapsed_ms` milliseconds."""

    status: int
    headers: list[tuple[str, str]]
    elapsed_ms: int


class InspectedFrame(View, frozen=True, kw_only=True):
    """A server-sent event, `gap_ms` milliseconds after the previous one or after the request."""

    n: int
    at: str | None
    gap_ms: int
    id: str | None
    event: str | None
    data: str


class InspectedBody(View, frozen=True, kw_only=True):
    """The body of a response that is not a stream."""

    text: str


class InspectedEnd(View, frozen=True, kw_only=True):
    """The end of a response. `truncated` is the limit that cut it, `problem` the reason of a failure."""

    bytes: int
    frames: int
    elapsed_ms: int
    truncated: str | None
    problem: str | None


_EVENT_NAMES = {InspectedHead: "head", InspectedFrame: "frame", InspectedBody: "body", InspectedEnd: "end"}


class InspectorApi(ServerSection):
    """The inspector."""

    @route("GET", "/api/inspect/templates")
    async def templates(self, request: ApiRequest, query: TemplateQuery) -> TemplateList:
        """List request templates."""
        dialects = self._server.served.dialects
        if query.agent is not None:
            self._check_agent(query.agent, request.caller)
        wanted = dialects if query.dialect is None else dialects & {query.dialect}
        return TemplateList(items=request_templates(wanted), task_id=TASK_ID)

    @route("POST", "/api/inspect", audited="Inspect")
    async def inspect(self, request: ApiRequest, body: Inspection) -> ApiReply:
        """Send a request, and stream its response as server-sent events: head, frame or body, end."""
        _check_inspection(body)
        exchange = (
            self._external(body, request.caller) if body.agent is None else self._local(body, body.agent, request)
        )
        about = body.agent or "/".join(re.split("[/?]", body.url or "")[:3])  # only scheme and host of a URL
        return ApiReply(stream=self._events(exchange), headers=STREAM_HEADERS, about=about[:MAX_ABOUT])

    # --- targets --------------------------------------------------------------------------------------------------

    def _local(self, inspection: Inspection, agent: str, request: ApiRequest) -> RunExchange:
        self._check_agent(agent, request.caller)
        body = (inspection.body or "").encode()
        headers = [*_allowed_headers(inspection).items(), ("content-length", str(len(body)))]
        site = self._server.served.site_as(agent, request.caller)
        scope = scope_of(inspection.method, inspection.path, headers, request.scope)
        return partial(exchange_in_process, site, scope, body)

    def _external(self, inspection: Inspection, caller: Caller) -> RunExchange:
        if caller.roles is not None and not (ADMIN in caller.roles and caller.is_of_server):
            raise PermissionDenied("Only operators may inspect external servers")
        request = HttpRequest(
            method=inspection.method,
            url=inspection.url or "",
            headers=tuple(_allowed_headers(inspection).items()),
            body=None if inspection.body is None else inspection.body.encode(),
            seconds=None,
            streams=True,
        )
        return partial(exchange_with_server, self._server.served.outbound(request.url), request)

    def _check_agent(self, slug: str, caller: Caller) -> None:
        agent = self._server.agents.get(slug)
        if agent is None or not self._server.visibility.shows_agent(caller, agent.profile.name):
            raise TaskNotFound("There is no such agent")

    # --- responses ------------------------------------------------------------------------------------------------

    async def _events(self, exchange: RunExchange) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        response = InspectedResponse(began=loop.time(), began_ms=self._server.now_ms())
        until = response.began + MAX_SECONDS
        async with run_exchange(exchange) as pieces:
            while not response.is_over:
                wait = min(KEEP_ALIVE_SECONDS, until - loop.time())
                try:
                    async with asyncio.timeout(max(0.0, wait)):
                        piece = await pieces.get()
                except TimeoutError:
                    if loop.time() < until:
                        yield KEEP_ALIVE
                        continue
                    response.cut("time")
                    piece = TimedPiece(loop.time(), ExchangeEnd())
                for event in response.add(piece):
                    yield sse.encode(Frame(event=_EVENT_NAMES[type(event)], data=codec.encode(event)))


InspectionEvent = InspectedHead | InspectedFrame | InspectedBody | InspectedEnd


class InspectedResponse:
    """A response so far, as inspection events. It does no I/O and has no clock."""

    def __init__(self, *, began: float, began_ms: int) -> None:
        """Count from the time of the request, on the loop's clock and the wall clock."""
        self.began = self._last = began
        self._began_ms = began_ms
        self._frames: Decoder | None = None
        self._body = bytearray()
        self._bytes = self._count = 0
        self._truncated: str | None = None
        self._problem: str | None = None
        self.is_over = False

    def cut(self, by: str) -> None:
        """Ignore further pieces because of a limit."""
        self._truncated = by

    def add(self, piece: TimedPiece) -> Iterator[InspectionEvent]:
        """Yield the events of a response piece."""
        match piece.what:
            case ResponseHead() as head:
                types = {
                    value.partition(";")[0].strip().lower() for name, value in head.headers if name == "content-type"
                }
                self._frames = Decoder(max_bytes=MAX_BYTES) if "text/event-stream" in types else None
                headers = redact_headers(head.headers)
                yield InspectedHead(status=head.status, headers=headers, elapsed_ms=self._ms(piece.at))
            case bytes() as data:
                room = MAX_BYTES - self._bytes
                self._bytes += min(len(data), room)
                yield from self._take(data[:room], piece.at)
                if len(data) > room:
                    self.cut("size")
            case ExchangeEnd(problem):
                self._problem = problem
                self.is_over = True
        if self._truncated is not None:
            self.is_over = True
        if self.is_over:
            yield from self._end(piece.at)

    def _take(self, piece: bytes, at: float) -> Iterator[InspectionEvent]:
        if self._frames is None:
            self._body += piece
            return
        try:
            frames = self._frames.feed(piece)
        except FrameTooLarge as error:
            frames = error.frames
            self.cut("size")
        for frame in frames:
            if self._count == MAX_FRAMES:
                self.cut("frames")
                return
            self._count += 1
            yield self._frame(frame, at)
            self._last = at

    def _frame(self, frame: Frame, at: float) -> InspectedFrame:
        return InspectedFrame(
            n=self._count,
            at=time_of(self._began_ms + self._ms(at)),
            gap_ms=round((at - self._last) * 1000),
            id=frame.id,
            event=frame.event,
            data=frame.data.decode(errors="replace"),
        )

    def _end(self, at: float) -> Iterator[InspectionEvent]:
        if self._frames is None and self._body:
            yield InspectedBody(text=self._body.decode(errors="replace"))
        yield InspectedEnd(
            bytes=self._bytes,
            frames=self._count,
            elapsed_ms=self._ms(at),
            truncated=self._truncated,
            problem=self._problem,
        )

    def _ms(self, at: float) -> int:
        return round((at - self.began) * 1000)


def redact_headers(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return headers with the values of credentials hidden."""
    return [(name, NOT_SHOWN if name.lower() in CREDENTIALS else value) for name, value in headers]


def _allowed_headers(inspection: Inspection) -> dict[str, str]:
    """Return the headers that a caller may set."""
    return {name: value for name, value in inspection.headers.items() if name.lower() not in _FRAMING}


def _check_inspection(inspection: Inspection) -> None:
    if (inspection.agent is None) == (inspection.url is None):
        raise InvalidParams("Name either an `agent` of this server or an external `url`")
    if inspection.agent is not None and not _TARGET.fullmatch(inspection.path):
        raise codec.invalid_field(
            "path",
            "It must begin with a slash, and have only printable ASCII characters",
        )
    for name, value in inspection.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise codec.invalid_field(f"headers.{name[:40]}", "It is not a valid HTTP header")
        if inspection.agent is not None and name.lower() in CREDENTIALS:
            text = "Requests to agents of this server use your own sign-in: remove other credentials"
            raise codec.invalid_field(f"headers.{name}", text)
