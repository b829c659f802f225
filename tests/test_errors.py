"""The error table: every error has a row, and the rows say what the specifications say."""

import pytest

from accord import errors
from accord.errors import TABLE, AccordError, TaskNotFound, for_code, for_reason


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


A2A_1_0_1 = {
    "TaskNotFound": (-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
    "TaskNotCancelable": (-32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
    "PushNotSupported": (-32003, 400, "FAILED_PRECONDITION", "PUSH_NOTIFICATION_NOT_SUPPORTED"),
    "UnsupportedOperation": (-32004, 400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION"),
    "ContentTypeNotSupported": (-32005, 400, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED"),
    "InvalidAgentResponse": (-32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
    "ExtendedCardNotConfigured": (-32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED"),
    "ExtensionSupportRequired": (-32008, 400, "FAILED_PRECONDITION", "EXTENSION_SUPPORT_REQUIRED"),
    "VersionNotSupported": (-32009, 400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED"),
}


@pytest.mark.proves("3-42", "CORE-ERR-002", "HTTP_JSON-STATUS-001", "GRPC-ERR-002", "JSONRPC-ERR-001")
@pytest.mark.parametrize("name", A2A_1_0_1)
def test_a2a_errors_are_those_of_1_0_1(name: str) -> None:
    row = TABLE[getattr(errors, name)]
    assert (row.code, row.http, row.grpc, row.reason) == A2A_1_0_1[name]
    assert row.domain == "a2a-protocol.org"


@pytest.mark.proves("2-30", "3-41", "4-34")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ParseError", -32700),
        ("InvalidRequest", -32600),
        ("MethodNotFound", -32601),
        ("InvalidParams", -32602),
        ("InternalError", -32603),
    ],
)
def test_json_rpc_codes_are_the_same_in_every_dialect(name: str, code: int) -> None:
    row = TABLE[getattr(errors, name)]
    assert (row.code, row.vault, row.gen) == (code, code, code)


@pytest.mark.proves("B-17")
def test_only_these_errors_leave_http_200_in_json_rpc() -> None:
    left = {error.__name__: row.rpc_http for error, row in TABLE.items() if row.rpc_http != 200}
    assert left == {
        "AuthenticationFailed": 401,
        "PermissionDenied": 403,
        "RequestTooLarge": 413,
        "UnsupportedMediaType": 415,
        "RateLimited": 429,
        "AgentUnavailable": 503,
    }


@pytest.mark.proves("4-35", "4-36", "4-37", "4-38", "4-39")
def test_the_generic_dialects_own_codes() -> None:
    own: dict[int, set[str]] = {}
    for error, row in TABLE.items():
        if row.gen <= -40000:
            own.setdefault(row.gen, set()).add(error.__name__)
    assert own == {
        -40001: {"AgentUnavailable"},
        -40002: {"TaskTimeout"},
        -40003: {
            "PushNotSupported",
            "UnsupportedOperation",
            "ContentTypeNotSupported",
            "UnsupportedMediaType",
            "ExtendedCardNotConfigured",
            "ExtensionSupportRequired",
            "VersionNotSupported",
        },
        -40004: {"AuthenticationFailed", "PermissionDenied"},
        -40005: {"RateLimited", "RequestTooLarge"},
    }


@pytest.mark.proves("2-31")
def test_vault_codes_stay_in_the_range_for_applications() -> None:
    for row in TABLE.values():
        assert -32700 <= row.vault <= -32600 or -32099 <= row.vault <= -32000


def test_an_error_speaks_with_its_docstring_unless_told_otherwise() -> None:
    assert TaskNotFound().message == "There is no such task"
    assert TaskNotFound("gone").message == "gone"


def test_codes_and_reasons_of_others_are_understood() -> None:
    assert for_reason("TASK_NOT_FOUND") is TaskNotFound
    assert for_reason("SOMETHING_ELSE") is None
    assert for_code(-32001) is TaskNotFound
    assert for_code(-32000) is errors.RemoteError
    assert for_code(-40003, "gen") is errors.UnsupportedOperation
    assert for_code(-1) is errors.RemoteError
