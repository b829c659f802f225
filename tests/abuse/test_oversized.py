"""Too much of everything, over every binding of a real server whose settings say how much is too much.

`tests/engine/test_bounds.py` and `tests/http/test_limits.py` prove each limit by itself; here they are what an
operator writes into a file, and what is refused must cost little.
"""

import gzip
import json
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any
from uuid import uuid4

import grpc
import pytest
from msgspec.structs import replace

from accord.model import (
    Authentication,
    CancelRequest,
    GetRequest,
    Message,
    Part,
    PushConfig,
    Role,
    SendConfiguration,
    SendRequest,
    SubscribeRequest,
    TaskFilter,
)
from accord.protocol.operations import Operation
from tests.abuse.server import Holder, Server, serving
from tests.abuse.ways import METHODS, V1, WAYS, Caller, Way
from tests.abuse.wire import Answer

LIMITS = {
    "body": 50_000,
    "head": 4_096,
    "parts": 4,
    "text": 1_000,
    "metadata": 500,
    "depth": 5,
    "identifier": 64,
    "webhook_field": 200,
    "webhooks": 2,
    "history": 3,
    "streams": 3,
    "open_tasks": 5,
    "page_with_artifacts": 2,
    "rate": 20_000,
    "burst": 20_000,
}
HOLDERS = {name: Holder(name, "acme") for name in ("alice", "bob", "carol", "dave", "erin")}
MINE = Way("jsonrpc", V1)
each_way = pytest.mark.parametrize("way", WAYS, ids=str)
of_1_0 = pytest.mark.parametrize("way", [way for way in WAYS if way.dialect is V1], ids=str)
BOUND_SECONDS = 60.0


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("tight"), {"limits": LIMITS}, holders=HOLDERS) as server:
        yield server


@pytest.fixture
def alice(tight: Server) -> Caller:
    return Caller(tight, tight.keys["alice"])


def sending(*parts: Part, text: str = "hi", request: dict[str, Any] | None = None, **fields: Any) -> SendRequest:
    given: dict[str, Any] = {
        "message_id": str(uuid4()),
        "role": Role.USER,
        "parts": parts or (Part(text=text),),
    } | fields
    return SendRequest(message=Message(**given), **{"configuration": SendConfiguration(), **(request or {})})


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


HOOK = "https://hooks.invalid/"
TOO_LARGE: dict[str, tuple[SendRequest, SendRequest]] = {
    "text": (sending(text="x" * 1_000), sending(text="x" * 1_001)),
    "parts": (sending(*[Part(text="x")] * 4), sending(*[Part(text="x")] * 5)),
    "data": (sending(Part(data="x" * 998)), sending(Part(data="x" * 999))),
    "depth": (sending(Part(data=nested(5))), sending(Part(data=nested(6)))),
    "metadata": (sending(metadata={"k": "x" * 492}), sending(metadata={"k": "x" * 493})),
}
"""What every dialect can say: just small enough, and one too many."""

TOO_LARGE_1_0: dict[str, tuple[SendRequest, SendRequest]] = {
    "messageId": (sending(message_id="y" * 64), sending(message_id="x" * 65)),
    "messageId in bytes": (sending(message_id="ü" * 32), sending(message_id="ü" * 33)),
    "contextId": (sending(context_id="x" * 64), sending(context_id="x" * 65)),
    "extensions": (sending(extensions=("e",) * 4), sending(extensions=("e",) * 5)),
    "references": (sending(reference_task_ids=("e",) * 4), sending(reference_task_ids=("e",) * 5)),
    "url": (sending(Part(url="x" * 1_000)), sending(Part(url="x" * 1_001))),
    "the metadata of a part": (
        sending(Part(text="x", metadata={"k": "x" * 492})),
        sending(Part(text="x", metadata={"k": "x" * 493})),
    ),
    "the metadata of the request": (
        sending(request={"metadata": {"k": "x" * 492}}),
        sending(request={"metadata": {"k": "x" * 493}}),
    ),
    "the modes": (
        sending(request={"configuration": SendConfiguration(accepted_output_modes=("a",) * 4)}),
        sending(request={"configuration": SendConfiguration(accepted_output_modes=("a",) * 5)}),
    ),
}


