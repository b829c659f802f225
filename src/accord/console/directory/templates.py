"""Requests ready to be edited and sent: every operation in every dialect and binding that a server speaks.

They are written by the dialects themselves, along `operations.TABLE`, so that they are what a client would send; only
the ids in them are made up. Sending them is `inspector`.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any, Literal
from urllib.parse import urlencode

import msgspec

from accord.console.views import Template
from accord.engine.ids import new_id
from accord.errors import AccordError
from accord.model import (
    CancelRequest,
    CardRequest,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Request,
    Role,
    SendRequest,
    SubscribeRequest,
    TaskFilter,
)
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.dialects.base import path_from_request, query_from_params
from accord.protocol.negotiation import MOUNTS
from accord.protocol.operations import TABLE, DialectName, Operation, Row, method_name

TASK_ID = "TASK-ID"
"""What stands for the id of a task."""

CARD = "/.well-known/agent-card.json"

_PUSH_ID = "webhook-1"
_JSON = {"Content-Type": "application/json"}
_EVENTS = {"Accept": "text/event-stream"}
_V03_PREFIX = "/v1"

_TELLING: Mapping[DialectName, dict[str, str]] = {
    DialectName.V1: {"A2A-Version": "1.0"},
    DialectName.RELAY: {"X-A2A-Dialect": DialectName.RELAY.value},
}
"""What tells a dialect that has no path of its own."""

_PATHS = {dialect: f"{path}/" for path, dialect in MOUNTS.items()}


def _message() -> SendRequest:
    return SendRequest(message=Message(message_id=new_id(), role=Role.USER, parts=(Part(text="Hello"),)))


_SAMPLES: Mapping[Operation, Callable[[], Request]] = {
    Operation.SEND: _message,
    Operation.STREAM: _message,
    Operation.GET: lambda: GetRequest(id=TASK_ID),
    Operation.LIST: lambda: TaskFilter(page_size=10),
    Operation.CANCEL: lambda: CancelRequest(id=TASK_ID),
    Operation.SUBSCRIBE: lambda: SubscribeRequest(id=TASK_ID),
    Operation.PUSH_SET: lambda: PushConfig(task_id=TASK_ID, id=_PUSH_ID, url="https://example.com/webhook"),
    Operation.PUSH_GET: lambda: PushGetRequest(task_id=TASK_ID, id=_PUSH_ID),
    Operation.PUSH_LIST: lambda: PushListRequest(task_id=TASK_ID),
    Operation.PUSH_DELETE: lambda: PushDeleteRequest(task_id=TASK_ID, id=_PUSH_ID),
    Operation.EXTENDED_CARD: CardRequest,
}


def templates(dialects: Set[DialectName]) -> list[Template]:
    """Return a request for each operation of these dialects, in each binding that has it."""
    found: list[Template] = []
    for dialect in (one for one in DialectName if one in dialects):
        found += (made for row in TABLE if (made := _rpc(row, dialect)) is not None)
        if dialect in REST_DIALECTS:
            found += (made for row in TABLE if (made := _rest(row, dialect)) is not None)
            found.append(_card(dialect))
    return found


def _rpc(row: Row, dialect: DialectName) -> Template | None:
    name = method_name(row.operation, dialect)
    if name is None:
        return None
    try:
        params = DIALECTS[dialect].encode_request(row.operation, _SAMPLES[row.operation]())
    except AccordError:  # the dialect has the name, but no form for such a request
        return None
    return _template(
        row,
        dialect,
        "JSONRPC",
        label=name,
        method="POST",
        path=_PATHS.get(dialect, "/"),
        headers=_JSON | _TELLING.get(dialect, {}),
        body={"jsonrpc": "2.0", "id": 1, "method": name, "params": msgspec.json.decode(params)},
    )


def _rest(row: Row, dialect: DialectName) -> Template | None:
    routes = row.rest if dialect is DialectName.V1 else row.rest_v03
    if not routes:
        return None
    route, request = routes[0], _SAMPLES[row.operation]()
    prefix = "" if dialect is DialectName.V1 else _V03_PREFIX
    params = REST_DIALECTS[dialect].encode_request(row.operation, request)
    has_body = route.verb == "POST"
    query = "" if has_body else urlencode(query_from_params(route, params))
    path = prefix + path_from_request(route, request)
    return _template(
        row,
        dialect,
        "HTTP+JSON",
        label=f"{route.verb} {prefix}{route.path}",
        method=route.verb,
        path=f"{path}?{query}" if query else path,
        headers=_JSON if has_body else {},
        body=msgspec.json.decode(params) if has_body else None,
    )


def _card(dialect: DialectName) -> Template:
    return Template(
        operation="GetAgentCard",
        label=f"GET {CARD}",
        dialect=dialect.value,
        binding="HTTP+JSON",
        streams=False,
        method="GET",
        path=f"{CARD}?dialect={dialect.value}",
        headers={},
        body=None,
    )


def _template(
    row: Row, dialect: DialectName, binding: Literal["JSONRPC", "HTTP+JSON"], *, headers: dict[str, str], **more: Any
) -> Template:
    return Template(
        operation=row.operation.value,
        dialect=dialect.value,
        binding=binding,
        streams=row.streams,
        headers=headers | (_EVENTS if row.streams else {}),
        **more,
    )
