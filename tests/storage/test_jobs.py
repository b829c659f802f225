"""Jobs: claimed once, in order and in turn, under a fence; parked ones cost nothing; who leaves frees its own."""

import asyncio
from typing import Any, cast

import pytest
from msgspec.structs import replace

from accord.storage.commands import jobs, steps, task_lifecycle, tasks, webhook_deliveries, webhooks
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, MAX_TENANTS, SLA, TIMERS, ClaimedJob, NewJob
from accord.storage.commands.tasks import Fenced
from accord.storage.store import Tx
from tests.storage.conftest import (
    AGENT,
    BOUND_SECONDS,
    MINUTE,
    OTHER,
    TENANT,
    AnyStore,
    Heard,
    accepting,
    appending,
    chunk,
    new,
    pass_time,
    table,
    webhook,
)

QUEUE = "default"


def work(key: str = "t-1", **fields: object) -> NewJob:
    return NewJob(kind=EXECUTE_TASK, key=key, **fields)  # type: ignore[arg-type]


async def keys(store: AnyStore, node: str = "n-1", count: int = 100, tenant_limit: int | None = None) -> list[str]:
    """What a claim gives."""
    return [job.key for job in await store.do(jobs.claim, node, QUEUE, count, tenant_limit)]


async def only(store: AnyStore, node: str = "n-1") -> ClaimedJob:
    """Claim the one job that is due."""
    (job,) = await store.do(jobs.claim, node, QUEUE, 10)
    return job


async def epochs(tx: Tx) -> tuple[list[int], list[int]]:
    """The fences of tasks and of jobs."""
    return [row[0] for row in await table(tx, "task", "epoch, id")], [
        row[0] for row in await table(tx, "job", "epoch, id")
    ]


# Adding


async def test_work_is_kept_as_it_was_given(ready: AnyStore, heard: Heard) -> None:
    given = NewJob(kind="mail", key="k", queue="letters", arg="x", priority=4, max_attempts=7, epoch=5)
    assert await ready.do(jobs.enqueue, TENANT, given) is None
    assert heard == ["queue:letters"]
    (job,) = await ready.do(jobs.claim, "n-1", "letters", 1)
    assert (job.tenant, job.queue, job.kind, job.key, job.arg) == (TENANT, "letters", "mail", "k", "x")
    assert (job.epoch, job.attempts, job.max_attempts) == (6, 1, 7)


async def test_the_same_work_is_kept_once(ready: AnyStore) -> None:
    for tenant, kind, arg in (
        (TENANT, EXECUTE_TASK, "1"),
        (TENANT, EXECUTE_TASK, "2"),
        (TENANT, "mail", "3"),
        (OTHER, EXECUTE_TASK, "4"),
    ):
        await ready.do(jobs.enqueue, tenant, NewJob(kind=kind, key="t-1", arg=arg))
    assert sorted(job.arg or "" for job in await ready.do(jobs.claim, "n-1", QUEUE, 9)) == ["1", "3", "4"]


async def test_work_can_be_taken_as_it_is_added(ready: AnyStore, heard: Heard) -> None:
    job = await ready.do(jobs.enqueue, TENANT, work(node="n-1", epoch=2))
    assert job is not None
    assert (job.key, job.epoch, job.attempts) == ("t-1", 3, 1)
    assert heard == [], "nobody needs to look"
    assert await ready.do(jobs.enqueue, TENANT, work(node="n-2")) is None
    assert await keys(ready, "n-2") == []
    assert await ready.read(jobs.held_jobs, "n-1") == {job.id: 3}


# Claiming


async def test_urgent_work_comes_first_then_older_and_delayed_work_waits(ready: AnyStore) -> None:
    await ready.do(jobs.enqueue, TENANT, work("later", priority=-9, delay_ms=MINUTE))
    for key, priority in (("a", 5), ("b", 0), ("c", 0), ("d", -5)):
        await ready.do(jobs.enqueue, TENANT, work(key, priority=priority))
    assert await keys(ready, count=1) == ["d"]
    assert await keys(ready) == ["b", "c", "a"]
    assert await ready.do(jobs.claim, "n-1", "another", 10) == []
    assert await keys(ready) == []
    await ready.do(pass_time, MINUTE)
    assert await keys(ready) == ["later"]


