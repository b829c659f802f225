"""The operations table: names in every dialect, REST routes of 1.0 and 0.3."""

import pytest

from accord.protocol.operations import (
    ROWS,
    TABLE,
    DialectName,
    MethodsAllowed,
    Operation,
    RestMatch,
    dialects_for,
    match_rest,
    method_name,
    operation_for,
)

V1, V03, VAULT, GEN, RELAY = DialectName
PUSH = "tasks/pushNotificationConfig/"

# The alias table of the method map, and which dialect's clients send which name.
ALIASES = {
    Operation.SEND: {"message/send", "SendMessage", "tasks/send"},
    Operation.STREAM: {"message/stream", "SendStreamingMessage", "tasks/sendSubscribe"},
    Operation.SUBSCRIBE: {"tasks/resubscribe", "tasks/subscribe", "SubscribeToTask", "tasks/sendSubscribe"},
    Operation.GET: {"tasks/get", "GetTask"},
    Operation.LIST: {"tasks/list", "ListTasks"},
    Operation.CANCEL: {"tasks/cancel", "CancelTask"},
    Operation.PUSH_SET: {
        PUSH + "set",
        PUSH + "subscribe",
        "CreateTaskPushNotificationConfig",
        "tasks/pushNotification/set",
    },
    Operation.PUSH_GET: {PUSH + "get", "GetTaskPushNotificationConfig", "tasks/pushNotification/get"},
    Operation.PUSH_LIST: {PUSH + "list", "ListTaskPushNotificationConfigs"},
    Operation.PUSH_DELETE: {PUSH + "delete", PUSH + "unsubscribe", "DeleteTaskPushNotificationConfig"},
    Operation.EXTENDED_CARD: {
        "agent/authenticatedExtendedCard",
        "agent/getAuthenticatedExtendedCard",
        "GetExtendedAgentCard",
    },
}


@pytest.mark.proves("B-07", "B-11", "B-13", "B-methods", "JSONRPC-SVC-001")
@pytest.mark.parametrize("operation", Operation)
def test_every_accepted_name(operation: Operation) -> None:
    assert {name for names in ROWS[operation].names.values() for name in names} == ALIASES[operation]


def test_one_row_per_operation() -> None:
    assert [row.operation for row in TABLE] == list(Operation)
    assert {row.operation for row in TABLE if row.streams} == {Operation.STREAM, Operation.SUBSCRIBE}


@pytest.mark.proves("B-07", "4-19", "4-20", "4-21")
@pytest.mark.parametrize(
    ("operation", "dialect", "name"),
    [
        (Operation.SEND, V1, "SendMessage"),
        (Operation.SEND, V03, "message/send"),
        (Operation.SEND, VAULT, "tasks/send"),
        (Operation.SEND, GEN, "message/send"),
        (Operation.SEND, RELAY, "message/send"),
        (Operation.SUBSCRIBE, V03, "tasks/resubscribe"),
        (Operation.SUBSCRIBE, VAULT, "tasks/sendSubscribe"),
        (Operation.PUSH_SET, V03, PUSH + "set"),
        (Operation.PUSH_SET, GEN, PUSH + "subscribe"),
        (Operation.PUSH_DELETE, GEN, PUSH + "unsubscribe"),
        (Operation.EXTENDED_CARD, V03, "agent/getAuthenticatedExtendedCard"),
        (Operation.EXTENDED_CARD, GEN, "agent/authenticatedExtendedCard"),
    ],
)
def test_what_our_client_sends(operation: Operation, dialect: DialectName, name: str) -> None:
    assert method_name(operation, dialect) == name
    assert operation_for(name, dialect) is operation
    assert dialect in dialects_for(name)


def test_unknown_methods_belong_to_nobody() -> None:
    assert operation_for("nope", V1) is None
    assert operation_for("message/send", V1) is None
    assert dialects_for("nope") == frozenset()


V1_ROUTES = [
    ("POST", "/message:send", Operation.SEND, {}),
    ("POST", "/message:stream", Operation.STREAM, {}),
    ("GET", "/tasks/t-1", Operation.GET, {"id": "t-1"}),
    ("GET", "/tasks", Operation.LIST, {}),
    ("POST", "/tasks/t-1:cancel", Operation.CANCEL, {"id": "t-1"}),
    ("GET", "/tasks/t-1:subscribe", Operation.SUBSCRIBE, {"id": "t-1"}),
    ("POST", "/tasks/t-1:subscribe", Operation.SUBSCRIBE, {"id": "t-1"}),
    ("POST", "/tasks/t-1/pushNotificationConfigs", Operation.PUSH_SET, {"task_id": "t-1"}),
    ("GET", "/tasks/t-1/pushNotificationConfigs", Operation.PUSH_LIST, {"task_id": "t-1"}),
    ("GET", "/tasks/t-1/pushNotificationConfigs/p", Operation.PUSH_GET, {"task_id": "t-1", "id": "p"}),
    ("DELETE", "/tasks/t-1/pushNotificationConfigs/p", Operation.PUSH_DELETE, {"task_id": "t-1", "id": "p"}),
]


@pytest.mark.proves("HTTP_JSON-URL-001", "HTTP_JSON-URL-002")
@pytest.mark.parametrize(("verb", "path", "operation", "values"), V1_ROUTES)
def test_rest_routes_bare_with_tenant_and_under_v1(verb: str, path: str, operation: Operation, values: dict) -> None:
    assert match_rest(verb, path) == RestMatch(operation, V1, values)
    assert match_rest(verb, "/acme" + path) == RestMatch(operation, V1, {"tenant": "acme"} | values)
    assert match_rest(verb, "/v1" + path) == RestMatch(operation, V03, values)


@pytest.mark.proves("B-13")
def test_the_extended_card_has_a_route_in_both_versions() -> None:
    assert match_rest("GET", "/extendedAgentCard") == RestMatch(Operation.EXTENDED_CARD, V1, {})
    assert match_rest("GET", "/v1/card") == RestMatch(Operation.EXTENDED_CARD, V03, {})
    old = match_rest("GET", "/agent/authenticatedExtendedCard")
    assert old == RestMatch(Operation.EXTENDED_CARD, V03, {})


def test_a_wrong_verb_says_which_are_allowed_and_a_wrong_path_nothing() -> None:
    assert match_rest("PUT", "/tasks/t-1:subscribe") == MethodsAllowed(("GET", "POST"))
    assert match_rest("GET", "/nothing/at/all") is None
    assert match_rest("GET", "/tasks/") is None


def test_v1_is_a_tenant_like_any_other_when_0_3_is_off() -> None:
    assert match_rest("GET", "/v1/tasks", [V1]) == RestMatch(Operation.LIST, V1, {"tenant": "v1"})
