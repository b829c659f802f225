"""A2A as protobuf (extra `grpc`): the gRPC methods, and messages to and from JSON.

Messages are converted through JSON so that every validation rule exists once, in the dialects. That costs some 30
microseconds for a request and 70 for a response, which is less than gRPC itself takes. The definitions are a2a-sdk's
own.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf import json_format
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from accord.errors import InvalidParams, ParseError
from accord.protocol import codec
from accord.protocol.dialects import DIALECTS
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.v03.rest import V03Grpc
from accord.protocol.operations import TABLE, DialectName, Operation

EXACT = 2**53
"""Limit below which a whole number survives as protobuf's float."""


class NoProtobuf(ValueError):
    """JSON without a protobuf form that other peers can read: it is nested too deeply."""


def to_json(kind: type[Message], body: bytes) -> bytes:
    """Return a message as JSON."""
    try:
        plain = json_format.MessageToDict(kind.FromString(body))
    except DecodeError:
        raise ParseError("It is not a valid protobuf message") from None
    except (json_format.Error, ValueError):
        raise InvalidParams("There is a number or a time in it that JSON cannot express") from None
    return codec.encode(_whole(plain))


def from_json(kind: type[Message], json: bytes) -> bytes:
    """Return JSON as a message, or raise NoProtobuf."""
    try:
        body: bytes = json_format.ParseDict(msgspec.json.decode(json), kind()).SerializeToString()
        kind.FromString(body)  # protobuf writes more levels than it reads: find out here and not at the reader
    except (json_format.ParseError, DecodeError) as error:
        raise NoProtobuf(str(error)) from None
    return body


def _whole(value: Any) -> Any:
    """Return JSON with whole numbers as integers: protobuf's free data has only floats."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < EXACT else value
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


class GrpcMethod(Struct, frozen=True, kw_only=True):
    """One gRPC method: its operation, its dialect, and its request and response messages."""

    name: str
    path: str
    operation: Operation
    streams: bool
    dialect: Dialect
    request: type[Message]
    response: type[Message]


class GrpcService(Struct, frozen=True, kw_only=True):
    """One of the two services."""

    service: str
    methods: tuple[GrpcMethod, ...]


def _grpc_service(service: ServiceDescriptor, dialect: Dialect, names: Mapping[Operation, str | None]) -> GrpcService:
    methods = tuple(
        GrpcMethod(
            name=name,
            path=f"/{service.full_name}/{name}",
            operation=row.operation,
            streams=row.streams,
            dialect=dialect,
            request=GetMessageClass(service.methods_by_name[name].input_type),
            response=GetMessageClass(service.methods_by_name[name].output_type),
        )
        for row in TABLE
        if (name := names[row.operation])
    )
    return GrpcService(service=service.full_name, methods=methods)


GRPC_SERVICES: Mapping[DialectName, GrpcService] = {
    DialectName.V1: _grpc_service(
        a2a_pb2.DESCRIPTOR.services_by_name["A2AService"],
        DIALECTS[DialectName.V1],
        {row.operation: row.operation.value for row in TABLE},
    ),
    DialectName.V03: _grpc_service(
        a2a_v0_3_pb2.DESCRIPTOR.services_by_name["A2AService"],
        V03Grpc(),
        {row.operation: row.grpc_v03 for row in TABLE},
    ),
}
"""The service of each dialect that has one; field numbers differ nearly everywhere, so neither can serve as the other.
"""
