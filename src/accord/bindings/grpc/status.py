"""An error as gRPC states it: a status, a sentence, and google.rpc details in the trailing metadata (10.6).

Codes and reasons are those of `errors.TABLE`, the details those of A2A 1.0 whatever the dialect, since older clients
do not look at them. How much is said is bounded here, because all of it has to fit into HTTP/2 headers.
"""

from typing import Any, NamedTuple

import grpc
from google.protobuf.json_format import ParseDict
from google.rpc import error_details_pb2, status_pb2

from accord.bindings.http import Headers, error_headers
from accord.errors import AccordError
from accord.protocol.dialects.base import Dialect
from accord.protocol.dialects.v1 import error_details

Metadata = tuple[tuple[str, str | bytes], ...]

DETAILS_KEY = "grpc-status-details-bin"

MAX_SENTENCE_BYTES = 800
MAX_DETAILS_BYTES = 3000
"""Clients refuse metadata over 8 kB, and these travel three times (percent-encoded) and 4/3 times (base64) as long."""

KNOWN = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
"""The messages in `details`: protobuf finds them by their names, once they have been imported."""


class Status(NamedTuple):
    """What a call is ended with."""

    code: grpc.StatusCode
    sentence: str
    metadata: Metadata


def status_of(error: AccordError, dialect: Dialect) -> Status:
    """Return the status of an error."""
    code: grpc.StatusCode = grpc.StatusCode[error.row.grpc]
    sentence = dialect.encode_error(error).message.encode()[:MAX_SENTENCE_BYTES].decode(errors="ignore")
    said = _rpc_status(code, sentence, error_details(error))
    if said.ByteSize() > MAX_DETAILS_BYTES:  # what the caller must have is the reason
        said = _rpc_status(code, sentence, error_details(type(error)()))
    return Status(code, sentence, ((DETAILS_KEY, said.SerializeToString()), *as_metadata(error_headers(error))))


def as_metadata(headers: Headers) -> Metadata:
    """Return headers as metadata, without what HTTP/2 does not have (RFC 9113, 8.2.2)."""
    return tuple((name.decode(), value.decode("latin-1")) for name, value in headers if name != b"connection")


def _rpc_status(code: grpc.StatusCode, sentence: str, stated: list[dict[str, Any]]) -> Any:
    return ParseDict({"code": code.value[0], "message": sentence, "details": stated}, status_pb2.Status())
