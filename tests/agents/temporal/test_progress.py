"""Answers that are heard while workflows write them, and conversations that workflows are told of."""

import asyncio

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from accord.a2a import Caller
from accord.model import ArtifactUpdate, Message, Part, Role, StatusUpdate, Task, TaskState
from accord.testing.inprocess import Running, running, text_in
from tests.agents.temporal import workflows
from tests.agents.temporal.conftest import agent_of
from tests.agents.temporal.server import BOUND_SECONDS

pytestmark = pytest.mark.xdist_group("temporal")  # they share a server


async def heard(a2a: Running, temporal: Client, *words: str) -> tuple[Task, list[tuple[str, bool, bool]]]:
    """Have an answer written, and tell the workflow each word once all before it was heard; return every chunk."""
    chunks: list[tuple[str, bool, bool]] = []
    left = list(words)
    task: Task | None = None
    async with asyncio.timeout(BOUND_SECONDS):
        async for event in a2a.stream_text("one "):
            body = event.body
            if isinstance(body, Task):
                task = body
            if isinstance(body, ArtifactUpdate):
                text = body.artifact.parts[0].text
                chunks.append(
                    (str(body.artifact.parts[0].data) if text is None else text, body.append, body.last_chunk)
                )
                if left:
                    await temporal.get_workflow_handle(body.task_id).signal("message", left.pop(0))
    assert task is not None
    return await a2a.get(task), chunks


@pytest.mark.parametrize("query", ["progress", "so_far"])
async def test_an_answer_is_streamed_while_it_is_written(
    address: str, worker: Worker, temporal: Client, query: str
) -> None:
    async with running(agent_of(address, "Writes", progress_query=query, progress_seconds=0.05)) as a2a:
        task, chunks = await heard(a2a, temporal, "two ", "three ", "whole")
    assert [text for text, _, _ in chunks] == ["one ", "two ", "three ", "!"]
    assert [append for _, append, _ in chunks] == [False, True, True, True]
    assert chunks[-1][2] is True
    assert (task.status.state, text_in(task), len(task.artifacts)) == (TaskState.COMPLETED, "one two three !", 1)


@pytest.mark.parametrize(
    ("last", "whole"), [("nothing", "one "), ("other", "something else"), ("data", "{'n': 1}")], ids=lambda one: one
)
async def test_the_final_result_counts(address: str, worker: Worker, temporal: Client, last: str, whole: str) -> None:
    async with running(agent_of(address, "Writes", progress_query="progress", progress_seconds=0.05)) as a2a:
        task, chunks = await heard(a2a, temporal, last)
    part = task.artifacts[0].parts[0]
    assert (str(part.data) if part.text is None else part.text) == whole
    assert (len(task.artifacts), chunks[-1][2]) == (1, True)


@pytest.mark.parametrize("query", ["number", "nowhere"])
async def test_invalid_progress_is_ignored(address: str, worker: Worker, temporal: Client, query: str) -> None:
    async with running(agent_of(address, "Writes", progress_query=query, watched=0, poll_seconds=0.2)) as a2a:
        task = await a2a.send_text("one ", at_once=True)
        ended = await a2a.send_text("whole", task=task)
    assert text_in(ended) == "one !"


async def test_messages_meanwhile_do_not_restart_the_answer(address: str, worker: Worker, temporal: Client) -> None:
    async with running(agent_of(address, "Writes", progress_query="progress", progress_seconds=0.05)) as a2a:
        task = await a2a.send_text("one ", at_once=True)
        async with asyncio.timeout(BOUND_SECONDS):
            while not (await a2a.get(task)).artifacts:  # noqa: ASYNC110  # it is written elsewhere
                await asyncio.sleep(0.02)
        await a2a.send_text("two ", task=task, at_once=True)
        ended = await a2a.send_text("whole", task=task)
    assert [text_in(ended), len(ended.artifacts)] == ["one two !", 1]


async def test_heartbeats_of_an_activity_are_reported(
    address: str, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflows, "HEARD", asyncio.Event())
    reported: list[str | None] = []
    async with running(agent_of(address, "Beats", heartbeats=True)) as a2a, asyncio.timeout(BOUND_SECONDS):
        async for event in a2a.stream_text("work"):
            body = event.body
            if isinstance(body, StatusUpdate) and body.status.message is not None:
                reported.append(body.status.message.parts[0].text)
                workflows.HEARD.set()
    assert reported == ["at work"]


async def test_workflows_get_the_conversation_history(address: str, worker: Worker) -> None:
    agent = agent_of(address, "Echo", input="conversation")
    async with running(agent, caller=Caller(owner="ada")) as a2a:

        async def given(text: str, owner: str) -> dict[str, object]:
            said = Message(message_id=f"m-{text}", role=Role.USER, parts=(Part(text=text),), context_id="trip")
            task = await Running(a2a.app, Caller(owner=owner), BOUND_SECONDS).send(said)
            assert isinstance(task, Task)
            found = task.artifacts[0].parts[0].data
            assert isinstance(found, dict)
            assert found["taskId"] == task.id
            return found

        first = await given("one", "ada")
        second = await given("two", "ada")
        others = await given("three", "bob")
    assert first["contextId"] == second["contextId"]
    assert others["contextId"] not in ("trip", first["contextId"]), "what is remembered by it is one caller's"
    assert first["history"] == others["history"] == []
    assert second["history"][0] == {"role": "user", "text": "one"}  # type: ignore[index]
    assert [said["role"] for said in second["history"]] == ["user", "agent"]  # type: ignore[attr-defined]
    message: dict[str, object] = second["message"]  # type: ignore[assignment]
    assert message["parts"] == [{"text": "two"}]
