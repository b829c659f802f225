"""Executors of the official SDK: what they are given, what becomes of what they report, how they are stopped."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from a2a.helpers.proto_helpers import new_task_from_user_message
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.tasks import TaskUpdater
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.errors import InvalidParamsError
from google.protobuf import json_format

from accord import model
from accord.a2a import Caller
from accord.agents.a2a_sdk import AGENT_TYPE, ExecutorAgent
from accord.api.agent_types import AgentArguments, agent_type_of
from accord.testing import running
from accord.testing.inprocess import text_in
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, hosting, postgres, saying
from tests.engine.doubles import reaches, sent

__all__ = ["hosting", "postgres"]

S = model.TaskState
Execute = Callable[[RequestContext, TaskUpdater], Awaitable[None]]


class Doing(AgentExecutor):
    """An executor that does what a test says, and notes its cancels."""

    def __init__(self, *turns: Execute, on_cancel: Execute | None = None) -> None:
        self.turns = turns
        self.contexts: list[RequestContext] = []
        self.cancelled: list[RequestContext] = []
        self.stopped: list[str] = []
        self._on_cancel = on_cancel

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.contexts.append(context)
        try:
            await self.turns[len(self.contexts) - 1](context, updating(context, event_queue))
        except asyncio.CancelledError:
            self.stopped.append(context.task_id or "")
            raise

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        self.cancelled.append(context)
        if self._on_cancel is not None:
            await self._on_cancel(context, updating(context, event_queue))


def updating(context: RequestContext, queue: EventQueue) -> TaskUpdater:
    assert context.task_id
    assert context.context_id
    return TaskUpdater(queue, context.task_id, context.context_id)


def agent(executor: AgentExecutor, **options: Any) -> ExecutorAgent:
    made = AGENT_TYPE.make(AgentArguments(name="doing", target=executor, options=AGENT_TYPE.options(**options)))
    assert isinstance(made, ExecutorAgent)
    return made


def saying_so(updater: TaskUpdater, text: str) -> Message:
    return updater.new_agent_message([Part(text=text)])


def asking(text: str) -> Execute:
    async def ask(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.requires_input(saying_so(updater, text))

    return ask


async def waiting(context: RequestContext, updater: TaskUpdater) -> None:
    await updater.start_work(saying_so(updater, "begun"))
    await asyncio.Event().wait()


def status_text(task: model.Task | model.Message) -> str:
    assert isinstance(task, model.Task)
    message = task.status.message
    return "".join(part.text or "" for part in message.parts) if message else ""


def state(task: model.Task | model.Message) -> model.TaskState:
    assert isinstance(task, model.Task)
    return task.status.state


# --- what it is -------------------------------------------------------------------------------------------------------


async def test_an_executor_is_recognized_and_nothing_else_is() -> None:
    class Booker(AgentExecutor):
        """Books tables.

        In many places.
        """

        async def execute(self, context: RequestContext, event_queue: EventQueue) -> None: ...
        async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None: ...

    assert agent_type_of(Booker()) is AGENT_TYPE
    assert not AGENT_TYPE.recognizes or not AGENT_TYPE.recognizes(object())
    profile = AGENT_TYPE.make(AgentArguments(target=Booker(), options=AGENT_TYPE.options())).profile
    assert (profile.name, profile.description) == ("Booker", "Books tables.")


def test_missing_frameworks_are_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "a2a.types", None)
    with pytest.raises(ImportError, match=r"pip install 'accord\[a2a-sdk\]'"):
        AGENT_TYPE.make(AgentArguments(target=object(), options=AGENT_TYPE.options()))


# --- what it is given -------------------------------------------------------------------------------------------------


async def test_it_is_given_the_message_its_caller_and_the_ids() -> None:
    async def look(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.complete()

    executor = Doing(look)
    async with running(agent(executor), caller=Caller(tenant="acme", owner="alice")) as a2a:
        message = model.Message(
            message_id="m-1",
            role=model.Role.USER,
            parts=(
                model.Part(text="hi"),
                model.Part(data={"n": 1, "deep": [None, True]}),
                model.Part(raw=b"\x00\xff", filename="a.bin", media_type="application/x-a"),
                model.Part(url="https://example.com/b", media_type="text/b"),
            ),
            metadata={"k": {"v": 2}},
            extensions=("https://example.com/x",),
            reference_task_ids=("t-0",),
        )
        request = model.SendRequest(message=message, metadata={"asked": "so"})
        task = await a2a.service.send(request, a2a.caller)
    assert isinstance(task, model.Task)
    (context,) = executor.contexts
    assert (context.task_id, context.current_task) == (task.id, None)
    assert context.context_id not in (None, task.context_id), "what is remembered by it is this caller's"
    assert context.message is not None
    assert (context.message.task_id, context.message.context_id) == (task.id, context.context_id)
    text, data, raw, url = context.message.parts
    assert text.text == context.get_user_input() == "hi"
    assert json_format.MessageToDict(data.data) == {"n": 1, "deep": [None, True]}
    assert (raw.raw, raw.filename, raw.media_type) == (b"\x00\xff", "a.bin", "application/x-a")
    assert (url.url, url.media_type) == ("https://example.com/b", "text/b")
    assert json_format.MessageToDict(context.message.metadata) == {"k": {"v": 2}}
    assert list(context.message.reference_task_ids) == ["t-0"]
    assert context.metadata == {"asked": "so"}
    assert context.requested_extensions == {"https://example.com/x"}
    assert (context.tenant, context.call_context.user.user_name) == ("acme", "alice")
    assert context.call_context.user.is_authenticated


# --- what it reports --------------------------------------------------------------------------------------------------


async def test_everything_that_it_reports_is_in_the_log_as_it_comes() -> None:
    go = asyncio.Event()

    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        assert context.message is not None
        await updater.event_queue.enqueue_event(new_task_from_user_message(context.message))
        await updater.submit()
        await updater.update_status(
            TaskState.TASK_STATE_WORKING, saying_so(updater, "thinking"), metadata={"percent": 5}
        )
        await updater.add_artifact([Part(text="one ")], "a-1", name="words", metadata={"m": 1}, last_chunk=False)
        await go.wait()
        await updater.add_artifact([Part(text="two")], "a-1", append=True)
        await updater.add_artifact([Part(raw=b"!", media_type="image/x", filename="x")], "a-2", last_chunk=True)
        await updater.complete(saying_so(updater, "done"))

    async with running(agent(Doing(work))) as a2a:
        seen: list[Any] = []
        async for event in a2a.stream_text("go"):
            seen.append(event.body)
            if isinstance(event.body, model.ArtifactUpdate):
                go.set()  # it is there before the next is made
        final = await a2a.get(seen[0])
    updates = [body for body in seen if isinstance(body, model.StatusUpdate)]
    assert [update.status.state for update in updates] == [S.WORKING, S.WORKING, S.COMPLETED]
    assert updates[1].metadata == {"percent": 5}
    chunks = [body for body in seen if isinstance(body, model.ArtifactUpdate)]
    assert [(c.artifact.artifact_id, bool(c.append)) for c in chunks][:3] == [
        ("a-1", False),
        ("a-1", True),
        ("a-2", False),
    ]
    ended = [c.artifact.artifact_id for c in chunks if c.last_chunk]
    assert sorted(ended) == ["a-1", "a-2"], "each is said to be whole, once"
    words, picture = final.artifacts
    assert (words.name, words.metadata) == ("words", {"m": 1})
    assert "".join(part.text or "" for part in words.parts) == "one two"
    assert picture.parts == (model.Part(raw=b"!", media_type="image/x", filename="x"),)
    assert status_text(final) == "done"
    assert [message.parts[0].text for message in final.history] == ["go", "thinking"]


async def test_whole_tasks_add_only_new_content() -> None:
    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        assert context.message is not None
        task = Task(
            id=updater.task_id,
            context_id=updater.context_id,
            status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED, message=saying_so(updater, "done")),
            history=[context.message, saying_so(updater, "between")],
            artifacts=[Artifact(artifact_id="a-1", parts=[Part(text="made")])],
        )
        await updater.add_artifact([Part(text="made")], "a-1")
        await updater.event_queue.enqueue_event(task)

    async with running(agent(Doing(work))) as a2a:
        task = await a2a.send_text("go")
    assert (state(task), status_text(task), text_in(task)) == (S.COMPLETED, "done", "made")
    assert [message.parts[0].text for message in task.history] == ["go", "between"]


@pytest.mark.parametrize("alone", [False, True])
async def test_a_lone_message_ends_the_task_and_may_be_the_reply(alone: bool) -> None:
    async def answer(context: RequestContext, updater: TaskUpdater) -> None:
        message = Message(message_id="a-1", role=Role.ROLE_AGENT, parts=[Part(text="just this")])
        await updater.event_queue.enqueue_event(message)

    async with running(agent(Doing(answer), answers_message=alone)) as a2a:
        said = await a2a.send("hi")
    assert isinstance(said, model.Message if alone else model.Task)
    assert text_in(said) == "just this"


async def test_executors_without_a_final_event_complete() -> None:
    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.add_artifact([Part(text="made")])

    async with running(agent(Doing(work))) as a2a:
        assert state(await a2a.send_text("go")) is S.COMPLETED


@pytest.mark.parametrize(
    ("end", "expected"),
    [("failed", S.FAILED), ("reject", S.REJECTED), ("cancel", S.CANCELED), ("complete", S.COMPLETED)],
)
async def test_an_end_keeps_all_parts_of_its_message_and_nothing_follows(end: str, expected: model.TaskState) -> None:
    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        data = json_format.ParseDict({"data": {"code": 7}}, Part())
        await getattr(updater, end)(updater.new_agent_message([Part(text="because"), data]))
        await updater.add_artifact([Part(text="too late")])

    async with running(agent(Doing(work))) as a2a:
        task = await a2a.send_text("go")
    assert (state(task), status_text(task), task.artifacts) == (expected, "because", ())
    assert task.status.message is not None
    assert task.status.message.parts[1].data == {"code": 7}


@pytest.mark.parametrize(
    ("error", "words", "told"),
    [
        (InvalidParamsError, "no such city", "no such city"),
        (ValueError, "the password is hunter2", "The agent failed"),
    ],
)
async def test_only_a2a_errors_reach_the_caller(
    error: type[Exception], words: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        raise error(words)

    async with running(agent(Doing(work))) as a2a:
        task = await a2a.send_text("go")
    assert (state(task), status_text(task)) == (S.FAILED, told)
    assert words in caplog.text


async def test_invalid_and_foreign_events_are_refused() -> None:
    async def foreign(context: RequestContext, updater: TaskUpdater) -> None:
        await TaskUpdater(updater.event_queue, "t-other", updater.context_id).start_work()

    async def nonsense(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.event_queue.enqueue_event("nonsense")  # type: ignore[arg-type]  # which is the test

    async with running(agent(Doing(foreign, nonsense))) as a2a:
        task = await a2a.send_text("go")
        assert (state(task), "t-other" in status_text(task)) == (S.FAILED, True)
        assert state(await a2a.send_text("go")) is S.FAILED


# --- questions --------------------------------------------------------------------------------------------------------


async def test_questions_park_the_task_and_answers_are_turns(hosting: Hosting) -> None:
    async def first(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.add_artifact([Part(text="notes: ")], "a-1")
        await updater.requires_input(saying_so(updater, "Where?"))

    async def second(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.start_work()
        await updater.add_artifact([Part(text=f"{context.get_user_input()} ")], "a-1", append=True)
        await updater.requires_auth(saying_so(updater, "Who are you?"))

    async def third(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.add_artifact([Part(text=context.get_user_input())], "a-1", append=True, last_chunk=True)
        await updater.complete()

    executor = Doing(first, second, third)
    host = await hosting(agent(executor))
    task = await sent(host.default, saying("go"), ALICE)
    assert (state(task), status_text(task)) == (S.INPUT_REQUIRED, "Where?")
    task = await sent(host.default, saying("Rome", task_id=task.id), ALICE)
    assert (state(task), status_text(task)) == (S.AUTH_REQUIRED, "Who are you?")
    other = await hosting(agent(executor))  # another node may go on
    task = await sent(other.default, saying("Ada", task_id=task.id), ALICE)
    assert (state(task), text_in(task)) == (S.COMPLETED, "notes: Rome Ada")
    said = ["go", "Where?", "Rome", "Who are you?", "Ada"]
    assert [message.parts[0].text for message in task.history] == said
    _, _, context = executor.contexts
    assert context.current_task is not None
    assert [message.parts[0].text for message in context.current_task.history] == said
    assert [part.text for part in context.current_task.artifacts[0].parts] == ["notes: ", "Rome "]
    assert len(executor.contexts) == 3


async def test_a_question_without_words_is_one() -> None:
    async def first(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.requires_input()

    async def second(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.complete(saying_so(updater, context.get_user_input()))

    async with running(agent(Doing(first, second))) as a2a:
        asked = await a2a.send_text("go")
        assert (state(asked), asked.status.message) == (S.INPUT_REQUIRED, None)
        assert status_text(await a2a.send_text("well", task=asked)) == "well"


async def test_executors_can_wait_for_credentials_and_continue() -> None:
    allowed = asyncio.Event()

    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.requires_auth(saying_so(updater, "Log in there"))
        await allowed.wait()
        await updater.start_work()
        await updater.complete(saying_so(updater, "thanks"))

    executor = Doing(work)
    async with running(agent(executor)) as a2a:
        task = await a2a.send_text("go")
        assert (state(task), status_text(task)) == (S.AUTH_REQUIRED, "Log in there")
        allowed.set()
        ended = await a2a.reaches(task, S.COMPLETED)
    assert (status_text(ended), len(executor.contexts)) == ("thanks", 1)


async def test_an_executor_that_waits_in_vain_is_answered_by_the_caller() -> None:
    gives_up = asyncio.Event()

    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.requires_auth(saying_so(updater, "Log in there"))
        await gives_up.wait()

    async def again(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.complete(saying_so(updater, context.get_user_input()))

    async with running(agent(Doing(work, again))) as a2a:
        task = await a2a.send_text("go")
        gives_up.set()
        ended = await a2a.send_text("my token", task=task)
        ended = await a2a.reaches(ended, S.COMPLETED)
    assert status_text(ended) == "my token"
    assert [message.parts[0].text for message in ended.history] == ["go", "Log in there", "my token"]


async def test_questions_are_not_repeated_after_a_lost_turn(hosting: Hosting) -> None:
    """What an executor asked counts from when it is noted: a turn before that is begun anew."""
    lost = asyncio.Event()

    async def breaks_off(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.add_artifact([Part(text="half of it")], "a-1")
        lost.set()
        await asyncio.Event().wait()

    async def second(context: RequestContext, updater: TaskUpdater) -> None:
        assert context.current_task is None, "it is the first turn, again"
        await updater.add_artifact([Part(text="all of it")], "a-1")
        await updater.requires_input(saying_so(updater, "Enough?"))

    async def third(context: RequestContext, updater: TaskUpdater) -> None:
        await updater.complete()

    executor = Doing(breaks_off, second, third)
    first = await hosting(agent(executor))
    task = await sent(first.default, saying("go", configuration=AT_ONCE), ALICE)
    await lost.wait()
    await first.stop(0)
    assert executor.stopped == [task.id]
    assert executor.cancelled == [], "the task goes on elsewhere"
    other = await hosting(agent(executor))
    asked = await reaches(other.default, task.id, S.INPUT_REQUIRED, ALICE)
    assert text_in(asked) == "all of it"
    assert state(await sent(other.default, saying("yes", task_id=task.id), ALICE)) is S.COMPLETED


# --- stopping ---------------------------------------------------------------------------------------------------------


async def test_cancelled_its_own_cancel_is_called_before_it_is_stopped() -> None:
    order: list[str] = []

    async def own(context: RequestContext, updater: TaskUpdater) -> None:
        order.append(f"cancel while stopped={executor.stopped}")
        assert context.message is None
        assert context.current_task is not None
        await updater.cancel()

    executor = Doing(waiting, on_cancel=own)
    async with running(agent(executor)) as a2a:
        task = await a2a.send_text("go", at_once=True)
        await until(lambda: bool(executor.contexts))
        cancelled = await a2a.cancel(task)
        await until(lambda: bool(executor.stopped))
    assert state(cancelled) is S.CANCELED
    assert order == ["cancel while stopped=[]"]
    assert [context.task_id for context in executor.cancelled] == [task.id]


@pytest.mark.parametrize("how", ["raises", "hangs"])
async def test_an_executor_that_cannot_cancel_is_stopped_all_the_same(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def own(context: RequestContext, updater: TaskUpdater) -> None:
        if how == "raises":
            raise NotImplementedError("cancel is not for me")
        await asyncio.Event().wait()

    executor = Doing(waiting, on_cancel=own)
    async with running(agent(executor)) as a2a:
        task = await a2a.send_text("go", at_once=True)
        await until(lambda: bool(executor.contexts))
        assert state(await a2a.cancel(task)) is S.CANCELED
        await until(lambda: bool(executor.stopped))
    assert how == "hangs" or "cancel is not for me" in caplog.text


async def test_canceled_executors_are_not_waited_for() -> None:
    over = asyncio.Event()

    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        await over.wait()
        await updater.cancel()

    async def own(context: RequestContext, updater: TaskUpdater) -> None:
        over.set()

    executor = Doing(work, on_cancel=own)
    async with running(agent(executor)) as a2a:
        task = await a2a.send_text("go", at_once=True)
        await until(lambda: bool(executor.contexts))
        assert state(await a2a.cancel(task)) is S.CANCELED
        assert state(await a2a.get(task)) is S.CANCELED


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what another task does."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  # an executor has nothing to set
            await asyncio.sleep(0.01)


# The SDK's own words for an event, without its helper.


async def test_events_that_are_made_by_hand_are_taken() -> None:
    async def work(context: RequestContext, updater: TaskUpdater) -> None:
        ids: dict[str, Any] = {"task_id": updater.task_id, "context_id": updater.context_id}
        artifact = Artifact(artifact_id="a", parts=[Part(text="made")], extensions=["https://example.com/x"])
        await updater.event_queue.enqueue_event(TaskArtifactUpdateEvent(artifact=artifact, last_chunk=True, **ids))
        status = TaskStatus(state=TaskState.TASK_STATE_COMPLETED)
        await updater.event_queue.enqueue_event(TaskStatusUpdateEvent(status=status, **ids))

    async with running(agent(Doing(work))) as a2a:
        task = await a2a.send_text("go")
    assert (state(task), text_in(task)) == (S.COMPLETED, "made")
    assert task.artifacts[0].extensions == ("https://example.com/x",)