@each_way
@pytest.mark.parametrize("name", TOO_LARGE)
def test_one_too_many_is_refused_and_one_less_is_not(alice: Caller, way: Way, name: str) -> None:
    fits, too_large = TOO_LARGE[name]
    for operation in (Operation.SEND, Operation.STREAM):
        assert alice.ask(way, operation, too_large).reason == "REQUEST_TOO_LARGE"
    assert alice.ask(way, Operation.SEND, fits).reason is None


@of_1_0
@pytest.mark.parametrize("name", TOO_LARGE_1_0)
def test_limits_apply_to_1_0_fields_in_every_binding(alice: Caller, way: Way, name: str) -> None:
    fits, too_large = TOO_LARGE_1_0[name]
    assert alice.ask(way, Operation.SEND, too_large).reason == "REQUEST_TOO_LARGE"
    assert alice.ask(way, Operation.SEND, fits).reason is None


@of_1_0
def test_fields_of_webhooks_and_reasons_to_cancel(alice: Caller, way: Way) -> None:
    task = alice.ask(MINE, Operation.SEND, sending()).result
    plain = PushConfig(url=HOOK, task_id=task.id, id="h")
    for hook in (
        replace(plain, url=HOOK + "x" * 200),
        replace(plain, id="x" * 65),
        replace(plain, token="x" * 201),
        replace(plain, authentication=Authentication(scheme="x" * 201)),
        replace(plain, authentication=Authentication(scheme="Bearer", credentials="x" * 201)),
    ):
        assert alice.ask(way, Operation.PUSH_SET, hook).reason == "REQUEST_TOO_LARGE"
        inline = SendConfiguration(task_push_notification_config=replace(hook, task_id=None))
        assert alice.ask(way, Operation.SEND, sending(request={"configuration": inline})).reason == "REQUEST_TOO_LARGE"
    cancel = CancelRequest(id=task.id, metadata={"reason": "x" * 600})
    assert alice.ask(way, Operation.CANCEL, cancel).reason == "REQUEST_TOO_LARGE"
    assert alice.ask(way, Operation.LIST, TaskFilter(page_size=101)).reason == "INVALID_PARAMS"


# --- bodies and heads -----------------------------------------------------------------------------------------------


def call(id: Any = 1, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id, "method": "GetTask", "params": {"id": "x"}} | more).encode()


def asked(server: Server, head: bytes, body: bytes) -> Answer:
    """What is answered to a request that is sent as far as the server reads."""
    with server.connect() as wire:
        wire.say(b"%b\r\nHost: x\r\nContent-Type: application/json\r\n" % head)
        wire.say(b"X-API-Key: %b\r\n\r\n" % server.keys["alice"].encode())
        with suppress(ConnectionError):
            wire.say(body)
        return wire.answer()


