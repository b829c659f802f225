"""Processes die while tasks use something: what has a key counts once, for the task and for whoever called it."""

import asyncio
from functools import partial

from msgspec.structs import replace

from accord.model import SendConfiguration, SendRequest, Task, TaskState
from tests.crash.conftest import Client, Start, explained, text, until
from tests.crash.node import CALLER, saying
from tests.crash.test_children import child_of, family, nothing_is_left

S = TaskState

CALLS = 12


def used(task: Task) -> tuple[int, int, float]:
    assert task.metadata is not None
    shown = task.metadata["usage"]
    return shown["inputTokens"], shown["outputTokens"], shown["cost"]


async def test_nothing_counts_twice_however_often_a_process_is_killed(
    store_url: str, client: Client, start: Start
) -> None:
    node = await start(store_url)
    task_id = await client.send("patron", f"{CALLS} 0.02")
    for number in (1, 4, 8):
        await node.says("spent", number=number)
        await node.kill()
        node = await start(store_url)
    task = await client.rested(task_id)
    assert (task.status.state, text(task), used(task)) == (S.COMPLETED, "done", (CALLS, 2, 1.2))
    child = await child_of(client, task_id, "spender")
    assert used(child) == (CALLS, 0, 1.2)


async def test_a_budget_is_not_forgotten_with_the_process(store_url: str, client: Client, start: Start) -> None:
    nodes = list(await asyncio.gather(start(store_url), start(store_url)))
    message = replace(saying(f"{CALLS} 0.02").message, metadata={"budget": {"maxTokens": 8}})
    request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
    task = await client.host.services["patron"].send(request, CALLER)
    assert isinstance(task, Task)
    await until(lambda: any(node.said("spent", number=3) for node in nodes))
    await asyncio.gather(*(node.kill() for node in nodes))
    await start(store_url)
    task = await client.rested(task.id)
    assert (task.status.state, explained(task)) == (S.FAILED, "The budget of 8 tokens is spent")
    assert used(task) == (7, 2, 0.7)
    assert await client.store.read(family) == [("patron", "failed"), ("spender", "canceled")]
    await until(partial(nothing_is_left, client))
