"""The table of the five wire dialects, and webhook bodies of any of them.

`base.Dialect` is their interface, and `DIALECTS` contains one of each. The dialects do not import each other, except
that `relay` is a variant of `v03`. A webhook endpoint expects a task, not a dialect (B-10): a task, a stream event and
the simple body are recognized by their members.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.json import Decoder

from accord.errors import AccordError, InvalidParams, ParseError
from accord.model import EventBody, Request
from accord.protocol import codec
from accord.protocol.dialects.base import Dialect, RestDialect
from accord.protocol.dialects.fields import convert_query_values
from accord.protocol.dialects.gen import Gen
from accord.protocol.dialects.relay import RelayDialect
from accord.protocol.dialects.v03 import V03, V03Members
from accord.protocol.dialects.v03.rest import V03Rest
from accord.protocol.dialects.v1 import V1, error_details, json_names, read_error
from accord.protocol.dialects.vault import Vault
from accord.protocol.operations import DialectName, Operation
from accord.protocol.sse import Frame

DIALECTS: Mapping[DialectName, Dialect] = {
    dialect.name: dialect for dialect in (V1(), V03(), Vault(), Gen(), RelayDialect())
}
"""The dialect of each name, for JSON-RPC."""

BY_MEMBER: Dialect = V03Members()
"""A2A 0.3 over JSON-RPC, for callers that leave `kind` out."""


class V1Rest(V1, RestDialect):
    """A2A 1.0 HTTP+JSON: the JSON of 1.0 with queries and its own form of errors."""

    media_types: ClassVar = ("application/a2a+json", "application/json")

    def decode_request(self, operation: Operation, params: bytes) -> Request:
        """Read the body, query and path values of an operation, joined in one object."""
        return super().decode_request(operation, convert_query_values(operation, json_names(params)))

    def encode_http_error(self, error: AccordError) -> bytes:
        """Write an error as a `google.rpc.Status` (11.6)."""
        row = error.row
        status = {"code": row.http, "status": row.grpc, "message": error.message, "details": error_details(error)}
        return codec.encode({"error": status})

    def decode_streamed(self, frame: Frame) -> EventBody:
        """Read one event of a stream, which is bare as in every HTTP+JSON binding."""
        return RestDialect.decode_streamed(self, frame)

    def decode_http_error(self, body: bytes) -> AccordError | None:
        """Read a `google.rpc.Status`."""
        try:
            status = codec.decode(body, _ERROR).error
        except (InvalidParams, ParseError):
            return None
        return read_error(status.code, status.message, status.details)


class _Status(Struct):
    message: str
    code: int = 0
    details: Any = None


class _Error(Struct):
    error: _Status


_ERROR = Decoder(_Error)

REST_DIALECTS: Mapping[DialectName, RestDialect] = {DialectName.V1: V1Rest(), DialectName.V03: V03Rest()}
"""The dialects that have an HTTP+JSON binding, for that binding."""

__all__ = ["BY_MEMBER", "DIALECTS", "REST_DIALECTS", "Dialect", "RestDialect"]


class _WebhookLook(Struct):
    kind: Any | UnsetType = UNSET
    state: Any | UnsetType = UNSET
    status: Any | UnsetType = UNSET
    timestamp: Any | UnsetType = UNSET
    task_id: Any | UnsetType = UNSET
    task: Any | UnsetType = UNSET
    message: Any | UnsetType = UNSET
    status_update: Any | UnsetType = field(default=UNSET, name="statusUpdate")
    artifact_update: Any | UnsetType = field(default=UNSET, name="artifactUpdate")


_webhook_look = Decoder(_WebhookLook)


def decode_webhook(body: bytes) -> EventBody:
    """Read a webhook report: a task, or one change of it."""
    return DIALECTS[_dialect(codec.decode(body, _webhook_look))].decode_push(body)


def _dialect(look: _WebhookLook) -> DialectName:
    if look.kind is not UNSET:
        return DialectName.V03
    if look.task_id is not UNSET:
        return DialectName.GEN
    if look.state is not UNSET or (look.timestamp is not UNSET and look.status is UNSET):
        return DialectName.VAULT
    wrapped = (look.task, look.message, look.status_update, look.artifact_update)
    return DialectName.V1 if any(member is not UNSET for member in wrapped) else DialectName.V03
