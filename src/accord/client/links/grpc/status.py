"""How a call failed: what the agent says as one of our errors, what the network does to it as `Unreachable`.

gRPC says both in the same way, so the details that A2A puts into trailing metadata decide (10.6), then 0.3's names in
front of the sentence, then the status by itself.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from accord.client.links.answers import retry_after
from accord.client.wire import Broken, TimedOut, Unreachable, too_large
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    InternalError,
    InvalidParams,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    RemoteError,
    TaskNotFound,
    TaskTimeout,
    UnsupportedOperation,
)
from accord.protocol.dialects.v03.rest import named_error
from accord.protocol.dialects.v1 import read_error

Code: TypeAlias = grpc.StatusCode

STATUSES: Mapping[Code, type[AccordError]] = {
    Code.INVALID_ARGUMENT: InvalidParams,
    Code.NOT_FOUND: TaskNotFound,
    Code.PERMISSION_DENIED: PermissionDenied,
    Code.UNAUTHENTICATED: AuthenticationFailed,
    Code.RESOURCE_EXHAUSTED: RateLimited,
    Code.FAILED_PRECONDITION: UnsupportedOperation,
    Code.UNIMPLEMENTED: MethodNotFound,
    Code.INTERNAL: InternalError,
    Code.UNAVAILABLE: AgentUnavailable,
    Code.DEADLINE_EXCEEDED: TaskTimeout,
}
"""What a status says by itself; any other is an error without a name here."""

DETAILS_KEY = "grpc-status-details-bin"
KNOWN = (error_details_pb2.ErrorInfo, error_details_pb2.BadRequest, error_details_pb2.RetryInfo)
"""The details that are read: protobuf finds them by their names, once they have been imported."""

NEVER_SENT = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "errors resolving",
    "dns resolution failed",
    "name resolution failure",
    "domain name not found",
    "handshake",
    "connection refused",
)
"""What gRPC says of calls for which there never was a connection."""

CUT = ("rst_stream", "stream removed", "connection reset", "goaway")
"""What gRPC calls an internal error, and is a connection that broke off."""

MAX_REASON = 300

STATUS_KEY = "grpcStatus"
"""The fact of an error that tells the status of the call that it ended."""


def translated(error: grpc.aio.AioRpcError, *, is_open: bool, limit: int) -> AccordError | Unreachable:
    """Return what a failure means; `is_open` if the answer had begun, `limit` is how large it may be."""
    code, sentence = error.code(), error.details() or ""
    metadata = {str(key).lower(): value for key, value in error.trailing_metadata() or ()}
    details = _details(metadata.get(DETAILS_KEY))
    if not details and (broken := _broken(code, sentence, is_open=is_open)):
        return broken
    if code is Code.RESOURCE_EXHAUSTED and not details and "larger than max" in sentence:
        return too_large(limit)
    found = _stated(code, sentence, details)
    texts = {key: value for key, value in metadata.items() if isinstance(value, str)}
    if found.retry_after is None:
        found.retry_after = retry_after(texts)
    if isinstance(found, AuthenticationFailed) and "www-authenticate" in texts:
        found.challenges = (texts["www-authenticate"],)
    return found


def _stated(code: Code, sentence: str, details: list[Any]) -> AccordError:
    named, sentence = named_error(sentence)
    found = read_error(0, sentence, details)
    kind = type(found) if not isinstance(found, RemoteError) else named or STATUSES.get(code, RemoteError)
    facts = {name: value for name, value in found.metadata.items() if name != "code"}
    return kind(
        sentence or f"The agent answered with gRPC status {code.name}",
        violations=found.violations,
        retry_after=found.retry_after,
        metadata=facts | {STATUS_KEY: code.name},
    )


def _broken(code: Code, sentence: str, *, is_open: bool) -> Unreachable | None:
    """Return what happened to the connection, or None if the agent itself spoke."""
    said, reason = sentence.lower(), sentence[:MAX_REASON]
    if code is Code.DEADLINE_EXCEEDED:
        return TimedOut("No answer in time", was_sent=True)
    if code not in (Code.UNAVAILABLE, Code.CANCELLED) and not (
        code in (Code.INTERNAL, Code.UNKNOWN) and any(sign in said for sign in CUT)
    ):
        return None
    if is_open:
        return Broken(f"The stream was cut: {reason}")
    if code is Code.UNAVAILABLE and any(sign in said for sign in NEVER_SENT):
        return Unreachable(f"There is no connection: {reason}", was_sent=False)
    return Unreachable(f"The call broke off: {reason}", was_sent=True)


def _details(packed: Any) -> list[Any]:
    """Return the details that a status carries, as the JSON that A2A 1.0's errors have everywhere."""
    if not isinstance(packed, bytes):
        return []
    try:
        return [MessageToDict(detail) for detail in status_pb2.Status.FromString(packed).details if _is_known(detail)]
    except DecodeError:
        return []


def _is_known(detail: Any) -> bool:
    return any(detail.Is(kind.DESCRIPTOR) for kind in KNOWN)
