"""Errors that Accord returns to callers, and their codes on the wire.

    AccordError
    |-- ParseError               the body is not JSON
    |-- InvalidRequest           JSON, but not a request
    |   |-- RequestTooLarge      over a size limit
    |   |   `-- HeadersTooLarge  the HTTP headers are
    |   `-- RequestTimeout       it came too slowly
    |-- MethodNotFound
    |-- InvalidParams            names the field
    |-- InternalError            everything unforeseen; reveals nothing
    |-- TaskNotFound             also for a task of another caller
    |-- TaskNotCancelable
    |-- PushNotSupported
    |-- UnsupportedOperation
    |-- ContentTypeNotSupported
    |   `-- UnsupportedMediaType the HTTP body's own type
    |-- InvalidAgentResponse
    |-- ExtendedCardNotConfigured
    |-- ExtensionSupportRequired
    |-- VersionNotSupported
    |-- AgentUnavailable         try again later
    |-- TaskTimeout
    |-- AuthenticationFailed
    |-- PermissionDenied
    |-- RateLimited              try again later
    |   `-- StorageQuotaExceeded until tasks are deleted
    `-- RemoteError              another server's own error

An error's default message is its docstring. Exceptions of libraries are translated once, where they are raised.
Dialects turn rows of `TABLE` into wire objects, and bindings into statuses. Neither defines numbers of its own.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

A2A_DOMAIN = "a2a-protocol.org"
"""The `domain` of ErrorInfo for errors that the A2A specification defines."""

OWN_DOMAIN = "accord"
"""The `domain` of ErrorInfo for errors that A2A leaves to the implementation."""


class Violation(NamedTuple):
    """An invalid field: its path in the request, and the reason."""

    field: str
    description: str


class AccordError(Exception):
    """The request could not be served."""

    def __init__(
        self,
        message: str | None = None,
        *,
        violations: tuple[Violation, ...] = (),
        retry_after: int | None = None,
        metadata: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Set the message; `metadata` adds facts that the caller may act on (never secrets)."""
        super().__init__(message or (type(self).__doc__ or "").strip().rstrip("."))
        self.violations = violations
        self.retry_after = retry_after
        self.metadata = metadata

    @property
    def message(self) -> str:
        """The message for the caller."""
        return str(self.args[0])

    @property
    def row(self) -> "Row":
        """The codes of this error on the wire."""
        return TABLE[type(self)]


class ParseError(AccordError):
    """The body is not valid JSON."""


class InvalidRequest(AccordError):
    """The body is not a valid request object."""


class RequestTooLarge(InvalidRequest):
    """The request is larger than this server accepts."""


class HeadersTooLarge(RequestTooLarge):
    """The request's headers are larger than this server accepts."""


class RequestTimeout(InvalidRequest):
    """The request did not arrive in time."""


class MethodNotFound(AccordError):
    """The method is unknown."""


class InvalidParams(AccordError):
    """The parameters are invalid."""


class InternalError(AccordError):
    """An internal error occurred."""


class TaskNotFound(AccordError):
    """Task not found."""


class TaskNotCancelable(AccordError):
    """The task cannot be canceled in its current state."""


class PushNotSupported(AccordError):
    """This agent does not send push notifications."""


class UnsupportedOperation(AccordError):
    """This operation is not supported here."""


class ContentTypeNotSupported(AccordError):
    """A media type in the request is not supported by this agent."""


class UnsupportedMediaType(ContentTypeNotSupported):
    """The request's Content-Type is not supported."""


class InvalidAgentResponse(AccordError):
    """The agent answered something that is not a valid response."""


class ExtendedCardNotConfigured(AccordError):
    """This agent has no extended card."""


class ExtensionSupportRequired(AccordError):
    """The agent requires an extension that the request does not declare."""


class VersionNotSupported(AccordError):
    """The requested protocol version is not supported."""


class AgentUnavailable(AccordError):
    """The agent is not available at the moment."""


class TaskTimeout(AccordError):
    """The task did not finish in time."""


class AuthenticationFailed(AccordError):
    """The credentials are missing or invalid."""

    challenges: tuple[str, ...] = ()
    """Challenges for the caller, as values of `WWW-Authenticate`."""


class PermissionDenied(AccordError):
    """The caller may not do this."""


class RateLimited(AccordError):
    """Too many requests."""


class StorageQuotaExceeded(RateLimited):
    """The storage quota is exhausted."""


class RemoteError(AccordError):
    """Another server answered with an error that has no name here."""


class Row(NamedTuple):
    """Codes of one error on the wire.

    `code` is the JSON-RPC code of v1, v03 and relay, `vault` and `gen` those of the other two dialects. `rpc_http` is
    the HTTP status of a JSON-RPC response (B-17). `http` is the HTTP status of the HTTP+JSON binding. `grpc` is the
    gRPC status name.
    """

    code: int
    vault: int
    gen: int
    http: int
    grpc: str
    reason: str
    domain: str = A2A_DOMAIN
    rpc_http: int = 200


AGENT_UNAVAILABLE, TASK_TIMEOUT, CAPABILITY_MISMATCH, AUTH_FAILED, EXHAUSTED = -40001, -40002, -40003, -40004, -40005
APPLICATION = -32000

