"""Values that no agent would send, in every place of every request, in every dialect, over both kinds of store.

A store, a driver or a codec below may choke on any of them; whatever it is, the caller is told what is wrong with the
request, and nothing is ever an error of the server.
"""

import copy
import json
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count, islice
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import grpc
import pytest
from a2a.types import a2a_pb2
from google.protobuf import struct_pb2
from msgspec.structs import replace

from accord.http.grpc.calls import encode_message
from accord.model import (
    Authentication,
    CancelRequest,
    CardRequest,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Role,
    SendConfiguration,
    SendRequest,
    SubscribeRequest,
    TaskFilter,
    TaskState,
)
from accord.protocol.dialects import DIALECTS, REST_DIALECTS
from accord.protocol.operations import ROWS, DialectName, Operation, method_name
from accord.server.application import Application, to_a2a
from accord.testing.asgi import Response, call, lifespan
from tests.abuse.agents import victim
from tests.abuse.server import Server
from tests.abuse.ways import BOUND_SECONDS, METHODS, V1
from tests.abuse.wire import Wire
from tests.databases import emptied, postgres

__all__ = ["postgres"]

HERE = b'"<here>"'
"""What stands in the JSON of a request where a value is put."""

READ = [
    *(str(number).encode() for number in (0, -1, 2**31, 2**63 - 1, -(2**63), 2**64 - 1)),
    *(b"1.5", b"1e300", b"null", b"true", b"[]", b"{}", b'""', b'" "', b'"\\u0000"', b'"a\\u0000b"', b'"\\uffff"'),
    *(b'{"\\u0000":1}', b'{"":""}', b'"9999-12-31T23:59:59-23:59"', b'"0001-01-01T00:00:00+23:59"', b'"\\r\\nX: y"'),
]
"""What a reader of JSON lets through, and what is behind it may not take."""

