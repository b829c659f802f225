"""How busy agents are: tasks that have just begun and such as have not ended, of what somebody sees."""

from typing import Any

from accord.engine.ids import uuid7
from accord.model import TaskState
from accord.storage.commands import monitoring, tasks
from accord.storage.commands.monitoring import ActivityByAgent
from accord.storage.commands.task_lists import VisibleTasks
from tests.storage.conftest import AT, MINUTE, OTHER, TENANT, AnyStore, new

S = TaskState
EVERYBODY = VisibleTasks(owner="", sees_all=True)
SINCE, UNTIL = uuid7(AT - 5 * MINUTE, bytes(10)), uuid7(AT + MINUTE, bytes(10))


def made(minutes: float, number: int = 0) -> str:
    """The id of a task that began so many minutes before `AT`."""
    return uuid7(AT - round(minutes * MINUTE), number.to_bytes(10, "big"))


async def begin(store: AnyStore, id: str, *, tenant: str = TENANT, state: TaskState = S.WORKING, **of: Any) -> None:
    await store.do(tasks.create_task, tenant, new(id, state=state, **of))


async def test_an_empty_store_has_no_activity(ready: AnyStore) -> None:
    assert await ready.read(monitoring.activity_by_agent, TENANT, EVERYBODY, SINCE, UNTIL) == ActivityByAgent(
        begun={}, open={}
    )


async def test_activity_counts_started_and_open_tasks(ready: AnyStore) -> None:
    await begin(ready, made(1), agent="a")
    await begin(ready, made(4.9), agent="a", state=S.COMPLETED)
    await begin(ready, made(5.1), agent="a", state=S.INPUT_REQUIRED)
    await begin(ready, made(2), agent="b", state=S.FAILED)
    await begin(ready, "chosen-by-its-caller", agent="b", state=S.SUBMITTED)
    await begin(ready, made(3), agent="a", tenant=OTHER)
    found = await ready.read(monitoring.activity_by_agent, TENANT, EVERYBODY, SINCE, UNTIL)
    assert found == ActivityByAgent(begun={"a": 2, "b": 1}, open={"a": 2, "b": 1})


async def test_only_visible_tasks_are_counted(ready: AnyStore) -> None:
    for number, (agent, owner) in enumerate([("a", "alice"), ("a", "bob"), ("b", "alice"), ("c", "alice")]):
        await begin(ready, made(1, number), agent=agent, owner=owner)
    seen = VisibleTasks(owner="alice", others=("a",), hidden=("c",))
    found = await ready.read(monitoring.activity_by_agent, TENANT, seen, SINCE, UNTIL)
    assert found == ActivityByAgent(begun={"a": 2, "b": 1}, open={"a": 2, "b": 1})


async def test_counts_are_bounded_to_the_newest_tasks(ready: AnyStore) -> None:
    for minutes in (1, 2, 3, 4):
        await begin(ready, made(minutes), agent="a")
    found = await ready.read(monitoring.activity_by_agent, TENANT, EVERYBODY, SINCE, UNTIL, 3)
    assert found == ActivityByAgent(begun={"a": 3}, open={"a": 3}, first=made(3))
