"""The error table: every error has a row, and the rows say what the specifications say, in every dialect's form."""

import json
from typing import Any, NamedTuple

import pytest

from accord import errors
from accord.errors import TABLE, AccordError, TaskNotFound, Violation, for_code, for_reason
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.jsonrpc import ErrorObject
from accord.protocol.operations import DialectName
from tests.cases import each

V1, V03, VAULT, GEN, RELAY = DialectName


def all_errors() -> list[type[AccordError]]:
    found: list[type[AccordError]] = []
    left = [AccordError]
    while left:
        left.extend(left.pop().__subclasses__() or [])
        found.extend(error for error in left if error not in found)
    return found


@pytest.mark.proves("B-15")
def test_every_error_has_a_row() -> None:
    assert set(all_errors()) == set(TABLE)


@pytest.mark.proves("B-15")
def test_every_error_is_drawn_in_the_docstring() -> None:
    assert errors.__doc__ is not None
    assert [error.__name__ for error in TABLE if f"-- {error.__name__}" not in errors.__doc__] == []


class Wanted(NamedTuple):
    """One error: its JSON-RPC codes, the status of that answer, the statuses of the two other bindings, its name."""

    code: int
    vault: int
    gen: int
    rpc_http: int
    http: int
    grpc: str
    domain: str
    reason: str


# The table once more, by hand: A2A 1.0.1 for its own errors, the map of the five dialects for the rest.
ROWS = """
ParseError                -32700 -32700 -32700 200 400 INVALID_ARGUMENT    accord           PARSE_ERROR
InvalidRequest            -32600 -32600 -32600 200 400 INVALID_ARGUMENT    accord           INVALID_REQUEST
RequestTooLarge           -32600 -32600 -40005 413 413 RESOURCE_EXHAUSTED  accord           REQUEST_TOO_LARGE
HeadersTooLarge           -32600 -32600 -40005 431 431 RESOURCE_EXHAUSTED  accord           HEADERS_TOO_LARGE
RequestTimeout            -32600 -32600 -32600 408 408 DEADLINE_EXCEEDED   accord           REQUEST_TIMEOUT
MethodNotFound            -32601 -32601 -32601 200 404 UNIMPLEMENTED       accord           METHOD_NOT_FOUND
InvalidParams             -32602 -32602 -32602 200 400 INVALID_ARGUMENT    accord           INVALID_PARAMS
InternalError             -32603 -32603 -32603 200 500 INTERNAL            accord           INTERNAL_ERROR
TaskNotFound              -32001 -32001 -32602 200 404 NOT_FOUND           a2a-protocol.org TASK_NOT_FOUND
TaskNotCancelable         -32002 -32002 -32602 200 400 FAILED_PRECONDITION a2a-protocol.org TASK_NOT_CANCELABLE
PushNotSupported          -32003 -32003 -40003 200 400 FAILED_PRECONDITION a2a-protocol.org PUSH_NOTIFICATION_NOT_SUPPORTED
UnsupportedOperation      -32004 -32004 -40003 200 400 FAILED_PRECONDITION a2a-protocol.org UNSUPPORTED_OPERATION
ContentTypeNotSupported   -32005 -32005 -40003 200 400 INVALID_ARGUMENT    a2a-protocol.org CONTENT_TYPE_NOT_SUPPORTED
UnsupportedMediaType      -32005 -32005 -40003 415 400 INVALID_ARGUMENT    a2a-protocol.org CONTENT_TYPE_NOT_SUPPORTED
InvalidAgentResponse      -32006 -32000 -32603 200 500 INTERNAL            a2a-protocol.org INVALID_AGENT_RESPONSE
ExtendedCardNotConfigured -32007 -32007 -40003 200 400 FAILED_PRECONDITION a2a-protocol.org EXTENDED_AGENT_CARD_NOT_CONFIGURED
ExtensionSupportRequired  -32008 -32000 -40003 200 400 FAILED_PRECONDITION a2a-protocol.org EXTENSION_SUPPORT_REQUIRED
VersionNotSupported       -32009 -32000 -40003 200 400 FAILED_PRECONDITION a2a-protocol.org VERSION_NOT_SUPPORTED
AgentUnavailable          -32000 -32000 -40001 503 503 UNAVAILABLE         accord           AGENT_UNAVAILABLE
TaskTimeout               -32000 -32000 -40002 200 504 DEADLINE_EXCEEDED   accord           TASK_TIMEOUT
AuthenticationFailed      -32000 -32000 -40004 401 401 UNAUTHENTICATED     accord           UNAUTHENTICATED
PermissionDenied          -32000 -32000 -40004 403 403 PERMISSION_DENIED   accord           PERMISSION_DENIED
RateLimited               -32000 -32000 -40005 429 429 RESOURCE_EXHAUSTED  accord           RATE_LIMITED
StorageQuotaExceeded      -32000 -32000 -40005 429 429 RESOURCE_EXHAUSTED  accord           STORAGE_QUOTA_EXCEEDED
RemoteError               -32000 -32000 -32603 200 502 UNKNOWN             accord           REMOTE_ERROR
"""  # noqa: E501 - one error, one line


