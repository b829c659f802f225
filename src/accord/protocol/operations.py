"""The table of A2A's operations: types, names in each dialect, and REST routes.

JSON-RPC, REST, gRPC, the client, negotiation and the docs loop over these rows. A dialect without a name for an
operation does not have it. `service.service` implements the operations.
"""

import re
from collections.abc import Container, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from msgspec import Struct

from accord.model import (
    CancelRequest,
    CardRequest,
    GetRequest,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Request,
    SendRequest,
    SubscribeRequest,
    TaskFilter,
)
from accord.model.base import Choice


class DialectName(Choice):
    """The five wire dialects."""

    V1 = "v1"
    V03 = "v03"
    VAULT = "vault"
    GEN = "gen"
    RELAY = "relay"


class Operation(Choice):
    """The operations of an agent; the value is A2A 1.0's method and gRPC name."""

    SEND = "SendMessage"
    STREAM = "SendStreamingMessage"
    GET = "GetTask"
    LIST = "ListTasks"
    CANCEL = "CancelTask"
    SUBSCRIBE = "SubscribeToTask"
    PUSH_SET = "CreateTaskPushNotificationConfig"
    PUSH_GET = "GetTaskPushNotificationConfig"
    PUSH_LIST = "ListTaskPushNotificationConfigs"
    PUSH_DELETE = "DeleteTaskPushNotificationConfig"
    EXTENDED_CARD = "GetExtendedAgentCard"


class RestRoute(NamedTuple):
    """One REST address: `{name}` matches one path segment, or the text before a `:verb`.

    The names are those of the request's JSON, so that a path's values are parameters like those of a query.
    """

    verb: str
    path: str


class OperationRow(Struct, frozen=True, kw_only=True):
    """One operation.

    `names` are its names in each dialect: first the name that our client sends, then aliases. `rest` are A2A 1.0's
    routes without the tenant prefix, `rest_v03` those of 0.3 without `/v1`, `rest_v02` those of 0.2 besides JSON-RPC.
    """

    operation: Operation
    request: type[Request]
    streams: bool = False
    names: Mapping[DialectName, tuple[str, ...]]
    rest: tuple[RestRoute, ...]
    rest_v03: tuple[RestRoute, ...] = ()
    grpc_v03: str | None = None
    rest_v02: tuple[RestRoute, ...] = ()


V1, V03, VAULT, GEN, RELAY = DialectName
_PUSH = "tasks/pushNotificationConfig/"
_CARD = ("agent/getAuthenticatedExtendedCard", "agent/authenticatedExtendedCard")


def _names(
    operation: Operation,
    *shared: str,
    vault: tuple[str, ...] | None = None,
    gen: tuple[str, ...] | None = None,
    relay: tuple[str, ...] | None = None,
) -> dict[DialectName, tuple[str, ...]]:
    """Return the names per dialect: `shared` is for all but v1; a dialect's own names precede them."""
    return {
        V1: (operation.value,),
        V03: shared,
        VAULT: (vault or ()) + shared,
        GEN: tuple(dict.fromkeys((gen or ()) + shared)),
        RELAY: shared + (relay or ()),
    }


_TASK = "/tasks/{id}"
_PUSHES = "/tasks/{taskId}/pushNotificationConfigs"
_SUBSCRIBE = (RestRoute("GET", _TASK + ":subscribe"), RestRoute("POST", _TASK + ":subscribe"))