OTHERS = [
    *(b"1e999", b"-1e999", b"1" + b"0" * 400, b"1e-400", b"-0", b"NaN", b"Infinity", b"-", b"01", b"0x10", b"1_000"),
    *(str(number).encode() for number in (2**53 + 1, 2**63, 2**64, -(2**64))),
    *(b'"\\ud800"', b'"\\udc00\\ud800"', b'"\x00"', b'"\xff\xfe"', b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\n"'),
    *(b'"\\x41"', b'"unfinished', b"'text'", b'"%s%n{0}${x}"', b'"\'; DROP TABLE task --"', b'"v1"'),
    *('"\u202e\u2028\u2029\ufeff"'.encode(), b'"' + b"a" * 100_000 + b'"', b'"TASK_STATE_UNSPECIFIED"'),
    *(b"[[]]", b"[null]", b'{"a":1,"a":2}', b'{"\\ud800":1}', b'{"__proto__":{"a":1}}', b"", b",", b"]", b"// x"),
    *(b"[1,]", b'{"a":1,}', b"\xef\xbb\xbf1", b"[" * 9000 + b"]" * 9000, b'{"a":' * 9000 + b"1" + b"}" * 9000),
]
"""What it should stop at, and what only looks odd."""

HOOK = PushConfig(
    url="https://hooks.invalid/",
    id="h",
    token="t",
    authentication=Authentication(scheme="Bearer", credentials="c"),
    events=("status",),
)
CONFIG = {"task_config": {"timeout": 60_000, "priority": "low"}, "stream_config": {"buffer_size": 10}}


def requests(task_id: str) -> dict[Operation, Any]:
    """Every operation -> a request that leaves nothing out."""
    message = Message(
        message_id="m",
        role=Role.USER,
        parts=(
            Part(text="hi", media_type="text/plain", filename="f", metadata={"k": 1}),
            Part(data={"k": [1]}),
            Part(raw=b"x"),
            Part(url="https://example.com/x"),
        ),
        context_id="c",
        metadata={"k": {"k": 1}},
        extensions=("https://example.com/ext",),
        reference_task_ids=("r",),
    )
    send = SendRequest(
        message=message,
        configuration=SendConfiguration(
            accepted_output_modes=("text/plain",), task_push_notification_config=HOOK, history_length=1
        ),
        metadata={"k": 1, **CONFIG},
        tenant="",
    )
    page = TaskFilter(
        context_id="c",
        status=TaskState.WORKING,
        page_size=1,
        page_token="x",
        history_length=1,
        status_timestamp_after="2026-01-01T00:00:00Z",
        include_artifacts=True,
        tenant="",
    )
    return {
        Operation.SEND: send,
        Operation.STREAM: send,
        Operation.GET: GetRequest(id=task_id, history_length=1, tenant=""),
        Operation.LIST: page,
        Operation.CANCEL: CancelRequest(id="none", metadata={"reason": "r"}, tenant=""),
        Operation.SUBSCRIBE: SubscribeRequest(id="none", tenant=""),
        Operation.PUSH_SET: replace(HOOK, task_id=task_id),
        Operation.PUSH_GET: PushGetRequest(task_id=task_id, id="h", tenant=""),
        Operation.PUSH_LIST: PushListRequest(task_id=task_id, page_size=1, page_token="x", tenant=""),
        Operation.PUSH_DELETE: PushDeleteRequest(task_id=task_id, id="none", url="https://none.example", tenant=""),
        Operation.EXTENDED_CARD: CardRequest(tenant=""),
    }


class Attack(NamedTuple):
    """One request."""

    verb: str
    path: str
    query: str
    body: bytes
    headers: dict[str, str]


def holes(document: Any) -> Iterator[bytes]:
    """The JSON of a document, as often as it has members and entries, each time with one of them taken out."""
    for path in _paths(document):
        opened = copy.deepcopy(document)
        *before, last = path
        inside = opened
        for step in before:
            inside = inside[step]
        inside[last] = json.loads(HERE)
        yield json.dumps(opened).encode()


def _paths(value: Any, *before: Any) -> Iterator[tuple[Any, ...]]:
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield (*before, step)
        yield from _paths(inner, *before, step)


Choose = Callable[[], list[bytes]]
"""Returns the values to put into the next hole."""


def some(size: int) -> Choose:
    """A few values for each hole, and in the end as many of all of them."""
    turn = count()
    values = READ + OTHERS
    return lambda: list(islice((values * 2)[next(turn) * size % len(values) :], size))


def over_jsonrpc(name: DialectName, task_id: str, choose: Choose) -> Iterator[Attack]:
    for operation, request in requests(task_id).items():
        params = json.loads(DIALECTS[name].encode_request(operation, request))
        envelope = {"jsonrpc": "2.0", "id": 1, "method": method_name(operation, name), "params": params}
        for hole in holes(envelope):
            for value in choose():
                yield Attack("POST", "/", "", hole.replace(HERE, value), {"X-A2A-Dialect": name.value})


def over_rest(name: DialectName, task_id: str, choose: Choose) -> Iterator[Attack]:
    prefix = "" if name is V1 else "/v1"
    for operation, request in requests(task_id).items():
        stated = json.loads(REST_DIALECTS[name].encode_request(operation, request))
        for verb, pattern in ROWS[operation].rest if name is V1 else ROWS[operation].rest_v03:
            path = prefix + pattern.replace("{taskId}", task_id).replace("{id}", "none")
            for hole in holes(stated):
                for value in choose():
                    query = {} if verb == "POST" else json.loads(hole) | {"x": 1}
                    texts = [(key, value if given == "<here>" else str(given)) for key, given in query.items()]
                    yield Attack(verb, path, urlencode(texts), hole.replace(HERE, value), {})
            for value in choose() if "{" in pattern else ():
                opened = pattern.replace("{taskId}", "{id}").replace("{id}", quote(value[:2000], safe=""))
                yield Attack(verb, prefix + opened, "", b"{}", {})


def is_our_fault(answer: Response) -> bool:
    """Whether an answer says that the server has failed; what it says otherwise must be JSON."""
    if "text/event-stream" not in answer.headers["content-type"]:
        json.loads(answer.body)
    return answer.status >= 500 or b"-32603" in answer.body or b"INTERNAL" in answer.body


class Opened(NamedTuple):
    """A running application, and a task that waits for an answer."""

    app: Application
    task_id: str

    async def failures(self, attacks: Iterator[Attack]) -> list[str]:
        """Send everything; return what the server has failed at."""
        found, sent = [], 0
        for verb, path, query, body, headers in attacks:
            answer = await call(self.app, body, method=verb, path=path, query=query, headers=headers)
            sent += 1
            if is_our_fault(answer):
                found.append(f"{verb} {path}?{query} {body[:500]!r}: {answer.status} {answer.body[:200]!r}")
        assert sent > 100
        return found


@pytest.fixture(params=["sqlite", "postgres"])
async def opened(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Opened]:
    store = "sqlite://:memory:"
    if request.param == "postgres":
        store = await emptied(request.getfixturevalue("postgres"))
    app = to_a2a(victim, store=store, server={"grace_seconds": 0})
    async with lifespan(app):
        message = {"messageId": "first", "role": "ROLE_USER", "parts": [{"text": "ask"}]}
        made = await call(app, {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}})
        yield Opened(app, made.json()["result"]["task"]["id"])
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.mark.proves("CORE-ERR-001")
async def test_no_value_in_any_place_of_1_0_is_an_error_of_the_server(opened: Opened) -> None:
    assert await opened.failures(over_jsonrpc(V1, opened.task_id, lambda: READ)) == []


