"""What each refusal is on the wire, written down once more, from the specifications and not from `accord.errors`.

One row per error: the JSON-RPC code of A2A and, where it is another one, of AgentVault's profile and of the generic
dialect, the HTTP status of HTTP+JSON and that of JSON-RPC, the gRPC status, and the name that A2A 0.3 begins a gRPC
status with (A2A 1.0.1, 5.4; features B-15, B-17, B-errors).
"""

from typing import NamedTuple

from accord import errors
from accord.errors import AccordError
from accord.protocol.operations import DialectName
from tests.conformance.wire import Binding, Code, Wire


class Codes(NamedTuple):
    """One error on the wire."""

    jsonrpc: int
    http: int
    grpc: str
    name: str | None
    vault: int | None = None
    gen: int | None = None
    rpc_http: int = 200


CODES: dict[type[AccordError], Codes] = {
    errors.ParseError: Codes(-32700, 400, "INVALID_ARGUMENT", "JSONParseError"),
    errors.MethodNotFound: Codes(-32601, 404, "UNIMPLEMENTED", "MethodNotFoundError"),
    errors.InvalidParams: Codes(-32602, 400, "INVALID_ARGUMENT", "InvalidParamsError"),
    errors.TaskNotFound: Codes(-32001, 404, "NOT_FOUND", "TaskNotFoundError", gen=-32602),
    errors.TaskNotCancelable: Codes(-32002, 400, "FAILED_PRECONDITION", "TaskNotCancelableError", gen=-32602),
    errors.PushNotSupported: Codes(-32003, 400, "FAILED_PRECONDITION", "PushNotificationNotSupportedError", gen=-40003),
    errors.UnsupportedOperation: Codes(-32004, 400, "FAILED_PRECONDITION", "UnsupportedOperationError", gen=-40003),
    errors.ContentTypeNotSupported: Codes(-32005, 400, "INVALID_ARGUMENT", "ContentTypeNotSupportedError", gen=-40003),
    errors.ExtensionSupportRequired: Codes(
        -32008, 400, "FAILED_PRECONDITION", "ExtensionSupportRequiredError", vault=-32000, gen=-40003
    ),
    errors.VersionNotSupported: Codes(
        -32009, 400, "FAILED_PRECONDITION", "VersionNotSupportedError", vault=-32000, gen=-40003
    ),
    errors.AuthenticationFailed: Codes(-32000, 401, "UNAUTHENTICATED", None, gen=-40004, rpc_http=401),
    errors.PermissionDenied: Codes(-32000, 403, "PERMISSION_DENIED", None, gen=-40004, rpc_http=403),
    errors.RateLimited: Codes(-32000, 429, "RESOURCE_EXHAUSTED", None, gen=-40005, rpc_http=429),
}


def expected(error: type[AccordError], wire: Wire) -> tuple[Code, int | None]:
    """The code and the HTTP status of an error over a wire."""
    row = CODES[error]
    if wire.binding is Binding.GRPC:
        return row.grpc, None
    if wire.binding is Binding.REST:
        return row.http, row.http
    own = {DialectName.VAULT: row.vault, DialectName.GEN: row.gen}.get(wire.name)
    return own or row.jsonrpc, row.rpc_http
