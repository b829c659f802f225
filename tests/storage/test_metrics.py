"""How much waits: of all tenants, up to a bound, along indexes."""

import re
from typing import Any

import pytest

from accord.model import TaskState
from accord.storage.commands import jobs, monitoring, task_lifecycle, tasks, webhook_deliveries, webhooks
from accord.storage.commands.jobs import NewJob
from accord.storage.commands.monitoring import Backlog, WaitingCounts
from accord.storage.store import Row, Tx, Value
from tests.storage.conftest import MINUTE, OTHER, TENANT, AnyStore, accepting, new, parked, pass_time, webhook

S = TaskState


async def test_nothing_waits_in_an_empty_store(ready: AnyStore) -> None:
    none = {"submitted": 0, "working": 0, "input_required": 0, "auth_required": 0}
    assert await ready.read(monitoring.count_waiting) == WaitingCounts(
        tasks=none, queues={}, webhooks_due=0, webhooks_dead=0, nodes=0
    )


async def test_open_tasks_are_counted_by_state(ready: AnyStore) -> None:
    for number, (tenant, state) in enumerate(
        [(TENANT, S.WORKING), (TENANT, S.WORKING), (OTHER, S.WORKING), (OTHER, S.INPUT_REQUIRED), ("", S.SUBMITTED)]
        + [(tenant, state) for tenant in (TENANT, "ended only") for state in (S.COMPLETED, S.FAILED, S.UNKNOWN)]
    ):
        await ready.do(tasks.create_task, tenant, new(f"t-{number}", state=state))
    found = await ready.read(monitoring.count_waiting)
    assert found.tasks == {"submitted": 1, "working": 3, "input_required": 1, "auth_required": 0}


async def test_due_jobs_are_counted_by_queue(ready: AnyStore) -> None:
    for key, queue, tenant, delay in (
        ("due", "echo", TENANT, 0),
        ("later", "echo", TENANT, 10 * MINUTE),
        ("held", "taken", TENANT, 0),
        ("theirs", "echo", OTHER, 0),
        ("far", "timers", TENANT, 10 * MINUTE),
    ):
        await ready.do(jobs.enqueue, tenant, NewJob(kind="k", key=key, queue=queue, delay_ms=delay))
    await ready.do(jobs.claim, "n-1", "taken", 10)
    found = await ready.read(monitoring.count_waiting)
    assert {queue: backlog.due for queue, backlog in found.queues.items()} == {"echo": 2, "timers": 0}
    assert found.queues["timers"] == Backlog(due=0, oldest_ms=0)


async def test_parked_work_does_not_count(queued: AnyStore) -> None:
    assert [backlog.due for backlog in (await queued.read(monitoring.count_waiting)).queues.values()] == [1]
    await parked(queued)
    assert (await queued.read(monitoring.count_waiting)).queues == {}


async def test_the_oldest_due_job_is_reported_by_age(ready: AnyStore) -> None:
    await ready.do(jobs.enqueue, TENANT, NewJob(kind="k", key="old", queue="echo"))
    await ready.do(pass_time, MINUTE)
    await ready.do(jobs.enqueue, TENANT, NewJob(kind="k", key="new", queue="echo"))
    await ready.do(jobs.enqueue, TENANT, NewJob(kind="k", key="young", queue="other"))
    found = (await ready.read(monitoring.count_waiting)).queues
    assert found["echo"].oldest_ms >= MINUTE
    assert 0 <= found["other"].oldest_ms < found["echo"].oldest_ms


async def test_webhooks_are_due_dead_or_neither(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    for id in ("idle", "due", "held", "later", "dead"):
        await ready.do(webhooks.put, TENANT, "t-1", webhook(id), "v1")
    for id in ("dead", "later", "held"):
        await ready.do(webhooks.redeliver, TENANT, "t-1", id)
        (due,) = await ready.do(webhook_deliveries.claim_webhooks, "n-1", 1)
        if id != "held":
            await ready.do(webhooks.fail, due, "no", None if id == "dead" else 10 * MINUTE)
    await ready.do(webhooks.redeliver, TENANT, "t-1", "due")
    found = await ready.read(monitoring.count_waiting)
    assert (found.webhooks_due, found.webhooks_dead) == (1, 1)


async def test_nodes_live_as_long_as_their_lease(ready: AnyStore) -> None:
    await ready.do(jobs.heartbeat, "n-1", MINUTE)
    await ready.do(jobs.heartbeat, "n-2", MINUTE)
    await ready.do(jobs.heartbeat, "n-3", -1)
    assert (await ready.read(monitoring.count_waiting)).nodes == 2


async def test_no_count_goes_beyond_its_bound(ready: AnyStore) -> None:
    for number in range(5):
        for tenant in (TENANT, OTHER):
            await ready.do(task_lifecycle.accept_task, tenant, accepting(f"t-{number}"))
            await ready.do(webhooks.put, tenant, f"t-{number}", webhook(), "v1", 0)
            await ready.do(webhooks.redeliver, tenant, f"t-{number}", "w-1")
        await ready.do(jobs.heartbeat, f"n-{number}", MINUTE)
    found = await ready.read(monitoring.count_waiting, 3)
    assert found.tasks["submitted"] == 2 * 3, "each tenant by itself"
    assert [backlog.due for backlog in found.queues.values()] == [3]
    assert (found.webhooks_due, found.nodes) == (3, 3)


class Explaining:
    """A transaction that asks how each statement would be done, and then does it."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.plans: list[str] = []

    async def one(self, sql: str, /, **values: Value) -> Row | None:
        await self._explain(sql, values)
        return await self._tx.one(sql, **values)

    async def all(self, sql: str, /, **values: Value) -> list[Row]:
        await self._explain(sql, values)
        return await self._tx.all(sql, **values)

    async def _explain(self, sql: str, values: dict[str, Value]) -> None:
        self.plans += [str(row[-1]) for row in await self._tx.all(f"EXPLAIN QUERY PLAN {sql}", **values)]


async def explained(tx: Tx) -> list[str]:
    """How SQLite counts: each look into a table."""
    explaining: Any = Explaining(tx)
    await monitoring.count_waiting(explaining)
    return [plan for plan in explaining.plans if re.match("(SCAN|SEARCH) (task|job|push)", plan)]


@pytest.mark.parametrize("store", ["sqlite-file"], indirect=True)
async def test_sqlite_counts_by_index(queued: AnyStore) -> None:
    bounded = (
        r"(SCAN|SEARCH) task USING (COVERING )?INDEX task_open( \(tenant>\?\))?",
        r"SEARCH task USING COVERING INDEX task_open \(tenant=\? AND state=\?\)",
        r"(SCAN|SEARCH) job USING INDEX job_due( \(queue[>=]\?\))?",
        r"SCAN push USING INDEX push_waiting",
        r"(SCAN|SEARCH) push USING (COVERING )?INDEX push_dead.*",
    )
    plans = await queued.read(explained)
    assert [plan for plan in plans if not any(re.fullmatch(known, plan) for known in bounded)] == []
    assert all(any(re.fullmatch(known, plan) for plan in plans) for known in bounded)
