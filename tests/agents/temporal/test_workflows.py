"""Tasks that are workflows: begun, told more, looked at, asked for, ended; with a real server and a real worker."""

import asyncio
from typing import Any

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError
from temporalio.worker import Worker

from accord.engine.context import Context
from accord.model import Message, Part, Role, Task, TaskState
from accord.testing.inprocess import Running, running, text_in
from tests.agents.temporal.conftest import agent_of
from tests.agents.temporal.server import BOUND_SECONDS

pytestmark = pytest.mark.xdist_group("temporal")  # they share a server

TIMEOUT_SECONDS = 3.0
"""How long a task may take whose time is limited: enough for its workflow to begin."""


async def stopped(temporal: Client, task: Task) -> WorkflowExecutionStatus | None:
    """Wait for the end of a workflow, and return how it ended."""
    handle = temporal.get_workflow_handle(task.id)
    async with asyncio.timeout(BOUND_SECONDS):
        while (seen := await handle.describe()).status is WorkflowExecutionStatus.RUNNING:  # noqa: ASYNC110  # elsewhere
            await asyncio.sleep(0.05)
    return seen.status


async def started(temporal: Client, task: Task) -> None:
    """Wait until Temporal has a workflow."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            try:
                await temporal.get_workflow_handle(task.id).describe()
                return
            except RPCError:
                await asyncio.sleep(0.05)


async def told(a2a: Running, task: Task, text: str) -> Task:
    """Wait until a task says something."""
    async with asyncio.timeout(BOUND_SECONDS):
        while True:
            now = await a2a.get(task)
            said = now.status.message
            if said is not None and said.parts[0].text == text:
                return now
            await asyncio.sleep(0.05)


async def test_a_text_is_the_input_and_the_result_is_the_answer(address: str, worker: Worker, temporal: Client) -> None:
    async with running(agent_of(address, "Echo")) as a2a:
        task = await a2a.send_text("hello")
    assert task.status.state is TaskState.COMPLETED
    assert text_in(task) == "you said hello"
    seen = await temporal.get_workflow_handle(task.id).describe()
    assert seen.workflow_type == "Echo"
    assert await seen.memo() == {"agent": "echo", "contextId": task.context_id}


@pytest.mark.parametrize("value", [{"city": "Lisbon", "days": 2}, [1, 2], 7])
async def test_data_is_the_input_and_the_result_is_data(address: str, worker: Worker, value: Any) -> None:
    async with running(agent_of(address, "Echo")) as a2a:
        task = await a2a.send(Part(data=value))
    assert isinstance(task, Task)
    assert [part.data for part in task.artifacts[0].parts] == [value]


async def test_files_travel_both_ways_and_usage_is_counted(address: str, worker: Worker) -> None:
    file = Part(raw=b"\x00\x01!", filename="a.bin", media_type="application/octet-stream")
    async with running(agent_of(address, "File")) as a2a:
        task = await a2a.send((Part(text="back, please"), file))
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED
    assert task.artifacts[0].parts == (file,)
    used = (task.metadata or {})["usage"]
    assert (used["inputTokens"], used["outputTokens"], used["cost"]) == (7, 5, 0.5)


async def test_callers_get_the_reason_of_a_failed_activity(address: str, worker: Worker) -> None:
    async with running(agent_of(address, "Fail")) as a2a:
        task = await a2a.send_text("Atlantis")
    assert task.status.state is TaskState.FAILED
    assert text_in(task) == "The workflow failed: no such city: Atlantis"


async def test_later_messages_are_signaled_once(address: str, worker: Worker, temporal: Client) -> None:
    async with running(agent_of(address, "Slow", status="status")) as a2a:
        task = await a2a.send_text("work", at_once=True)
        await told(a2a, task, "heard 0")
        await a2a.send_text("more", task=task, at_once=True)
        await told(a2a, task, "heard 1")
        ended = await a2a.send_text("stop", task=task)
    assert ended.status.state is TaskState.COMPLETED
    assert text_in(ended) == "work: more stop"


async def test_a_workflow_asks_and_is_answered(address: str, worker: Worker) -> None:
    async with running(agent_of(address, "Ask", status="status")) as a2a:
        first = await a2a.send_text("a trip")
        assert first.status.state is TaskState.INPUT_REQUIRED
        assert text_in(first) == "Which city?"
        second = await a2a.send_text("Lisbon", task=first)
        assert second.status.state is TaskState.INPUT_REQUIRED
        assert text_in(second) == "When to Lisbon?"
        ended = await a2a.send_text("Monday", task=second)
    assert ended.status.state is TaskState.COMPLETED
    assert text_in(ended) == "to Lisbon on Monday"


async def test_a_cancelled_task_cancels_its_workflow(address: str, worker: Worker, temporal: Client) -> None:
    async with running(agent_of(address, "Slow")) as a2a:
        task = await a2a.send_text("work", at_once=True)
        await started(temporal, task)
        assert (await a2a.cancel(task)).status.state is TaskState.CANCELED
        assert await stopped(temporal, task) is WorkflowExecutionStatus.CANCELED


async def test_a_task_that_takes_too_long_takes_its_workflow_along(
    address: str, worker: Worker, temporal: Client
) -> None:
    async with running(agent_of(address, "Slow", timeout=TIMEOUT_SECONDS)) as a2a:
        task = await a2a.send_text("work")
        assert task.status.state is TaskState.FAILED
        assert await stopped(temporal, task) is WorkflowExecutionStatus.CANCELED


async def test_a_workflow_that_does_not_listen_is_terminated(address: str, worker: Worker, temporal: Client) -> None:
    async with running(agent_of(address, "Stubborn", grace_seconds=0.5)) as a2a:
        task = await a2a.send_text("work", at_once=True)
        await started(temporal, task)
        await a2a.cancel(task)
        assert await stopped(temporal, task) is WorkflowExecutionStatus.TERMINATED


async def test_a_workflow_that_others_end_fails_the_task(address: str, worker: Worker, temporal: Client) -> None:
    async with running(agent_of(address, "Slow")) as a2a:
        task = await a2a.send_text("work", at_once=True)
        await started(temporal, task)
        await temporal.get_workflow_handle(task.id).terminate(reason="the house burns")
        ended = await a2a.reaches(task, TaskState.FAILED)
    assert text_in(ended) == "The workflow was terminated: the house burns"


async def test_without_a_watch_an_end_is_found_by_looking(address: str, worker: Worker, temporal: Client) -> None:
    async with running(agent_of(address, "Slow", watched=0, poll_seconds=0.2)) as a2a:
        task = await a2a.send_text("work", at_once=True)
        await started(temporal, task)
        await temporal.get_workflow_handle(task.id).signal("message", "stop")
        ended = await a2a.reaches(task, TaskState.COMPLETED)
    assert text_in(ended) == "work: stop"


async def test_text_is_refused_where_data_is_required(address: str) -> None:
    agent = agent_of(address, "Echo", input="data", input_modes=("*/*",))
    async with running(agent) as a2a:
        task = await a2a.send_text("hello")
    assert task.status.state is TaskState.REJECTED


async def test_a_message_may_be_given_whole(address: str, worker: Worker) -> None:
    said = Message(message_id="m-1", role=Role.USER, parts=(Part(text="hi"),), metadata={"k": "v"})
    async with running(agent_of(address, "Echo", input="message")) as a2a:
        task = await a2a.send(said)
    assert isinstance(task, Task)
    given = task.artifacts[0].parts[0] if task.artifacts else None
    assert given == Part(text="hi")


async def test_a_namespace_that_is_not_there_fails_the_task(address: str) -> None:
    async with running(agent_of(address, "Echo", namespace="nowhere")) as a2a:
        task = await a2a.send_text("hello")
    assert task.status.state is TaskState.FAILED
    assert text_in(task) == "Temporal did not take the task"


async def test_lost_executions_repeat_nothing(
    address: str, worker: Worker, temporal: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every note of what was done is lost once, as if the process had died just before it."""
    lost: set[str] = set()
    keep = Context.keep

    async def forgetful(ctx: Context, key: str, value: str) -> str:
        if key in lost:
            return await keep(ctx, key, value)
        lost.add(key)
        return value

    monkeypatch.setattr(Context, "keep", forgetful)
    async with running(agent_of(address, "Slow", status="status")) as a2a:
        task = await a2a.send_text("work", at_once=True)
        await told(a2a, task, "heard 0")
        more = await a2a.send_text("more", task=task, at_once=True)
        await told(a2a, task, "heard 1")
        ended = await a2a.send_text("stop", task=task)
    assert lost == {
        "workflow",
        *(f"signalled:{said.message_id}" for said in ended.history[1:] if said.role is Role.USER),
    }
    assert more.id == ended.id
    assert text_in(ended) == "work: more stop"


async def test_messages_to_ended_workflows_get_the_result(address: str, worker: Worker, temporal: Client) -> None:
    async with running(agent_of(address, "Slow", watched=0, poll_seconds=600)) as a2a:
        task = await a2a.send_text("work", at_once=True)
        await started(temporal, task)
        handle = temporal.get_workflow_handle(task.id)
        await handle.signal("message", "stop")
        await handle.result()
        ended = await a2a.send_text("too late", task=task)
    assert ended.status.state is TaskState.COMPLETED
    assert text_in(ended) == "work: stop"
