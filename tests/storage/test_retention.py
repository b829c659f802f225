"""Retention: logs of ended tasks are folded into snapshots, old tasks go with everything they had, in small batches."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from accord.model import TaskState
from accord.protocol import lifecycle
from accord.storage.commands import (
    blobs,
    jobs,
    retention,
    steps,
    task_lifecycle,
    task_lists,
    tasks,
    webhook_deliveries,
    webhooks,
)
from accord.storage.commands.retention import compact, forget_keys, purge
from accord.storage.commands.task_lists import TaskListQuery
from accord.storage.commands.tasks import StoredTask
from accord.storage.encoding import TERMINAL
from accord.storage.sqlite.driver import SqliteStore
from accord.storage.store import Row, Tx, Value
from tests.storage.conftest import (
    AT,
    OTHER,
    TENANT,
    AnyStore,
    accepting,
    appending,
    chunk,
    new,
    postgres_only,
    status,
    table,
    webhook,
)

S = TaskState
TABLES = ("task", "snapshot", "event", "push", "step", "job", "blob_ref")
OLD = 0
"""An age that everything here has: its time is that of the tests, years ago."""

DECADES = 50 * 365 * 24 * 3600 * 1000
"""An age that nothing here has."""


async def make(store: AnyStore, task_id: str, state: TaskState = S.COMPLETED, *, at: int = AT, **fields: Any) -> None:
    """Make a task with a log of four events, the last of which ends it unless it goes on; its snapshot lacks three."""
    await store.do(tasks.create_task, TENANT, new(task_id, at=at, **fields))
    begun = status(S.WORKING, task_id, at)
    working = lifecycle.apply(new(task_id, at=at, **fields).task, begun)
    await store.do(tasks.append, TENANT, appending(task_id, begun, at=at, snapshot=working))
    chunks = chunk("one", task_id), chunk("two", task_id)
    await store.do(tasks.append, TENANT, appending(task_id, *chunks, status(state, task_id, at), after=1, at=at))


async def found(store: AnyStore, task_id: str) -> StoredTask:
    stored = await store.read(tasks.read_task, TENANT, task_id)
    assert stored is not None
    return stored


async def ids(store: AnyStore) -> list[str]:
    listed, _ = await store.read(task_lists.list_tasks, TENANT, TaskListQuery())
    return [stored.id for stored in listed]


# Compaction


@pytest.mark.parametrize("state", [state for state in S if state in lifecycle.TERMINAL])
async def test_a_compacted_task_reads_as_before_and_has_no_log(ready: AnyStore, state: TaskState) -> None:
    await make(ready, "t-1", state)
    before, listed = await found(ready, "t-1"), await ready.read(task_lists.list_tasks, TENANT, TaskListQuery())
    assert [seq for seq, *_ in before.events] == [2, 3, 4]

    assert await ready.do(compact, OLD, 10) == 1

    after, listed_after = await found(ready, "t-1"), await ready.read(task_lists.list_tasks, TENANT, TaskListQuery())
    assert after.task() == before.task()
    assert (after.doc_seq, after.last_seq, after.min_seq, after.events) == (4, 4, 5, ())
    assert [stored.task() for stored in listed_after[0]] == [stored.task() for stored in listed[0]]
    assert listed_after[1] == listed[1] == 1
    assert await ready.read(tasks.events_after, TENANT, "t-1", 0) == []
    assert await ready.do(compact, OLD, 10) == 0


async def test_a_snapshot_that_is_complete_is_not_written_again(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    ended = lifecycle.apply(new().task, status(S.COMPLETED))
    await ready.do(tasks.append, TENANT, appending("t-1", status(S.COMPLETED), snapshot=ended))
    doc = (await found(ready, "t-1")).doc
    assert await ready.do(compact, OLD, 10) == 1
    after = await found(ready, "t-1")
    assert (after.doc, after.min_seq) == (doc, 2)


@pytest.mark.parametrize("state", [state for state in S if state not in {*lifecycle.TERMINAL, S.SUBMITTED}])
async def test_open_tasks_keep_their_log(ready: AnyStore, state: TaskState) -> None:
    await make(ready, "t-1", state)
    assert await ready.do(compact, OLD, 10) == 0
    assert len(await ready.read(tasks.events_after, TENANT, "t-1", 0)) == 4


async def test_a_task_that_ended_lately_keeps_its_log(ready: AnyStore) -> None:
    await make(ready, "t-1")
    assert await ready.do(compact, DECADES, 10) == 0
    assert len(await ready.read(tasks.events_after, TENANT, "t-1", 0)) == 4


async def test_a_log_stays_until_every_webhook_has_it_or_is_given_up(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    for id in ("w-1", "w-2"):
        await ready.do(webhooks.put, TENANT, "t-1", webhook(id), "v1")
    await ready.do(tasks.append, TENANT, appending("t-1", status(S.COMPLETED)))
    assert await ready.do(compact, OLD, 10) == 0

    first, second = await ready.do(webhook_deliveries.claim_webhooks, "n-1", 6)
    await ready.do(webhooks.advance, first, 1, keeps=False)
    assert await ready.do(compact, OLD, 10) == 0
    await ready.do(webhooks.fail, second, "no", None)
    assert await ready.do(compact, OLD, 10) == 1


async def test_compaction_is_oldest_first_and_bounded(ready: AnyStore) -> None:
    for number in range(5):
        await make(ready, f"t-{number}", at=AT - number)
    assert await ready.do(compact, OLD, 2) == 2
    assert [id for id in await ids(ready) if (await found(ready, id)).min_seq == 1] == ["t-0", "t-1", "t-2"]
    assert [await ready.do(compact, OLD, 2) for _ in range(3)] == [2, 1, 0]


async def test_a_batch_ends_after_many_events(ready: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "MAX_EVENTS", 5)
    for number in range(5):
        await make(ready, f"t-{number}")
    assert [await ready.do(compact, OLD, 10) for _ in range(4)] == [2, 2, 1, 0]
    assert await ready.do(purge, OLD, 10) == 5, "they have no events any more"


async def test_a_log_that_cannot_be_read_stays_and_stops_no_other(ready: AnyStore) -> None:
    await make(ready, "broken", at=AT - 1)
    await make(ready, "t-1")

    async def scribble(tx: Tx) -> None:
        await tx.run("UPDATE event SET data = '{' WHERE task_id = 'broken' AND seq = 2")

    await ready.do(scribble)
    assert await ready.do(compact, OLD, 10) == 1
    assert [row[1] for row in await ready.read(table, "event")] == ["broken"] * 4
    assert await ready.do(compact, OLD, 10) == 0


@postgres_only
async def test_busy_tasks_are_left_for_the_next_run(ready: AnyStore) -> None:
    await make(ready, "busy")
    await make(ready, "t-1")

    async def hold(tx: Tx) -> tuple[int, int]:
        await tasks.lock_task(tx, TENANT, "busy")
        return await ready.do(compact, OLD, 10), await ready.do(purge, OLD, 10)

    assert await ready.do(hold) == (1, 1)
    assert await ids(ready) == ["busy"]


# Purging


async def equip(store: AnyStore, tenant: str, task_id: str) -> None:
    """Make a task that has something in every table."""
    request = accepting(task_id, node="n-1", push=webhook(), key=f"key-{task_id}", deadline_ms=1)
    accepted = await store.do(task_lifecycle.accept_task, tenant, request)
    assert accepted.job is not None
    await store.do(steps.put_step, tenant, task_id, "step", "{}", AT)
    await store.do(blobs.put_blob, tenant, "hash", b"large")
    await store.do(blobs.add_references, tenant, task_id, ["hash"])
    await store.do(tasks.append, tenant, appending(task_id, status(S.COMPLETED, task_id), epoch=1))
    await store.do(jobs.release, accepted.job)


async def owners(store: AnyStore) -> dict[str, set[tuple[str, str]]]:
    """Return for each table which tasks have something in it."""
    columns = {"task": "id", "job": "key"}
    rows = {name: await store.read(table, name, f"tenant, {columns.get(name, 'task_id')}") for name in TABLES}
    return {name: {(tenant, task_id) for tenant, task_id in found} for name, found in rows.items()}


async def test_a_purged_task_leaves_nothing_and_takes_nothing_of_others(ready: AnyStore) -> None:
    for tenant, task_id in ((TENANT, "t-1"), (TENANT, "t-2"), (OTHER, "t-1")):
        await equip(ready, tenant, task_id)
    await ready.do(_age, TENANT, "t-1", -1)
    assert all(len(of) == 3 for of in (await owners(ready)).values())

    assert await ready.do(purge, OLD, 1) == 1

    assert all(of == {(TENANT, "t-2"), (OTHER, "t-1")} for of in (await owners(ready)).values())
    assert await ready.read(blobs.read_blob, TENANT, "hash") == b"large", "another task needs it"
    for repeated in (False, True):  # a key is forgotten by its own age, but what it stood for is gone
        again = await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-9", key="key-t-1"))
        assert (again.task_id, again.is_repeated) == ("t-9", repeated)


async def _age(tx: Tx, tenant: str, task_id: str, milliseconds: int) -> None:
    await tx.run(
        "UPDATE task SET updated_at = updated_at + :ms WHERE tenant = :tenant AND id = :id",
        tenant=tenant,
        id=task_id,
        ms=milliseconds,
    )


async def test_only_old_ended_tasks_are_purged(ready: AnyStore) -> None:
    for state in set(S) - {S.SUBMITTED}:
        await make(ready, state.name.lower(), state)
    assert await ready.do(purge, DECADES, 10) == 0
    assert await ready.do(purge, OLD, 10, DECADES) == len(TERMINAL)
    assert set(await ids(ready)) == {state.name.lower() for state in set(S) - {S.SUBMITTED} - lifecycle.TERMINAL}


async def test_an_unknown_task_is_kept_for_longer(ready: AnyStore) -> None:
    await make(ready, "t-1", S.UNKNOWN)
    assert await ready.do(purge, OLD, 10, DECADES) == 0
    assert await ready.do(purge, OLD, 10) == 1


async def test_purging_is_oldest_first_and_bounded(ready: AnyStore) -> None:
    for number in range(5):
        await make(ready, f"t-{number}", at=AT - number)
    assert await ready.do(purge, OLD, 2) == 2
    assert await ids(ready) == ["t-0", "t-1", "t-2"]
    assert [await ready.do(purge, OLD, 2) for _ in range(3)] == [2, 1, 0]


async def test_a_running_child_outlives_its_parent(ready: AnyStore) -> None:
    await make(ready, "parent")
    await make(ready, "child", S.WORKING, parent_id="parent")
    assert await ready.do(purge, OLD, 10) == 1
    child = await found(ready, "child")
    assert (child.parent_id, child.task().status.state) == ("parent", S.WORKING)


async def test_compacted_tasks_are_purged_as_well(ready: AnyStore) -> None:
    await make(ready, "t-1")
    await ready.do(compact, OLD, 10)
    assert await ready.do(purge, OLD, 10) == 1
    assert not any((await owners(ready)).values())


# Keys


async def test_expired_keys_are_forgotten_in_batches(ready: AnyStore) -> None:
    for number in range(5):
        await ready.do(task_lifecycle.accept_task, TENANT, accepting(f"t-{number}", key=f"key-{number}"))

    async def expire(tx: Tx) -> None:
        await tx.run("UPDATE idempotency SET expires_at = 1 WHERE key <> 'key-3'")

    await ready.do(expire)
    assert [await ready.do(forget_keys, 3) for _ in range(3)] == [3, 1, 0]
    assert [row[1] for row in await ready.read(table, "idempotency")] == ["key-3"]


# Cost


class Explaining:
    """A transaction that notes how each statement that returns rows would be run."""

    def __init__(self, tx: Tx, explain: str) -> None:
        self._tx = tx
        self._explain = explain
        self.plans: list[str] = []

    async def all(self, sql: str, /, **values: Value) -> list[Row]:
        self.plans.append(str(await self._tx.all(f"{self._explain} {sql}", **values)))
        return await self._tx.all(sql, **values)

    async def many(self, sql: str, rows: Sequence[Mapping[str, Value]], /) -> None:
        for row in rows[:1]:
            self.plans.append(str(await self._tx.all(f"{self._explain} {sql}", **row)))


async def many_tasks(tx: Tx) -> None:
    """Fill the tables with tasks that have ended, among many that have not."""
    await tx.run(
        """INSERT INTO task (tenant, id, context_id, agent, owner, state, last_seq, min_seq, updated_at)
           WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)
           SELECT 'acme', 't-' || i, 'c', 'a', 'o', CASE WHEN i % 100 = 0 THEN 'completed' ELSE 'working' END,
                  1, 1, i FROM n"""
    )
    for name, columns in (
        ("event", "tenant, task_id, seq, kind, data, at) SELECT tenant, id, 1, '', '{}', 1"),
        ("snapshot", "tenant, task_id, seq, doc) SELECT tenant, id, 1, '{}'"),
        ("idempotency", "tenant, key, task_id, expires_at) SELECT tenant, 'k' || id, id, updated_at"),
        ("push", "tenant, task_id, id, config, dialect, cursor) SELECT tenant, id, '', '{}', '', 1"),
        (
            "push_attempt",
            "tenant, task_id, push_id, id, seq, attempt, at, duration_ms, detail)"
            " SELECT tenant, id, '', 1, 1, 1, 1, 1, ''",
        ),
        ("blob", "tenant, hash, size, at) SELECT tenant, 'h' || id, 1, 1"),
        ("blob_ref", "tenant, task_id, hash) SELECT 'other', id, 'h'"),
        ("context_state", "tenant, context_id, agent, owner, key, value, at) SELECT 'other', id, '', '', '', '', 1"),
        ("thread", "tenant, id, task_id) SELECT 'other', id, id"),
        ("step", "tenant, task_id, key, output, at) SELECT tenant, id, 'k', '{}', 1"),
        ("job", "tenant, queue, kind, key, run_at) SELECT tenant, 'q', 'run', id, 1"),
        ("remote", "tenant, task_id, agent, heard_at) SELECT tenant, id, 'a', 1"),
        ("remote_token", "hash, tenant, task_id) SELECT 'h' || id, tenant, id"),
    ):
        await tx.run(f"INSERT INTO {name} ({columns} FROM task")
    await tx.run("ANALYZE")


async def plans(tx: Tx, explain: str) -> dict[str, list[str]]:
    found = {}
    for command, args in ((compact, (OLD, 100)), (purge, (OLD, 100)), (forget_keys, (100,))):
        explaining: Any = Explaining(tx, explain)
        assert await command(explaining, *args) == 100
        found[command.__name__] = explaining.plans
    return found


async def test_retention_queries_use_indexes(ready: AnyStore) -> None:
    is_sqlite = isinstance(ready, SqliteStore)
    await ready.do(many_tasks)
    found = await ready.do(plans, "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN")
    bound = "{}<?" if is_sqlite else "Index Cond: ({} <"
    for name, index, column in (
        ("compact", "task_with_log", "updated_at"),
        ("purge", "task_ended", "updated_at"),
        ("forget_keys", "idempotency_expiry", "expires_at"),
    ):
        chosen = found[name][0]
        assert index in chosen
        assert bound.format(column) in chosen
    for plan in (plan for listed in found.values() for plan in listed):
        assert not any(word in plan for word in ("SCAN task", "SCAN event", "Seq Scan", "TEMP B-TREE", "Sort")), plan