@pytest.mark.parametrize("path", [b"/", b"/message:send", b"/v1/message:send"])
def test_a_body_that_is_too_large_is_refused_before_it_is_there(tight: Server, path: bytes) -> None:
    for coding, first in (
        (b"Content-Length: 1000000000000", b"x" * 50_001),
        (b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n" % (50_001, b"x" * 50_001)),
        (b"Transfer-Encoding: chunked", b"1\r\nx\r\n" * 50_001),
    ):
        assert asked(tight, b"POST %b HTTP/1.1\r\n%b" % (path, coding), first).status == 413
    body = b" " * (50_000 - len(call())) + call()
    assert asked(tight, b"POST / HTTP/1.1\r\nContent-Length: 50000", body).status == 200


HEADS = {
    "one long header": b"X: " + b"x" * 4_096,
    "many short headers": b"\r\n".join(b"%d: x" % number for number in range(1_000)),
    "a long name": b"x" * 4_096 + b": x",
    "many keys": b"\r\n".join([b"X-API-Key: x"] * 400),
}


@pytest.mark.parametrize("name", HEADS)
def test_a_head_that_is_too_large_is_431(tight: Server, name: str) -> None:
    for path in (b"/", b"/message:send", b"/v1/message:send"):
        head = b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n%b" % (path, len(call()), HEADS[name])
        assert asked(tight, head, call()).status == 431
    tight.check()


def test_an_address_that_is_too_large_is_431(tight: Server) -> None:
    for target in ("/tasks/" + "x" * 4_096, "/tasks?contextId=" + "x" * 4_096, "/v1/tasks/" + "%41" * 1_400):
        assert tight.ask("GET", target, X_API_Key=tight.keys["alice"]).status == 431


@pytest.mark.skipif(sys.platform != "linux", reason="memory is looked at through /proc")
def test_a_head_or_trailers_without_end_are_hung_up_on(tight: Server) -> None:
    """And soon: what is thrown away costs nothing but its way."""
    before = tight.status("VmRSS")
    for begun, piece in (
        (b"GET / HTTP/1.1\r\n", b"x: y\r\n"),
        (b"GET / HTTP/1.1\r\nx: ", b"y" * 100),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"x: y\r\n"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nx: ", b"y" * 100),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;", b"y" * 100),
    ):
        with tight.connect() as wire:
            wire.say(begun)
            wire.pour(piece * 1_000, most=50_000_000)
    assert tight.status("VmRSS") - before < 20_000_000
    tight.check()


def test_data_after_a_compressed_body_counts(tight: Server) -> None:
    packed = gzip.compress(call())
    head = b"POST / HTTP/1.1\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked"
    first = b"%x\r\n%b\r\n" % (len(packed), packed)
    assert asked(tight, head, first + b"%x\r\n%b\r\n" % (60_000, bytes(60_000))).status == 413
    assert asked(tight, head, first + b"0\r\n\r\n").status == 200


def test_grpc_has_the_same_limits(tight: Server) -> None:
    get = METHODS[V1][Operation.GET]
    for body, metadata in (
        (b"x" * 50_001, ()),
        (get.request(id="x").SerializeToString(), (("x-big", "x" * 20_000),)),
    ):
        said = [("x-api-key", tight.keys["alice"]), *metadata]
        with grpc.insecure_channel(f"127.0.0.1:{tight.grpc_port}") as channel, pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(get.path)(body, metadata=said, timeout=BOUND_SECONDS)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    tight.check()


def test_batches_and_ids_are_bounded(tight: Server) -> None:
    def sent(body: bytes) -> Any:
        return tight.ask("POST", "/", body, X_API_Key=tight.keys["alice"]).json()

    def batch(count: int) -> bytes:
        return b"[%b]" % b",".join(call(number) for number in range(count))

    assert [answer["id"] for answer in sent(batch(100))] == list(range(100))
    assert sent(batch(101))["error"]["code"] == -32600
    assert sent(b"[%b]" % batch(2))[0]["error"]["code"] == -32600
    assert sent(call("x" * 1_022))["id"] == "x" * 1_022
    others: list[Any] = ["x" * 1_023, [], {}, True]
    for id in others:
        assert (sent(call(id))["id"], sent(call(id))["error"]["code"]) == (None, -32600)


# --- how many at a time ---------------------------------------------------------------------------------------------


def test_open_tasks_are_limited_per_caller(tight: Server) -> None:
    bob, at_once = Caller(tight, tight.keys["bob"]), {"configuration": SendConfiguration(return_immediately=True)}
    made = [bob.ask(MINE, Operation.SEND, sending(text="wait", request=at_once)).result for _ in range(5)]
    for way in WAYS:
        refused = bob.ask(way, Operation.SEND, sending(text="wait", request=at_once))
        assert refused.reason == "RATE_LIMITED", way
        assert b"retry-after" in refused.said
    assert Caller(tight, tight.keys["carol"]).ask(MINE, Operation.SEND, sending()).reason is None
    for task in made:
        assert bob.ask(MINE, Operation.CANCEL, CancelRequest(id=task.id)).reason is None


