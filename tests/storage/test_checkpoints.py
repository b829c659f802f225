"""States of graphs: kept step by step under the fence of a task, found by thread, gone with its last task."""

from typing import Any

import pytest

from accord.model import TaskState
from accord.storage.commands import conversation_state, tasks
from accord.storage.commands.conversation_state import (
    Checkpoint,
    CheckpointPlace,
    CheckpointWrites,
    EnteredThread,
    NewCheckpoint,
    PendingWrite,
    TaskFence,
    TypedValue,
)
from accord.storage.commands.retention import purge
from accord.storage.commands.tasks import Fenced
from tests.storage.conftest import AGENT, OTHER, TENANT, AnyStore, new, table

MINE, YOURS = TaskFence("t-1", 1), TaskFence("t-2", 1)
THREAD = f"{TENANT}/alice/{AGENT}/c-1"
TOP, INSIDE, OWN = CheckpointPlace(THREAD), CheckpointPlace(THREAD, "node:1"), CheckpointPlace(THREAD, "node")


def value(text: str) -> TypedValue:
    return TypedValue("bytes", text.encode())


def step(id: str, parent: str | None = None, **versions: str) -> Checkpoint:
    return Checkpoint(
        id=id, parent=parent, versions=versions, state=value(f"state {id}"), metadata=value(f"about {id}")
    )


def write(task: str, position: int, text: str, path: str = "") -> PendingWrite:
    return PendingWrite(task=task, position=position, path=path, channel="c", value=value(text))


@pytest.fixture
async def with_tasks(ready: AnyStore) -> AnyStore:
    """A store with two tasks of a conversation, one of another owner's, and one of another tenant's."""
    for task_id, fields in {"t-1": {}, "t-2": {}, "t-3": {"owner": "bob"}}.items():
        about: dict[str, Any] = {"owner": "alice", "context_id": "c-1", **fields}
        made = new(task_id, state=TaskState.WORKING, **about)
        await ready.do(tasks.create_task, TENANT, made, epoch=1)
    await ready.do(tasks.create_task, OTHER, new("t-1", state=TaskState.WORKING), epoch=1)
    return ready


async def counted(store: AnyStore) -> dict[str, int]:
    return {name: len(await store.read(table, name)) for name in ("thread", *conversation_state.TABLES)}


async def test_a_thread_is_one_task_at_a_time(with_tasks: AnyStore) -> None:
    assert await with_tasks.do(conversation_state.enter_thread, TENANT, MINE) == EnteredThread(THREAD, is_new=True)
    assert await with_tasks.do(conversation_state.enter_thread, TENANT, MINE) == EnteredThread(THREAD), (
        "which may come again"
    )
    assert await with_tasks.do(conversation_state.enter_thread, TENANT, YOURS) == EnteredThread(THREAD, "t-1")
    others = await with_tasks.do(conversation_state.enter_thread, TENANT, TaskFence("t-3", 1))
    assert (others.thread, others.holder) == (f"{TENANT}/bob/{AGENT}/c-1", None)
    theirs = await with_tasks.do(conversation_state.enter_thread, OTHER, MINE)
    assert theirs.thread.startswith(f"{OTHER}/")


@pytest.mark.parametrize("state", ["input_required", "completed", "canceled"])
async def test_a_thread_is_left_by_a_task_that_is_not_at_work(with_tasks: AnyStore, state: str) -> None:
    await with_tasks.do(conversation_state.enter_thread, TENANT, MINE)
    await with_tasks.do(_becomes, "t-1", state)
    assert await with_tasks.do(conversation_state.enter_thread, TENANT, YOURS) == EnteredThread(THREAD)


async def _becomes(tx: Any, task_id: str, state: str) -> None:
    await tx.run("UPDATE task SET state = :state WHERE tenant = 'acme' AND id = :id", state=state, id=task_id)


async def test_checkpoints_are_found_with_their_values(with_tasks: AnyStore) -> None:
    first = [("a", "1", value("a1")), ("b", "1", value("b1"))]
    await with_tasks.do(
        conversation_state.put_checkpoints, TENANT, MINE, [NewCheckpoint(TOP, step("s-1", a="1", b="1"), first)]
    )
    second = step("s-2", "s-1", a="2", b="1", gone="7")
    inside = NewCheckpoint(INSIDE, step("s-3", a="2"), [("a", "2", value("inside"))])
    await with_tasks.do(
        conversation_state.put_checkpoints,
        TENANT,
        MINE,
        [NewCheckpoint(TOP, second, [("a", "2", value("a2"))]), inside],
    )
    latest, before = await with_tasks.read(conversation_state.load_checkpoints, TENANT, TOP)
    assert (latest.checkpoint, latest.values) == (second, {"a": value("a2"), "b": value("b1")})
    assert before.values == {"a": value("a1"), "b": value("b1")}
    assert await with_tasks.read(conversation_state.load_checkpoints, TENANT, TOP, limit=1) == [latest]
    assert await with_tasks.read(conversation_state.load_checkpoints, TENANT, TOP, only="s-1") == [before]
    assert await with_tasks.read(conversation_state.load_checkpoints, TENANT, TOP, before="s-2") == [before]
    assert await with_tasks.read(conversation_state.load_checkpoints, OTHER, TOP) == []
    assert await with_tasks.read(conversation_state.checkpoint_namespaces, TENANT, THREAD) == ["", "node:1"]


