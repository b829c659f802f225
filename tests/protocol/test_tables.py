"""The tables of operations and states once more, by hand, so that no row changes unseen."""

from typing import NamedTuple

import pytest

from accord import model
from accord.model import TaskState
from accord.protocol import states
from accord.protocol.operations import (
    ROWS,
    TABLE,
    DialectName,
    Operation,
    RestRoute,
    dialects_for,
    method_name,
    operation_for,
)
from tests.cases import each

V1, V03, VAULT, GEN, RELAY = DialectName
PUSH = "tasks/pushNotificationConfig/"
OLD_PUSH = "tasks/pushNotification/"
ASK_CARD, CARD = "agent/getAuthenticatedExtendedCard", "agent/authenticatedExtendedCard"


class Names(NamedTuple):
    """What an operation is called: first what our client sends, then what is understood as well."""

    v1: str
    grpc_v03: str | None
    v03: tuple[str, ...]
    vault: tuple[str, ...]
    gen: tuple[str, ...]
    relay: tuple[str, ...]


NAMES = {
    Operation.SEND: Names(
        "SendMessage",
        "SendMessage",
        v03=("message/send",),
        vault=("tasks/send", "message/send"),
        gen=("message/send",),
        relay=("message/send", "tasks/send"),
    ),
    Operation.STREAM: Names(
        "SendStreamingMessage",
        "SendStreamingMessage",
        v03=("message/stream",),
        vault=("message/stream",),
        gen=("message/stream",),
        relay=("message/stream", "tasks/sendSubscribe"),
    ),
    Operation.GET: Names("GetTask", "GetTask", *[("tasks/get",)] * 4),
    Operation.LIST: Names("ListTasks", None, *[("tasks/list",)] * 4),
    Operation.CANCEL: Names("CancelTask", "CancelTask", *[("tasks/cancel",)] * 4),
    Operation.SUBSCRIBE: Names(
        "SubscribeToTask",
        "TaskSubscription",
        v03=("tasks/resubscribe", "tasks/subscribe"),
        vault=("tasks/sendSubscribe", "tasks/resubscribe", "tasks/subscribe"),
        gen=("tasks/resubscribe", "tasks/subscribe"),
        relay=("tasks/resubscribe", "tasks/subscribe"),
    ),
    Operation.PUSH_SET: Names(
        "CreateTaskPushNotificationConfig",
        "CreateTaskPushNotificationConfig",
        v03=(PUSH + "set", OLD_PUSH + "set"),
        vault=(PUSH + "set", OLD_PUSH + "set"),
        gen=(PUSH + "subscribe", PUSH + "set", OLD_PUSH + "set"),
        relay=(PUSH + "set", OLD_PUSH + "set"),
    ),
    Operation.PUSH_GET: Names(
        "GetTaskPushNotificationConfig", "GetTaskPushNotificationConfig", *[(PUSH + "get", OLD_PUSH + "get")] * 4
    ),
    Operation.PUSH_LIST: Names(
        "ListTaskPushNotificationConfigs", "ListTaskPushNotificationConfig", *[(PUSH + "list",)] * 4
    ),
    Operation.PUSH_DELETE: Names(
        "DeleteTaskPushNotificationConfig",
        "DeleteTaskPushNotificationConfig",
        v03=(PUSH + "delete",),
        vault=(PUSH + "delete",),
        gen=(PUSH + "unsubscribe", PUSH + "delete"),
        relay=(PUSH + "delete",),
    ),
    Operation.EXTENDED_CARD: Names(
        "GetExtendedAgentCard",
        "GetAgentCard",
        v03=(ASK_CARD, CARD),
        vault=(ASK_CARD, CARD),
        gen=(CARD, ASK_CARD),
        relay=(ASK_CARD, CARD),
    ),
}
each_operation = each("operation", Operation)


@pytest.mark.proves("B-07", "B-11", "B-13", "B-methods", "JSONRPC-SVC-001")
@each_operation
def test_operation_names_in_every_dialect(operation: Operation) -> None:
    row, wanted = ROWS[operation], NAMES[operation]
    assert operation.value == wanted.v1
    assert row.grpc_v03 == wanted.grpc_v03
    names = {V1: (wanted.v1,), V03: wanted.v03, VAULT: wanted.vault, GEN: wanted.gen, RELAY: wanted.relay}
    assert row.names == names


@pytest.mark.proves("B-07", "B-methods")
@pytest.mark.parametrize("dialect", DialectName)
@each_operation
def test_every_name_leads_back_to_its_operation(operation: Operation, dialect: DialectName) -> None:
    names = ROWS[operation].names[dialect]
    assert method_name(operation, dialect) == names[0]
    for name in names:
        assert operation_for(name, dialect) is operation
        assert dialect in dialects_for(name)


@pytest.mark.proves("B-07")
def test_names_that_select_a_dialect() -> None:
    assert dialects_for("SendMessage") == {V1}
    assert dialects_for("tasks/send") == dialects_for("tasks/sendSubscribe") == {VAULT, RELAY}
    assert dialects_for(PUSH + "subscribe") == dialects_for(PUSH + "unsubscribe") == {GEN}
    assert dialects_for("message/send") == set(DialectName) - {V1}


