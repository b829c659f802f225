"""The stream is cut at every event, by servers that number their events and by those that do not: nothing is lost,
nothing told twice, and the message is sent once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from accord.client import Client, Retries, Unreachable
from accord.client.remote_task import message_of
from accord.errors import InternalError
from accord.model import ArtifactUpdate, Event, EventBody, SendRequest, StatusUpdate, SubscribeRequest, Task, TaskState
from accord.outbound import HttpSession
from accord.protocol import lifecycle
from accord.protocol.operations import DialectName, Operation, operation_for
from tests.cases import each
from tests.client.conftest import no_time
from tests.client.faulty import DROPPED, LOG, LOST, TEXT, Asked, Fault, Faulty, chunk, served, turned

EVERY_CUT = range(len(LOG) + 2)
"""Before the first frame, after each, and after the last but before the end."""


@asynccontextmanager
async def talking(faulty: Faulty, **more: Any) -> AsyncIterator[Client]:
    async with served(faulty), Client.connect(faulty.url, **more) as client:
        client.peer.sleep = no_time
        yield client


def folded(events: list[Event]) -> Task:
    first = events[0].body
    assert isinstance(first, Task)
    return lifecycle.fold(first, events[1:])


async def streamed(client: Client) -> list[Event]:
    request = SendRequest(message=message_of("hi"))
    return [event async for event in client.stream(request)]


async def told(client: Client) -> str:
    return "".join([piece async for piece in client.stream_text("hi")])


# --- servers that number their events -----------------------------------------------------------------------------


@each("missed", [0, 1, 10])
@each("cut", EVERY_CUT)
@pytest.mark.proves("C-08")
async def test_numbered_events_come_once_each_in_order(cut: int, missed: int) -> None:
    faulty = Faulty(promises=True)
    faulty.cuts, faulty.missed = [cut], missed
    async with talking(faulty) as client:
        events = await streamed(client)
        numbers = [event.seq for event in events]
        assert numbers == list(range(numbers[0], len(LOG) + 1))
        assert numbers[0] == 0 or cut == 0, "only what was never told of may begin later"
        assert folded(events) == faulty.task()
        assert len(faulty.runs) == 1


@pytest.mark.proves("C-08")
async def test_a_stream_that_is_cut_after_every_event_still_arrives() -> None:
    faulty = Faulty(promises=True)
    faulty.cuts = [2] * len(LOG)  # the task as it was, and one more
    async with talking(faulty) as client:
        events = await streamed(client)
        assert [event.seq for event in events] == list(range(len(LOG) + 1))
        assert faulty.operations() == [Operation.STREAM, *[Operation.SUBSCRIBE] * (len(LOG) - 1)]
        asked_after = [one.headers["last-event-id"] for one in faulty.asked[1:]]
        assert asked_after == [str(number) for number in range(1, len(LOG))]


@each("cut", EVERY_CUT)
async def test_text_appears_once_wherever_the_stream_breaks(cut: int) -> None:
    for faulty in (Faulty(promises=True), Faulty(numbers=True), Faulty(), Faulty(subscribes=False)):
        faulty.cuts, faulty.missed = [cut], 1
        async with talking(faulty) as client:
            assert await told(client) == TEXT
            assert len(faulty.runs) == 1


async def test_per_connection_event_ids_are_ignored() -> None:
    """A server may number the events of a connection, not of the task: then nothing may be skipped by number."""

    class PerConnection(Faulty):
        async def _stream(self, operation: Operation, call_id: Any, last: str | None, writer: Any) -> bool:
            return await super()._stream(operation, call_id, None, writer)

    for cut in EVERY_CUT:
        faulty = PerConnection(numbers=True)
        faulty.cuts, faulty.missed = [cut], 1
        async with talking(faulty) as client:
            assert await told(client) == TEXT


# --- servers that do not ------------------------------------------------------------------------------------------


@each("missed", [0, 1, 10])
@each("cut", EVERY_CUT)
@pytest.mark.proves("C-08")
async def test_without_numbers_a_subscription_begins_with_the_task(cut: int, missed: int) -> None:
    faulty = Faulty()
    faulty.cuts, faulty.missed = [cut], missed
    async with talking(faulty) as client:
        events = await streamed(client)
        numbers = [event.seq for event in events]
        assert numbers == sorted(numbers)
        assert folded(events) == faulty.task()
        assert faulty.task().status.state is TaskState.COMPLETED
        assert len(faulty.runs) == 1


@each("cut", EVERY_CUT)
async def test_unnumbered_subscriptions_only_trigger_reads(cut: int) -> None:
    """A2A 0.3 leaves open where a subscription begins, so its events cannot be added to what was seen."""
    faulty = Faulty(dialect=DialectName.V03, snapshots=False)
    faulty.cuts, faulty.missed = [cut], 1
    if cut == 0:
        return  # before its first event a 0.3 stream says nothing, and 0.3 has no list to look for the message in
    async with talking(faulty) as client:
        events = await streamed(client)
        assert folded(events).artifacts == faulty.task().artifacts
        if 0 < cut <= len(LOG):
            assert Operation.SUBSCRIBE in faulty.operations()
        assert len(faulty.runs) == 1


@each("missed", [0, 1, 10])
@each("cut", EVERY_CUT)
@pytest.mark.proves("C-08")
async def test_without_subscriptions_the_task_is_looked_at(cut: int, missed: int) -> None:
    faulty = Faulty(subscribes=False)
    faulty.cuts, faulty.missed = [cut], missed
    async with talking(faulty) as client:
        events = await streamed(client)
        assert folded(events) == faulty.task()
        assert faulty.task().status.state is TaskState.COMPLETED
        if cut <= len(LOG):
            assert faulty.operations()[-1] is Operation.GET
        assert len(faulty.runs) == 1


@pytest.mark.proves("1-12", "C-08", "4-53")
async def test_an_agent_that_does_not_stream_is_sent_to_and_looked_at() -> None:
    faulty = Faulty(streams=False)
    async with talking(faulty) as client:
        assert await told(client) == TEXT
        assert set(faulty.operations()) == {Operation.SEND, Operation.GET}
        assert faulty.asked[0].params["configuration"] == {"returnImmediately": True}
        assert len(faulty.runs) == 1


@pytest.mark.proves("1-25", "4-53")
async def test_refused_streams_fall_back_to_sending() -> None:
    faulty = Faulty(streams=False)
    async with served(faulty):
        refusing = Faulty()
        refusing.port = faulty.port
        faulty.card = refusing.card  # type: ignore[method-assign]
        async with Client.connect(faulty.url) as client:
            client.peer.sleep = no_time
            assert await told(client) == TEXT
            assert faulty.operations()[:2] == [Operation.STREAM, Operation.SEND]
            faulty.asked.clear()
            assert await told(client) == TEXT
            assert faulty.operations()[0] is Operation.SEND, "it is not asked for streams again"


# --- the end, and no end ------------------------------------------------------------------------------------------


async def test_a_stream_that_ends_early_in_good_order_is_taken_up_again() -> None:
    """Some servers end the stream of a slow reader as if all had been said."""

    class Early(Faulty):
        async def _stream(self, operation: Operation, call_id: Any, last: str | None, writer: Any) -> bool:
            whole, self.log = self.log, self.log[:3] if operation is Operation.STREAM else self.log
            try:
                return await super()._stream(operation, call_id, last, writer)
            finally:
                self.log = whole

    for promises in (True, False):
        faulty = Early(promises=promises)
        async with talking(faulty) as client:
            assert folded(await streamed(client)) == faulty.task()


async def test_retries_without_progress_end_with_the_error() -> None:
    faulty = Faulty(promises=True)
    faulty.cuts = [3, *[1] * 100]
    async with talking(faulty, retries=Retries(following=5)) as client:
        with pytest.raises(Unreachable):
            await streamed(client)
        assert faulty.operations().count(Operation.SUBSCRIBE) == 6


async def test_questions_end_the_stream_until_answered() -> None:
    faulty = Faulty(promises=True, log=(*LOG[:3], turned(TaskState.INPUT_REQUIRED, "which?"), *LOG[4:]))
    async with talking(faulty) as client:
        speech = client.stream_text("hi")
        assert "".join([piece async for piece in speech]) == "one two \nwhich?"
        assert speech.is_question
        assert (speech.task_id, speech.context_id) == ("t-1", "c-1")
        task = client.task("t-1", after=4)
        rest = [event.body async for event in task]
        assert [type(body) for body in rest] == [ArtifactUpdate, StatusUpdate]
        assert task.cursor == 6


async def test_stream_errors_are_raised_if_the_task_hangs() -> None:
    class Erring(Faulty):
        async def _call(self, call: dict[str, Any], headers: dict[str, str], writer: Any) -> bool:
            if operation_of(call) is not Operation.STREAM:
                return await super()._call(call, headers, writer)
            self._accept(call["params"]["message"])
            task = {"id": "t-1", "status": {"state": "TASK_STATE_WORKING"}}
            events: list[dict[str, Any]] = [
                {"result": {"task": task}},
                {"error": {"code": -32603, "message": "agent died"}},
            ]
            frames = [json.dumps({"jsonrpc": "2.0", "id": call["id"]} | event) for event in events]
            body = "".join(f"data: {frame}\n\n" for frame in frames).encode()
            head = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            return True

    faulty = Erring()
    async with talking(faulty) as client:
        with pytest.raises(InternalError, match="agent died"):
            await streamed(client)
        assert len(faulty.runs) == 1
    ended = Erring(log=(turned(TaskState.FAILED, "no"),))
    async with talking(ended) as client:
        assert folded(await streamed(client)).status.state is TaskState.FAILED, "the task tells it better"


def operation_of(call: dict[str, Any]) -> Operation:
    return Operation(call["method"])


# --- handles ------------------------------------------------------------------------------------------------------


@each("cut", EVERY_CUT)
async def test_a_handle_is_awaited_through_cuts(cut: int) -> None:
    for faulty in (Faulty(promises=True), Faulty(), Faulty(subscribes=False), Faulty(streams=False)):
        faulty.cuts = [cut, 1, 0, 2]
        async with talking(faulty) as client:
            task = await client.start("hi")
            assert (await task).text == TEXT
            assert len(faulty.runs) == 1


async def test_handles_resume_across_clients() -> None:
    faulty = Faulty(promises=True)
    async with served(faulty):
        async with Client.connect(faulty.url) as first:
            begun = await first.start("hi")
            seen = []
            async for event in begun:
                seen.append(event.seq)
                if event.seq == 3:
                    break
        async with Client.connect(faulty.url) as second:
            again = second.task(begun.id, after=begun.cursor)
            seen += [event.seq async for event in again]
            assert (await again).text == TEXT
    assert seen[1:] == list(range(seen[1], len(LOG) + 1))
    assert len(faulty.runs) == 1


async def test_a_subscription_falls_back_to_looking() -> None:
    faulty = Faulty(subscribes=False)
    async with talking(faulty) as client:
        task = await client.start("hi")
        events = [event async for event in client.subscribe(SubscribeRequest(id=task.id))]
        assert folded(events) == faulty.task()


async def test_artifacts_resent_whole_appear_once() -> None:
    whole = ("one ", "one two ", "one two three")
    chunks = (chunk(text, append=False) for text in whole)
    log: tuple[EventBody, ...] = (*chunks, turned(TaskState.COMPLETED, "one two three"))
    async with talking(Faulty(log=log)) as client:
        assert await told(client) == TEXT


async def test_rate_limited_subscriptions_are_retried() -> None:
    faulty = Faulty(promises=True)
    faulty.cuts = [3]
    faulty.faults = {Operation.SUBSCRIBE: [Fault(status=503), Fault(status=429), DROPPED, LOST, Fault(status=500)]}
    async with talking(faulty) as client:
        assert folded(await streamed(client)) == faulty.task()
        assert faulty.operations().count(Operation.SUBSCRIBE) == 6


class Quiet(Faulty):
    """Opens subscriptions and says nothing, for so many of them."""

    def __init__(self, silences: int) -> None:
        super().__init__(promises=True)
        self.silences = silences
        self.released = asyncio.Event()

    async def _stream(self, operation: Operation, call_id: Any, last: str | None, writer: Any) -> bool:
        if operation is Operation.SUBSCRIBE and self.silences:
            self.silences -= 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
            await self.released.wait()
            return False
        return await super()._stream(operation, call_id, last, writer)


async def test_silence_is_not_taken_for_the_end_while_the_agent_is_there() -> None:
    faulty = Quiet(silences=4)
    faulty.cuts = [3]
    transport = HttpSession(silent_seconds=0.1)
    try:
        async with talking(faulty, transport=transport, retries=Retries(following=2)) as client:
            assert folded(await streamed(client)) == faulty.task()
            assert faulty.silences == 0
    finally:
        faulty.released.set()
        await transport.close()


# --- streams that end before their first event ----------------------------------------------------------------------


class Hushed(Faulty):
    """Ends the stream of a message in good order and without an event; `takes` it or not."""

    takes = False

    async def _call(self, call: dict[str, Any], headers: dict[str, str], writer: Any) -> bool:
        if operation_for(call["method"], self.dialect.name) is not Operation.STREAM:
            return await super()._call(call, headers, writer)
        self.asked.append(Asked(Operation.STREAM, call["params"], headers))
        if self.takes:
            self._accept(call["params"]["message"])
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        return True


@pytest.mark.parametrize("dialect", [DialectName.V1, DialectName.V03])
@pytest.mark.parametrize("promises", [False, True])
@pytest.mark.proves("C-08")
async def test_a_stream_without_an_event_is_sent_again(dialect: DialectName, promises: bool) -> None:
    faulty = Hushed(dialect=dialect, promises=promises)
    async with talking(faulty) as client:
        assert await told(client) == TEXT
    sent = [one for one in faulty.asked if one.operation in (Operation.STREAM, Operation.SEND)]
    assert [one.operation for one in sent] == [Operation.STREAM, Operation.SEND]
    assert len({one.params["message"]["messageId"] for one in sent}) == 1
    assert len(faulty.runs) == 1


@pytest.mark.proves("C-08")
async def test_empty_streams_are_not_resent_if_the_task_is_listed() -> None:
    faulty = Hushed()
    faulty.takes = True
    async with talking(faulty) as client:
        assert await told(client) == TEXT
    assert Operation.SEND not in faulty.operations()
    assert len(faulty.runs) == 1
