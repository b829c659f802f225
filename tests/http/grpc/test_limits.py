"""What a server does not put up with: what is no message, too large or too many, and a port that is taken."""

import asyncio
import builtins
import gzip
import importlib
import sys
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as new

from accord.auth.rate_limits import Quotas
from accord.http.asgi import QUOTAS
from accord.http.grpc import GrpcBinding
from accord.model import Event, Task, TaskState, TaskStatus
from tests.engine.doubles import until
from tests.http.grpc.conftest import STUBS, Serving, Told, failing

TASK = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.WORKING))
SERVICE = "/lf.a2a.v1.A2AService/"


def sending(**part: Any) -> Any:
    return new.SendMessageRequest(message=new.Message(message_id="m", role=new.ROLE_USER, parts=[new.Part(**part)]))


@pytest.mark.parametrize("method", ["SendMessage", "GetTask", "ListTasks"])
@pytest.mark.parametrize("body", [b"\xff", b"\x0a\xff\xff", b"{}", b"\x12\x04\x0a\x02\xff\xfe"])
async def test_invalid_messages_are_refused(method: str, body: bytes, serving: Serving, dial: Any) -> None:
    service = Told(TASK)
    failure = await failing(dial(await serving(service)).unary_unary(SERVICE + method)(body))
    assert (failure.code, failure.details["ErrorInfo"].reason) == ("INVALID_ARGUMENT", "PARSE_ERROR")
    assert not service.asked


async def test_a_broken_message_of_a_stream_is_refused(serving: Serving, dial: Any) -> None:
    call = dial(await serving(Told(TASK))).unary_stream(SERVICE + "SendStreamingMessage")(b"\xff")
    assert (await failing(call)).details["ErrorInfo"].reason == "PARSE_ERROR"


async def test_unknown_fields_are_ignored(serving: Serving, dial: Any) -> None:
    service = Told(TASK)
    unknown = b"\xfa\x3e\x03abc"  # field 1007
    sent = new.GetTaskRequest(id="t-1").SerializeToString() + unknown
    assert await dial(await serving(service)).unary_unary(SERVICE + "GetTask")(sent)
    assert service.asked[0].request.id == "t-1"


@pytest.mark.parametrize("path", [SERVICE + "Dance", "/lf.a2a.v1.Other/GetTask", "/a2a.v1.A2AService/ListTasks"])
async def test_a_method_that_does_not_exist_is_unimplemented(path: str, serving: Serving, dial: Any) -> None:
    assert (await failing(dial(await serving(Told(TASK))).unary_unary(path)(b""))).code == "UNIMPLEMENTED"


# --- size ---------------------------------------------------------------------------------------------------------


async def test_a_large_file_goes_both_ways(serving: Serving, dial: Any) -> None:
    content = bytes(range(256)) * (12 * 4096)  # 12 MB

    class Mirror(Told):
        async def send(self, request: Any, caller: Any) -> Any:
            return request.message

    channel = dial(await serving(Mirror()), options=[("grpc.max_receive_message_length", -1)])
    answer = await STUBS["v1"](channel).SendMessage(sending(raw=content))
    assert answer.message.parts[0].raw == content


async def test_oversized_messages_are_refused(serving: Serving, dial: Any) -> None:
    service = Told(TASK)
    stub = STUBS["v1"](dial(await serving(service)))
    assert (await failing(stub.SendMessage(sending(raw=b"x" * QUOTAS.body)))).code == "RESOURCE_EXHAUSTED"
    assert not service.asked
    assert (await stub.SendMessage(sending(raw=b"x" * (QUOTAS.body - 100)))).task.id == "t-1"


async def test_the_limit_can_be_set(serving: Serving, dial: Any) -> None:
    stub = STUBS["v1"](dial(await serving(Told(TASK), quotas=Quotas(body=2000))))
    assert (await failing(stub.SendMessage(sending(raw=b"x" * 2000)))).code == "RESOURCE_EXHAUSTED"
    assert (await stub.SendMessage(sending(raw=b"x" * 1900))).task.id == "t-1"


async def test_oversized_compressed_messages_are_refused(serving: Serving, dial: Any) -> None:
    service = Told(TASK)
    bomb = sending(raw=bytes(4 * QUOTAS.body))
    assert len(gzip.compress(bomb.SerializeToString())) < QUOTAS.body / 100
    stub = STUBS["v1"](dial(await serving(service), compression=grpc.Compression.Gzip))
    assert (await failing(stub.SendMessage(bomb))).code == "RESOURCE_EXHAUSTED"
    assert not service.asked
    assert (await stub.SendMessage(sending(text="small"))).task.id == "t-1"