@pytest.mark.parametrize("opened", ["sqlite"], indirect=True)
async def test_nor_in_any_other_dialect_or_binding(opened: Opened) -> None:
    for name in DIALECTS:
        assert await opened.failures(over_jsonrpc(name, opened.task_id, some(6))) == []
    for name in REST_DIALECTS:
        assert await opened.failures(over_rest(name, opened.task_id, some(5))) == []


# --- gRPC, where the same values come as protobuf -------------------------------------------------------------------

DEEP = 200


def messages(valid: bytes) -> Iterator[bytes]:
    """Bytes in the place of a message."""
    chance = random.Random(1)
    yield from (b"", b"\xff" * 50, b"\x00", valid[:-1], valid + b"\x0a\xff", b"\x0a\x02\xff\xfe" + valid)
    yield from (chance.randbytes(size) for size in (1, 2, 5, 20, 100, 1000) for _ in range(5))
    for _ in range(20):
        at = chance.randrange(len(valid) or 1)
        yield valid[:at] + chance.randbytes(1) + valid[at + 1 :]


def structures() -> Iterator[bytes]:
    """Messages with free data that JSON cannot express, or that is too deep."""
    for number in (math.nan, math.inf, -math.inf, 1e308):
        yield _sending(struct_pb2.Value(number_value=number))
    yield _sending(struct_pb2.Value())
    deep = struct_pb2.Value(bool_value=True).SerializeToString()
    for _ in range(DEEP):  # by hand: protobuf does not write what it would not read
        deep = _field(6, _field(1, deep))
    yield _field(2, _field(1, b"m") + _field(5, _field(4, deep)))


def _sending(value: struct_pb2.Value) -> bytes:
    message = a2a_pb2.Message(message_id="m", role=a2a_pb2.ROLE_USER, parts=[a2a_pb2.Part(data=value)])
    sent: bytes = a2a_pb2.SendMessageRequest(message=message).SerializeToString()
    return sent


def _field(number: int, data: bytes) -> bytes:
    """A field of a message that holds bytes: its tag, their length seven bits at a time, and them."""
    size, length = len(data), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def outcome(server: Server, path: str, body: bytes, *, streams: bool) -> grpc.StatusCode:
    """How a call ends; of a stream, how it begins."""
    metadata = [("x-api-key", server.keys["alice"])]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        try:
            if streams:
                next(channel.unary_stream(path)(body, metadata=metadata, timeout=BOUND_SECONDS), None)
            else:
                channel.unary_unary(path)(body, metadata=metadata, timeout=BOUND_SECONDS)
        except grpc.RpcError as error:
            return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("name", METHODS)
def test_random_bytes_as_a_message_are_a_client_error(guarded: Server, name: DialectName) -> None:
    ours = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}
    for operation, method in METHODS[name].items():
        request = requests("none")[operation]
        valid = encode_message(method.request, method.dialect.encode_request(operation, replace(request, tenant=None)))
        for body in messages(valid):
            found = outcome(guarded, method.path, body, streams=method.streams)
            assert found not in ours, (method.path, body)
    for body in structures() if name is V1 else ():
        assert outcome(guarded, METHODS[V1][Operation.SEND].path, body, streams=False) not in ours
    guarded.check()


def test_invalid_http_2_leaves_the_port_usable(guarded: Server) -> None:
    for path in ("/", "/nothing", "/a2a.v1.A2AService/", "/a2a.v1.A2AService/Frob", "/lf.a2a.v1.A2AService/../GetTask"):
        assert outcome(guarded, path, b"", streams=False) is grpc.StatusCode.UNIMPLEMENTED
    for sent in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(range(256)) * 10, PREFACE + b"\xff" * 1000):
        with Wire(guarded.grpc_port) as wire:
            wire.say(sent)
            assert b"Traceback" not in wire.rest()
    get = METHODS[V1][Operation.GET]
    body = encode_message(get.request, b'{"id":"none"}')
    assert outcome(guarded, get.path, body, streams=False) is grpc.StatusCode.NOT_FOUND
    guarded.check()


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
