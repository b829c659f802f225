"""Tasks and their logs: gapless numbers whoever appends, the fence, snapshots and what comes after them, lists."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from accord.model import Artifact, EventBody, Part, TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.storage.commands import task_lists, tasks, webhook_deliveries, webhooks
from accord.storage.commands.task_lists import TaskListQuery
from accord.storage.commands.tasks import Behind, Fenced, Rewound, TaskCreation
from accord.storage.encoding import decode_event
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import Tx
from tests.storage.conftest import (
    AT,
    BOUND_SECONDS,
    OTHER,
    TENANT,
    AnyStore,
    Heard,
    appending,
    chunk,
    heard_message,
    message,
    new,
    overlapped,
    postgres_only,
    status,
    stored,
    table,
    webhook,
)

S = TaskState


@pytest.fixture
async def with_task(ready: AnyStore) -> AnyStore:
    """A store with the task t-1."""
    await ready.do(tasks.create_task, TENANT, new())
    return ready


async def raise_fence(tx: Tx, task_id: str = "t-1") -> None:
    await tx.run("UPDATE task SET epoch = epoch + 1 WHERE id = :id", id=task_id)


async def texts(store: AnyStore, tenant: str = TENANT, task_id: str = "t-1") -> list[str]:
    """The texts of the artifact, as a reader puts them together."""
    found = await store.read(tasks.read_task, tenant, task_id)
    assert found is not None
    return [part.text or "" for artifact in found.task().artifacts for part in artifact.parts]


# Creating and reading


async def test_a_task_is_kept_as_it_was_given(ready: AnyStore) -> None:
    given = new("t-1", parent_id="t-0", deadline_at=AT + 5)
    await ready.do(tasks.create_task, TENANT, given, epoch=3)
    found = await ready.read(tasks.read_task, TENANT, "t-1")
    assert found is not None
    assert found.task() == given.task
    assert (found.id, found.context_id, found.agent, found.owner) == ("t-1", "c-1", "echo", "alice")
    assert (found.origin, found.parent_id, found.deadline_at, found.updated_at) == ("v1", "t-0", AT + 5, AT)
    assert (found.task_state, found.last_seq, found.min_seq, found.doc_seq) == (S.SUBMITTED, 0, 1, 0)
    assert (found.epoch, found.pushes, found.events) == (3, 0, ())


async def test_a_log_may_begin_with_the_task(ready: AnyStore, heard: Heard) -> None:
    begins: list[EventBody] = [heard_message("hi"), status(S.WORKING)]
    await ready.do(tasks.create_task, TENANT, new(), 1, begins)
    found = await ready.read(tasks.read_task, TENANT, "t-1")
    assert found is not None
    assert (found.task_state, found.last_seq, found.doc_seq, found.events) == (S.WORKING, 2, 2, ())
    assert (found.task().status.state, len(found.task().history)) == (S.WORKING, 1)
    events = [decode_event(row).body for row in await ready.read(tasks.events_after, TENANT, "t-1", 0)]
    assert events == begins
    assert heard == [f"task:{TENANT}:t-1"]
    assert await ready.do(tasks.append, TENANT, appending("t-1", chunk("a"), epoch=1, after=2)) == 3


async def test_there_is_one_task_of_an_id_in_a_tenant(with_task: AnyStore) -> None:
    with pytest.raises(Exception, match=r"(?i)unique"):
        await with_task.do(tasks.create_task, TENANT, new(owner="mallory"))
    found = await with_task.read(tasks.read_task, TENANT, "t-1")
    assert found is not None
    assert found.owner == "alice"


async def test_unknown_tasks_are_none(ready: AnyStore) -> None:
    assert await ready.read(tasks.read_task, TENANT, "t-1") is None
    assert await ready.do(tasks.lock_task, TENANT, "t-1") is None
    assert await ready.do(tasks.lock_head, TENANT, "t-1") is None
    assert await ready.read(tasks.events_after, TENANT, "t-1", 0) == []


async def test_tenants_have_tasks_of_their_own(ready: AnyStore) -> None:
    for tenant in (TENANT, OTHER):
        await ready.do(tasks.create_task, tenant, new(owner=tenant))
        await ready.do(tasks.append, tenant, appending("t-1", chunk(tenant)))
    await ready.do(tasks.create_task, OTHER, new("t-2"))
    for tenant in (TENANT, OTHER):
        assert await texts(ready, tenant) == [tenant]
        found = await ready.do(tasks.lock_task, tenant, "t-1")
        assert found is not None
        assert (found.owner, found.last_seq) == (tenant, 1)
        head = await ready.do(tasks.lock_head, tenant, "t-1")
        assert head == tasks.TaskHead(**{name: getattr(found, name) for name in tasks.TaskHead.__struct_fields__})
    assert await ready.read(tasks.read_task, TENANT, "t-2") is None
    assert await ready.do(tasks.lock_task, TENANT, "t-2") is None
    assert [task.owner for task in (await ready.read(task_lists.list_tasks, TENANT, TaskListQuery()))[0]] == [TENANT]
    with pytest.raises(Fenced):
        await ready.do(tasks.append, TENANT, appending("t-2", chunk("x", "t-2")))


# Appending


async def append_at_last(store: AnyStore, text: str, attempts: int) -> int:
    """Append as a writer does that shares the log: whoever is behind reads again."""
    for _ in range(attempts):
        found = await store.read(tasks.read_task, TENANT, "t-1")
        assert found is not None
        try:
            group = [chunk(f"{text}-{n}") for n in range(3)]
            return await store.do(tasks.append, TENANT, appending("t-1", *group, after=found.last_seq))
        except Behind:
            continue
    raise AssertionError("behind forever")


async def test_events_are_numbered_without_gaps(ready: AnyStore, heard: Heard) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    async with asyncio.timeout(BOUND_SECONDS):
        last = await asyncio.gather(*(append_at_last(ready, str(writer), attempts=12) for writer in range(12)))
    assert sorted(last) == list(range(3, 37, 3))
    events = [decode_event(row) for row in await ready.read(tasks.events_after, TENANT, "t-1", 0)]
    assert [event.seq for event in events] == list(range(1, 37))
    backwards = await ready.read(tasks.events_before, TENANT, "t-1", 6, 3)
    assert [decode_event(row) for row in backwards] == events[4:1:-1]
    found = await texts(ready)
    for group in (found[at : at + 3] for at in range(0, 36, 3)):
        assert len({text.partition("-")[0] for text in group}) == 1, "one append stays together"
    assert f"task:{TENANT}:t-1" in heard


async def test_a_worker_that_lost_its_claim_cannot_write(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("mine")))
    await ready.do(raise_fence)
    for after in (0, 1):  # also when it is behind: reading again would not help
        with pytest.raises(Fenced):
            await ready.do(tasks.append, TENANT, appending("t-1", chunk("zombie"), after=after))
    with pytest.raises(Fenced):
        await ready.do(tasks.append, TENANT, appending("t-1", chunk("from the future"), epoch=2, after=1))
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("yours"), epoch=1, after=1))
    assert await texts(ready) == ["mine", "yours"]


async def test_a_writer_that_missed_something_is_behind_and_leaves_nothing(with_task: AnyStore, heard: Heard) -> None:
    await with_task.do(tasks.append, TENANT, appending("t-1", chunk("a"), chunk("b")))
    heard.clear()
    late = appending("t-1", status(S.COMPLETED), after=1, snapshot=new(state=S.COMPLETED).task)
    for after, error in ((0, Behind), (1, Behind), (3, Rewound)):
        with pytest.raises(error):
            await with_task.do(tasks.append, TENANT, replace(late, after=after))
    found = await with_task.read(tasks.read_task, TENANT, "t-1")
    assert found is not None
    assert (found.task_state, found.last_seq, found.doc_seq) == (S.SUBMITTED, 2, 0)
    assert heard == []


@postgres_only
async def test_of_two_that_append_at_once_one_is_behind(with_task: AnyStore) -> None:
    outcomes = await overlapped(
        with_task,
        lambda tx: tasks.append(tx, TENANT, appending("t-1", chunk("first"))),
        lambda tx: tasks.append(tx, TENANT, appending("t-1", chunk("second"))),
    )
    assert outcomes[0] == 1
    assert isinstance(outcomes[1], Behind)
    assert await texts(with_task) == ["first"]


async def test_every_kind_of_event_comes_back_as_it_went(with_task: AnyStore) -> None:
    bodies: list[EventBody] = [status(S.WORKING), heard_message("hi"), chunk("a"), new(state=S.WORKING).task]
    assert await with_task.do(tasks.append, TENANT, appending("t-1", *bodies, state=S.WORKING)) == 4
    events = [decode_event(row) for row in await with_task.read(tasks.events_after, TENANT, "t-1", 0)]
    assert [event.body for event in events] == bodies
    assert {event.at for event in events} == {"2023-11-14T22:13:20.000Z"}


async def test_appending_nothing_only_asks_the_fence(with_task: AnyStore) -> None:
    assert await with_task.do(tasks.append, TENANT, appending("t-1")) == 0
    with pytest.raises(Fenced):
        await with_task.do(tasks.append, TENANT, appending("t-1", epoch=1))
    assert await with_task.read(tasks.events_after, TENANT, "t-1", 0) == []


async def test_snapshots_and_later_events_give_the_task(with_task: AnyStore) -> None:
    working = new(state=S.WORKING).task
    await with_task.do(
        tasks.append, TENANT, appending("t-1", heard_message("lost"), status(S.WORKING), snapshot=working)
    )
    await with_task.do(tasks.append, TENANT, appending("t-1", chunk("a"), chunk("b"), after=2))
    found = await with_task.read(tasks.read_task, TENANT, "t-1")
    assert found is not None
    assert (found.doc_seq, found.last_seq) == (2, 4)
    assert [row[0] for row in found.events] == [3, 4]
    assert found.task().history == (), "what is in the snapshot is not folded again"
    assert await texts(with_task) == ["a", "b"]


async def test_only_a_change_of_state_moves_the_time_of_the_status(with_task: AnyStore) -> None:
    await with_task.do(tasks.append, TENANT, appending("t-1", chunk("a"), at=AT + 1))
    found = await with_task.read(tasks.read_task, TENANT, "t-1")
    assert found is not None
    assert (found.task_state, found.updated_at) == (S.SUBMITTED, AT)
    await with_task.do(tasks.append, TENANT, appending("t-1", status(S.WORKING), after=1, at=AT + 2))
    found = await with_task.read(tasks.read_task, TENANT, "t-1")
    assert found is not None
    assert (found.task_state, found.updated_at) == (S.WORKING, AT + 2)


async def test_reading_continues_after_a_cursor(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(tasks.append, TENANT, appending("t-1", *(chunk(str(at)) for at in range(10))))
    assert [row[0] for row in await ready.read(tasks.events_after, TENANT, "t-1", 7)] == [8, 9, 10]
    assert [row[0] for row in await ready.read(tasks.events_after, TENANT, "t-1", 2, limit=3)] == [3, 4, 5]
    assert await ready.read(tasks.events_after, TENANT, "t-1", 10) == []


async def test_appending_makes_the_webhooks_of_this_task_due_and_no_others(with_task: AnyStore, heard: Heard) -> None:
    await with_task.do(tasks.append, TENANT, appending("t-1", chunk("a")))
    assert "push" not in heard, "nobody listens"
    await with_task.do(tasks.create_task, TENANT, new("t-2"))
    await with_task.do(tasks.create_task, OTHER, new())
    for tenant, task_id in ((TENANT, "t-1"), (TENANT, "t-2"), (OTHER, "t-1")):
        await with_task.do(webhooks.put, tenant, task_id, webhook(), "v1")
    assert await with_task.do(webhook_deliveries.claim_webhooks, "n-1", 10) == []
    await with_task.do(tasks.append, TENANT, appending("t-1", chunk("b"), after=1))
    assert "push" in heard
    assert [(due.tenant, due.task_id) for due in await with_task.do(webhook_deliveries.claim_webhooks, "n-1", 10)] == [
        (TENANT, "t-1")
    ]


@postgres_only
async def test_a_locked_task_is_read_as_the_last_writer_left_it(with_task: AnyStore) -> None:
    _, found = await overlapped(
        with_task,
        lambda tx: tasks.append(tx, TENANT, appending("t-1", chunk("a"))),
        lambda tx: tasks.lock_task(tx, TENANT, "t-1"),
    )
    assert (found.last_seq, len(found.events)) == (1, 1)
    _, head = await overlapped(
        with_task,
        lambda tx: tasks.append(tx, TENANT, appending("t-1", status(S.WORKING), after=1)),
        lambda tx: tasks.lock_head(tx, TENANT, "t-1"),
    )
    assert (head.last_seq, head.task_state) == (2, S.WORKING)


async def test_the_row_of_a_task_is_completed_with_later_events(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new("t-1"))
    await ready.do(tasks.append, TENANT, appending("t-1", status(S.WORKING)))

    async def row_of(tx: Tx) -> Any:
        return await tx.one(f"SELECT {tasks.COLUMNS} WHERE task.tenant = :tenant", tenant=TENANT)

    whole = await ready.read(tasks.with_events, TENANT, await ready.read(row_of))
    assert whole == await ready.read(tasks.read_task, TENANT, "t-1")
    assert len(whole.events) == 1


# Listing


async def listed(store: AnyStore, tenant: str = TENANT, **fields: Any) -> list[str]:
    found, total = await store.read(task_lists.list_tasks, tenant, TaskListQuery(**fields))
    assert total == len(found)
    return [task.id for task in found]


async def test_tasks_are_listed_with_the_latest_status_first(ready: AnyStore) -> None:
    for task_id, at in (("t-1", AT + 2), ("t-2", AT + 3), ("t-3", AT + 1)):
        await ready.do(tasks.create_task, TENANT, new(task_id, at=at))
    assert await listed(ready) == ["t-2", "t-1", "t-3"]
    await ready.do(tasks.append, TENANT, appending("t-3", status(S.WORKING, "t-3"), at=AT + 9))
    found, total = await ready.read(task_lists.list_tasks, TENANT, TaskListQuery(limit=2))
    assert ([task.id for task in found], total) == (["t-3", "t-2"], 3)
    assert found[0].task().status.state is S.WORKING


async def test_tasks_are_filtered_by_attributes(ready: AnyStore) -> None:
    given: list[tuple[str, TaskCreation]] = [
        (TENANT, new("t-1", at=AT + 1, owner="bob")),
        (TENANT, new("t-2", at=AT + 2, agent="planner")),
        (TENANT, new("t-3", at=AT + 3, context_id="c-2")),
        (TENANT, new("t-4", at=AT + 4, state=S.WORKING)),
        (TENANT, new("t-5", at=AT + 5, parent_id="t-4")),
        (OTHER, new("t-6", at=AT + 6, owner="bob", agent="planner", context_id="c-2", parent_id="t-4")),
    ]
    for tenant, task in given:
        await ready.do(tasks.create_task, tenant, task)
    assert await listed(ready) == ["t-5", "t-4", "t-3", "t-2", "t-1"]
    assert await listed(ready, owner="bob") == ["t-1"]
    assert await listed(ready, agents=("planner",)) == ["t-2"]
    assert await listed(ready, context_id="c-2") == ["t-3"]
    assert await listed(ready, states=(S.WORKING,)) == ["t-4"]
    assert await listed(ready, parent_id="t-4") == ["t-5"]
    assert await listed(ready, since=AT + 4) == ["t-5", "t-4"]
    assert await listed(ready, owner="alice", agents=("echo",), states=(S.SUBMITTED,), since=AT + 4) == ["t-5"]
    assert await listed(ready, owner="nobody") == []
    assert await listed(ready, OTHER) == ["t-6"]
    assert await listed(ready, "nowhere") == []


async def test_a_task_is_listed_with_the_events_after_its_snapshot(with_task: AnyStore) -> None:
    await with_task.do(tasks.append, TENANT, appending("t-1", chunk("a"), chunk("b")))
    ((found,), _) = await with_task.read(task_lists.list_tasks, TENANT, TaskListQuery())
    assert [row[0] for row in found.events] == [1, 2]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
async def test_pages_hold_each_task_once_also_when_times_are_equal(ready: AnyStore, size: int) -> None:
    expected: list[str] = []
    for at in range(12):
        await ready.do(tasks.create_task, TENANT, new(f"t-{at:02}", at=AT + at // 5))
        expected.insert(0, f"t-{at:02}")
    walked: list[str] = []
    query = TaskListQuery(limit=size)
    for _ in range(12 // size + 1):
        found, total = await ready.read(task_lists.list_tasks, TENANT, query)
        assert total == 12
        walked += [task.id for task in found]
        if not found:
            break
        query = replace(query, before_at=found[-1].updated_at, before=found[-1].id)
    assert walked == expected


async def test_a_task_that_changes_meanwhile_moves_to_a_page_that_was_seen(ready: AnyStore) -> None:
    for at in range(4):
        await ready.do(tasks.create_task, TENANT, new(f"t-{at}", at=AT + at))
    first, _ = await ready.read(task_lists.list_tasks, TENANT, TaskListQuery(limit=2))
    await ready.do(tasks.append, TENANT, appending("t-3", status(S.WORKING, "t-3"), at=AT + 9))
    rest, _ = await ready.read(
        task_lists.list_tasks, TENANT, TaskListQuery(limit=9, before_at=first[-1].updated_at, before=first[-1].id)
    )
    assert [task.id for task in first + rest] == ["t-3", "t-2", "t-1", "t-0"]


async def test_task_rows_belong_to_their_tenant(with_task: AnyStore) -> None:
    await with_task.do(tasks.append, TENANT, appending("t-1", chunk("a")))
    for name in ("task", "snapshot", "event"):
        assert await with_task.read(table, name, "tenant, 0") == [(TENANT, 0)]


async def test_conversations_belong_to_owner_and_agent(
    ready: AnyStore,
) -> None:
    others = {"t-1": {}, "t-2": {}, "t-3": {"owner": "bob"}, "t-4": {"agent": "other"}, "t-5": {"context_id": "c-2"}}
    for at, (task_id, fields) in enumerate(others.items()):
        await ready.do(tasks.create_task, TENANT, new(task_id, at=AT + at, state=S.COMPLETED, **fields))
    await ready.do(tasks.create_task, OTHER, new("t-1", state=S.COMPLETED))
    for task_id, state in (("t-6", S.FAILED), ("t-7", S.WORKING), ("t-8", S.INPUT_REQUIRED)):
        await ready.do(tasks.create_task, TENANT, new(task_id, at=AT + 9, state=state))

    async def found(limit: int, tenant: str = TENANT, task_id: str = "t-7") -> list[str]:
        return [task.id for task in await ready.read(tasks.read_conversation, tenant, task_id, limit)]

    assert await found(9) == ["t-1", "t-2", "t-6"]
    assert await found(2) == ["t-2", "t-6"]
    assert await found(9, task_id="t-2") == ["t-1", "t-6"], "without itself"
    assert await found(9, OTHER) == [], "there is no such task"


async def test_tasks_without_a_context_are_no_conversation(ready: AnyStore) -> None:
    for task_id in ("t-1", "t-2"):
        await ready.do(tasks.create_task, TENANT, new(task_id, state=S.COMPLETED, context_id=""))
    assert await ready.read(tasks.read_conversation, TENANT, "t-2", 9) == []


# --- reading in two looks, and by state -------------------------------------------------------------------------------


class Slow:
    """A transaction between whose first and second look something happens."""

    def __init__(self, tx: Tx, meanwhile: Callable[[], Awaitable[None]]) -> None:
        self._tx = tx
        self._meanwhile = meanwhile

    async def one(self, sql: str, /, **values: Any) -> Any:
        found = await self._tx.one(sql, **values)
        await self._meanwhile()
        return found

    async def all(self, sql: str, /, **values: Any) -> Any:
        return await self._tx.all(sql, **values)


async def test_a_log_that_is_cut_between_two_looks_is_noticed(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("a"), chunk("b")))

    async def torn(tx: Tx) -> None:
        async def cut() -> None:
            await tx.run("DELETE FROM event WHERE seq = 1")

        slow: Any = Slow(tx, cut)
        await tasks.read_task(slow, TENANT, "t-1")

    with pytest.raises(tasks.TornRead):
        await ready.do(torn)


@pytest.mark.proves("0-39")
@pytest.mark.parametrize(
    ("query", "index"),
    [
        (TaskListQuery(owner="alice", states=(TaskState.INPUT_REQUIRED,), limit=10), "task_open"),
        (
            TaskListQuery(owner="alice", states=(TaskState.FAILED,), limit=10),
            "task_amiss",
        ),  # few are, unlike those done
        (TaskListQuery(context_id="c-1", limit=10), "task_by_context"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_selective_filters_have_an_index(ready: AnyStore, query: TaskListQuery, index: str) -> None:
    async def explained(tx: Tx) -> str:
        plans: list[str] = []

        class Explaining:
            async def one(self, sql: str, /, **values: Any) -> Any:
                return await tx.one(sql, **values)

            async def all(self, sql: str, /, **values: Any) -> Any:
                word = "EXPLAIN QUERY PLAN" if isinstance(ready, SqliteStore) else "EXPLAIN"
                plans.extend(str(row[-1]) for row in await tx.all(f"{word} {sql}", **values))
                return []

        explaining: Any = Explaining()
        if not isinstance(ready, SqliteStore):
            await tx.run("SET LOCAL enable_seqscan = off")  # of an empty table
        await task_lists.list_tasks(explaining, TENANT, query)
        return " ".join(plans)

    assert index in await ready.do(explained)


@pytest.mark.proves("0-39")
async def test_a_task_is_looked_up_by_its_key(ready: AnyStore) -> None:
    async def explained(tx: Tx) -> str:
        is_sqlite = isinstance(ready, SqliteStore)
        if not is_sqlite:
            await tx.run("SET LOCAL enable_seqscan = off")
        word = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
        return str(await tx.all(f"{word} SELECT state FROM task WHERE tenant = 'a' AND id = 'b'"))

    assert re.search(r"task_pkey|PRIMARY KEY|sqlite_autoindex_task_1", await ready.do(explained))
    await ready.do(tasks.create_task, TENANT, new())
    with pytest.raises(Exception, match=r"(?i)unique"):
        await ready.do(_again)


async def _again(tx: Tx) -> None:
    await tx.run("INSERT INTO task SELECT * FROM task")


@pytest.mark.proves("0-38")
async def test_rows_have_filter_columns_and_a_snapshot(ready: AnyStore) -> None:
    working = TaskStatus(state=TaskState.WORKING, message=message("half way"), timestamp=timestamp_ms(AT + 1))
    made = replace(new().task, status=working, artifacts=(Artifact(artifact_id="a", parts=(Part(data={"n": 1}),)),))
    await ready.do(tasks.create_task, TENANT, replace(new(), task=made, at=AT + 1))

    async def row(tx: Tx) -> Any:
        return await tx.one("SELECT id, context_id, state, updated_at FROM task")

    assert tuple(await ready.read(row)) == ("t-1", "c-1", "working", AT + 1)
    kept = (await stored(ready)).task()
    assert kept.status.message is not None
    assert (kept.status.message.parts[0].text, kept.artifacts[0].parts[0].data) == ("half way", {"n": 1})
    assert kept.created_at is not None