def test_open_streams_are_limited_until_one_ends(tight: Server) -> None:
    dave, key = Caller(tight, tight.keys["dave"]), tight.keys["dave"]
    at_once = {"configuration": SendConfiguration(return_immediately=True)}
    task = dave.ask(MINE, Operation.SEND, sending(text="wait", request=at_once)).result
    with ExitStack() as stack:
        for number in range(4):
            wire = stack.enter_context(tight.connect())
            wire.ask("GET", f"/tasks/{task.id}:subscribe", headers={"X-API-Key": key})
            head = wire.head()
            assert (head.status, head.header("retry-after")) == ((200, None) if number < 3 else (429, "2"))
        for way in WAYS:
            assert dave.ask(way, Operation.SUBSCRIBE, SubscribeRequest(id=task.id)).reason == "RATE_LIMITED", way
    for way in WAYS:
        until(lambda way=way: dave.ask(way, Operation.SUBSCRIBE, SubscribeRequest(id=task.id)).reason is None)


def until(check: Any) -> None:
    """Ask until something is so."""
    end = time.monotonic() + BOUND_SECONDS
    while not check():
        assert time.monotonic() < end


@each_way
def test_webhooks_of_a_task_are_bounded(alice: Caller, way: Way) -> None:
    task = alice.ask(MINE, Operation.SEND, sending()).result
    for name, reason in (("a", None), ("b", None), ("c", "RATE_LIMITED"), ("b", None)):
        hook = PushConfig(url=HOOK, task_id=task.id, id=name)
        assert alice.ask(way, Operation.PUSH_SET, hook).reason == reason


def test_a_long_history_and_large_pages_are_cut(tight: Server) -> None:
    erin = Caller(tight, tight.keys["erin"])
    at_once = {"configuration": SendConfiguration(return_immediately=True)}
    task = erin.ask(MINE, Operation.SEND, sending(text="wait", request=at_once)).result
    for _ in range(4):
        assert erin.ask(MINE, Operation.SEND, sending(task_id=task.id, request=at_once)).reason is None
    for way in WAYS:
        told = erin.ask(way, Operation.GET, GetRequest(id=task.id))
        assert len(told.result.history) <= 3
    for _ in range(3):
        erin.ask(MINE, Operation.SEND, sending())
    assert len(erin.ask(MINE, Operation.LIST, TaskFilter(include_artifacts=True)).result.tasks) == 2


def test_rate_limited_requests_get_retry_after(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("metered")
    with serving(folder, {"limits": {"rate": 0.1, "burst": 5}}, holders=HOLDERS) as server:
        for name, way in zip(HOLDERS, WAYS[::2], strict=True):
            caller = Caller(server, server.keys[name])
            told = [caller.ask(way, Operation.GET, GetRequest(id="none")) for _ in range(7)]
            assert [one.reason for one in told] == ["TASK_NOT_FOUND"] * 5 + ["RATE_LIMITED"] * 2
            assert b"retry-after" in told[-1].said


def test_decompression_bombs_are_413(guarded: Server) -> None:
    for coding, bomb in ((b"gzip", gzip.compress(bytes(50_000_000))), (b"deflate", zlib.compress(bytes(50_000_000)))):
        head = b"POST / HTTP/1.1\r\nContent-Encoding: %b\r\nContent-Length: %d" % (coding, len(bomb))
        assert asked(guarded, head, bomb).status == 413


def test_unfinished_anonymous_bodies_do_not_block_callers(guarded: Server) -> None:
    """As plain bytes, and as 16 KB of gzip that are 16 MB: both filled the room of all callers once."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(b" " * 16_000_000) + packer.flush(zlib.Z_SYNC_FLUSH)
    with ExitStack() as stack:
        for coding, piece in [(b"gzip", packed)] * 20 + [(b"identity", bytes(1_000_000))] * 4:
            wire = stack.enter_context(guarded.connect())
            wire.say(
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Encoding: %b\r\n" % coding
            )
            wire.say(b"Content-Length: 16000000\r\n\r\n")
            with suppress(ConnectionError):
                wire.say(piece)
            assert wire.answer().status == 401
        body = b" " * 1_000_000 + call()
        assert asked(guarded, b"POST / HTTP/1.1\r\nContent-Length: %d" % len(body), body).status == 200
