"""Streams that do not run to their end: the caller goes away, its time is up, it does not read, the server stops."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from a2a.types import a2a_pb2 as new

from accord.a2a import Caller
from accord.auth.rate_limits import Quotas
from accord.http.grpc import GrpcBinding
from accord.http.grpc.calls import UNREAD_MESSAGES
from accord.model import Artifact, ArtifactUpdate, Event, GetRequest, Part, Task, TaskState, TaskStatus
from tests.engine.conftest import Hosting
from tests.engine.doubles import reaches, until
from tests.http.grpc.conftest import STUBS, Serving, Told, failing
from tests.http.grpc.hosted import Gate, hosted

TASK = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.WORKING))
SUBSCRIBE = new.SubscribeToTaskRequest(id="t-1")


class Endless(Told):
    """Follows for ever, and notes when it ends."""

    def __init__(self, size: int = 0) -> None:
        super().__init__()
        self._size = size
        self.sent = 0
        self.ended = asyncio.Event()

    async def subscribe(self, request: Any, caller: Any, after: int | None = None) -> AsyncIterator[Event]:
        try:
            yield Event(seq=0, body=TASK)
            while self._size:
                self.sent += 1
                parts = (Part(text="x" * self._size),)
                artifact = Artifact(artifact_id="a", parts=parts)
                yield Event(
                    seq=self.sent, body=ArtifactUpdate(task_id="t-1", context_id="c-1", artifact=artifact, append=True)
                )
            await asyncio.Event().wait()
        finally:
            self.ended.set()


async def test_canceled_calls_end_the_subscription(serving: Serving, dial: Any) -> None:
    service = Endless()
    call = STUBS["v1"](dial(await serving(service))).SubscribeToTask(SUBSCRIBE)
    await call.read()
    assert not service.ended.is_set()
    call.cancel()
    await service.ended.wait()


async def test_hang_ups_during_large_streams_end_the_subscription(serving: Serving, dial: Any) -> None:
    service = Endless(size=50_000)
    channel = grpc.aio.insecure_channel(await serving(service))
    await STUBS["v1"](channel).SubscribeToTask(SUBSCRIBE).read()
    await channel.close()
    await service.ended.wait()


async def test_expired_deadlines_end_the_subscription(serving: Serving, dial: Any) -> None:
    service = Endless()
    call = STUBS["v1"](dial(await serving(service))).SubscribeToTask(SUBSCRIBE, timeout=0.5)
    assert (await failing(call)).code == "DEADLINE_EXCEEDED"
    await service.ended.wait()


async def test_stalled_readers_are_ended_with_an_error(serving: Serving, dial: Any) -> None:
    """A connection holds so much at most; what does not fit waits, and somebody has to end that."""
    service = Endless(size=50_000)
    address = await serving(service, quotas=Quotas(unread_seconds=0.5))
    call = STUBS["v1"](dial(address)).SubscribeToTask(SUBSCRIBE)
    await call.read()
    await service.ended.wait()
    assert service.sent < 10_000
    failure = await failing(call)
    assert (failure.code, failure.details["ErrorInfo"].reason) == ("UNAVAILABLE", "AGENT_UNAVAILABLE")
    assert failure.metadata["last-event-id"] == str(service.sent)


async def _is_full() -> bool:
    return UNREAD_MESSAGES.held > 4_000_000


async def _is_empty() -> bool:
    return UNREAD_MESSAGES.held == 0


async def test_unread_large_messages_are_bounded(serving: Serving, dial: Any) -> None:
    """Two of 2 MB fit into the limit; the third is refused until one of the clients has gone."""
    service = Endless(size=2_000_000)
    channel = dial(await serving(service, quotas=Quotas(answers=5_000_000)))
    unread = [STUBS["v1"](channel).SubscribeToTask(SUBSCRIBE) for _ in range(2)]
    for call in unread:
        await call.read()
    await until(_is_full)
    refused = await failing(STUBS["v1"](channel).SubscribeToTask(SUBSCRIBE))
    assert (refused.code, refused.details["ErrorInfo"].reason) == ("UNAVAILABLE", "AGENT_UNAVAILABLE")
    for call in unread:
        call.cancel()
    await until(_is_empty)
    served = STUBS["v1"](channel).SubscribeToTask(SUBSCRIBE)
    assert (await served.read()).HasField("task")
    served.cancel()
    await until(_is_empty)


async def test_a_slow_reader_gets_everything(serving: Serving, dial: Any) -> None:
    artifact = Artifact(artifact_id="a", parts=(Part(text="x" * 50_000),))
    body = ArtifactUpdate(task_id="t-1", context_id="c-1", artifact=artifact, append=True)
    events = (Event(seq=0, body=TASK), *(Event(seq=number, body=body) for number in range(1, 200)))
    call = STUBS["v1"](dial(await serving(Told(events=events)))).SubscribeToTask(SUBSCRIBE)
    read = 0
    async for _ in call:
        read += 1
        await asyncio.sleep(0)
    assert read == 200
    assert dict(list(await call.trailing_metadata())) == {"last-event-id": "199"}


async def test_a_server_that_stops_ends_its_streams_after_a_while(dial: Any) -> None:
    service = Endless()
    server = GrpcBinding(service)
    port = await server.start("127.0.0.1:0")
    call = STUBS["v1"](dial(f"127.0.0.1:{port}")).SubscribeToTask(SUBSCRIBE)
    await call.read()
    await server.stop(0.1)
    await service.ended.wait()
    assert (await failing(call)).code == "UNAVAILABLE"


async def test_a_server_that_stops_lets_calls_finish(dial: Any) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    class Slow(Told):
        async def get(self, request: Any, caller: Any) -> Any:
            asked.set()
            await go.wait()
            return TASK

    server = GrpcBinding(Slow())
    port = await server.start("127.0.0.1:0")
    stub = STUBS["v1"](dial(f"127.0.0.1:{port}"))
    call = stub.GetTask(new.GetTaskRequest(id="t-1"))
    await asked.wait()
    stopping = asyncio.ensure_future(server.stop(30))
    await asyncio.sleep(0)
    go.set()
    assert (await call).id == "t-1"
    await stopping
    assert (await failing(stub.GetTask(new.GetTaskRequest(id="t-1")))).code == "UNAVAILABLE"


# --- over a real service ------------------------------------------------------------------------------------------


async def test_tasks_continue_without_their_caller(hosting: Hosting, serving: Serving, dial: Any) -> None:
    gate = Gate()
    host, service = await hosted(hosting, gate, "1.0")
    stub = STUBS["v1"](dial(await serving(service)))
    message = new.Message(message_id="m", role=new.ROLE_USER, parts=[new.Part(text="x")])
    call = stub.SendStreamingMessage(new.SendMessageRequest(message=message))
    task_id = (await call.read()).task.id
    assert host.node.hub._channels
    call.cancel()

    async def is_alone() -> bool:
        return not host.node.hub._channels

    await until(is_alone)
    gate.go.set()
    await reaches(host.default, task_id, TaskState.COMPLETED, Caller(roams=True))
    assert (await host.default.get(GetRequest(id=task_id), Caller(roams=True))).artifacts


async def test_reconnected_callers_miss_nothing(hosting: Hosting, serving: Serving, dial: Any) -> None:
    gate = Gate()
    _, service = await hosted(hosting, gate, "1.0")
    stub = STUBS["v1"](dial(await serving(service)))
    message = new.Message(message_id="m", role=new.ROLE_USER, parts=[new.Part(text="x")])
    whole = stub.SendStreamingMessage(new.SendMessageRequest(message=message))
    task_id = (await whole.read()).task.id
    first = dict(list(await whole.initial_metadata()))["last-event-id"]
    seen: list[Any] = []
    while not seen or not seen[-1].HasField("artifact_update"):
        seen.append(await whole.read())
    whole.cancel()
    gate.go.set()
    again = stub.SubscribeToTask(new.SubscribeToTaskRequest(id=task_id), metadata=(("last-event-id", first),))
    task, *events = [event async for event in again]
    assert task.task.id == task_id
    assert events[: len(seen)] == seen
    text = "".join(part.text for event in events for part in event.artifact_update.artifact.parts)
    assert text == "one x two"
    assert events[-1].status_update.status.state == new.TASK_STATE_COMPLETED
