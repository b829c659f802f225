"""The trace of a task is kept with it, by every way in which a task is made, and one from before has none."""

import pytest

from accord.model import Task, TaskState, TaskStatus
from accord.storage import schema
from accord.storage.commands import task_lifecycle, tasks
from accord.storage.commands.steps import ParentExecution
from accord.storage.encoding import encode_task
from accord.storage.store import Tx
from tests.storage.conftest import TENANT, AnyStore, accepting, new, saying, stored

ONE, OTHER = (f"00-{letter * 32}-{letter * 16}-01" for letter in "ab")


@pytest.mark.parametrize("node", [None, "n-1"])
async def test_a_task_keeps_the_trace_that_it_was_made_in(ready: AnyStore, node: str | None) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node=node, new=new(trace=f"{ONE} vendor=1")))
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-2", node=node))
    assert (await stored(ready)).trace == f"{ONE} vendor=1"
    head = await ready.read(tasks.read_head, TENANT, "t-1")
    assert head is not None
    assert head.trace == f"{ONE} vendor=1"
    assert (await stored(ready, "t-2")).trace is None


async def test_so_does_a_child(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node="n-1"))
    parent = ParentExecution(task_id="t-1", epoch=1, step="s")
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-2", parent=parent, new=new("t-2", trace=ONE)))
    assert (await stored(ready, "t-2")).trace == ONE


async def test_a_message_with_another_trace_moves_the_task_there(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(new=new(trace=ONE)))
    await ready.do(task_lifecycle.add_message, TENANT, saying())
    assert (await stored(ready)).trace == ONE, "one without leaves it as it is"
    said = await ready.do(task_lifecycle.add_message, TENANT, saying(trace=OTHER))
    assert said.stored.trace == OTHER
    assert (await stored(ready)).trace == OTHER


@pytest.mark.proves("0-06")
async def test_tasks_without_a_trace_continue(store: AnyStore) -> None:
    """As the version before writes it, which also goes on writing so while nodes are replaced one by one."""

    async def before(tx: Tx, task_id: str) -> None:
        await tx.run(
            """INSERT INTO task (tenant, id, context_id, agent, owner, origin, parent_id, state, epoch, last_seq,
                                 deadline_at, updated_at)
               VALUES (:tenant, :id, 'c-1', 'agent', 'alice', 'v1', NULL, 'submitted', 0, 0, NULL, 1)""",
            tenant=TENANT,
            id=task_id,
        )
        task = Task(id=task_id, context_id="c-1", status=TaskStatus(state=TaskState.SUBMITTED))
        await tx.run(
            "INSERT INTO snapshot (tenant, task_id, seq, doc) VALUES (:tenant, :id, 0, :doc)",
            tenant=TENANT,
            id=task_id,
            doc=encode_task(task),
        )

    for migration in schema.known_migrations()[:2]:
        await store.do(schema._apply_migration, migration)
    await store.do(before, "t-1")
    assert [str(one) for one in await schema.upgrade_schema(store)] == [
        str(one) for one in schema.known_migrations()[2:]
    ]
    await store.do(before, "t-2")
    for task_id in ("t-1", "t-2"):
        assert (await stored(store, task_id)).trace is None
        await store.do(task_lifecycle.add_message, TENANT, saying(task_id, trace=ONE))
        assert (await stored(store, task_id)).trace == ONE
