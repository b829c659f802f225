"""States of graphs: kept step by step under the fence of a task, found by thread, gone with its last task."""

from typing import Any

import pytest

from accord.model import TaskState
from accord.storage.commands import checkpoints, tasks
from accord.storage.commands.checkpoints import Checkpoint, Entered, Fence, Given, Place, Step, Typed, Write
from accord.storage.commands.retention import purge
from accord.storage.commands.tasks import Fenced
from tests.storage.conftest import AGENT, OTHER, TENANT, AnyStore, new, table

MINE, YOURS = Fence("t-1", 1), Fence("t-2", 1)
THREAD = f"{TENANT}/alice/{AGENT}/c-1"
TOP, INSIDE, OWN = Place(THREAD), Place(THREAD, "node:1"), Place(THREAD, "node")


def value(text: str) -> Typed:
    return Typed("bytes", text.encode())


def step(id: str, parent: str | None = None, **versions: str) -> Checkpoint:
    return Checkpoint(
        id=id, parent=parent, versions=versions, state=value(f"state {id}"), metadata=value(f"about {id}")
    )


def write(task: str, position: int, text: str, path: str = "") -> Write:
    return Write(task=task, position=position, path=path, channel="c", value=value(text))


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
    return {name: len(await store.read(table, name)) for name in ("thread", *checkpoints.TABLES)}


async def test_a_thread_is_one_task_at_a_time(with_tasks: AnyStore) -> None:
    assert await with_tasks.do(checkpoints.enter, TENANT, MINE) == Entered(THREAD, is_new=True)
    assert await with_tasks.do(checkpoints.enter, TENANT, MINE) == Entered(THREAD), "which may come again"
    assert await with_tasks.do(checkpoints.enter, TENANT, YOURS) == Entered(THREAD, "t-1")
    others = await with_tasks.do(checkpoints.enter, TENANT, Fence("t-3", 1))
    assert (others.thread, others.holder) == (f"{TENANT}/bob/{AGENT}/c-1", None)
    theirs = await with_tasks.do(checkpoints.enter, OTHER, MINE)
    assert theirs.thread.startswith(f"{OTHER}/")


@pytest.mark.parametrize("state", ["input_required", "completed", "canceled"])
async def test_a_thread_is_left_by_a_task_that_is_not_at_work(with_tasks: AnyStore, state: str) -> None:
    await with_tasks.do(checkpoints.enter, TENANT, MINE)
    await with_tasks.do(_becomes, "t-1", state)
    assert await with_tasks.do(checkpoints.enter, TENANT, YOURS) == Entered(THREAD)


async def _becomes(tx: Any, task_id: str, state: str) -> None:
    await tx.run("UPDATE task SET state = :state WHERE tenant = 'acme' AND id = :id", state=state, id=task_id)


async def test_a_step_is_found_with_what_it_holds(with_tasks: AnyStore) -> None:
    first = [("a", "1", value("a1")), ("b", "1", value("b1"))]
    await with_tasks.do(checkpoints.put, TENANT, MINE, [Step(TOP, step("s-1", a="1", b="1"), first)])
    second = step("s-2", "s-1", a="2", b="1", gone="7")
    inside = Step(INSIDE, step("s-3", a="2"), [("a", "2", value("inside"))])
    await with_tasks.do(checkpoints.put, TENANT, MINE, [Step(TOP, second, [("a", "2", value("a2"))]), inside])
    latest, before = await with_tasks.read(checkpoints.load, TENANT, TOP)
    assert (latest.checkpoint, latest.values) == (second, {"a": value("a2"), "b": value("b1")})
    assert before.values == {"a": value("a1"), "b": value("b1")}
    assert await with_tasks.read(checkpoints.load, TENANT, TOP, limit=1) == [latest]
    assert await with_tasks.read(checkpoints.load, TENANT, TOP, only="s-1") == [before]
    assert await with_tasks.read(checkpoints.load, TENANT, TOP, before="s-2") == [before]
    assert await with_tasks.read(checkpoints.load, OTHER, TOP) == []
    assert await with_tasks.read(checkpoints.spaces, TENANT, THREAD) == ["", "node:1"]