async def test_older_work_is_done_first_whenever_it_was_added(ready: AnyStore) -> None:
    for key in ("a", "b"):
        await ready.do(jobs.enqueue, TENANT, work(key))
    (first,) = await ready.do(jobs.claim, "n-1", QUEUE, 1)
    await ready.do(pass_time, MINUTE)
    await ready.do(jobs.release, first)
    assert await keys(ready) == ["b", "a"], "what was given back has waited less"


async def test_claimed_jobs_are_exclusive(ready: AnyStore) -> None:
    for tenant in (TENANT, OTHER):
        for at in range(30):
            await ready.do(jobs.enqueue, tenant, work(f"{tenant}-{at}"))
    async with asyncio.timeout(BOUND_SECONDS):
        taken = await asyncio.gather(*(keys(ready, f"n-{at % 4}", 7) for at in range(16)))
    found = [key for some in taken for key in some]
    assert len(found) == len(set(found))
    found += await keys(ready)  # claims that ran at the same moment may have passed over each other's rows
    assert len(found) == len(set(found)) == 60


async def test_tenants_have_their_turns_however_much_one_of_them_wants(ready: AnyStore) -> None:
    for at in range(6):
        await ready.do(jobs.enqueue, TENANT, work(f"many-{at}"))
    for at in range(2):
        await ready.do(jobs.enqueue, OTHER, work(f"few-{at}"))
    assert await keys(ready, count=4) == ["many-0", "few-0", "many-1", "few-1"]
    for at in range(2, 4):
        await ready.do(jobs.enqueue, OTHER, work(f"few-{at}"))
    assert await keys(ready) == ["many-2", "few-2", "many-3", "few-3", "many-4", "many-5"]


async def test_a_tenant_with_less_running_comes_first(ready: AnyStore) -> None:
    for at in range(5):
        await ready.do(jobs.enqueue, TENANT, work(f"many-{at}"))
    assert len(await keys(ready, "n-2", 3)) == 3
    for at in range(4):
        await ready.do(jobs.enqueue, OTHER, work(f"few-{at}", priority=9))
    assert await keys(ready, count=4) == ["few-0", "few-1", "few-2", "many-3"]


async def test_a_tenant_runs_no_more_than_its_limit_on_all_nodes_together(ready: AnyStore) -> None:
    for at in range(5):
        await ready.do(jobs.enqueue, TENANT, work(f"many-{at}"))
    await ready.do(jobs.enqueue, OTHER, work("few-0"))
    assert await keys(ready, "n-1", tenant_limit=2) == ["many-0", "few-0", "many-1"]
    assert await keys(ready, "n-2", tenant_limit=2) == []
    assert await keys(ready, "n-2", tenant_limit=3) == ["many-2"]
    (held, *_) = await ready.read(jobs.held_jobs, "n-2")
    await ready.do(jobs.forget_node, "n-2")
    assert held
    assert await keys(ready, "n-2", tenant_limit=3) == ["many-2"]
    assert await keys(ready, "n-2") == ["many-3", "many-4"]


async def test_tenants_whose_work_cannot_run_yet_do_not_hide_the_others(ready: AnyStore) -> None:
    async def fill(tx: Tx) -> None:
        for at in range(MAX_TENANTS):
            await jobs.enqueue(tx, f"delayed-{at:03}", work("later", delay_ms=MINUTE))
            await jobs.enqueue(tx, f"full-{at:03}", work("held", node="n-2"))
            await jobs.enqueue(tx, f"full-{at:03}", work("waits"))
        await jobs.enqueue(tx, "zoo", work("now"))

    await ready.do(fill)
    assert await keys(ready, tenant_limit=1) == ["now"]


async def test_every_tenant_has_its_turn_however_many_there_are(ready: AnyStore) -> None:
    async def fill(tx: Tx) -> None:
        await jobs.enqueue(tx, "zoo", work("old"))
        await pass_time(tx, MINUTE)
        for at in range(MAX_TENANTS):
            await jobs.enqueue(tx, f"busy-{at:03}", work(f"new-{at}"))

    await ready.do(fill)
    assert await keys(ready, count=1) == ["old"]


