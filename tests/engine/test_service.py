"""A2A's semantics on every store: what is answered, refused, kept and shown to whom."""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from accord import Context, agent
from accord.a2a import Caller
from accord.agents.echo import echo
from accord.errors import (
    AccordError,
    ContentTypeNotSupported,
    InvalidParams,
    PushNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
from accord.model import (
    ArtifactUpdate,
    CancelRequest,
    CardRequest,
    GetRequest,
    Message,
    Part,
    PushListRequest,
    Role,
    SendConfiguration,
    StatusUpdate,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskState,
)
from accord.model.base import timestamp_ms
from accord.service.host import Host
from accord.service.service import Service
from accord.storage.commands import tasks
from accord.storage.store import Tx
from tests.engine.conftest import ALICE, AT_ONCE, BOB, Hosting, all_of, said, saying, state, states, text
from tests.engine.doubles import until

S = TaskState


@agent(description="Works until it is told to stop.")
async def patient(ctx: Context) -> AsyncIterator[str]:
    yield "started"
    await asyncio.Event().wait()


@agent
async def asking(ctx: Context) -> str:
    """Asks for a name."""
    name = await ctx.ask("What is your name?")
    return f"Hello {name}"


@agent(answers_message=True)
async def brief(ctx: Context) -> str:
    """Answers with a message alone."""
    return f"brief: {ctx.text}"


@pytest.fixture
async def host(hosting: Hosting) -> Host:
    return await hosting(echo, patient, asking, brief)


async def begun(service: Service, caller: Caller = ALICE) -> Task:
    """A task that works and does not end by itself."""
    task = await service.send(saying("go", configuration=AT_ONCE), caller)
    assert isinstance(task, Task)
    return task


# --- sending ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("CORE-SEND-001", "CORE-EXECUTION-MODE-001", "3-08", "3-18", "4-03", "CORE-MULTI-003")
async def test_a_blocking_send_answers_the_finished_task(host: Host) -> None:
    first, second = [await host.default.send(saying("hello brave world"), ALICE) for _ in range(2)]
    assert isinstance(first, Task)
    assert isinstance(second, Task)
    assert first.id != second.id
    assert (state(first), text(first)) == (S.COMPLETED, "hello brave world")


@pytest.mark.proves("0-25", "CORE-EXECUTION-MODE-002")
async def test_a_caller_in_a_hurry_gets_the_task_at_once(host: Host) -> None:
    task = await begun(host.services["patient"])
    assert state(task) in (S.SUBMITTED, S.WORKING)
    assert task.artifacts == ()


@pytest.mark.proves("CORE-MULTI-001", "CORE-MULTI-001a", "CORE-MULTI-002")
async def test_a_context_is_kept_or_made(host: Host) -> None:
    made = await host.default.send(saying("a"), ALICE)
    kept = await host.default.send(saying("a", context_id="mine"), ALICE)
    assert isinstance(made, Task)
    assert isinstance(kept, Task)
    assert made.context_id
    assert kept.context_id == "mine"
    assert kept.history[0].context_id == "mine"


@pytest.mark.proves("CORE-SEND-002", "C-11")
async def test_a_finished_task_takes_no_more_messages(host: Host) -> None:
    task = await host.default.send(saying("a"), ALICE)
    assert isinstance(task, Task)
    with pytest.raises(UnsupportedOperation):
        await host.default.send(saying("b", task_id=task.id), ALICE)


@pytest.mark.proves("CORE-SEND-003")
async def test_a_media_type_that_the_agent_does_not_take_is_refused(host: Host) -> None:
    service = host.services["asking"]
    with pytest.raises(ContentTypeNotSupported, match="image/png"):
        await service.send(saying("", parts=(Part(raw=b"x", media_type="image/png"),)), ALICE)
    taken = (Part(text="x", media_type="text/plain; charset=utf-8"), Part(data={}, media_type="application/json"))
    assert state(await service.send(saying("", parts=taken), ALICE)) is S.INPUT_REQUIRED


@pytest.mark.proves("CORE-MULTI-004", "CORE-MULTI-005", "CORE-MULTI-006", "CORE-MULTI-002a")
async def test_task_and_context_must_agree(host: Host) -> None:
    service = host.services["asking"]
    task = await service.send(saying("hi", context_id="c-1"), ALICE)
    assert isinstance(task, Task)
    with pytest.raises(TaskNotFound):
        await service.send(saying("x", task_id="nothing"), ALICE)
    with pytest.raises(InvalidParams, match="contextId"):
        await service.send(saying("x", task_id=task.id, context_id="c-2"), ALICE)
    answered = await service.send(saying("Ada", task_id=task.id), ALICE)
    assert isinstance(answered, Task)
    assert (answered.context_id, text(answered)) == ("c-1", "Hello Ada")


@pytest.mark.proves("4-05", "CORE-HIST-004", "CORE-HIST-005", "CORE-HIST-006", "3-09")
async def test_the_history_is_in_order(host: Host) -> None:
    service = host.services["asking"]
    opening = saying("hi", metadata={"from": "a test"})
    task = await service.send(opening, ALICE)
    assert isinstance(task, Task)
    assert (state(task), said(task)) == (S.INPUT_REQUIRED, "What is your name?")
    task = await service.send(saying("Ada", task_id=task.id), ALICE)
    assert isinstance(task, Task)
    kept = await service.get(GetRequest(id=task.id), ALICE)
    assert kept == task
    assert [(message.role, text(message)) for message in kept.history] == [
        (Role.USER, "hi"),
        (Role.AGENT, "What is your name?"),
        (Role.USER, "Ada"),
    ]
    assert kept.metadata == {"from": "a test"}
    assert kept.history[0].parts == opening.message.parts


@pytest.mark.proves("CORE-HIST-003")
async def test_a_caller_may_want_no_history(host: Host) -> None:
    task = await host.default.send(saying("a", configuration=SendConfiguration(history_length=0)), ALICE)
    assert isinstance(task, Task)
    assert task.history == ()
    assert len((await host.default.get(GetRequest(id=task.id), ALICE)).history) == 1


# --- the same message twice ---------------------------------------------------------------------------------------


async def test_a_message_that_is_sent_again_finds_its_task(host: Host) -> None:
    sent = saying("a", "same")
    answers = await asyncio.gather(*(host.default.send(sent, ALICE) for _ in range(5)))
    assert len({answer.id for answer in answers if isinstance(answer, Task)}) == 1
    assert all(text(answer) == "a" for answer in answers)
    another = await host.default.send(sent, BOB)
    careless = await host.default.send(saying("b", "same"), ALICE)
    assert isinstance(another, Task)
    assert isinstance(careless, Task)
    assert len({another.id, careless.id, *(answer.id for answer in answers if isinstance(answer, Task))}) == 3
    again = await all_of(host.default.stream(sent, ALICE))
    assert [type(event.body) for event in again] == [Task]
    assert (again[0].seq, states(again)) == (3, [S.COMPLETED])


async def test_an_answer_that_is_sent_again_is_one_answer(host: Host) -> None:
    service = host.services["asking"]
    task = await service.send(saying("hi"), ALICE)
    assert isinstance(task, Task)
    answer = saying("Ada", "answer", task_id=task.id)
    first, second = [await service.send(answer, ALICE) for _ in range(2)]
    assert first == second
    assert isinstance(first, Task)
    assert sum(text(message) == "Ada" for message in first.history) == 1


async def test_duplicates_by_key_find_their_task(host: Host) -> None:
    keyed = replace(ALICE, idempotency_key="k")
    answers = await asyncio.gather(*(host.default.send(saying("a"), keyed) for _ in range(5)))
    assert len({answer.id for answer in answers if isinstance(answer, Task)}) == 1
    for other in (replace(BOB, idempotency_key="k"), replace(ALICE, idempotency_key="l"), ALICE):
        answer = await host.default.send(saying("a"), other)
        assert isinstance(answer, Task)
        assert answer.id not in {one.id for one in answers if isinstance(one, Task)}
    with pytest.raises(InvalidParams) as refused:
        await host.default.send(saying("b"), keyed)
    assert refused.value.violations[0].field == "Idempotency-Key"
    for other_agent in ("brief", "asking"):  # to whom another message may have the same name
        await host.services[other_agent].send(saying("b"), keyed)


async def test_an_answer_under_the_same_key_is_one_answer(host: Host) -> None:
    service, keyed = host.services["asking"], replace(ALICE, idempotency_key="k")
    task = await service.send(saying("hi"), ALICE)
    assert isinstance(task, Task)
    first, second = [await service.send(saying("Ada", task_id=task.id), keyed) for _ in range(2)]
    assert first == second
    assert isinstance(first, Task)
    assert sum(text(message) == "Ada" for message in first.history) == 1
    for other in (saying("Bob", task_id=task.id), saying("Ada")):
        with pytest.raises(InvalidParams, match="Idempotency-Key"):
            await service.send(other, keyed)


# --- streams ------------------------------------------------------------------------------------------------------


@pytest.mark.proves("CORE-STREAM-003", "STREAM-ORDER-001", "STREAM-SUB-002")
async def test_a_stream_begins_with_the_task_and_ends_when_it_does(host: Host) -> None:
    events = await all_of(host.default.stream(saying("one two three"), ALICE))
    assert isinstance(events[0].body, Task)
    assert [event.seq for event in events] == [0, 1, 2, 3, 4, 5]
    assert states(events) == [S.SUBMITTED, S.WORKING, S.COMPLETED]
    chunks = [event.body for event in events if isinstance(event.body, ArtifactUpdate)]
    assert [chunk.append for chunk in chunks] == [False, True, True]


@pytest.mark.proves("CORE-STREAM-002")
async def test_an_agent_may_answer_with_a_message_alone(host: Host) -> None:
    service = host.services["brief"]
    answer = await service.send(saying("x", context_id="c"), ALICE)
    assert isinstance(answer, Message)
    assert (text(answer), answer.role, answer.task_id, answer.context_id) == ("brief: x", Role.AGENT, None, "c")
    events = await all_of(service.stream(saying("y"), ALICE))
    assert [text(event.body) for event in events if isinstance(event.body, Message)] == ["brief: y"]
    assert len(events) == 1


async def test_a_node_that_stops_gives_its_callers_the_task_as_it_stands(host: Host) -> None:
    """It goes on elsewhere: who is told that instead of an error does not ask for the same work anew."""
    service = host.services["patient"]
    waiting = asyncio.create_task(service.send(saying("go"), ALICE))
    await until(lambda: _works(service))
    host.node.dismiss()
    waiting.cancel()
    answer = await waiting
    assert isinstance(answer, Task)
    assert state(answer) is S.WORKING
    late = await service.send(saying("too"), ALICE)
    assert isinstance(late, Task), "whoever comes now does not wait at all"
    assert waiting.cancelling() == 0, "it was obeyed"


async def test_other_canceled_waits_return_nothing(host: Host) -> None:
    service = host.services["patient"]
    waiting = asyncio.create_task(service.send(saying("go"), ALICE))
    await until(lambda: _works(service))
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def _works(service: Service) -> bool:
    return [state(task) for task in (await service.list(TaskFilter(), ALICE)).tasks] == [S.WORKING]


@pytest.mark.proves("STREAM-ORDER-002", "STREAM-ORDER-003", "STREAM-ORDER-004", "STREAM-SUB-001", "C-01")
async def test_all_subscribers_see_the_same_events(host: Host) -> None:
    service = host.services["asking"]
    task = await service.send(saying("hi"), ALICE)
    assert isinstance(task, Task)
    following = [service.subscribe(SubscribeRequest(id=task.id), ALICE) for _ in range(4)]
    firsts = [await anext(stream) for stream in following]
    assert [states([first]) for first in firsts] == [[S.INPUT_REQUIRED]] * 4
    leaving = following.pop()
    await leaving.aclose()  # type: ignore[attr-defined]  # it is a generator
    rest = asyncio.gather(*(all_of(stream) for stream in following))
    await service.send(saying("Ada", task_id=task.id), ALICE)
    seen = await rest
    assert seen[0] == seen[1] == seen[2]
    assert [event.seq for event in seen[0]] == list(range(firsts[0].seq + 1, firsts[0].seq + 1 + len(seen[0])))
    assert states(seen[0])[-1] is S.COMPLETED


@pytest.mark.proves("STREAM-SUB-003", "STREAM-SUB-004")
async def test_ended_tasks_cannot_be_subscribed(host: Host) -> None:
    task = await host.default.send(saying("a"), ALICE)
    assert isinstance(task, Task)
    with pytest.raises(UnsupportedOperation):
        await all_of(host.default.subscribe(SubscribeRequest(id=task.id), ALICE))
    with pytest.raises(TaskNotFound):
        await all_of(host.default.subscribe(SubscribeRequest(id="nothing"), ALICE))


@pytest.mark.proves("C-12")
async def test_broken_streams_resume(host: Host) -> None:
    events = await all_of(host.default.stream(saying("one two three"), ALICE))
    first = events[0].body
    assert isinstance(first, Task)
    for broke in range(len(events)):
        later = await all_of(host.default.subscribe(SubscribeRequest(id=first.id), ALICE, after=broke))
        begin, rest = later[0].body, later[1:]
        assert isinstance(begin, Task)
        assert rest == events[broke + 1 :]
        assert text(begin) == "".join(
            part.text or ""
            for event in events[: broke + 1]
            if isinstance(event.body, ArtifactUpdate)
            for part in event.body.artifact.parts
        )


@pytest.mark.proves("4-16")
async def test_a_stream_may_be_only_its_outcome_or_come_in_small_pieces(host: Host) -> None:
    outcome = saying("one two three", metadata={"stream_config": {"include_intermediates": False}})
    events = await all_of(host.default.stream(outcome, ALICE))
    assert [type(event.body) for event in events] == [Task, ArtifactUpdate, StatusUpdate]
    whole = events[1].body
    assert isinstance(whole, ArtifactUpdate)
    assert "".join(part.text or "" for part in whole.artifact.parts) == "one two three"
    small = saying("größer", metadata={"stream_config": {"buffer_size": 3}})
    pieces = [
        event.body.artifact.parts[0].text or ""
        for event in await all_of(host.default.stream(small, ALICE))
        if isinstance(event.body, ArtifactUpdate)
    ]
    assert "".join(pieces) == "größer"
    assert max(len(piece.encode()) for piece in pieces) <= 3


# --- reading ------------------------------------------------------------------------------------------------------


@pytest.mark.proves(
    "CORE-GET-001", "CORE-GET-002", "CORE-CANCEL-003", "AUTH-SCOPE-002", "AUTH-SCOPE-003", "0-40", "CORE-LIST-001"
)
async def test_foreign_tasks_look_like_missing_tasks(host: Host) -> None:
    task = await begun(host.services["patient"])
    service, listed = host.services["patient"], TaskFilter()
    strangers = [BOB, Caller(tenant="globex", owner="alice"), Caller()]
    for caller in strangers:
        assert (await service.list(listed, caller)).tasks == ()
        for attempt in (
            service.get(GetRequest(id=task.id), caller),
            service.cancel(CancelRequest(id=task.id), caller),
            service.send(saying("x", task_id=task.id), caller),
            all_of(service.subscribe(SubscribeRequest(id=task.id), caller)),
        ):
            with pytest.raises(TaskNotFound) as foreign:
                await attempt
            with pytest.raises(TaskNotFound) as missing:
                await service.get(GetRequest(id="nothing"), caller)
            assert foreign.value.message == missing.value.message
    assert (await service.get(GetRequest(id=task.id), ALICE)).id == task.id
    assert len((await service.list(listed, ALICE)).tasks) == 1
    with pytest.raises(TaskNotFound):
        await host.default.get(GetRequest(id=task.id), ALICE)


@pytest.mark.proves("CORE-LIST-002", "CORE-LIST-003", "CORE-LIST-005", "0-39")
async def test_lists_page_from_the_latest(host: Host) -> None:
    ids = []
    for at in range(7):
        task = await host.default.send(saying(f"n{at}", context_id="odd" if at % 2 else "even"), ALICE)
        assert isinstance(task, Task)
        ids.append(task.id)
    seen: list[Task] = []
    token = ""
    while True:
        page = await host.default.list(TaskFilter(page_size=3, page_token=token), ALICE)
        assert (page.total_size, page.page_size) == (7, 3)
        seen += page.tasks
        if not (token := page.next_page_token):
            break
    assert [task.id for task in seen] == sorted(
        ids, key=lambda id: next((t.status.timestamp or "", t.id) for t in seen if t.id == id), reverse=True
    )
    assert all(task.artifacts == () for task in seen)
    odd = await host.default.list(TaskFilter(context_id="odd", include_artifacts=True), ALICE)
    assert (odd.total_size, {text(task) for task in odd.tasks}) == (3, {"n1", "n3", "n5"})
    assert (await host.default.list(TaskFilter(status=S.WORKING), ALICE)).total_size == 0
    since = TaskFilter(status_timestamp_after=seen[0].status.timestamp)
    assert seen[0].id in {task.id for task in (await host.default.list(since, ALICE)).tasks}
    with pytest.raises(InvalidParams, match="pageToken"):
        await host.default.list(TaskFilter(page_token="!"), ALICE)


# --- cancelling ---------------------------------------------------------------------------------------------------


@pytest.mark.proves("CORE-CANCEL-001", "CORE-CANCEL-002", "3-38", "4-18")
async def test_cancelling_ends_the_task_with_its_reason(host: Host) -> None:
    service = host.services["patient"]
    stream = service.stream(saying("go"), ALICE)
    first = await anext(stream)
    assert isinstance(first.body, Task)
    cancel = CancelRequest(id=first.body.id, metadata={"reason": "enough"})
    cancelled = await service.cancel(cancel, ALICE)
    assert (state(cancelled), said(cancelled)) == (S.CANCELED, "enough")
    assert states(await all_of(stream))[-1] is S.CANCELED
    with pytest.raises(TaskNotCancelable):
        await service.cancel(cancel, ALICE)
    assert await service.get(GetRequest(id=first.body.id), ALICE) == cancelled


async def test_a_task_that_waits_can_be_cancelled(host: Host) -> None:
    service = host.services["asking"]
    task = await service.send(saying("hi"), ALICE)
    assert isinstance(task, Task)
    assert state(await service.cancel(CancelRequest(id=task.id), ALICE)) is S.CANCELED
    with pytest.raises(UnsupportedOperation):
        await service.send(saying("Ada", task_id=task.id), ALICE)


# --- what is not offered ------------------------------------------------------------------------------------------


async def test_without_a_sender_there_are_no_webhooks(host: Host) -> None:
    with pytest.raises(PushNotSupported):
        await host.default.push_list(PushListRequest(task_id="x"), ALICE)


async def test_a_missing_extended_card_is_an_error(host: Host) -> None:
    with pytest.raises(AccordError):
        await host.default.extended_card(CardRequest(), ALICE)


# --- large parts --------------------------------------------------------------------------------------------------


async def rows(tx: Tx) -> list[Any]:
    docs = [row[0] for row in await tx.all("SELECT doc FROM snapshot")]
    return docs + [row[0] for row in await tx.all("SELECT data FROM event")]


async def test_large_parts_are_stored_as_blobs_transparently(host: Host) -> None:
    image = Part(raw=bytes(range(256)) * 4096, media_type="image/png", filename="a.png")
    events = await all_of(host.default.stream(saying("", parts=(image, Part(text="small"))), ALICE))
    first = events[0].body
    assert isinstance(first, Task)
    assert first.history[0].parts[0] == image
    chunks = [event.body.artifact.parts for event in events if isinstance(event.body, ArtifactUpdate)]
    assert chunks[0] == (image,)
    kept = await host.default.get(GetRequest(id=first.id), ALICE)
    assert (kept.history[0].parts[0], kept.artifacts[0].parts[0]) == (image, image)
    again = await all_of(host.default.subscribe(SubscribeRequest(id=first.id), ALICE, after=0))
    assert [event.body for event in again[1:]] == [event.body for event in events[1:]]
    listed = await host.default.list(TaskFilter(include_artifacts=True), ALICE)
    assert listed.tasks[0].artifacts[0].parts[0] == image
    assert max(len(text) for text in await host.node.store.read(rows)) < 10_000


async def test_unstorable_messages_are_refused_by_every_store(host: Host) -> None:
    with pytest.raises(InvalidParams):
        await host.default.get(GetRequest(id="a\x00b"), ALICE)
    with pytest.raises(InvalidParams):
        await host.default.send(saying("x", context_id="a\x00b"), ALICE)
    said_so = await host.default.send(saying("a\x00b"), ALICE)
    assert text(said_so) == "a\x00b"


@pytest.mark.proves("0-38")
async def test_everything_about_a_task_can_be_read_from_the_store_alone(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(time.time_ns(), 1_000_000)
    monkeypatch.setattr(time, "time_ns", lambda: next(ticks))  # no two things happen at one time
    task = await host.services["asking"].send(saying("hi", context_id="c"), ALICE)
    assert isinstance(task, Task)
    task = await host.services["asking"].send(saying("Ada", task_id=task.id), ALICE)
    assert isinstance(task, Task)
    stored = await host.node.store.read(tasks.read_task, "acme", task.id)
    assert stored is not None
    assert (stored.id, stored.context_id, stored.state, stored.owner) == (task.id, "c", "completed", "alice")
    assert timestamp_ms(stored.updated_at) == task.status.timestamp
    kept = stored.task()
    assert kept.created_at is not None
    assert kept.created_at <= (kept.status.timestamp or "")
    assert [text(message) for message in kept.history] == ["hi", "What is your name?", "Ada"]
    assert text(kept) == "Hello Ada"