TABLE: tuple[OperationRow, ...] = (
    OperationRow(
        operation=Operation.SEND,
        request=SendRequest,
        names=_names(Operation.SEND, "message/send", vault=("tasks/send",), relay=("tasks/send",)),
        rest=(RestRoute("POST", "/message:send"),),
        rest_v03=(RestRoute("POST", "/message:send"),),
        grpc_v03="SendMessage",
    ),
    OperationRow(
        operation=Operation.STREAM,
        request=SendRequest,
        streams=True,
        names=_names(Operation.STREAM, "message/stream", relay=("tasks/sendSubscribe",)),
        rest=(RestRoute("POST", "/message:stream"),),
        rest_v03=(RestRoute("POST", "/message:stream"),),
        grpc_v03="SendStreamingMessage",
    ),
    OperationRow(
        operation=Operation.GET,
        request=GetRequest,
        names=_names(Operation.GET, "tasks/get"),
        rest=(RestRoute("GET", _TASK),),
        rest_v03=(RestRoute("GET", _TASK),),
        grpc_v03="GetTask",
    ),
    OperationRow(
        operation=Operation.LIST,
        request=TaskFilter,
        names=_names(Operation.LIST, "tasks/list"),
        rest=(RestRoute("GET", "/tasks"),),
        rest_v03=(RestRoute("GET", "/tasks"),),
    ),
    OperationRow(
        operation=Operation.CANCEL,
        request=CancelRequest,
        names=_names(Operation.CANCEL, "tasks/cancel"),
        rest=(RestRoute("POST", _TASK + ":cancel"),),
        rest_v03=(RestRoute("POST", _TASK + ":cancel"),),
        grpc_v03="CancelTask",
    ),
    OperationRow(
        operation=Operation.SUBSCRIBE,
        request=SubscribeRequest,
        streams=True,
        names=_names(Operation.SUBSCRIBE, "tasks/resubscribe", "tasks/subscribe", vault=("tasks/sendSubscribe",)),
        rest=_SUBSCRIBE,
        rest_v03=_SUBSCRIBE,
        grpc_v03="TaskSubscription",
    ),
    OperationRow(
        operation=Operation.PUSH_SET,
        request=PushConfig,
        names=_names(Operation.PUSH_SET, _PUSH + "set", "tasks/pushNotification/set", gen=(_PUSH + "subscribe",)),
        rest=(RestRoute("POST", _PUSHES),),
        rest_v03=(RestRoute("POST", _PUSHES),),
        grpc_v03="CreateTaskPushNotificationConfig",
    ),
    OperationRow(
        operation=Operation.PUSH_GET,
        request=PushGetRequest,
        names=_names(Operation.PUSH_GET, _PUSH + "get", "tasks/pushNotification/get"),
        rest=(RestRoute("GET", _PUSHES + "/{id}"),),
        rest_v03=(RestRoute("GET", _PUSHES + "/{id}"),),
        grpc_v03="GetTaskPushNotificationConfig",
    ),
    OperationRow(
        operation=Operation.PUSH_LIST,
        request=PushListRequest,
        names=_names(Operation.PUSH_LIST, _PUSH + "list"),
        rest=(RestRoute("GET", _PUSHES),),
        rest_v03=(RestRoute("GET", _PUSHES),),
        grpc_v03="ListTaskPushNotificationConfig",
    ),
    OperationRow(
        operation=Operation.PUSH_DELETE,
        request=PushDeleteRequest,
        names=_names(Operation.PUSH_DELETE, _PUSH + "delete", gen=(_PUSH + "unsubscribe",)),
        rest=(RestRoute("DELETE", _PUSHES + "/{id}"),),
        rest_v03=(RestRoute("DELETE", _PUSHES + "/{id}"),),
        grpc_v03="DeleteTaskPushNotificationConfig",
    ),
    OperationRow(
        operation=Operation.EXTENDED_CARD,
        request=CardRequest,
        names=_names(Operation.EXTENDED_CARD, *_CARD, gen=(_CARD[1],)),
        rest=(RestRoute("GET", "/extendedAgentCard"),),
        rest_v03=(RestRoute("GET", "/card"),),
        rest_v02=(RestRoute("GET", "/agent/authenticatedExtendedCard"),),
        grpc_v03="GetAgentCard",
    ),
)

ROWS: Mapping[Operation, OperationRow] = {row.operation: row for row in TABLE}

SENDS = frozenset({Operation.SEND, Operation.STREAM})
"""Operations that send a message to the agent."""


def method_name(operation: Operation, dialect: DialectName) -> str | None:
    """Return the JSON-RPC method that our client sends, or None if the dialect lacks the operation."""
    names = ROWS[operation].names[dialect]
    return names[0] if names else None


def operation_for(method: str, dialect: DialectName) -> Operation | None:
    """Return the operation that a method names in a dialect."""
    return _BY_METHOD[dialect].get(method)


def dialects_for(method: str) -> frozenset[DialectName]:
    """Return the dialects that have a method."""
    return frozenset(dialect for dialect, methods in _BY_METHOD.items() if method in methods)


_BY_METHOD: dict[DialectName, dict[str, Operation]] = {
    dialect: {name: row.operation for row in TABLE for name in row.names[dialect]} for dialect in DialectName
}


class RestMatch(NamedTuple):
    """A matched REST request: its operation, its dialect and the values in its path."""

    operation: Operation
    dialect: DialectName
    values: dict[str, str]


class MethodsAllowed(NamedTuple):
    """The verbs of a path that exists, but not for the requested verb."""

    verbs: tuple[str, ...]


def match_rest(verb: str, path: str, enabled: Container[DialectName] = (V1, V03)) -> RestMatch | MethodsAllowed | None:
    """Find the operation at a REST address as sent; the path's values are still percent-encoded.

    `/v1/...` is A2A 0.3 while that dialect is enabled, so no tenant can be called `v1` then. A task's id may contain
    colons, but `:cancel` and `:subscribe` at its end are verbs; an id that ends in one has its colon encoded.
    """
    allowed: list[str] = []
    for pattern, route, operation, dialect in _REST:
        if dialect in enabled and (found := pattern.fullmatch(path)):
            values = found.groupdict()
            if V03 in enabled and unquote(values.get("tenant", "")) == "v1":
                continue
            if route.verb == verb:
                return RestMatch(operation, dialect, values)
            allowed.append(route.verb)
    return MethodsAllowed(tuple(dict.fromkeys(allowed))) if allowed else None


_NO_VERB = "(?<!:cancel)(?<!:subscribe)"


def _compile(prefix: str, route: RestRoute) -> re.Pattern[str]:
    pieces = re.split(r"\{(\w+)\}", prefix + route.path)
    pattern = "".join(f"(?P<{p}>[^/]+)" if i % 2 else re.escape(p) for i, p in enumerate(pieces))
    return re.compile(pattern + _NO_VERB if route.path == _TASK else pattern)


_PREFIXES = (("/v1", V03, "rest_v03"), ("", V03, "rest_v02"), ("", V1, "rest"), ("/{tenant}", V1, "rest"))
_REST = tuple(
    (_compile(prefix, route), route, row.operation, dialect)
    for prefix, dialect, column in _PREFIXES
    for row in TABLE
    for route in getattr(row, column)
)
