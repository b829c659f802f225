"""A client's side of the wire, as small as it can be: a canonical request out, a canonical answer or events back.

It stands on the client halves of the dialects and knows only framing: an envelope, an address, a call. Whatever a
server refuses comes back as `Refusal`, with the error that a client makes of it and the code that was on the wire.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from msgspec.structs import replace

from accord.errors import AccordError
from accord.http.asgi import App
from accord.model import EventBody, Part, Request, Result
from accord.protocol import jsonrpc
from accord.protocol.dialects import DIALECTS, REST_DIALECTS, Dialect
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import ROWS, DialectName, Operation, method_name
from accord.protocol.sse import Frame
from accord.testing.asgi import Response, call, stream

V1, V03, VAULT, GEN, RELAY = DialectName

Headers = Mapping[str, str]

Code = int | str | None
"""A JSON-RPC code, an HTTP status or the name of a gRPC status; None where a dialect refuses without one."""


class Binding(Enum):
    """What carries the operations."""

    JSONRPC = "jsonrpc"
    REST = "rest"
    GRPC = "grpc"


class Speech(NamedTuple):
    """A dialect over a binding."""

    dialect: DialectName
    binding: Binding

    def __str__(self) -> str:
        return f"{self.dialect.value}-{self.binding.value}"

    def has(self, operation: Operation) -> bool:
        """Whether there is an operation: over gRPC, what the definition of 0.3 lacks cannot be called."""
        row = ROWS[operation]
        if self.binding is Binding.GRPC and self.dialect is V03:
            return row.grpc_v03 is not None
        if self.binding is Binding.REST:
            return bool(row.rest if self.dialect is V1 else row.rest_v03)
        return bool(row.names[self.dialect])


SPEECHES = (
    *(Speech(dialect, Binding.JSONRPC) for dialect in DialectName),
    *(Speech(dialect, binding) for binding in (Binding.REST, Binding.GRPC) for dialect in (V1, V03)),
)
"""Everything that can be spoken."""


class Refusal(Exception):
    """What a server said no with; `status` is that of HTTP, where there is one."""

    def __init__(self, error: AccordError, code: Code, headers: Headers, status: int | None = None) -> None:
        super().__init__(f"{type(error).__name__} ({code}): {error.message}")
        self.error, self.code, self.headers, self.status = error, code, headers, status


class Seen(NamedTuple):
    """One event, and its number where the binding states one beside each."""

    body: EventBody
    seq: int | None = None


class Events:
    """A stream that has begun; `last_seen` is what to say to take it up again."""

    def __init__(self, events: AsyncGenerator[Seen, None], begin: int | None = None) -> None:
        self._events = events
        self.last_seen = begin

    def __aiter__(self) -> "Events":
        return self

    async def __anext__(self) -> Seen:
        seen = await anext(self._events)
        self.last_seen = self.last_seen if seen.seq is None else seen.seq
        return seen

    async def rest(self) -> list[Seen]:
        """Everything up to the end."""
        return [seen async for seen in self]

    async def close(self) -> None:
        await self._events.aclose()


class Wire(ABC):
    """An agent as one caller sees it over one binding in one dialect.

    `sent` notes what was asked of it, `answered` the headers of the last answer.
    """

    binding: Binding

    def __init__(self, dialect: Dialect, headers: Headers) -> None:
        self.dialect = dialect
        self.headers = headers
        self.sent: set[Operation] = set()
        self.answered: Headers = {}

    @property
    def name(self) -> DialectName:
        return self.dialect.name

    async def ask(
        self, operation: Operation, request: Request, *, params: bytes | None = None, headers: Headers | None = None
    ) -> Any:
        """Ask for an answer; `params` are sent as they are, in place of the request's own."""
        self.sent.add(operation)
        written = self.dialect.encode_request(operation, request) if params is None else params
        answer = await self._ask(operation, request, written, {**self.headers, **(headers or {})})
        try:
            found: Result = self.dialect.decode_result(operation, answer, request)
        except AccordError as error:  # what a dialect refuses with a result
            raise Refusal(error, None, self.answered) from None
        return found

    @asynccontextmanager
    async def follow(
        self,
        operation: Operation,
        request: Request,
        *,
        after: int | str | None = None,
        params: bytes | None = None,
        headers: Headers | None = None,
    ) -> AsyncIterator[Events]:
        """Ask for a stream, which begins `after` an event; leaving the block closes it."""
        self.sent.add(operation)
        written = self.dialect.encode_request(operation, request) if params is None else params
        said = {**self.headers, **(headers or {}), **({} if after is None else {"Last-Event-ID": str(after)})}
        async with self._follow(operation, request, written, said) as events:
            try:
                yield events
            finally:
                await events.close()

    async def loaded(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """Return parts with their bytes, also where a dialect has no bytes but addresses of them."""
        return tuple(parts)

    @abstractmethod
    async def garble(self) -> None:
        """Send what is no request at all."""

    @abstractmethod
    async def _ask(self, operation: Operation, request: Request, params: bytes, headers: Headers) -> bytes:
        """Send a request and return the result as JSON."""

    @abstractmethod
    def _follow(self, operation: Operation, request: Request, params: bytes, headers: Headers) -> Any:
        """Send a request and give, as a context, the stream that answers it."""


class HttpWire(Wire):
    """What both bindings over HTTP share: the application is called in this process."""

    ACCEPT = "text/event-stream"

    def __init__(self, app: App, dialect: Dialect, headers: Headers) -> None:
        super().__init__(dialect, headers)
        self.app = app

    async def post(self, path: str, body: bytes, headers: Headers | None = None) -> bytes:
        """Send a body as it is and return the result of the answer."""
        return self._result(await call(self.app, body, path=path, headers={**self.headers, **(headers or {})}))

    async def get(self, path: str, query: str = "", headers: Headers | None = None) -> Response:
        """Read a document."""
        return await call(self.app, method="GET", path=path, query=query, headers={**self.headers, **(headers or {})})

    async def loaded(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        return tuple([await self._loaded(part) if self.dialect.links_files else part for part in parts])

    async def _loaded(self, part: Part) -> Part:
        path = urlsplit(part.url or "").path
        if not path.startswith("/files/"):
            return part
        assert part.raw is None
        answer = await call(self.app, method="GET", path=path, headers={})  # whoever has the address may read
        assert answer.status == 200
        return replace(part, url=None, raw=answer.body)

    async def _ask(self, operation: Operation, request: Request, params: bytes, headers: Headers) -> bytes:
        return self._result(await call(self.app, **self._sent(operation, request, params, headers)))

    @asynccontextmanager
    async def _follow(
        self, operation: Operation, request: Request, params: bytes, headers: Headers
    ) -> AsyncIterator[Events]:
        sent = self._sent(operation, request, params, {**headers, "Accept": self.ACCEPT})
        async with stream(self.app, **sent) as response:
            if response.headers["content-type"] != "text/event-stream":
                await response.read()
                said = self._result(response)
                raise AssertionError(f"An answer where a stream was asked for: {said!r}")
            self._note(response)
            yield Events(self._events(response))

    async def _events(self, response: Response) -> AsyncGenerator[Seen, None]:
        async for frame in response.events():
            body = self.dialect.decode_event(self._unwrapped(frame, response))
            yield Seen(body, None if frame.id is None else int(frame.id))

    def _note(self, response: Response) -> None:
        """Keep an answer's headers; every answer says its dialect."""
        self.answered = response.headers
        assert response.headers["x-a2a-dialect"] == self.name.value

    @abstractmethod
    def _sent(self, operation: Operation, request: Request, params: bytes, headers: Headers) -> dict[str, Any]:
        """Return the HTTP request."""

    @abstractmethod
    def _result(self, response: Response) -> bytes:
        """Return the result in an answer, or raise the refusal that it is."""

    @abstractmethod
    def _unwrapped(self, frame: Frame, response: Response) -> Frame:
        """Return an event without what the binding puts around it, or raise the refusal that it is."""


class JsonRpcWire(HttpWire):
    """JSON-RPC; how a caller says which dialect it speaks differs as it does among real ones."""

    binding = Binding.JSONRPC

    WAYS: Mapping[DialectName, tuple[str, Headers]] = {
        V1: ("/", {"A2A-Version": "1.0"}),
        V03: ("/", {}),
        VAULT: ("/a2a", {}),
        GEN: ("/gen", {}),
        RELAY: ("/", {"X-A2A-Dialect": "relay"}),
    }
    ACCEPT = "text/event-stream, application/json"
    ID = "any-text"

    def __init__(self, app: App, name: DialectName, headers: Headers, *, unsaid: bool = False) -> None:
        """Speak the dialect where it is expected, or `unsaid` at the root without a word about which it is."""
        self.path, said = ("/", {}) if unsaid else self.WAYS[name]
        super().__init__(app, DIALECTS[name], {**said, **headers})

    async def garble(self) -> None:
        await self.post(self.path, b'{"jsonrpc": ')

    def _sent(self, operation: Operation, request: Request, params: bytes, headers: Headers) -> dict[str, Any]:
        method = method_name(operation, self.name)
        assert method is not None, f"{self.name} has no {operation}"
        return {"body": jsonrpc.request(self.ID, method, params), "path": self.path, "headers": headers}

    def _result(self, response: Response) -> bytes:
        self._note(response)
        assert response.headers["content-type"] == "application/json"
        return self._read(response.body, response)

    def _unwrapped(self, frame: Frame, response: Response) -> Frame:
        if not self.dialect.wraps_events:
            return frame
        return Frame(event=frame.event, data=self._read(frame.data, response))

    def _read(self, body: bytes, response: Response) -> bytes:
        envelope = json.loads(body)
        assert envelope["jsonrpc"] == "2.0"
        assert envelope["id"] in (self.ID, None)
        assert ("result" in envelope) != ("error" in envelope)
        answer = jsonrpc.read_answer(body)
        if isinstance(answer, ErrorObject):
            raise Refusal(self.dialect.decode_error(answer), answer.code, response.headers, response.status)
        assert (envelope["id"], response.status) == (self.ID, 200)
        return answer


class RestWire(HttpWire):
    """HTTP+JSON: what the path and the query hold is taken out of the dialect's own parameters."""

    binding = Binding.REST

    PREFIX: Mapping[DialectName, str] = {V1: "", V03: "/v1"}
    IN_PATH = frozenset({"id", "taskId", "name", "parent", "tenant"})

    def __init__(self, app: App, name: DialectName, headers: Headers) -> None:
        said = {"A2A-Version": "1.0"} if name is V1 else {}
        super().__init__(app, REST_DIALECTS[name], {**said, **headers})

    async def garble(self) -> None:
        await self.post(f"{self.PREFIX[self.name]}/message:send", b'{"message": ')

    def _sent(self, operation: Operation, request: Request, params: bytes, headers: Headers) -> dict[str, Any]:
        row = ROWS[operation]
        route = (row.rest if self.name is V1 else row.rest_v03)[-1]
        ids = {"id": getattr(request, "id", ""), "taskId": getattr(request, "task_id", "")}
        path = route.path.format_map({name: quote(value or "", safe="") for name, value in ids.items()})
        tenant = f"/{request.tenant}" if request.tenant else ""
        path = self.PREFIX[self.name] + tenant + path
        sent: dict[str, Any] = {"method": route.verb, "path": path, "headers": headers}
        if route.verb == "POST":
            return sent | {"body": params}
        stated = {name: _text(value) for name, value in json.loads(params).items() if name not in self.IN_PATH}
        return sent | {"query": urlencode(stated), "headers": {**headers, "Content-Type": ""}}

    def _result(self, response: Response) -> bytes:
        self._note(response)
        expected = "application/a2a+json" if self.name is V1 else "application/json"
        assert response.headers["content-type"] == expected
        if response.status != 200:
            raise self._refusal(response.body, response)
        return response.body

    def _unwrapped(self, frame: Frame, response: Response) -> Frame:
        if frame.event == "error":
            raise self._refusal(frame.data, response)
        return frame

    def _refusal(self, body: bytes, response: Response) -> Refusal:
        said = json.loads(body)
        stated = said["error"] if self.name is V1 else said
        found = ErrorObject(stated["code"], stated["message"], stated.get("details", stated.get("data")))
        return Refusal(self.dialect.decode_error(found), response.status, response.headers, response.status)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
