"""Runs: a task is accepted once, continued, settled, woken, ended from outside or given up, and never half of it."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from accord.model import MessageUpdate, StatusUpdate, TaskState
from accord.storage.commands import jobs, steps, task_endings, task_lifecycle, tasks, webhook_deliveries
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, SLA
from accord.storage.commands.task_endings import NoSuchTask, TaskHasEnded, TaskTimer
from accord.storage.commands.task_lifecycle import (
    IDEMPOTENCY_MS,
    Acceptance,
    AlreadySignaled,
    ContextMismatch,
    IdempotencyConflict,
    JobOptions,
)
from accord.storage.commands.tasks import Behind, EndedTask, Fenced
from tests.storage.conftest import (
    AGENT,
    AT,
    BOUND_SECONDS,
    MINUTE,
    OTHER,
    TENANT,
    AnyStore,
    Heard,
    accepting,
    appending,
    bodies,
    chunk,
    claimed,
    ending,
    message,
    news,
    overlapped,
    parked,
    pass_time,
    postgres_only,
    saying,
    settling,
    status,
    stored,
    table,
    waiting,
    webhook,
)

S = TaskState


# Accepting


async def test_a_message_makes_a_task_that_waits_to_be_run(ready: AnyStore, heard: Heard) -> None:
    work = JobOptions(queue="slow", priority=3, max_attempts=5)
    done = await ready.do(task_lifecycle.accept_task, TENANT, accepting(work=work, message_id="m-7"))
    assert (done.task_id, done.is_repeated, done.job) == ("t-1", False, None)
    assert sorted(heard) == ["queue:slow", "task:acme:t-1"]
    assert ((await stored(ready)).epoch, await bodies(ready)) == (0, [])
    job = await claimed(ready, queue="slow")
    assert (job.kind, job.key, job.arg, job.max_attempts, job.epoch) == (EXECUTE_TASK, "t-1", "m-7", 5, 1)
    assert (await stored(ready)).epoch == 1


async def test_a_node_may_take_the_task_it_accepts(ready: AnyStore, heard: Heard) -> None:
    request = accepting(node="n-1", working=status(S.WORKING), push=webhook(), deadline_ms=MINUTE)
    done = await ready.do(task_lifecycle.accept_task, TENANT, request)
    assert done.job is not None
    assert (done.job.key, done.job.arg, done.job.epoch, done.job.attempts) == ("t-1", "m-1", 1, 1)
    assert f"queue:{AGENT}" not in heard
    found = await stored(ready)
    assert (found.task_state, found.epoch, found.last_seq, found.doc_seq) == (S.WORKING, 1, 1, 1)
    assert found.task().status.state is S.WORKING
    assert await ready.read(jobs.held_jobs, "n-1") == {done.job.id: 1}
    assert await waiting(ready) == [(DEADLINE, "t-1"), (EXECUTE_TASK, "t-1")]
    (due,) = await ready.do(webhook_deliveries.claim_webhooks, "n-1", 1)
    assert (due.cursor, due.dialect) == (0, "v1"), "also the first event is sent"
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("a"), epoch=1, after=1))


async def test_only_the_claiming_node_sets_working(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(working=status(S.WORKING), push=webhook()))
    assert (await stored(ready)).task_state is S.SUBMITTED
    assert await bodies(ready) == []
    assert await ready.do(webhook_deliveries.claim_webhooks, "n-1", 1) == []


async def test_the_same_message_makes_one_task(ready: AnyStore) -> None:
    for tenant in (TENANT, OTHER):
        assert not (await ready.do(task_lifecycle.accept_task, tenant, accepting(key="alice/m-1"))).is_repeated
    again = await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-2", key="alice/m-1", node="n-1"))
    assert (again.task_id, again.is_repeated, again.job) == ("t-1", True, None)
    assert not (await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-3", key="alice/m-2"))).is_repeated
    assert await ready.read(table, "task", "tenant, id") == [(TENANT, "t-1"), (TENANT, "t-3"), (OTHER, "t-1")]
    assert len(await waiting(ready)) == 3


async def test_the_same_message_sent_at_the_same_time_makes_one_task(ready: AnyStore) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        done = await asyncio.gather(
            *(ready.do(task_lifecycle.accept_task, TENANT, accepting(f"t-{at}", key="alice/m-1")) for at in range(10))
        )
    (first,) = [one for one in done if not one.is_repeated]
    assert {one.task_id for one in done} == {first.task_id}
    assert await ready.read(table, "task", "tenant, id") == [(TENANT, first.task_id)]
    assert await waiting(ready) == [(EXECUTE_TASK, first.task_id)]


async def test_under_one_name_one_message_is_sent(ready: AnyStore) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        done = await asyncio.gather(
            *(
                ready.do(task_lifecycle.accept_task, TENANT, accepting(f"t-{at}", key=f"said {at % 2}", name="alice/k"))
                for at in range(10)
            ),
            return_exceptions=True,
        )
    assert [type(one) for one in done].count(IdempotencyConflict) == 5
    kept = [one for one in done if isinstance(one, Acceptance)]
    (first,) = [one for one in kept if not one.is_repeated]
    assert {one.task_id for one in kept} == {first.task_id}
    assert await ready.read(table, "task", "tenant, id") == [(TENANT, first.task_id)]
    said = f"said {int(first.task_id[2:]) % 2}"
    assert sorted(await ready.read(table, "idempotency", "key, task_id")) == sorted(
        [("alice/k", first.task_id), (said, first.task_id)]
    )
    with pytest.raises(IdempotencyConflict):
        await ready.do(task_lifecycle.add_message, TENANT, saying(first.task_id, key="said otherwise", name="alice/k"))
    assert await bodies(ready, first.task_id) == []
    await ready.do(pass_time, IDEMPOTENCY_MS + MINUTE)
    assert not (
        await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-99", key="said 9", name="alice/k"))
    ).is_repeated


async def test_after_a_day_the_same_message_is_another(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(key="alice/m-1"))
    await ready.do(pass_time, IDEMPOTENCY_MS - MINUTE)
    assert (await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-2", key="alice/m-1"))).is_repeated
    await ready.do(pass_time, 2 * MINUTE)
    for repeated in (False, True):
        done = await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-3", key="alice/m-1"))
        assert (done.task_id, done.is_repeated) == ("t-3", repeated)


async def test_a_task_that_cannot_be_kept_leaves_nothing(queued: AnyStore) -> None:
    with pytest.raises(Exception, match=r"(?i)unique"):
        await queued.do(
            task_lifecycle.accept_task, TENANT, accepting("t-1", key="alice/m-2", deadline_ms=MINUTE, push=webhook())
        )
    assert await waiting(queued) == [(EXECUTE_TASK, "t-1")]
    assert await queued.read(table, "idempotency") == []
    assert (await stored(queued)).pushes == 0


# Saying


async def test_a_message_joins_the_history_of_its_task(ready: AnyStore, heard: Heard) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    heard.clear()
    done = await ready.do(task_lifecycle.add_message, TENANT, saying(text="more", at=AT + 1, push=webhook()))
    assert (done.task_id, done.is_repeated, done.job) == ("t-1", False, None)
    assert {f"task:{TENANT}:t-1", f"queue:{AGENT}"} <= set(heard)
    found = await stored(ready)
    assert [said.message_id for said in found.task().history] == ["m-more"]
    assert (found.task_state, found.updated_at, found.pushes) == (S.SUBMITTED, AT, 1)
    assert (found.doc_seq, found.last_seq) == (0, 1), "the snapshot is not written anew"
    assert found.task().history[0].context_id == "c-1"
    (due,) = await ready.do(webhook_deliveries.claim_webhooks, "n-1", 1)
    assert due.cursor == 0, "the webhook that came with the message gets it"


@pytest.mark.parametrize("state", [S.INPUT_REQUIRED, S.AUTH_REQUIRED])
async def test_answered_tasks_return_to_working(queued: AnyStore, state: TaskState) -> None:
    job = await claimed(queued)
    await queued.do(task_lifecycle.settle_execution, TENANT, settling(job, state))
    assert await waiting(queued) == []
    await queued.do(task_lifecycle.add_message, TENANT, saying(at=AT + 1))
    found = await stored(queued)
    assert (found.task_state, found.updated_at) == (S.WORKING, AT + 1)
    assert [type(body) for body in await bodies(queued)] == [StatusUpdate, StatusUpdate, MessageUpdate]
    again = await claimed(queued, "n-2")
    assert (again.arg, again.epoch, again.attempts) == ("m-more", 2, 1)
    with pytest.raises(Fenced):
        await queued.do(tasks.append, TENANT, appending("t-1", chunk("late"), epoch=job.epoch, after=3))
    await queued.do(tasks.append, TENANT, appending("t-1", chunk("a"), epoch=again.epoch, after=3))


async def test_a_node_may_take_the_task_that_it_continues(queued: AnyStore) -> None:
    job = await claimed(queued)
    await queued.do(task_lifecycle.settle_execution, TENANT, settling(job, S.INPUT_REQUIRED))
    done = await queued.do(task_lifecycle.add_message, TENANT, saying(node="n-2"))
    assert done.job is not None
    assert (done.job.epoch, done.job.attempts, done.job.arg) == (2, 1, "m-more")
    assert (await stored(queued)).epoch == 2
    await queued.do(tasks.append, TENANT, appending("t-1", chunk("a"), epoch=2, after=3))


async def test_messages_return_the_task_and_its_steps(queued: AnyStore) -> None:
    await queued.do(steps.put_step, TENANT, "t-1", "answer", "42", AT)
    for node, known in ((None, {}), ("n-2", {"answer": "42"}), ("n-3", {})):
        done = await queued.do(task_lifecycle.add_message, TENANT, saying(node=node, key=f"{node}"))
        assert (done.stored, done.steps) == (await stored(queued), known)
    again = await queued.do(task_lifecycle.add_message, TENANT, saying(node="n-2", key="n-2"))
    assert (again.is_repeated, again.stored, again.steps) == (True, await stored(queued), {})


async def test_messages_of_other_contexts_are_refused(queued: AnyStore) -> None:
    for context_id in ("c-2", ""):
        with pytest.raises(ContextMismatch):
            await queued.do(
                task_lifecycle.add_message,
                TENANT,
                saying(message=replace(message("more"), context_id=context_id), key="alice/m-2"),
            )
    assert (await bodies(queued), await queued.read(table, "idempotency")) == ([], [])
    await queued.do(task_lifecycle.add_message, TENANT, saying(message=replace(message("more"), context_id="c-1")))


async def test_a_message_to_a_parked_task_makes_it_due(queued: AnyStore) -> None:
    await parked(queued)
    assert (await queued.do(task_lifecycle.add_message, TENANT, saying())).job is None
    job = await claimed(queued)
    assert (job.arg, job.attempts) == ("m-1", 1), "the work is the same; it finds the message in the log"


async def test_a_message_to_a_parked_task_may_take_it(queued: AnyStore) -> None:
    await parked(queued)
    done = await queued.do(task_lifecycle.add_message, TENANT, saying(node="n-2"))
    assert done.job is not None
    assert (await stored(queued)).epoch == done.job.epoch == 2
    assert await queued.read(jobs.held_jobs, "n-2") == {done.job.id: 2}
    await queued.do(jobs.forget_node, "n-2")
    assert (await claimed(queued)).key == "t-1", "it is not parked any more"


async def test_a_message_hurries_work_that_was_put_off(queued: AnyStore) -> None:
    await queued.do(jobs.release, await claimed(queued), delay_ms=MINUTE)
    await queued.do(task_lifecycle.add_message, TENANT, saying())
    assert (await claimed(queued)).attempts == 2


async def test_a_message_to_a_task_that_runs_is_found_by_its_worker(queued: AnyStore) -> None:
    job = await claimed(queued)
    assert (await queued.do(task_lifecycle.add_message, TENANT, saying(node="n-2"))).job is None
    assert await queued.read(jobs.held_jobs, "n-2") == {}
    with pytest.raises(Behind):
        await queued.do(task_lifecycle.settle_execution, TENANT, settling(job, S.COMPLETED))
    assert (await stored(queued)).task_state is S.SUBMITTED
    assert await queued.read(jobs.held_jobs, "n-1") == {job.id: job.epoch}
    await queued.do(task_lifecycle.settle_execution, TENANT, settling(job, S.COMPLETED, after=1))


async def test_a_repeated_message_is_added_once(queued: AnyStore) -> None:
    assert not (await queued.do(task_lifecycle.add_message, TENANT, saying(key="alice/m-2"))).is_repeated
    async with asyncio.timeout(BOUND_SECONDS):
        done = await asyncio.gather(
            *(queued.do(task_lifecycle.add_message, TENANT, saying(key="alice/m-2")) for _ in range(4))
        )
    assert {(one.task_id, one.is_repeated) for one in done} == {("t-1", True)}
    assert len(await bodies(queued)) == 1
    await queued.do(task_endings.end_task, TENANT, ending())
    assert (await queued.do(task_lifecycle.add_message, TENANT, saying(key="alice/m-2"))).is_repeated, (
        "it was said before the end"
    )


@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED, S.UNKNOWN])
async def test_ended_tasks_accept_no_messages(queued: AnyStore, state: TaskState) -> None:
    await queued.do(task_endings.end_task, TENANT, ending(state))
    with pytest.raises(TaskHasEnded) as caught:
        await queued.do(task_lifecycle.add_message, TENANT, saying(key="alice/m-2", push=webhook()))
    assert caught.value.state is state
    assert len(await bodies(queued)) == 1
    assert (await waiting(queued), await queued.read(table, "idempotency")) == ([], [])


async def test_only_the_owner_messages_or_ends_a_task(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    foreign: list[tuple[str, dict[str, Any]]] = [
        (OTHER, {}),
        (TENANT, {"task_id": "t-2"}),
        (TENANT, {"owner": "mallory"}),
        (TENANT, {"agent": "planner"}),
        (TENANT, {"owner": "alice", "agent": "planner"}),
    ]
    for tenant, fields in foreign:
        with pytest.raises(NoSuchTask):
            await ready.do(task_lifecycle.add_message, tenant, saying(**{"key": "k", **fields}))
        with pytest.raises(NoSuchTask):
            await ready.do(task_endings.end_task, tenant, ending(**fields))
    assert await ready.read(table, "idempotency") == []
    await ready.do(task_lifecycle.add_message, TENANT, saying(owner="alice", agent=AGENT))
    ended = await ready.do(task_endings.end_task, TENANT, ending(owner="alice", agent=AGENT))
    assert ended == [EndedTask(TENANT, "t-1", AGENT, S.CANCELED)]


# Settling


async def test_a_run_that_ends_takes_its_job_and_its_timers_along(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(deadline_ms=MINUTE))
    for tenant, task_id, kind in ((TENANT, "t-1", SLA), (TENANT, "t-2", SLA), (OTHER, "t-1", SLA)):
        await ready.do(task_endings.set_timer, tenant, TaskTimer(task_id=task_id, kind=kind, delay_ms=MINUTE))
    job = await claimed(ready)
    told = await ready.do(task_lifecycle.settle_execution, TENANT, settling(job, S.COMPLETED))
    assert told == [EndedTask(TENANT, "t-1", AGENT, S.COMPLETED)]
    found = await stored(ready)
    assert (found.task_state, found.doc_seq) == (S.COMPLETED, 1)
    assert sorted(await ready.read(table, "job", "tenant, key")) == [(TENANT, "t-2"), (OTHER, "t-1")]


async def test_a_run_that_waits_for_its_caller_keeps_its_timers(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(deadline_ms=MINUTE))
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(await claimed(ready), S.INPUT_REQUIRED))
    assert await waiting(ready) == [(DEADLINE, "t-1")]


async def test_a_worker_that_lost_its_claim_settles_nothing(queued: AnyStore) -> None:
    await queued.do(steps.put_step, TENANT, "t-1", "answer", "42", AT)
    lost = await claimed(queued)
    await queued.do(jobs.forget_node, "n-1")
    job = await claimed(queued, "n-2")
    for parks in (False, True):
        with pytest.raises(Fenced):
            await queued.do(task_lifecycle.settle_execution, TENANT, settling(lost, S.COMPLETED, parks=parks))
    assert await queued.read(jobs.held_jobs, "n-2") == {job.id: job.epoch}
    assert await bodies(queued) == []


async def test_parked_work_is_woken_and_claimed_as_if_it_were_new(ready: AnyStore, heard: Heard) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    await parked(ready, awaited="answer")
    assert await ready.do(jobs.claim, "n-1", AGENT, 1) == []
    heard.clear()
    assert await ready.do(task_lifecycle.deliver_signal, TENANT, news()) is True
    assert sorted(heard) == [f"queue:{AGENT}", f"task:{TENANT}:t-1"], "whoever claims, or a run that goes on"
    job = await claimed(ready, "n-2")
    assert (job.epoch, job.attempts) == (2, 1)
    assert await ready.read(steps.find_step, TENANT, "t-1", "answer") == "42"


async def test_timed_suspensions_resume(queued: AnyStore) -> None:
    await parked(queued, awaited="answer", delay_ms=MINUTE)
    assert await queued.do(jobs.claim, "n-1", AGENT, 1) == []
    await queued.do(pass_time, MINUTE)
    await claimed(queued)


async def test_jobs_do_not_suspend_for_present_signals(queued: AnyStore) -> None:
    job = await claimed(queued)
    assert await queued.do(task_lifecycle.deliver_signal, TENANT, news()) is True
    assert await queued.do(jobs.claim, "n-2", AGENT, 1) == [], "it is being done"
    with pytest.raises(AlreadySignaled):
        await queued.do(task_lifecycle.settle_execution, TENANT, settling(job, S.WORKING, parks=True, awaited="answer"))
    assert await bodies(queued) == []
    assert await queued.read(jobs.held_jobs, "n-1") == {job.id: job.epoch}
    await queued.do(task_lifecycle.settle_execution, TENANT, settling(job, S.WORKING, parks=True, awaited="another"))


@postgres_only
async def test_work_is_not_parked_over_news_that_are_being_committed(queued: AnyStore) -> None:
    job = await claimed(queued)
    request = settling(job, S.WORKING, parks=True, awaited="answer")
    woken, outcome = await overlapped(
        queued,
        lambda tx: task_lifecycle.deliver_signal(tx, TENANT, news()),
        lambda tx: task_lifecycle.settle_execution(tx, TENANT, request),
    )
    assert woken is True
    assert isinstance(outcome, AlreadySignaled)


async def test_signals_and_suspension_never_miss_each_other(ready: AnyStore) -> None:
    async def race(at: int) -> bool:
        job = (await ready.do(task_lifecycle.accept_task, TENANT, accepting(f"t-{at}", node="n-1"))).job
        assert job is not None
        request = settling(job, S.WORKING, parks=True, awaited="answer")
        settled, woken = await asyncio.gather(
            ready.do(task_lifecycle.settle_execution, TENANT, request),
            ready.do(task_lifecycle.deliver_signal, TENANT, news(task_id=f"t-{at}")),
            return_exceptions=True,
        )
        assert woken is True
        assert settled == [] or isinstance(settled, AlreadySignaled)
        return settled == []

    async with asyncio.timeout(BOUND_SECONDS):
        parked_first = await asyncio.gather(*(race(at) for at in range(20)))
    due = await ready.do(jobs.claim, "n-2", AGENT, 50)
    held = await ready.read(jobs.held_jobs, "n-1")
    assert (len(due), len(held)) == (sum(parked_first), 20 - sum(parked_first)), "nothing stays parked"


# Waking


async def test_news_come_once(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    await parked(ready, awaited="answer")
    assert await ready.do(task_lifecycle.deliver_signal, TENANT, news()) is True
    await parked_again(ready)
    assert await ready.do(task_lifecycle.deliver_signal, TENANT, news(output="43")) is False
    assert await ready.do(jobs.claim, "n-1", AGENT, 1) == []
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"answer": "42"}
    assert await ready.do(task_lifecycle.deliver_signal, TENANT, news("another")) is True
    await claimed(ready)


async def parked_again(store: AnyStore) -> None:
    job = await claimed(store)
    await store.do(task_lifecycle.settle_execution, TENANT, settling(job, S.WORKING, after=1, parks=True))


async def test_unexpected_signals_resume_no_job(queued: AnyStore) -> None:
    await parked(queued)
    assert await queued.do(task_lifecycle.deliver_signal, TENANT, news(task_id="t-2")) is False
    assert await queued.do(task_lifecycle.deliver_signal, OTHER, news()) is False
    await queued.do(task_endings.end_task, TENANT, ending())
    assert await queued.do(task_lifecycle.deliver_signal, TENANT, news()) is False
    assert (await waiting(queued), await queued.read(table, "step")) == ([], [])


async def test_late_signals_for_unknown_tasks_are_processed(queued: AnyStore) -> None:
    lost = await claimed(queued)
    await queued.do(task_endings.end_task, TENANT, ending(S.UNKNOWN))
    assert await queued.do(task_lifecycle.deliver_signal, TENANT, news()) is True
    job = await claimed(queued)
    assert (await stored(queued)).epoch == job.epoch > lost.epoch + 1
    await queued.do(task_lifecycle.settle_execution, TENANT, settling(job, S.COMPLETED, after=1))
    assert (await stored(queued)).task().status.state is S.COMPLETED


async def test_held_tasks_start_once(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(work=JobOptions(queue=AGENT, is_held=True)))
    assert await ready.do(jobs.claim, "n-1", AGENT, 10) == []
    begin = task_lifecycle.StartRequest(
        task_id="t-1", at=AT, owner="alice", agent=AGENT, node="n-1", deadline_at=AT + MINUTE
    )
    begun = await ready.do(task_lifecycle.start_held_task, TENANT, begin)
    assert begun.job is not None
    assert not begun.is_repeated
    assert begun.stored.deadline_at == AT + MINUTE
    assert sorted(await waiting(ready)) == [("deadline", "t-1"), ("run", "t-1")]
    again = await ready.do(task_lifecycle.start_held_task, TENANT, begin)
    assert again.is_repeated
    assert again.job is None
    with pytest.raises(NoSuchTask):
        await ready.do(task_lifecycle.start_held_task, TENANT, replace(begin, owner="bob"))