async def test_a_claim_raises_the_fence_of_the_task(ready: AnyStore) -> None:
    for tenant in (TENANT, OTHER):
        for task_id in ("t-1", "t-2"):
            await ready.do(tasks.create_task, tenant, new(task_id))
    await ready.do(jobs.enqueue, TENANT, work("t-1"))
    await ready.do(jobs.enqueue, TENANT, NewJob(kind="mail", key="t-2"))
    first = {job.key: job for job in await ready.do(jobs.claim, "n-1", QUEUE, 10)}["t-1"]
    assert await ready.read(epochs) == ([0, 0, 0, 1], [1, 1]), "of its own task, and not for work of another kind"
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("a"), epoch=first.epoch))
    await ready.do(jobs.release, first)
    second = await only(ready, "n-2")
    assert (second.epoch, second.attempts) == (2, 2)
    with pytest.raises(Fenced):
        await ready.do(tasks.append, TENANT, appending("t-1", chunk("zombie"), epoch=first.epoch, after=1))
    assert await ready.do(tasks.append, TENANT, appending("t-1", chunk("b"), epoch=second.epoch, after=1)) == 2


async def test_named_jobs_can_be_taken_over(ready: AnyStore) -> None:
    for task_id in ("t-1", "t-2", "t-3"):
        await ready.do(tasks.create_task, TENANT, new(task_id))
        await ready.do(jobs.enqueue, TENANT, work(task_id, delay_ms=MINUTE))
    await ready.do(pass_time, MINUTE)
    found = {job.key: job.id for job in await ready.do(jobs.claim, "n-1", QUEUE, 2)}
    assert await ready.do(jobs.take, "n-2", []) == []
    taken = await ready.do(jobs.take, "n-2", [found["t-2"], found["t-1"]])
    assert [(job.key, job.epoch, job.attempts) for job in taken] == [("t-2", 2, 2), ("t-1", 2, 2)], "in this order"
    assert await ready.read(jobs.held_jobs, "n-1") == {}
    assert await ready.read(epochs) == ([0, 2, 2], [0, 2, 2])


# Finishing, giving back, parking


async def test_jobs_are_finished_or_released_by_the_holder(ready: AnyStore, heard: Heard) -> None:
    await ready.do(jobs.enqueue, TENANT, work())
    first = await only(ready)
    heard.clear()
    assert await ready.do(jobs.release, first) is True
    assert "queue:default" in heard
    second = await only(ready, "n-2")
    assert await ready.do(jobs.finish, first) is False
    assert await ready.do(jobs.release, first) is False
    assert await ready.do(jobs.park, first) is False
    assert await ready.read(jobs.held_jobs, "n-2") == {second.id: second.epoch}
    assert await ready.do(jobs.finish, second) is True
    assert await ready.do(jobs.finish, second) is False
    assert await ready.read(table, "job") == []


async def test_ending_jobs_delete_only_their_timers(ready: AnyStore) -> None:
    run = await ready.do(jobs.enqueue, TENANT, work(node="n-1"))
    assert run is not None
    for kind in (DEADLINE, SLA, "mail"):
        await ready.do(jobs.enqueue, TENANT, NewJob(kind=kind, key="t-1", queue=TIMERS))
    await ready.do(jobs.enqueue, TENANT, NewJob(kind=DEADLINE, key="t-2", queue=TIMERS))
    await ready.do(jobs.enqueue, OTHER, NewJob(kind=DEADLINE, key="t-1", queue=TIMERS))
    await ready.do(jobs.finish_last, run)
    left = await ready.read(table, "job", "tenant, kind, key")
    assert sorted(left) == sorted([(TENANT, "mail", "t-1"), (TENANT, DEADLINE, "t-2"), (OTHER, DEADLINE, "t-1")])


@pytest.mark.parametrize("store", ["sqlite-memory"], indirect=True)
async def test_work_that_ends_its_task_looks_at_no_other_jobs_of_the_tenant(ready: AnyStore) -> None:
    run = await ready.do(jobs.enqueue, TENANT, work(node="n-1"))
    assert run is not None

    async def explained(tx: Tx) -> str:
        plans: list[Any] = []

        class Explaining:
            async def run(self, sql: str, /, **values: Any) -> None:
                plans.append(await tx.all(f"EXPLAIN QUERY PLAN {sql}", **values))

        await jobs.finish_last(cast(Tx, Explaining()), run)
        return str(plans)

    assert "(tenant=? AND kind=? AND key=?)" in await ready.read(explained)


