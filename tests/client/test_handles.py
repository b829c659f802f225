"""Texts and handles over an agent of this process: the client's twin, and so the client without its wire."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from accord.a2a import A2A, Caller
from accord.client import Client, Reply, in_process
from accord.client.remote_task import message_of
from accord.errors import PushNotSupported, TaskNotCancelable, TaskNotFound
from accord.model import (
    CancelRequest,
    CardRequest,
    GetRequest,
    Message,
    Part,
    PushConfig,
    SendConfiguration,
    SendRequest,
    Task,
    TaskFilter,
    TaskState,
)
from accord.testing import running
from tests.client.agents import asking, echo, endless, failing


@asynccontextmanager
async def talking(agent: Any) -> AsyncIterator[Client]:
    async with running(agent) as hosted:
        yield in_process(hosted.service)


def test_clients_implement_the_a2a_interface() -> None:
    def takes(agent: A2A) -> A2A:
        return agent

    checked: Callable[[Client], A2A] = takes  # mypy proves the interface
    assert checked is takes


@pytest.mark.proves("1-10", "1-11")
async def test_a_text_is_answered() -> None:
    async with talking(echo) as client:
        said = await client.send_text("hello you")
        assert isinstance(said, Reply)
        assert (said.text, said.status) == ("hello you ", TaskState.COMPLETED)
        assert isinstance(said.raw, Task)
        again = await client.send_text("again", context_id=said.context_id)
        assert again.context_id == said.context_id
        assert again.task_id != said.task_id


@pytest.mark.proves("1-12")
async def test_a_text_is_streamed() -> None:
    async with talking(echo) as client:
        speech = client.stream_text("one two three")
        pieces = [piece async for piece in speech]
        assert "".join(pieces) == "one two three "
        assert len(pieces) > 1
        assert speech.status is TaskState.COMPLETED
        assert not speech.has_failed
        assert speech.task_id is not None
        assert (await client.task(speech.task_id)).text == "one two three "


@pytest.mark.proves("1-16")
async def test_failing_is_an_answer_too() -> None:
    async with talking(failing) as client:
        said = await client.send_text("x")
        assert said.has_failed
        assert "detail" not in said.text
        speech = client.stream_text("x")
        assert "".join([piece async for piece in speech]) == said.text
        assert speech.has_failed


async def test_a_question_is_answered_through_the_handle() -> None:
    async with talking(asking) as client:
        task = await client.start("paint")
        asked = await task
        assert asked.is_question
        assert asked.text == "which colour?"
        assert await task.reply("blue") is task
        assert (await task).text == "paint: blue"
        assert [type(event.body) async for event in task] == [Task]


async def test_handle_loops_end_at_a_question_and_resume() -> None:
    async with talking(asking) as client:
        task = await client.start("paint")
        first = [event.seq async for event in task]
        assert task.cursor == first[-1]
        assert [event async for event in task] == [], "nothing has happened since"
        await task.reply("blue")
        then = [event.seq async for event in task]
        assert then == list(range(first[-1] + 1, first[-1] + 1 + len(then)))
        assert task.task is not None
        assert (await task.refresh()).status.state is TaskState.COMPLETED


@pytest.mark.proves("1-13")
async def test_a_task_is_cancelled() -> None:
    async with talking(endless) as client:
        task = await client.start("x")
        assert (await task.cancel("no longer needed")).status.state is TaskState.CANCELED
        said = await task
        assert said.status is TaskState.CANCELED
        assert not said.has_failed
        with pytest.raises(TaskNotCancelable):
            await client.cancel(CancelRequest(id=task.id))


async def test_a_handle_is_waited_for_while_the_task_works() -> None:
    async with talking(endless) as client:
        task = await client.start("x")
        waiting = asyncio.create_task(task.settled())
        async for _ in client.task(task.id):
            break  # it works
        await task.cancel()
        assert (await waiting).status is TaskState.CANCELED


async def test_a_loop_over_a_handle_begins_with_the_task_once() -> None:
    async with talking(endless) as client:
        task = await client.start("x")
        kinds = []
        async for event in task:
            kinds.append(type(event.body))
            if len(kinds) == 1:
                await client.task(task.id).cancel()
        assert kinds[0] is Task
        assert kinds.count(Task) <= 2, "and again only if it is another by the time that it is followed"


async def test_handles_without_a_task_are_errors() -> None:
    async with talking(echo) as client:
        with pytest.raises(TaskNotFound):
            await client.task("there-is-none")


async def test_an_agent_that_answers_without_a_task() -> None:
    async def alone(ctx: Any) -> Message:
        return message_of("just so")

    async def send(_request: Any, _caller: Any) -> Message:
        return message_of("just so")

    async with running(alone) as hosted:
        service = hosted.service
        service.send = send  # type: ignore[method-assign,assignment]
        client = in_process(service)
        said = await client.send_text("x")
        assert (said.text, said.task_id, said.status) == ("just so", None, TaskState.COMPLETED)
        task = await client.start("x")
        assert task.answer is not None
        assert (await task).text == "just so"
        assert [event.body async for event in task] == [task.answer]


async def test_the_rest_of_the_interface() -> None:
    async with talking(echo) as client:
        said = await client.send_text("x")
        assert said.task_id is not None
        assert (await client.get(GetRequest(id=said.task_id, history_length=0))).history == ()
        assert (await client.list(TaskFilter())).total_size == 1
        request = SendRequest(message=message_of("y"), configuration=SendConfiguration(return_immediately=True))
        answer = await client.send(request, Caller())
        assert isinstance(answer, Task)
        events = [event async for event in client.stream(SendRequest(message=message_of("z")))]
        assert isinstance(events[0].body, Task)


async def test_unsupported_operations_are_not_requested() -> None:
    from accord.errors import ExtendedCardNotConfigured
    from tests.client.pages import card

    async with running(echo) as hosted:
        client = in_process(hosted.service, card=card("local:"))
        with pytest.raises(PushNotSupported):
            await client.push_set(PushConfig(url="https://x.example", task_id="t"))
        with pytest.raises(ExtendedCardNotConfigured):
            await client.extended_card(CardRequest())
        task = await client.start("x", push=PushConfig(url="https://x.example"))
        assert not task.is_pushed
        assert (await task).text == "x "


def test_messages_may_be_text_data_parts_or_messages() -> None:
    assert message_of("x").parts == (Part(text="x"),)
    assert message_of({"n": 1}).parts[0].data == {"n": 1}
    assert message_of([Part(text="a"), Part(raw=b"b")]).parts == (Part(text="a"), Part(raw=b"b"))
    whole = message_of("x", context_id="c", task_id="t")
    assert message_of(whole) is whole
    assert message_of("x").message_id != message_of("x").message_id