async def test_what_nodes_gave_is_kept_once_unless_it_is_meant_to_change(with_tasks: AnyStore) -> None:
    given = [
        write("z", 0, "last", "~2"),
        write("a", 1, "second", "~1"),
        write("a", 0, "first", "~1"),
        write("a", -3, "?"),
    ]
    await with_tasks.do(checkpoints.put, TENANT, MINE, [Step(TOP, step("s-1"), []), Given(TOP, "s-1", given)])
    again = [write("a", 0, "never", "~1"), write("a", -3, "asked")]
    await with_tasks.do(checkpoints.put, TENANT, MINE, [Given(TOP, "s-1", [one]) for one in again])
    (found,) = await with_tasks.read(checkpoints.load, TENANT, TOP)
    assert [one.value.data for one in found.writes] == [b"asked", b"first", b"second", b"last"]


async def test_only_the_latest_step_of_a_graph_is_left(with_tasks: AnyStore) -> None:
    await with_tasks.do(checkpoints.trim, TENANT, THREAD, MINE)  # there is none
    for place in (TOP, INSIDE, OWN):
        for number in ("1", "2"):
            kept = Step(place, step(f"s-{number}", a=number), [("a", number, value(number))])
            given = Given(place, f"s-{number}", [write("t", 0, "w")])
            await with_tasks.do(checkpoints.put, TENANT, MINE, [kept, given])
    other = Place(f"{THREAD}/other")
    await with_tasks.do(checkpoints.put, TENANT, MINE, [Step(other, step("s-0"), [])])
    await with_tasks.do(checkpoints.trim, TENANT, THREAD, MINE)
    (left,) = await with_tasks.read(checkpoints.load, TENANT, TOP)
    assert (left.checkpoint.id, left.values, len(left.writes)) == ("s-2", {"a": value("2")}, 1)
    assert await with_tasks.read(checkpoints.load, TENANT, INSIDE) == []
    assert len(await with_tasks.read(checkpoints.load, TENANT, OWN)) == 2, "it has a memory of its own"
    assert len(await with_tasks.read(checkpoints.load, TENANT, other)) == 1
    assert await counted(with_tasks) == {"thread": 0, "checkpoint": 4, "checkpoint_value": 3, "checkpoint_write": 3}
    await with_tasks.do(checkpoints.delete, TENANT, THREAD, MINE)
    assert await counted(with_tasks) == {"thread": 0, "checkpoint": 1, "checkpoint_value": 0, "checkpoint_write": 0}


async def test_who_has_lost_the_task_changes_nothing(with_tasks: AnyStore) -> None:
    for fence in (Fence("t-1", 2), Fence("t-1", 0), Fence("nowhere", 1)):
        with pytest.raises(Fenced):
            await with_tasks.do(checkpoints.enter, TENANT, fence)
        with pytest.raises(Fenced):
            await with_tasks.do(checkpoints.put, TENANT, fence, [Step(TOP, step("s-1"), [])])
        with pytest.raises(Fenced):
            await with_tasks.do(checkpoints.put, TENANT, fence, [Given(TOP, "s-1", [write("t", 0, "w")])])
        for forget in (checkpoints.trim, checkpoints.delete):
            with pytest.raises(Fenced):
                await with_tasks.do(forget, TENANT, THREAD, fence)
    assert set((await counted(with_tasks)).values()) == {0}


async def test_a_thread_goes_with_the_last_task_that_had_it(with_tasks: AnyStore) -> None:
    for fence in (MINE, YOURS):
        await with_tasks.do(checkpoints.enter, TENANT, fence)
        kept = Step(TOP, step("s-1", a="1"), [("a", "1", value("a"))])
        await with_tasks.do(checkpoints.put, TENANT, fence, [kept, Given(TOP, "s-1", [write("t", 0, "w")])])
        await with_tasks.do(_becomes, fence.task_id, "completed")
    await with_tasks.do(checkpoints.forget, [{"tenant": TENANT, "task_id": "t-1"}])
    assert (await counted(with_tasks))["checkpoint"] == 1, "another had it since"
    assert await with_tasks.do(purge, -60_000, 10) == 2
    assert set((await counted(with_tasks)).values()) == {0}