async def test_fired_timers_and_lost_jobs_stay_with_their_holder(ready: AnyStore) -> None:
    run = await ready.do(jobs.enqueue, TENANT, work(node="n-1"))
    timer = await ready.do(jobs.enqueue, TENANT, NewJob(kind=DEADLINE, key="t-1", queue=TIMERS, node="n-2"))
    assert run is not None
    assert timer is not None
    (now,) = await ready.do(jobs.take, "n-3", [run.id])
    await ready.do(jobs.finish_last, run)
    assert await ready.read(jobs.held_jobs, "n-2") == {timer.id: timer.epoch}
    assert await ready.read(jobs.held_jobs, "n-3") == {now.id: now.epoch}


async def test_late_writers_do_not_touch_reused_job_ids(ready: AnyStore) -> None:
    first = await ready.do(jobs.enqueue, TENANT, work("t-1", node="n-1"))
    assert first is not None
    assert await ready.do(jobs.finish, first)
    second = await ready.do(jobs.enqueue, TENANT, work("t-2", node="n-2"))
    assert second is not None
    assert await ready.do(jobs.release, first) is False
    assert await ready.do(jobs.park, first) is False
    assert await ready.do(jobs.finish, first) is False
    assert await ready.read(jobs.held_jobs, "n-2") == {second.id: second.epoch}


async def test_work_given_back_is_done_again_after_its_delay(ready: AnyStore) -> None:
    await ready.do(jobs.enqueue, TENANT, work())
    job = await only(ready)
    assert await ready.do(jobs.release, job, delay_ms=MINUTE)
    assert await keys(ready) == []
    await ready.do(pass_time, MINUTE)
    assert (await only(ready)).attempts == 2


async def test_work_handed_over_in_good_order_has_not_failed(ready: AnyStore) -> None:
    await ready.do(jobs.enqueue, TENANT, work())
    assert await ready.do(jobs.release, await only(ready), counts=False)
    assert (await only(ready)).attempts == 1


async def test_work_can_be_given_back_by_its_number(ready: AnyStore, heard: Heard) -> None:
    await ready.do(jobs.enqueue, TENANT, work())
    job = await only(ready)
    heard.clear()
    for id, epoch in ((job.id, job.epoch + 1), (job.id + 1, job.epoch)):
        await ready.do(jobs.release_id, id, epoch)
    assert heard == []
    assert await keys(ready) == []
    await ready.do(jobs.release_id, job.id, job.epoch)
    assert heard == ["queue:default"]
    assert (await only(ready, "n-2")).attempts == 2


async def test_parked_work_is_not_claimed_and_stands_in_nobodys_way(ready: AnyStore, heard: Heard) -> None:
    await ready.do(jobs.enqueue, TENANT, work("parked", priority=-9))
    job = await only(ready)
    heard.clear()
    assert await ready.do(jobs.park, job) is True
    assert heard == []
    await ready.do(pass_time, 1_000_000 * MINUTE)
    for at in range(3):
        await ready.do(jobs.enqueue, TENANT, work(f"t-{at}"))
    assert await keys(ready, tenant_limit=3) == ["t-0", "t-1", "t-2"], "nor does it count as running"
    assert await ready.read(jobs.held_jobs, "n-1") != {}
    ((_, parked, node, attempts),) = [
        row for row in await ready.read(table, "job", "key, parked, node, attempts") if row[0] == "parked"
    ]
    assert (parked, node, attempts) == (1, None, 0)


async def test_only_a_held_task_has_a_held_queue(ready: AnyStore) -> None:
    await ready.do(
        task_lifecycle.accept_task, TENANT, accepting("held", work=task_lifecycle.JobOptions(queue=AGENT, is_held=True))
    )
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("due", message_id="m-2"))
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("taken", message_id="m-3", node="n-1"))
    queues = [await ready.do(jobs.held_queue, TENANT, task_id) for task_id in ("held", "due", "taken", "none")]
    assert queues == [AGENT, None, None, None]


