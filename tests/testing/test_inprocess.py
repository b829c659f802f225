"""Agents run in process by `accord.testing.running`: what a user's test would do with it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

import accord.testing
from accord import Context, Failed, agent
from accord.a2a import Caller
from accord.errors import TaskNotFound
from accord.model import ArtifactUpdate, GetRequest, Part, StatusUpdate, TaskState
from accord.testing import call, running, text_in

S = TaskState
SHORT = 0.05
"""A bound for what never comes."""


@agent
async def greeter(ctx: Context) -> str:
    """Greets whoever says a name."""
    name = ctx.text or await ctx.ask("Who are you?")
    return f"Hello {name}"


@agent
async def curious(ctx: Context) -> str:
    """Asks twice."""
    first = await ctx.ask("What?")
    second = await ctx.ask("And?")
    return f"{first}, {second}"


@agent
async def patient(ctx: Context) -> None:
    """Waits to be told to stop."""
    await asyncio.Event().wait()


@agent(answers_message=True)
async def brief(ctx: Context) -> str:
    """Answers with a message alone."""
    return ctx.text.upper()


async def test_agents_are_called() -> None:
    async with running(greeter) as a2a:
        assert await a2a.ask_text("Ada") == "Hello Ada"
        task = await a2a.send_text("Bob")
        assert (task.status.state, text_in(task)) == (S.COMPLETED, "Hello Bob")
        assert await a2a.get(task) == task


async def test_a_question_is_answered() -> None:
    async with running(curious) as a2a:
        task = await a2a.send_text("go")
        assert (task.status.state, text_in(task)) == (S.INPUT_REQUIRED, "What?")
        assert (await a2a.send_text("one", task=task)).status.state is S.INPUT_REQUIRED
        assert await a2a.ask_text("two", task=task) == "one, two"


async def test_plain_functions_and_other_agents_are_run() -> None:
    async def forwards(ctx: Context) -> str:
        return f"They say: {await ctx.call('greeter', ctx.text)}"

    async with running(forwards, greeter) as a2a:
        assert await a2a.ask_text("Ada") == "They say: Hello Ada"


async def test_files_and_data_are_sent() -> None:
    async def looks(ctx: Context) -> str:
        return f"{ctx.data} {[part.filename for part in ctx.files]}"

    async with running(agent(input_modes=["*/*"])(looks)) as a2a:
        parts = (Part(data={"a": 1}), Part(raw=b"x", filename="x.bin"))
        assert text_in(await a2a.send(parts)) == "{'a': 1} ['x.bin']"
        assert text_in(await a2a.send({"a": 2})) == "{'a': 2} []"


async def test_a_stream_is_read_as_it_comes() -> None:
    go = asyncio.Event()

    async def counts(ctx: Context) -> AsyncIterator[str]:
        yield "one "
        await go.wait()
        yield "two"

    async with running(counts) as a2a, aclosing(a2a.stream_text("go")) as events:
        seen = []
        async for event in events:
            if isinstance(event.body, ArtifactUpdate):
                seen.append(event.body.artifact.parts[0].text)
                go.set()
        assert seen == ["one ", "two"]
        assert isinstance(event.body, StatusUpdate)
        assert event.body.status.state is S.COMPLETED


async def test_a_task_is_waited_for_and_cancelled() -> None:
    async with running(patient) as a2a:
        task = await a2a.send_text("go", at_once=True)
        working = await a2a.reaches(task, S.WORKING)
        assert working.status.state is S.WORKING
        waiting = asyncio.create_task(a2a.reaches(task, S.CANCELED))
        assert (await a2a.cancel(task)).status.state is S.CANCELED
        assert (await waiting).status.state is S.CANCELED
        assert (await a2a.reaches(task, S.CANCELED)).status.state is S.CANCELED
        with pytest.raises(AssertionError, match="is CANCELED and will not be COMPLETED"):
            await a2a.reaches(task, S.COMPLETED)


async def test_a_task_that_ends_otherwise_is_not_waited_for() -> None:
    go = asyncio.Event()

    async def fails(ctx: Context) -> None:
        await go.wait()
        raise Failed("no luck")

    async with running(fails) as a2a:
        task = await a2a.send_text("go", at_once=True)
        waiting = asyncio.create_task(a2a.reaches(task, S.COMPLETED))
        await a2a.reaches(task, S.WORKING)
        go.set()
        with pytest.raises(AssertionError, match="is FAILED"):
            await waiting
        assert text_in(await a2a.get(task)) == "no luck"


async def test_an_agent_that_answers_with_a_message() -> None:
    async with running(brief) as a2a:
        assert await a2a.ask_text("hi") == "HI"
        with pytest.raises(TypeError, match="ask_text"):
            await a2a.send_text("hi")


async def test_nothing_is_waited_for_without_end() -> None:
    async with running(patient, bound=SHORT) as a2a:
        with pytest.raises(TimeoutError):
            await a2a.send_text("go")
        with pytest.raises(TimeoutError):
            await a2a.reaches(await a2a.send_text("go", at_once=True), S.COMPLETED)
        with pytest.raises(TimeoutError):
            async for _ in a2a.stream_text("go"):
                pass


async def test_each_run_begins_with_nothing_and_each_caller_sees_its_own() -> None:
    async with running(greeter) as a2a:
        task = await a2a.send_text("Ada")
    async with running(greeter, caller=Caller(owner="bob")) as a2a:
        with pytest.raises(TaskNotFound):
            await a2a.get(task)
        mine = await a2a.send_text("Ada")
        a2a.caller = Caller(owner="alice")
        with pytest.raises(TaskNotFound):
            await a2a.get(mine)


async def test_the_same_agent_is_served_over_asgi() -> None:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Ada"}]}
    sent = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with running(greeter) as a2a:
        answer = (await call(a2a.app, sent, headers={"A2A-Version": "1.0"})).json()["result"]["task"]
        assert answer["artifacts"][0]["parts"] == [{"text": "Hello Ada"}]
        assert text_in(await a2a.service.get(GetRequest(id=answer["id"]), a2a.caller)) == "Hello Ada"


def test_only_existing_names_are_importable() -> None:
    for name in accord.testing.__all__:
        assert getattr(accord.testing, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing_like_this"):
        _ = accord.testing.nothing_like_this
