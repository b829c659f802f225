"""The client's side of gRPC: the dialect's JSON as protobuf over a real connection, and statuses read back.

The messages are those of the published definitions; converting is protobuf's own, not that of the binding under test.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf import json_format
from google.rpc import error_details_pb2, status_pb2

from accord.errors import AccordError
from accord.model import Request
from accord.protocol.dialects.v1 import read_error
from accord.protocol.operations import DialectName, Operation
from accord.protocol.protobuf import GRPC_SERVICES, GrpcMethod
from accord.protocol.sse import Frame
from tests.conformance.wire import Binding, Events, Headers, Refusal, Seen, Wire

DETAILS = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
"""What a status may carry: protobuf finds them by name once they are imported."""


class GrpcWire(Wire):
    """gRPC; what HTTP has as headers are metadata."""

    binding = Binding.GRPC

    def __init__(self, channel: Any, name: DialectName, headers: Headers) -> None:
        methods = GRPC_SERVICES[name].methods
        said = {"A2A-Version": "1.0"} if name is DialectName.V1 else {}
        super().__init__(methods[0].dialect, {**said, **headers})
        self._channel = channel
        self._methods = {method.operation: method for method in methods}

    async def garble(self) -> None:
        await self._ask_with(b"\xff\xff\xff", self._methods[Operation.SEND], self.headers)

    async def _ask(self, operation: Operation, request: Request, params: bytes, headers: Headers) -> bytes:
        method = self._methods[operation]
        answer = await self._ask_with(_protobuf(method, params), method, headers)
        return _json(method, answer)

    async def _ask_with(self, body: bytes, method: GrpcMethod, headers: Headers) -> bytes:
        calling = self._channel.unary_unary(method.path)(body, metadata=_metadata(headers))
        try:
            answer: bytes = await calling
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from None
        self.answered = _headers(await calling.trailing_metadata())
        return answer

    @asynccontextmanager
    async def _follow(
        self, operation: Operation, request: Request, params: bytes, headers: Headers
    ) -> AsyncIterator[Events]:
        method = self._methods[operation]
        calling = self._channel.unary_stream(method.path)(_protobuf(method, params), metadata=_metadata(headers))
        try:
            begin = _headers(await calling.initial_metadata())
            if "last-event-id" not in begin:  # gRPC refuses a stream at its end
                await _finished(calling)
            self.answered = begin
            yield Events(self._events(method, calling), int(begin["last-event-id"]))
        finally:
            calling.cancel()

    async def _events(self, method: GrpcMethod, calling: Any) -> AsyncGenerator[Seen, None]:
        try:
            async for message in calling:
                yield Seen(self.dialect.decode_event(Frame(data=_json(method, message))))
        except grpc.aio.AioRpcError as error:
            raise _refusal(error) from None


async def _finished(calling: Any) -> None:
    """Raise what a call was refused with."""
    try:
        while await calling.read() is not grpc.aio.EOF:
            raise AssertionError("A stream without a number to take it up from")
    except grpc.aio.AioRpcError as error:
        raise _refusal(error) from None


def _protobuf(method: GrpcMethod, params: bytes) -> bytes:
    found: bytes = json_format.Parse(params, method.request()).SerializeToString()
    return found


def _json(method: GrpcMethod, body: bytes) -> bytes:
    return bytes(json_format.MessageToJson(method.response.FromString(body)), "utf-8")


def _metadata(headers: Headers) -> list[tuple[str, str]]:
    return [(name.lower(), value) for name, value in headers.items()]


def _headers(metadata: Any) -> dict[str, str]:
    return {key: value for key, value in metadata or () if isinstance(value, str)}


def _refusal(error: Any) -> Refusal:
    """Read a status: its details are those of A2A 1.0 in both editions."""
    trailing = error.trailing_metadata()
    raw = dict(list(trailing)).get("grpc-status-details-bin")
    assert raw is not None, f"{error.code()} without details: {error.details()}"
    status = status_pb2.Status.FromString(raw)
    assert (status.code, status.message) == (error.code().value[0], error.details())
    stated: AccordError = read_error(status.code, status.message, json_format.MessageToDict(status)["details"])
    return Refusal(stated, error.code().name, _headers(trailing))