async def test_checkpoint_writes_are_stored_once(with_tasks: AnyStore) -> None:
    given = [
        write("z", 0, "last", "~2"),
        write("a", 1, "second", "~1"),
        write("a", 0, "first", "~1"),
        write("a", -3, "?"),
    ]
    await with_tasks.do(
        conversation_state.put_checkpoints,
        TENANT,
        MINE,
        [NewCheckpoint(TOP, step("s-1"), []), CheckpointWrites(TOP, "s-1", given)],
    )
    again = [write("a", 0, "never", "~1"), write("a", -3, "asked")]
    await with_tasks.do(
        conversation_state.put_checkpoints, TENANT, MINE, [CheckpointWrites(TOP, "s-1", [one]) for one in again]
    )
    (found,) = await with_tasks.read(conversation_state.load_checkpoints, TENANT, TOP)
    assert [one.value.data for one in found.writes] == [b"asked", b"first", b"second", b"last"]


async def test_only_the_latest_step_of_a_graph_is_left(with_tasks: AnyStore) -> None:
    await with_tasks.do(conversation_state.trim_checkpoints, TENANT, THREAD, MINE)  # there is none
    for place in (TOP, INSIDE, OWN):
        for number in ("1", "2"):
            kept = NewCheckpoint(place, step(f"s-{number}", a=number), [("a", number, value(number))])
            given = CheckpointWrites(place, f"s-{number}", [write("t", 0, "w")])
            await with_tasks.do(conversation_state.put_checkpoints, TENANT, MINE, [kept, given])
    other = CheckpointPlace(f"{THREAD}/other")
    await with_tasks.do(conversation_state.put_checkpoints, TENANT, MINE, [NewCheckpoint(other, step("s-0"), [])])
    await with_tasks.do(conversation_state.trim_checkpoints, TENANT, THREAD, MINE)
    (left,) = await with_tasks.read(conversation_state.load_checkpoints, TENANT, TOP)
    assert (left.checkpoint.id, left.values, len(left.writes)) == ("s-2", {"a": value("2")}, 1)
    assert await with_tasks.read(conversation_state.load_checkpoints, TENANT, INSIDE) == []
    assert len(await with_tasks.read(conversation_state.load_checkpoints, TENANT, OWN)) == 2, (
        "it has a memory of its own"
    )
    assert len(await with_tasks.read(conversation_state.load_checkpoints, TENANT, other)) == 1
    assert await counted(with_tasks) == {"thread": 0, "checkpoint": 4, "checkpoint_value": 3, "checkpoint_write": 3}
    await with_tasks.do(conversation_state.delete_checkpoints, TENANT, THREAD, MINE)
    assert await counted(with_tasks) == {"thread": 0, "checkpoint": 1, "checkpoint_value": 0, "checkpoint_write": 0}


async def test_fenced_writers_change_nothing(with_tasks: AnyStore) -> None:
    for fence in (TaskFence("t-1", 2), TaskFence("t-1", 0), TaskFence("nowhere", 1)):
        with pytest.raises(Fenced):
            await with_tasks.do(conversation_state.enter_thread, TENANT, fence)
        with pytest.raises(Fenced):
            await with_tasks.do(
                conversation_state.put_checkpoints, TENANT, fence, [NewCheckpoint(TOP, step("s-1"), [])]
            )
        with pytest.raises(Fenced):
            await with_tasks.do(
                conversation_state.put_checkpoints, TENANT, fence, [CheckpointWrites(TOP, "s-1", [write("t", 0, "w")])]
            )
        for forget in (conversation_state.trim_checkpoints, conversation_state.delete_checkpoints):
            with pytest.raises(Fenced):
                await with_tasks.do(forget, TENANT, THREAD, fence)
    assert set((await counted(with_tasks)).values()) == {0}


async def test_a_thread_goes_with_the_last_task_that_had_it(with_tasks: AnyStore) -> None:
    for fence in (MINE, YOURS):
        await with_tasks.do(conversation_state.enter_thread, TENANT, fence)
        kept = NewCheckpoint(TOP, step("s-1", a="1"), [("a", "1", value("a"))])
        await with_tasks.do(
            conversation_state.put_checkpoints,
            TENANT,
            fence,
            [kept, CheckpointWrites(TOP, "s-1", [write("t", 0, "w")])],
        )
        await with_tasks.do(_becomes, fence.task_id, "completed")
    await with_tasks.do(conversation_state.forget_threads, [{"tenant": TENANT, "task_id": "t-1"}])
    assert (await counted(with_tasks))["checkpoint"] == 1, "another had it since"
    assert await with_tasks.do(purge, -60_000, 10) == 2
    assert set((await counted(with_tasks)).values()) == {0}
