"""Tasks as somebody looks through them: who sees which, pages, searches, rows and what has changed."""

from typing import Any

import pytest

from accord.engine.ids import uuid7
from accord.model import EventBody, Message, Part, Role, StatusUpdate, Task, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.storage.commands import steps, task_lists, tasks
from accord.storage.commands.task_lists import ListedTask, TaskListQuery, VisibleTasks
from accord.storage.commands.tasks import TaskCreation
from tests.storage.conftest import (
    AT,
    OTHER,
    TENANT,
    AnyStore,
    appending,
    chunk,
    status,
)

ALL = VisibleTasks(owner="", sees_all=True)


def made(number: int, *, text: str = "", state: TaskState = TaskState.WORKING, **fields: Any) -> TaskCreation:
    """A task that was created in that millisecond."""
    at = AT + number
    said = Message(message_id="m", role=Role.USER, parts=fields.pop("parts", (Part(text=text or f"number {number}"),)))
    status = TaskStatus(state=state, timestamp=timestamp_ms(at))
    task = Task(
        id=named(number),
        context_id=fields.pop("context_id", "c-1"),
        history=(said,),
        status=status,
        metadata=fields.pop("metadata", None),
    )
    return TaskCreation(**{"task": task, "agent": "echo", "owner": "alice", "at": at, **fields})


def named(number: int) -> str:
    return uuid7(AT + number, number.to_bytes(10, "big"))


async def keep(store: AnyStore, *new: TaskCreation, tenant: str = TENANT) -> None:
    for one in new:
        await store.do(tasks.create_task, tenant, one)


async def found(store: AnyStore, seen: VisibleTasks = ALL, **wanted: Any) -> list[str]:
    """The numbers in the titles of what is found."""
    page = await store.read(task_lists.list_page, TENANT, seen, TaskListQuery(**wanted))
    return [item.title for item in page.items]


async def row(store: AnyStore, number: int = 1) -> ListedTask:
    (one,) = await store.read(task_lists.rows, TENANT, [named(number)])
    return one


async def test_the_newest_come_first_and_pages_follow_one_another(ready: AnyStore) -> None:
    await keep(ready, *(made(number) for number in range(5)))
    await keep(ready, made(7), tenant=OTHER)
    first = await ready.read(task_lists.list_page, TENANT, ALL, TaskListQuery(limit=2))
    assert ([item.title for item in first.items], first.total) == (["number 4", "number 3"], 5)
    assert first.next == named(3)
    rest = await ready.read(task_lists.list_page, TENANT, ALL, TaskListQuery(limit=3, before=first.next))
    assert [item.title for item in rest.items] == ["number 2", "number 1", "number 0"]
    assert (rest.next, rest.total) == (None, 5)