def _wanted() -> dict[type[AccordError], Wanted]:
    lines = [line.split() for line in ROWS.strip().splitlines()]
    return {getattr(errors, name): Wanted(*map(int, cells[:5]), *cells[5:]) for name, *cells in lines}  # type: ignore[arg-type]


WANTED = _wanted()
each_error = each("kind", TABLE)


@pytest.mark.proves("2-30", "2-31", "3-41", "3-42", "B-17", "CORE-ERR-002", "JSONRPC-ERR-001")
@pytest.mark.proves("4-34", "4-35", "4-36", "4-37", "4-38", "4-39", "HTTP_JSON-STATUS-001", "GRPC-ERR-002")
@each_error
def test_rows_match_the_table(kind: type[AccordError]) -> None:
    row = TABLE[kind]
    assert Wanted(*(getattr(row, column) for column in Wanted._fields)) == WANTED[kind]


def _codes(kind: type[AccordError]) -> dict[DialectName, int]:
    row = WANTED[kind]
    return {V1: row.code, V03: row.code, RELAY: row.code, VAULT: row.vault, GEN: row.gen}


@pytest.mark.proves("B-15", "B-errors")
@pytest.mark.parametrize("dialect", DialectName)
@each_error
def test_each_dialect_s_form_of_a_bare_error(kind: type[AccordError], dialect: DialectName) -> None:
    wanted = WANTED[kind]
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": wanted.reason, "domain": wanted.domain}
    data = [info] if dialect is V1 else {"reason": wanted.reason}
    assert DIALECTS[dialect].encode_error(kind("why")) == ErrorObject(_codes(kind)[dialect], "why", data)


FACTS: Any = {"violations": (Violation("a.b", "wrong"),), "retry_after": 3, "metadata": {"taskId": "t-1"}}
VIOLATIONS = [{"field": "a.b", "description": "wrong"}]


@pytest.mark.proves("B-15", "B-errors", "2-32", "4-40")
@pytest.mark.parametrize("dialect", [V03, RELAY, VAULT, GEN])
@each_error
def test_each_dialect_s_form_of_an_error_with_facts(kind: type[AccordError], dialect: DialectName) -> None:
    task = "task_id" if dialect is GEN else "taskId"
    data = {"reason": WANTED[kind].reason, task: "t-1", "violations": VIOLATIONS, "retry_after": 3}
    error = kind("why", **FACTS)
    assert DIALECTS[dialect].encode_error(error) == ErrorObject(_codes(kind)[dialect], "why", data)
    if dialect is V03:
        body = {"code": WANTED[kind].code, "message": "why", "data": data}
        shown = json.loads(REST_DIALECTS[V03].encode_http_error(error))
        assert bool(shown.pop("type", None)) == (WANTED[kind].code != -32000), "0.3 has names for its own errors only"
        assert shown == body