async def test_work_parked_for_a_while_is_due_after_it_as_if_it_were_new(ready: AnyStore, heard: Heard) -> None:
    await ready.do(jobs.enqueue, TENANT, work())
    job = await only(ready)
    heard.clear()
    assert await ready.do(jobs.park, job, MINUTE) is True
    assert heard == ["queue:default"], "whoever waits for the next due time must look again"
    assert await keys(ready) == []
    await ready.do(pass_time, MINUTE)
    again = await only(ready)
    assert (again.epoch, again.attempts) == (2, 1)


# Nodes


async def test_heartbeats_return_held_jobs(ready: AnyStore) -> None:
    for at in range(3):
        await ready.do(jobs.enqueue, TENANT, work(f"t-{at}"))
    assert await ready.do(jobs.heartbeat, "n-1", MINUTE, 1, '{"pid": 7}') == jobs.HeartbeatAnswer(held={}, peers=[])
    mine = await ready.do(jobs.claim, "n-1", QUEUE, 2)
    await ready.do(jobs.claim, "n-2", QUEUE, 2)
    beat = await ready.do(jobs.heartbeat, "n-1", MINUTE, 2)
    assert beat == jobs.HeartbeatAnswer(held={job.id: job.epoch for job in mine}, peers=[], before=1)
    assert (await ready.do(jobs.heartbeat, "n-2", MINUTE)).peers == [jobs.PeerNode("n-1", 2, '{"pid": 7}')]
    assert await ready.read(jobs.held_jobs, "n-1") == {job.id: job.epoch for job in mine}
    assert await ready.read(jobs.held_jobs, "n-3") == {}
    assert await ready.read(table, "node", "id, draining") == [("n-1", 0), ("n-2", 0)]


async def test_leaving_nodes_release_their_jobs(ready: AnyStore, heard: Heard) -> None:
    await ready.do(jobs.heartbeat, "n-1", MINUTE)
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(webhooks.put, TENANT, "t-1", webhook(), "v1")
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("a")))
    (sent,) = await ready.do(webhook_deliveries.claim_webhooks, "n-1", 1)
    for key, queue in (("t-1", "default"), ("t-2", "other")):
        await ready.do(jobs.enqueue, TENANT, work(key, queue=queue))
        await ready.do(jobs.claim, "n-1", queue, 1)
    await ready.do(jobs.enqueue, TENANT, work("t-3", node="n-2"))
    heard.clear()
    await ready.do(jobs.forget_node, "n-1")
    assert set(heard) == {"push", "queue:default", "queue:other"}
    assert await ready.read(table, "node") == []
    (job,) = await ready.do(jobs.claim, "n-3", QUEUE, 9)
    assert (job.key, job.epoch, job.attempts) == ("t-1", 2, 1), "leaving is no failure"
    (due,) = await ready.do(webhook_deliveries.claim_webhooks, "n-3", 9)
    assert due.epoch == sent.epoch + 1
    assert len(await ready.read(jobs.held_jobs, "n-2")) == 1
    await ready.do(jobs.forget_node, "nobody")


async def test_a_node_that_vanished_has_failed(ready: AnyStore) -> None:
    await ready.do(jobs.enqueue, TENANT, work(node="n-1"))
    await ready.do(jobs.forget_node, "n-1", counts=True)
    assert (await only(ready)).attempts == 2


async def test_deadlines_are_corrected_after_the_clock_jumped(ready: AnyStore) -> None:
    now = await ready.read(jobs.store_time)
    accept = accepting("t-1", deadline_ms=MINUTE)
    await ready.do(
        task_lifecycle.accept_task, TENANT, replace(accept, new=replace(accept.new, deadline_at=now + MINUTE))
    )

    await ready.do(jobs.align_due_times, now - MINUTE)

    aligned = dict(await ready.read(table, "job", "kind, run_at"))
    later = await ready.read(jobs.store_time)
    assert now + 2 * MINUTE <= aligned[DEADLINE] <= later + 2 * MINUTE
    assert aligned[EXECUTE_TASK] <= later


async def test_the_last_sla_of_a_task_is_its_limit(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(jobs.enqueue, TENANT, work())
    job = await only(ready)
    assert await ready.read(jobs.limit_of, job) is None
    for at, (key, output) in enumerate((("a/sla:1", "100"), ("a/sla:2", "200"), ("other", "300"))):
        await ready.do(steps.put_step, TENANT, "t-1", key, output, at)
    assert await ready.read(jobs.limit_of, job) == 200