@pytest.mark.parametrize("counted", [2, 1000], ids=["many", "few"])
async def test_tasks_are_found_by_their_attributes(
    ready: AnyStore, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether they are put in order or walked through makes no difference."""
    monkeypatch.setattr(task_lists, "MAX_COUNTED", counted)
    await keep(
        ready,
        made(1, text="one", state=TaskState.FAILED, agent="adder", context_id="c-2"),
        made(2, text="two", state=TaskState.COMPLETED, owner="bob", parent_id=named(1)),
        made(3, text="three", state=TaskState.WORKING),
        made(4, text="four", state=TaskState.INPUT_REQUIRED, owner="bob"),
        made(5, text="five", state=TaskState.CANCELED),
    )
    assert await found(ready) == ["five", "four", "three", "two", "one"]
    assert await found(ready, states=(TaskState.FAILED, TaskState.CANCELED)) == ["five", "one"]
    assert await found(ready, states=(TaskState.WORKING, TaskState.INPUT_REQUIRED)) == ["four", "three"]
    assert await found(ready, states=(TaskState.FAILED, TaskState.WORKING, TaskState.COMPLETED)) == [
        "three",
        "two",
        "one",
    ]
    assert await found(ready, agents=("adder",)) == ["one"]
    assert await found(ready, agents=("adder", "echo"), is_top=True) == ["five", "four", "three", "one"]
    assert await found(ready, agents=()) == []
    assert await found(ready, context_id="c-1") == ["five", "four", "three", "two"]
    assert await found(ready, parent_id=named(1)) == ["two"]
    assert await found(ready, since=AT + 4) == ["five", "four"]
    assert await found(ready, before=named(3)) == ["two", "one"]


@pytest.mark.parametrize("counted", [1, 1000], ids=["many", "few"])
async def test_only_visible_tasks_are_found(ready: AnyStore, counted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_lists, "MAX_COUNTED", counted)
    pairs = [(agent, owner) for agent in ("echo", "adder", "secret") for owner in ("alice", "bob")]
    await keep(
        ready,
        *(
            made(number, text=f"{agent} {owner}", agent=agent, owner=owner)
            for number, (agent, owner) in enumerate(pairs)
        ),
    )
    for seen in (
        ALL,
        VisibleTasks(owner="alice"),
        VisibleTasks(owner="nobody"),
        VisibleTasks(owner="alice", others=("adder",)),
        VisibleTasks(owner="alice", sees_all=True, others=("adder",)),
        VisibleTasks(owner="alice", sees_all=True, hidden=("secret", "echo")),
        VisibleTasks(owner="alice", others=("adder",), hidden=("secret",)),
    ):
        wanted = [f"{agent} {owner}" for agent, owner in pairs if seen.sees(agent, owner)]
        assert await found(ready, seen) == wanted[::-1]
        changed = await ready.read(task_lists.recently_changed, TENANT, seen, 0, 10)
        assert len(changed) == len(wanted)
        asking = await ready.read(task_lists.list_waiting, TENANT, seen, (TaskState.WORKING,), 10)
        assert [one.title for one in asking] == wanted


async def test_words_are_looked_for_in_titles_and_ids(ready: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    await keep(ready, *(made(number, text=f"The {word}") for number, word in enumerate(("Ship", "car", "shipment"))))
    assert await found(ready, words="SHIP") == ["The shipment", "The Ship"]
    assert await found(ready, words="the", limit=2) == ["The shipment", "The car"]
    assert await found(ready, words=named(1)) == ["The car"]
    assert await found(ready, words=named(1)[:8].upper()) == ["The shipment", "The car", "The Ship"]
    assert await found(ready, words=named(1)[-12:]) == ["The car"]
    assert await found(ready, words="plane") == []
    monkeypatch.setattr(task_lists, "MAX_SEARCHED", 2)
    first = await ready.read(task_lists.list_page, TENANT, ALL, TaskListQuery(words="the ship"))
    assert ([one.title for one in first.items], first.next) == (["The shipment"], named(1))
    rest = await ready.read(task_lists.list_page, TENANT, ALL, TaskListQuery(words="the ship", before=first.next))
    assert ([one.title for one in rest.items], rest.next, rest.total) == (["The Ship"], None, 1)


async def test_counting_stops_somewhere(ready: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_lists, "MAX_COUNTED", 3)
    await keep(ready, *(made(number) for number in range(5)))
    page = await ready.read(task_lists.list_page, TENANT, ALL, TaskListQuery(limit=4))
    assert (len(page.items), page.total, page.next) == (4, 3, named(1))


async def test_rows_contain_a_title(ready: AnyStore) -> None:
    file = Part(raw=b"x", filename="plan.pdf")
    await keep(
        ready,
        made(1, text="  Plan\n a   trip " + "far " * 100),
        made(2, metadata={"title": "Stated", "createdAt": "2020-01-01T00:00:00Z"}),
        made(3, parts=(file,)),
        made(4, parts=(file, Part(text="\n "), Part(text="and words"))),
    )
    long, stated, filed, mixed = await ready.read(task_lists.rows, TENANT, [named(n) for n in (1, 2, 3, 4)])
    assert long.title.startswith("Plan a trip far far")
    assert (len(long.title), long.title[-1]) == (task_lists.TITLE_LENGTH, "…")
    assert (stated.title, stated.created_at) == ("Stated", "2020-01-01T00:00:00.000Z")
    assert (filed.title, mixed.title) == ("plan.pdf", "and words")
    assert long.created_at == timestamp_ms(AT + 1)
    assert await ready.read(task_lists.rows, TENANT, [named(9), named(3)]) == [filed]
    assert await ready.read(task_lists.rows, OTHER, [named(3)]) == []
    assert await ready.read(task_lists.rows, TENANT, []) == []


async def test_rows_have_the_latest_status(ready: AnyStore) -> None:
    await keep(ready, made(1))
    before = await row(ready)
    assert (before.state, before.message, before.seq, before.is_run) == (TaskState.WORKING, None, 0, False)
    asked = Message(message_id="q", role=Role.AGENT, parts=(Part(text="When?"),))
    question = StatusUpdate(
        task_id=named(1), context_id="c-1", status=TaskStatus(state=TaskState.INPUT_REQUIRED, message=asked)
    )
    told: list[EventBody] = [chunk("a", named(1)), question, chunk("b", named(1))]
    await ready.do(tasks.append, TENANT, appending(named(1), *told, at=AT + 50))
    await ready.do(steps.put_steps, TENANT, named(1), (("flow-run", "{}"),), AT)
    after = await row(ready)
    assert (after.state, after.message, after.seq) == (TaskState.INPUT_REQUIRED, asked, 3)
    assert (after.updated_at, after.is_run, after.is_held) == (AT + 50, True, False)


async def test_statuses_after_an_event_are_in_order(ready: AnyStore) -> None:
    await keep(ready, made(1), made(2))
    moves = [TaskState.WORKING, TaskState.INPUT_REQUIRED, TaskState.WORKING, TaskState.COMPLETED]
    for number in (1, 2):
        bodies: list[EventBody] = [
            body for state in moves for body in (status(state, named(number)), chunk("x", named(number)))
        ]
        await ready.do(tasks.append, TENANT, appending(named(number), *bodies, at=AT + 60))
    changes = await ready.read(task_lists.statuses, TENANT, {named(1): 0, named(2): 3, named(9): 0})
    assert [(one.task_id, one.seq) for one in changes] == [
        *((named(1), seq) for seq in (1, 3, 5, 7)),
        *((named(2), seq) for seq in (5, 7)),
    ]
    assert [one.status.state for one in changes[:4]] == moves
    assert await ready.read(task_lists.statuses, OTHER, {named(1): 0}) == []
    assert await ready.read(tasks.log_lengths, {named(1): TENANT, named(2): OTHER, named(9): TENANT}) == {named(1): 8}

    news = await ready.read(task_lists.changes_since, TENANT, {named(1): 6}, [named(2)], AT + 60)
    assert [(one.task_id, one.seq) for one in news.changes] == [(named(1), 7), *((named(2), s) for s in (1, 3, 5, 7))]
    assert ([one.id for one in news.fresh], news.last) == ([named(2)], {named(1): 8, named(2): 8})
    news = await ready.read(task_lists.changes_since, TENANT, {named(1): 8}, [named(2)], AT + 61)
    assert (news.changes, len(news.fresh)) == ([], 1)


async def test_changes_since_a_time_are_newest_first(ready: AnyStore) -> None:
    await keep(ready, *(made(number) for number in range(4)))
    assert list(await ready.read(task_lists.recently_changed, TENANT, ALL, AT + 2, 10)) == [named(3), named(2)]
    assert await ready.read(task_lists.recently_changed, TENANT, ALL, 0, 1) == {named(3): 0}


async def test_longest_waiting_questions_come_first(ready: AnyStore) -> None:
    await keep(
        ready,
        made(1, text="late", state=TaskState.AUTH_REQUIRED, at=AT + 90),
        made(2, text="early", state=TaskState.INPUT_REQUIRED),
        made(3, text="works", state=TaskState.WORKING),
    )
    states = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)
    asking = await ready.read(task_lists.list_waiting, TENANT, ALL, states, 10)
    assert [one.title for one in asking] == ["early", "late"]
    assert len(await ready.read(task_lists.list_waiting, TENANT, ALL, states, 1)) == 1


async def test_a_task_and_its_row_are_read_at_the_same_moment(ready: AnyStore) -> None:
    await keep(ready, made(1))
    both = await ready.read(task_lists.read_with_row, TENANT, named(1))
    assert both is not None
    assert (both[0].id, both[1].id) == (named(1), named(1))
    assert await ready.read(task_lists.read_with_row, OTHER, named(1)) is None


async def test_creating_a_task_is_a_hint(ready: AnyStore, heard: list[str]) -> None:
    await keep(ready, made(1))
    assert tasks.task_topic(TENANT, named(1)) in heard
