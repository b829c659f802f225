"""Processes die while tasks have called others: nobody works on for a task that has ended, and no question is lost."""

import asyncio
import random
from functools import partial

from msgspec.structs import replace

from accord.model import SendConfiguration, SendRequest, Task, TaskState
from accord.storage.commands.task_endings import LEFT_BEHIND
from accord.storage.store import Row, Tx
from tests.crash.conftest import Client, Start, explained, text, until
from tests.crash.node import CALLER, saying

S = TaskState


async def family(tx: Tx) -> list[Row]:
    """The agent and the state of every task, in the order in which they began."""
    return await tx.all("SELECT agent, state FROM task ORDER BY id")


async def nothing_is_left(client: Client) -> bool:
    """Whether there is no work any more; a timer that a dead node held is found again after its lease."""

    async def command(tx: Tx) -> list[Row]:
        return await tx.all("SELECT kind, key FROM job")

    return await client.store.read(command) == []


async def child_of(client: Client, task_id: str, agent: str) -> Task:
    """The task that a task has started."""

    async def command(tx: Tx) -> list[Row]:
        return await tx.all("SELECT id FROM task WHERE parent_id = :id AND agent = :agent", id=task_id, agent=agent)

    ((child,),) = await client.store.read(command)
    return await client.get(agent, child)


async def test_children_end_with_a_lost_task(store_url: str, client: Client, start: Start) -> None:
    first = await start(store_url)
    task_id = await client.send("boss", "go")
    await first.says("waiting")
    await first.kill()
    heir = await start(store_url)
    task = await client.rested(task_id)
    assert (task.status.state, "once" in explained(task)) == (S.FAILED, True)
    child = await child_of(client, task_id, "waiting")
    assert (child.status.state, explained(child)) == (S.CANCELED, LEFT_BEHIND)
    assert heir.said("waiting") == []
    await until(partial(nothing_is_left, client))


async def test_expired_tasks_of_dead_nodes_are_not_continued(store_url: str, client: Client, start: Start) -> None:
    nodes = list(await asyncio.gather(start(store_url), start(store_url)))
    task_ids = [await client.send("hurried", "go") for _ in range(10)]
    await until(lambda: any(node.said("waiting") for node in nodes))
    for _ in range(3):
        victim = random.randrange(len(nodes))
        await nodes[victim].kill()
        nodes[victim] = await start(store_url)
    for task in await asyncio.gather(*map(client.rested, task_ids)):
        assert task.status.state is S.FAILED
    found = await client.store.read(family)
    assert {agent for agent, _ in found} == {"hurried", "boss", "waiting"}
    assert {(agent, state) for agent, state in found if state not in ("failed", "canceled")} == set()
    await until(partial(nothing_is_left, client))


async def test_a_question_and_its_answer_survive_every_process(store_url: str, client: Client, start: Start) -> None:
    node = await start(store_url)
    task_id = await client.send("secretary", "name")
    for question, word in (("name?", "Ann"), ("Ann?", "Lee")):
        task = await client.rested(task_id)
        assert (task.status.state, explained(task)) == (S.INPUT_REQUIRED, question)
        await node.kill()
        await client.store.do(forget)
        node = await start(store_url)
        await answer(client, task_id, word)
        await node.says("started", agent="secretary")
        await node.kill()
        node = await start(store_url)
        await until(partial(has_moved_on, client, task_id, question))
    task = await client.rested(task_id)
    assert (task.status.state, text(task)) == (S.COMPLETED, "noted: Ann Lee")
    child = await child_of(client, task_id, "inquirer")
    assert [said.parts[0].text for said in child.history] == ["name", "name?", "Ann", "Ann?", "Lee"]
    assert await client.store.read(family) == [("secretary", "completed"), ("inquirer", "completed")]


async def forget(tx: Tx) -> None:
    """Forget which sends were made, as if days had passed."""
    await tx.run("DELETE FROM idempotency")


async def answer(client: Client, task_id: str, word: str) -> None:
    """Answer a task at once, without waiting for what comes of it."""
    message = replace(saying(word).message, task_id=task_id)
    request = SendRequest(message=message, configuration=SendConfiguration(return_immediately=True))
    await client.host.services["secretary"].send(request, CALLER)


async def has_moved_on(client: Client, task_id: str, question: str) -> bool:
    """Whether a task neither works on nor asks what it was asked before."""
    task = await client.get("secretary", task_id)
    return task.status.state is not S.WORKING and (task.status.state is S.COMPLETED or explained(task) != question)