@pytest.mark.proves("B-15", "JSONRPC-ERR-002", "HTTP_JSON-ERR-001", "HTTP_JSON-ERR-002")
@each_error
def test_the_typed_details_of_1_0(kind: type[AccordError]) -> None:
    wanted, prefix = WANTED[kind], "type.googleapis.com/google.rpc."
    info = {"reason": wanted.reason, "domain": wanted.domain, "metadata": {"taskId": "t-1"}}
    details = [
        {"@type": prefix + "ErrorInfo", **info},
        {"@type": prefix + "BadRequest", "fieldViolations": VIOLATIONS},
        {"@type": prefix + "RetryInfo", "retryDelay": "3s"},
    ]
    error = kind("why", **FACTS)
    assert DIALECTS[V1].encode_error(error) == ErrorObject(wanted.code, "why", details)
    status = {"code": wanted.http, "status": wanted.grpc, "message": "why", "details": details}
    assert json.loads(REST_DIALECTS[V1].encode_http_error(error)) == {"error": status}


@pytest.mark.proves("2-26")
@each_error
def test_the_event_that_ends_a_stream_of_agentvault(kind: type[AccordError]) -> None:
    frame = DIALECTS[VAULT].encode_stream_error(kind("why", metadata={"step": "4"}))
    code = "AGENT_PROCESSING_ERROR" if kind is errors.InternalError else WANTED[kind].reason
    assert (frame.event, json.loads(frame.data)) == (
        "error",
        {"code": code, "message": "why", "details": {"step": "4"}},
    )


def test_messages_default_to_the_docstring() -> None:
    assert TaskNotFound().message == "Task not found"
    assert TaskNotFound("gone").message == "gone"


RPC = {
    -32700: "ParseError",
    -32600: "InvalidRequest",
    -32601: "MethodNotFound",
    -32602: "InvalidParams",
    -32603: "InternalError",
    -32000: "RemoteError",
    -1: "RemoteError",
}
A2A = {
    -32001: "TaskNotFound",
    -32002: "TaskNotCancelable",
    -32003: "PushNotSupported",
    -32004: "UnsupportedOperation",
    -32005: "ContentTypeNotSupported",
    -32007: "ExtendedCardNotConfigured",
}
MEANINGS = {
    "code": RPC
    | A2A
    | {-32006: "InvalidAgentResponse", -32008: "ExtensionSupportRequired", -32009: "VersionNotSupported"},
    "vault": RPC | A2A | {-32006: "RemoteError", -32008: "RemoteError", -32009: "RemoteError"},
    "gen": RPC
    | {
        -40001: "AgentUnavailable",
        -40002: "TaskTimeout",
        -40003: "UnsupportedOperation",
        -40004: "AuthenticationFailed",
        -40005: "RateLimited",
        -32001: "RemoteError",
    },
}


@pytest.mark.proves("B-15")
@pytest.mark.parametrize("column", MEANINGS)
def test_foreign_codes_map_to_errors(column: str) -> None:
    assert {code: for_code(code, column).__name__ for code in MEANINGS[column]} == MEANINGS[column]
    assert for_code(-32001) is for_code(-32001, "code")


@pytest.mark.proves("B-15")
@each_error
def test_reasons_distinguish_errors_with_one_code(kind: type[AccordError]) -> None:
    meant = errors.ContentTypeNotSupported if kind is errors.UnsupportedMediaType else kind
    assert for_reason(WANTED[kind].reason) is meant
    for dialect in DIALECTS.values():
        assert type(dialect.decode_error(dialect.encode_error(kind("why")))) is meant


def test_unknown_reasons_are_ignored() -> None:
    assert for_reason("SOMETHING_ELSE") is None
