"""Every way to ask for an operation: each binding in each of its dialects, over real connections.

Requests are written by the dialects themselves, which other tests hold against the official types. What comes back is
kept as it came, so that two answers can be compared byte by byte.
"""

import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2
from msgspec.structs import replace

from accord.http.grpc.calls import encode_message
from accord.model import Request
from accord.protocol import jsonrpc
from accord.protocol.dialects import DIALECTS, REST_DIALECTS, Dialect
from accord.protocol.operations import ROWS, DialectName, Operation, method_name
from accord.protocol.protobuf import GRPC_SERVICES, to_json
from accord.protocol.sse import Decoder, Frame
from tests.abuse.server import Server
from tests.abuse.wire import Answer

BOUND_SECONDS = 60.0
DETAILS = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
"""What a status may hold: protobuf finds them by their names, once they have been imported."""

V1, V03 = DialectName.V1, DialectName.V03
REST_PREFIX = {V1: "", V03: "/v1"}


class Way(NamedTuple):
    """A binding and a dialect."""

    binding: str
    dialect: DialectName

    def __str__(self) -> str:
        return f"{self.binding}-{self.dialect.value}"

    def offers(self, operation: Operation) -> bool:
        """Whether the operation exists this way."""
        if self.binding == "rest":
            return bool(ROWS[operation].rest if self.dialect is V1 else ROWS[operation].rest_v03)
        if self.binding == "grpc":
            return operation in METHODS[self.dialect]
        return method_name(operation, self.dialect) is not None


METHODS = {name: {method.operation: method for method in edition.methods} for name, edition in GRPC_SERVICES.items()}
WAYS = [
    *(Way("jsonrpc", dialect) for dialect in DialectName),
    *(Way("rest", dialect) for dialect in REST_DIALECTS),
    *(Way("grpc", dialect) for dialect in METHODS),
]


class Told(NamedTuple):
    """What was answered: the reason of a refusal, or what was asked for; and all of it as it came.

    Of a stream it is the first event.
    """

    reason: str | None
    result: Any
    said: bytes


class Caller:
    """Somebody who asks a server, with a key or without one."""

    def __init__(self, server: Server, key: str | None = None, *, prefix: str = "") -> None:
        """Ask at the root, or below `prefix`."""
        self._server = server
        self._key = key
        self._prefix = prefix

    def ask(self, way: Way, operation: Operation, request: Any, *, after: int | None = None) -> Told:
        """Ask for an operation; `after` is the last event of a stream that the caller says to have seen."""
        headers = {} if self._key is None else {"x-api-key": self._key}
        if after is not None:
            headers["last-event-id"] = str(after)
        told: Told = getattr(self, f"_{way.binding}")(way.dialect, operation, request, headers)
        return told

    def _jsonrpc(self, name: DialectName, operation: Operation, request: Request, headers: dict[str, str]) -> Told:
        dialect, method = DIALECTS[name], method_name(operation, name)
        assert method is not None
        body = jsonrpc.request("1", method, dialect.encode_request(operation, request))
        answer = self._asked("POST", f"{self._prefix}/", body, {"X-A2A-Dialect": name.value, **headers})
        frame = _frame(answer)
        plain = json.loads(frame.data)
        if "error" in plain:
            return Told(_reason(plain["error"]["data"]), None, answer.said)
        inner = json.dumps(plain["result"]).encode() if "jsonrpc" in plain else frame.data
        return Told(None, _read(dialect, operation, request, replace(frame, data=inner)), answer.said)

    def _rest(self, name: DialectName, operation: Operation, request: Request, headers: dict[str, str]) -> Told:
        dialect, row = REST_DIALECTS[name], ROWS[operation]
        verb, path = (row.rest if name is V1 else row.rest_v03)[0]
        stated: dict[str, Any] = json.loads(dialect.encode_request(operation, request))
        tenant = f"/{quote(stated.pop('tenant'), safe='')}" if "tenant" in stated else ""
        for value in ("id", "task_id"):
            camel = value.replace("_i", "I")
            path = path.replace(f"{{{camel}}}", quote(getattr(request, value, None) or "-", safe=""))
        query = f"?{urlencode(stated)}" if verb != "POST" else ""
        body = json.dumps(stated).encode() if verb == "POST" else b""
        answer = self._asked(verb, self._prefix + REST_PREFIX[name] + tenant + path + query, body, headers)
        if answer.status != 200:
            plain = answer.json()
            return Told(_reason(plain["error"]["details"] if name is V1 else plain["data"]), None, answer.said)
        return Told(None, _read(dialect, operation, request, _frame(answer)), answer.said)

    def _grpc(self, name: DialectName, operation: Operation, request: Request, headers: dict[str, str]) -> Told:
        method = METHODS[name][operation]
        body = encode_message(method.request, method.dialect.encode_request(operation, request))
        with grpc.insecure_channel(f"127.0.0.1:{self._server.grpc_port}") as channel:
            call = (channel.unary_stream if method.streams else channel.unary_unary)(method.path)
            try:
                answer = call(body, metadata=list(headers.items()), timeout=BOUND_SECONDS)
                data = to_json(method.response, next(answer) if method.streams else answer)
            except grpc.RpcError as error:
                metadata = dict(error.trailing_metadata())
                said = repr((error.code(), error.details(), sorted(metadata.items()))).encode()
                status = status_pb2.Status.FromString(metadata["grpc-status-details-bin"])
                return Told(_reason(json_format.MessageToDict(status)["details"]), None, said)
        return Told(None, _read(method.dialect, operation, request, Frame(data=data)), data)

    def _asked(self, verb: str, target: str, body: bytes, headers: dict[str, str]) -> Answer:
        """A whole answer, or the head and the first event of a stream."""
        with self._server.connect() as wire:
            wire.ask(verb, target, body, headers)
            head = wire.head()
            is_stream = head.header("transfer-encoding") == "chunked"
            return head._replace(body=wire.chunk() if is_stream else wire.body(head))


def _frame(answer: Answer) -> Frame:
    """The JSON of an answer, or the first event of a stream."""
    if answer.header("content-type") != "text/event-stream":
        return Frame(data=answer.body)
    (frame, *_) = Decoder().feed(answer.body)
    return frame


def _read(dialect: Dialect, operation: Operation, request: Request, frame: Frame) -> Any:
    if ROWS[operation].streams:
        return dialect.decode_event(frame)
    return dialect.decode_result(operation, frame.data, request)


def _reason(data: Any) -> str:
    """The reason in the details of an error: a list of typed objects in 1.0, a flat object in all others."""
    entries = data if isinstance(data, list) else [data]
    return str(next(entry["reason"] for entry in entries if "reason" in entry))