ROUTES = """
SEND          v1 POST   /message:send
SEND          03 POST   /message:send
STREAM        v1 POST   /message:stream
STREAM        03 POST   /message:stream
GET           v1 GET    /tasks/{id}
GET           03 GET    /tasks/{id}
LIST          v1 GET    /tasks
LIST          03 GET    /tasks
CANCEL        v1 POST   /tasks/{id}:cancel
CANCEL        03 POST   /tasks/{id}:cancel
SUBSCRIBE     v1 GET    /tasks/{id}:subscribe
SUBSCRIBE     v1 POST   /tasks/{id}:subscribe
SUBSCRIBE     03 GET    /tasks/{id}:subscribe
SUBSCRIBE     03 POST   /tasks/{id}:subscribe
PUSH_SET      v1 POST   /tasks/{taskId}/pushNotificationConfigs
PUSH_SET      03 POST   /tasks/{taskId}/pushNotificationConfigs
PUSH_GET      v1 GET    /tasks/{taskId}/pushNotificationConfigs/{id}
PUSH_GET      03 GET    /tasks/{taskId}/pushNotificationConfigs/{id}
PUSH_LIST     v1 GET    /tasks/{taskId}/pushNotificationConfigs
PUSH_LIST     03 GET    /tasks/{taskId}/pushNotificationConfigs
PUSH_DELETE   v1 DELETE /tasks/{taskId}/pushNotificationConfigs/{id}
PUSH_DELETE   03 DELETE /tasks/{taskId}/pushNotificationConfigs/{id}
EXTENDED_CARD v1 GET    /extendedAgentCard
EXTENDED_CARD 03 GET    /card
EXTENDED_CARD 02 GET    /agent/authenticatedExtendedCard
"""


@pytest.mark.proves("HTTP_JSON-URL-001", "HTTP_JSON-URL-002", "B-13")
def test_the_rest_routes() -> None:
    wanted = {
        (Operation[name], version, RestRoute(verb, path))
        for name, version, verb, path in (line.split() for line in ROUTES.strip().splitlines())
    }
    columns = {"v1": "rest", "03": "rest_v03", "02": "rest_v02"}
    found = [
        (row.operation, version, route)
        for row in TABLE
        for version, column in columns.items()
        for route in getattr(row, column)
    ]
    assert set(found) == wanted
    assert len(found) == len(wanted)


def test_request_type_and_streaming_of_operations() -> None:
    assert {row.operation.name: (row.request, row.streams) for row in TABLE} == {
        "SEND": (model.SendRequest, False),
        "STREAM": (model.SendRequest, True),
        "GET": (model.GetRequest, False),
        "LIST": (model.TaskFilter, False),
        "CANCEL": (model.CancelRequest, False),
        "SUBSCRIBE": (model.SubscribeRequest, True),
        "PUSH_SET": (model.PushConfig, False),
        "PUSH_GET": (model.PushGetRequest, False),
        "PUSH_LIST": (model.PushListRequest, False),
        "PUSH_DELETE": (model.PushDeleteRequest, False),
        "EXTENDED_CARD": (model.CardRequest, False),
    }


# What each dialect writes for a state; 1.0's own name is the model's.
STATES = """
SUBMITTED      submitted      TASK_STATE_SUBMITTED      TASK_STATE_SUBMITTED      SUBMITTED      pending
WORKING        working        TASK_STATE_WORKING        TASK_STATE_WORKING        WORKING        running
INPUT_REQUIRED input-required TASK_STATE_INPUT_REQUIRED TASK_STATE_INPUT_REQUIRED INPUT_REQUIRED running
AUTH_REQUIRED  auth-required  TASK_STATE_AUTH_REQUIRED  TASK_STATE_AUTH_REQUIRED  INPUT_REQUIRED running
COMPLETED      completed      TASK_STATE_COMPLETED      TASK_STATE_COMPLETED      COMPLETED      completed
FAILED         failed         TASK_STATE_FAILED         TASK_STATE_FAILED         FAILED         failed
CANCELED       canceled       TASK_STATE_CANCELED       TASK_STATE_CANCELLED      CANCELED       cancelled
REJECTED       rejected       TASK_STATE_REJECTED       TASK_STATE_REJECTED       FAILED         failed
UNKNOWN        unknown        TASK_STATE_UNSPECIFIED    TASK_STATE_UNSPECIFIED    FAILED         failed
"""
NINE = [line.split() for line in STATES.strip().splitlines()]


@pytest.mark.proves("0-04", "0-36", "B-05", "B-states")
def test_state_names_in_every_dialect() -> None:
    found = [
        [state.name, states.LOWER[state], state.value, states.PROTO_03[state], states.VAULT[state], states.GEN[state]]
        for state in TaskState
    ]
    assert found == NINE


@pytest.mark.proves("B-05", "B-states")
@each(("name", "lower", "v1", "proto"), [row[:4] for row in NINE])
def test_every_finer_name_is_read_in_every_dialect(name: str, lower: str, v1: str, proto: str) -> None:
    state = TaskState[name]
    assert states.from_lower(lower, "status") is state
    assert [states.from_any(spelled, "status") for spelled in (lower, v1, proto)] == [state] * 3
    assert [states.from_vault(spelled, "status") for spelled in (name, lower, lower.upper())] == [state] * 3
    assert [states.from_gen(spelled, "status") for spelled in (lower, lower.upper())] == [state] * 2


@pytest.mark.proves("B-05", "4-04")
def test_names_of_gen_and_both_spellings_of_canceled() -> None:
    assert states.from_gen("pending", "status") is states.from_gen("PENDING", "status") is TaskState.SUBMITTED
    assert states.from_gen("running", "status") is states.from_gen("Running", "status") is TaskState.WORKING
    for read in (states.from_lower, states.from_any, states.from_gen):
        assert read("cancelled", "status") is TaskState.CANCELED
