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
from tests.cases import each

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
@each("operation", Operation)
def test_every_accepted_name(operation: Operation) -> None:
    assert {name for names in ROWS[operation].names.values() for name in names} == ALIASES[operation]


def test_no_dialect_names_an_operation_twice() -> None:
    for row in TABLE:
        for names in row.names.values():
            assert len(names) == len(set(names))


def test_one_row_per_operation() -> None:
    assert [row.operation for row in TABLE] == list(Operation)
    assert {row.operation for row in TABLE if row.streams} == {Operation.STREAM, Operation.SUBSCRIBE}


@pytest.mark.proves("B-07", "4-19", "4-20", "4-21")
@each(
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
def test_the_client_s_method_names(operation: Operation, dialect: DialectName, name: str) -> None:
    assert method_name(operation, dialect) == name
    assert operation_for(name, dialect) is operation
    assert dialect in dialects_for(name)


def test_unknown_methods_have_no_operation() -> None:
    assert operation_for("nope", V1) is None
    assert operation_for("message/send", V1) is None
    assert dialects_for("nope") == frozenset()


# Verb, path of 1.0, operation and the names of the path's values; 0.3 has the same paths below `/v1`.
ROUTES = [
    ("POST", "/message:send", Operation.SEND, []),
    ("POST", "/message:stream", Operation.STREAM, []),
    ("GET", "/tasks/{0}", Operation.GET, ["id"]),
    ("GET", "/tasks", Operation.LIST, []),
    ("POST", "/tasks/{0}:cancel", Operation.CANCEL, ["id"]),
    ("GET", "/tasks/{0}:subscribe", Operation.SUBSCRIBE, ["id"]),
    ("POST", "/tasks/{0}:subscribe", Operation.SUBSCRIBE, ["id"]),
    ("POST", "/tasks/{0}/pushNotificationConfigs", Operation.PUSH_SET, ["taskId"]),
    ("GET", "/tasks/{0}/pushNotificationConfigs", Operation.PUSH_LIST, ["taskId"]),
    ("GET", "/tasks/{0}/pushNotificationConfigs/{1}", Operation.PUSH_GET, ["taskId", "id"]),
    ("DELETE", "/tasks/{0}/pushNotificationConfigs/{1}", Operation.PUSH_DELETE, ["taskId", "id"]),
]
IDS = [
    "t-1",
    "a:b",
    "urn:x:1",
    ":",
    "a:",
    "a:cancel:b",
    "cancel",
    "a:cancelled",
    "a%3Ab",
    "a%3Acancel",
    "a%2Fb",
    "%F0%9F%8C%8D",
    "a.b~c_d",
    "a@b!$&'()*+,;=",
    "tasks",
    "v1",
]


@pytest.mark.proves("HTTP_JSON-URL-001", "HTTP_JSON-URL-002")
@each("id_", IDS)
@each(("verb", "path", "operation", "names"), ROUTES)
def test_every_rest_route_bare_with_tenant_and_under_v1(
    verb: str, path: str, operation: Operation, names: list[str], id_: str
) -> None:
    path, values = path.format(id_, "c:" + id_), dict(zip(names, [id_, "c:" + id_], strict=False))
    assert match_rest(verb, path) == RestMatch(operation, V1, values)
    assert match_rest(verb, "/acme" + path) == RestMatch(operation, V1, {"tenant": "acme"} | values)
    assert match_rest(verb, "/a:b%2F" + path) == RestMatch(operation, V1, {"tenant": "a:b%2F"} | values)
    assert match_rest(verb, "/v1" + path) == RestMatch(operation, V03, values)
    assert match_rest(verb, "/v1" + path, [V1]) == RestMatch(operation, V1, {"tenant": "v1"} | values)
    assert match_rest("PATCH", path) == match_rest("PATCH", "/acme" + path) == match_rest("PATCH", "/v1" + path)


@each("prefix", ["", "/acme", "/v1"])
@each(("verb", "name"), [("GET", "cancel"), ("DELETE", "cancel"), ("DELETE", "subscribe")])
def test_a_verb_in_the_path_is_never_the_end_of_an_id(prefix: str, verb: str, name: str) -> None:
    verbs = {"cancel": ("POST",), "subscribe": ("GET", "POST")}[name]
    assert match_rest(verb, f"{prefix}/tasks/urn:x:{name}") == MethodsAllowed(verbs)
    assert match_rest("GET", f"{prefix}/tasks/:{name}") is None


@pytest.mark.parametrize("path", ["/v1/extendedAgentCard", "/%761/extendedAgentCard", "/v%31/tasks", "/%76%31/tasks/t"])
def test_no_tenant_is_called_v1_while_0_3_is_on(path: str) -> None:
    assert match_rest("GET", path) is None
    assert match_rest("POST", path) is None
    alone = match_rest("GET", path, [V1])
    assert isinstance(alone, RestMatch)
    assert alone.dialect is V1


@pytest.mark.parametrize(
    "path", ["/v1/acme/tasks", "/acme/v1/tasks", "/v1", "/v1/", "//tasks", "/tasks/a/b", "/v1/card/x"]
)
def test_unknown_rest_paths_match_nothing(path: str) -> None:
    assert match_rest("GET", path) is None


@pytest.mark.proves("B-13")
def test_the_extended_card_has_a_route_in_both_versions() -> None:
    assert match_rest("GET", "/extendedAgentCard") == RestMatch(Operation.EXTENDED_CARD, V1, {})
    assert match_rest("GET", "/v1/card") == RestMatch(Operation.EXTENDED_CARD, V03, {})
    old = match_rest("GET", "/agent/authenticatedExtendedCard")
    assert old == RestMatch(Operation.EXTENDED_CARD, V03, {})


def test_wrong_verbs_list_allowed_ones() -> None:
    assert match_rest("PUT", "/tasks/t-1:subscribe") == MethodsAllowed(("GET", "POST"))
    assert match_rest("GET", "/nothing/at/all") is None
    assert match_rest("GET", "/tasks/") is None


def test_a_dialect_that_is_off_has_no_routes() -> None:
    assert match_rest("GET", "/tasks", [V03]) is None
    assert match_rest("GET", "/v1/card", [V1]) is None
    assert match_rest("GET", "/v1/tasks", [V03]) == RestMatch(Operation.LIST, V03, {})
