"""What can be called over gRPC: one row per operation of each of the two services, from the table of operations.

It only joins tables: names come from `protocol.operations`, messages from the published protobuf definitions, codecs
from the dialects. Calls are answered by the binding and made by the client's link.
"""

from collections.abc import Mapping

from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct

from accord.protocol.dialects import DIALECTS
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.v03.grpc import V03Grpc
from accord.protocol.operations import TABLE, DialectName, Operation


class Method(Struct, frozen=True, kw_only=True):
    """One call: what it asks for, in which dialect, and the messages that it takes and gives."""

    name: str
    path: str
    operation: Operation
    streams: bool
    dialect: Dialect
    request: type[Message]
    response: type[Message]


class Edition(Struct, frozen=True, kw_only=True):
    """One of the two services."""

    service: str
    methods: tuple[Method, ...]


def _edition(service: ServiceDescriptor, dialect: Dialect, names: Mapping[Operation, str | None]) -> Edition:
    methods = tuple(
        Method(
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
    return Edition(service=service.full_name, methods=methods)


EDITIONS: Mapping[DialectName, Edition] = {
    DialectName.V1: _edition(
        a2a_pb2.DESCRIPTOR.services_by_name["A2AService"],
        DIALECTS[DialectName.V1],
        {row.operation: row.operation.value for row in TABLE},
    ),
    DialectName.V03: _edition(
        a2a_v0_3_pb2.DESCRIPTOR.services_by_name["A2AService"],
        V03Grpc(),
        {row.operation: row.grpc_v03 for row in TABLE},
    ),
}
"""The service of each dialect that has one; field numbers differ nearly everywhere, so neither can be the other."""