async def test_others_are_served_while_a_large_message_is_read(serving: Serving, dial: Any) -> None:
    """Two hundred thousand values take a good part of a second to convert: the loop must turn meanwhile."""
    order: list[str] = []

    class Service(Told):
        async def send(self, request: Any, caller: Any) -> Any:
            order.append("large")
            return TASK

        async def get(self, request: Any, caller: Any) -> Any:
            order.append("small")
            return TASK

    stub = STUBS["v1"](dial(await serving(Service()), options=[("grpc.max_receive_message_length", -1)]))
    large = sending(text="x")
    large.metadata.update({"list": [1] * 200_000})
    await stub.GetTask(new.GetTaskRequest(id="t-1"))
    asked = asyncio.ensure_future(_finished(stub.SendMessage(large)))
    while not asked.done():
        await stub.GetTask(new.GetTaskRequest(id="t-1"))
    await asked
    assert order.index("large") > 1


async def _finished(call: Any) -> Any:
    return await call


async def test_an_answer_that_is_nested_too_deeply_has_its_own_error(serving: Serving, dial: Any) -> None:
    deep: Any = 1
    for _ in range(60):
        deep = {"a": deep}
    address = await serving(Told(Task(id="t", status=TASK.status, metadata=deep), (Event(seq=1, body=TASK),)))
    failure = await failing(STUBS["v1"](dial(address)).GetTask(new.GetTaskRequest(id="t")))
    assert (failure.code, failure.details["ErrorInfo"].reason) == ("INTERNAL", "INVALID_AGENT_RESPONSE")


# --- many ---------------------------------------------------------------------------------------------------------


async def test_calls_beyond_the_limit_are_refused_and_taken_again_later(serving: Serving, dial: Any) -> None:
    go = asyncio.Event()

    class Waiting(Told):
        async def get(self, request: Any, caller: Any) -> Any:
            await go.wait()
            return TASK

        async def subscribe(self, request: Any, caller: Any, after: int | None = None) -> Any:
            yield Event(seq=0, body=TASK)
            await go.wait()

    stub = STUBS["v1"](dial(await serving(Waiting(), max_calls=2)))
    streams = []
    for _ in range(2):  # one after the other: calls whose message has not come yet have less room
        streams.append(stub.SubscribeToTask(new.SubscribeToTaskRequest(id="t-1")))
        await streams[-1].read()
    assert (await failing(stub.GetTask(new.GetTaskRequest(id="t-1")))).code == "RESOURCE_EXHAUSTED"
    go.set()
    for stream in streams:
        assert await stream.read() is grpc.aio.EOF

    async def is_taken() -> bool:
        try:
            return bool((await stub.GetTask(new.GetTaskRequest(id="t-1"))).id)
        except grpc.aio.AioRpcError:
            return False

    await until(is_taken)


# --- listening ----------------------------------------------------------------------------------------------------


async def test_a_port_that_is_taken_is_refused_and_not_shared(serving: Serving) -> None:
    address = await serving(Told(TASK))
    with pytest.raises(OSError, match=address):
        await GrpcBinding(Told(TASK)).start(address)


async def test_processes_can_share_a_port(serving: Serving, dial: Any) -> None:
    address = await serving(Told(TASK), shares_port=True)
    beside = GrpcBinding(Told(TASK), shares_port=True)
    assert await beside.start(address) == int(address.rpartition(":")[2])
    assert (await STUBS["v1"](dial(address)).GetTask(new.GetTaskRequest(id="t-1"))).id == "t-1"
    await beside.stop(0)


async def test_servers_can_stop_before_and_restart_after_listening(dial: Any) -> None:
    server = GrpcBinding(Told(TASK))
    await server.stop()
    for _ in range(2):
        port = await server.start("127.0.0.1:0")
        assert (await STUBS["v1"](dial(f"127.0.0.1:{port}")).GetTask(new.GetTaskRequest(id="t-1"))).id == "t-1"
        await server.stop(0)
        await server.stop(0)


# --- without the extra --------------------------------------------------------------------------------------------


@pytest.fixture
def without_the_binding() -> Iterator[None]:
    """Forget the binding's modules, and put them back afterwards."""
    places = ("accord.http.grpc", "accord.protocol.protobuf")
    ours = {name: module for name, module in sys.modules.items() if name.startswith(places)}
    for name in ours:
        del sys.modules[name]
    yield
    for name in [name for name in sys.modules if name.startswith(places)]:
        del sys.modules[name]
    sys.modules.update(ours)


@pytest.mark.parametrize("missing", ["grpc", "a2a", "google"])
@pytest.mark.usefixtures("without_the_binding")
def test_a_missing_extra_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", importing)
    with pytest.raises(ImportError, match=r"pip install 'accord\[grpc\]'"):
        importlib.import_module("accord.http.grpc")