TABLE: dict[type[AccordError], Row] = {
    ParseError: Row(-32700, -32700, -32700, 400, "INVALID_ARGUMENT", "PARSE_ERROR", OWN_DOMAIN),
    InvalidRequest: Row(-32600, -32600, -32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST", OWN_DOMAIN),
    RequestTooLarge: Row(
        -32600, -32600, EXHAUSTED, 413, "RESOURCE_EXHAUSTED", "REQUEST_TOO_LARGE", OWN_DOMAIN, rpc_http=413
    ),
    HeadersTooLarge: Row(
        -32600, -32600, EXHAUSTED, 431, "RESOURCE_EXHAUSTED", "HEADERS_TOO_LARGE", OWN_DOMAIN, rpc_http=431
    ),
    RequestTimeout: Row(-32600, -32600, -32600, 408, "DEADLINE_EXCEEDED", "REQUEST_TIMEOUT", OWN_DOMAIN, rpc_http=408),
    MethodNotFound: Row(-32601, -32601, -32601, 404, "UNIMPLEMENTED", "METHOD_NOT_FOUND", OWN_DOMAIN),
    InvalidParams: Row(-32602, -32602, -32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS", OWN_DOMAIN),
    InternalError: Row(-32603, -32603, -32603, 500, "INTERNAL", "INTERNAL_ERROR", OWN_DOMAIN),
    TaskNotFound: Row(-32001, -32001, -32602, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    TaskNotCancelable: Row(-32002, -32002, -32602, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    PushNotSupported: Row(
        -32003, -32003, CAPABILITY_MISMATCH, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"
    ),
    UnsupportedOperation: Row(-32004, -32004, CAPABILITY_MISMATCH, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    ContentTypeNotSupported: Row(
        -32005, -32005, CAPABILITY_MISMATCH, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"
    ),
    UnsupportedMediaType: Row(
        -32005, -32005, CAPABILITY_MISMATCH, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED", rpc_http=415
    ),
    InvalidAgentResponse: Row(-32006, APPLICATION, -32603, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    ExtendedCardNotConfigured: Row(
        -32007, -32007, CAPABILITY_MISMATCH, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"
    ),
    ExtensionSupportRequired: Row(
        -32008, APPLICATION, CAPABILITY_MISMATCH, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"
    ),
    VersionNotSupported: Row(
        -32009, APPLICATION, CAPABILITY_MISMATCH, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"
    ),
    AgentUnavailable: Row(
        APPLICATION, APPLICATION, AGENT_UNAVAILABLE, 503, "UNAVAILABLE", "AGENT_UNAVAILABLE", OWN_DOMAIN, rpc_http=503
    ),
    TaskTimeout: Row(APPLICATION, APPLICATION, TASK_TIMEOUT, 504, "DEADLINE_EXCEEDED", "TASK_TIMEOUT", OWN_DOMAIN),
    AuthenticationFailed: Row(
        APPLICATION, APPLICATION, AUTH_FAILED, 401, "UNAUTHENTICATED", "UNAUTHENTICATED", OWN_DOMAIN, rpc_http=401
    ),
    PermissionDenied: Row(
        APPLICATION, APPLICATION, AUTH_FAILED, 403, "PERMISSION_DENIED", "PERMISSION_DENIED", OWN_DOMAIN, rpc_http=403
    ),
    RateLimited: Row(
        APPLICATION, APPLICATION, EXHAUSTED, 429, "RESOURCE_EXHAUSTED", "RATE_LIMITED", OWN_DOMAIN, rpc_http=429
    ),
    StorageQuotaExceeded: Row(
        APPLICATION,
        APPLICATION,
        EXHAUSTED,
        429,
        "RESOURCE_EXHAUSTED",
        "STORAGE_QUOTA_EXCEEDED",
        OWN_DOMAIN,
        rpc_http=429,
    ),
    RemoteError: Row(APPLICATION, APPLICATION, -32603, 502, "UNKNOWN", "REMOTE_ERROR", OWN_DOMAIN),
}
"""One row per error; a test proves that none is missing. HTTP and gRPC columns are those of A2A 1.0.1."""


def for_reason(reason: str) -> type[AccordError] | None:
    """Return the error with an ErrorInfo reason, for reading other servers' responses."""
    return _BY_REASON.get(reason)


def for_code(code: int, column: str = "code") -> type[AccordError]:
    """Return the most likely error for a JSON-RPC code, for reading other servers' responses.

    `column` is the row's column that the server's dialect uses: `code`, `vault` or `gen`.
    """
    return _BY_CODE[column].get(code, RemoteError)


def _first_by(column: str) -> dict[Any, type[AccordError]]:
    found: dict[Any, type[AccordError]] = {}
    for error, row in TABLE.items():
        found.setdefault(getattr(row, column), error)
    return found


_BY_REASON: dict[str, type[AccordError]] = _first_by("reason")
_BY_CODE: dict[str, dict[int, type[AccordError]]] = {
    "code": _first_by("code") | {APPLICATION: RemoteError},
    "vault": _first_by("vault") | {APPLICATION: RemoteError},
    "gen": _first_by("gen") | {CAPABILITY_MISMATCH: UnsupportedOperation, EXHAUSTED: RateLimited},
}
