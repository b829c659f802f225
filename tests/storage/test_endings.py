"""Ends: a task is ended from outside, by a timer, or because whoever ran it is gone; each of them once and for good."""

import asyncio

import pytest

from accord.model import TaskState, TaskStatus
from accord.model.base import timestamp_ms
from accord.storage.commands import jobs, task_endings, task_lifecycle, tasks, webhook_deliveries
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, SLA, TIMERS, HeartbeatAnswer
from accord.storage.commands.task_endings import ReapedNodes, TaskHasEnded, TaskTimer
from accord.storage.commands.task_lifecycle import JobOptions, TaskSignal
from accord.storage.commands.tasks import EndedTask, Fenced
from tests.storage.conftest import (
    AGENT,
    AT,
    BOUND_SECONDS,
    MINUTE,
    TENANT,
    AnyStore,
    Heard,
    accepting,
    appending,
    bodies,
    chunk,
    claimed,
    ending,
    overlapped,
    parked,
    pass_time,
    postgres_only,
    settling,
    status,
    stored,
    waiting,
    webhook,
)

S = TaskState


def ends(state: TaskState, task_id: str = "t-1") -> list[EndedTask]:
    """What a command says that ended one task."""
    return [EndedTask(TENANT, task_id, AGENT, state)]


# Ending


async def test_a_task_can_be_ended_while_another_node_runs_it(ready: AnyStore, heard: Heard) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(deadline_ms=MINUTE, push=webhook()))
    await ready.do(task_endings.set_timer, TENANT, TaskTimer(task_id="t-1", kind=SLA, delay_ms=MINUTE))
    job = await claimed(ready)
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("a"), epoch=job.epoch))
    heard.clear()
    assert await ready.do(task_endings.end_task, TENANT, ending()) == ends(S.CANCELED)
    assert {"node:n-1", f"task:{TENANT}:t-1", "push"} <= set(heard)
    found = await stored(ready)
    assert (found.task_state, found.updated_at, found.last_seq, found.events) == (S.CANCELED, AT + 5, 2, ())
    assert (found.task().status.state, len(found.task().artifacts)) == (S.CANCELED, 1)
    assert await waiting(ready) == []
    for after in (1, 2):
        with pytest.raises(Fenced):
            await ready.do(tasks.append, TENANT, appending("t-1", chunk("b"), epoch=job.epoch, after=after))
        with pytest.raises(Fenced):
            await ready.do(task_lifecycle.settle_execution, TENANT, settling(job, S.COMPLETED, after=after))
    assert await ready.do(jobs.finish, job) is False


async def test_unclaimed_tasks_end_directly(queued: AnyStore, heard: Heard) -> None:
    await parked(queued)
    heard.clear()
    await queued.do(task_endings.end_task, TENANT, ending())
    assert not [topic for topic in heard if topic.startswith("node:")]
    assert await waiting(queued) == []


async def test_a_task_ends_once(queued: AnyStore) -> None:
    async with asyncio.timeout(BOUND_SECONDS):
        outcomes = await asyncio.gather(
            *(queued.do(task_endings.end_task, TENANT, ending()) for _ in range(5)), return_exceptions=True
        )
    assert outcomes.count(ends(S.CANCELED)) == 1
    assert [outcome.state for outcome in outcomes if isinstance(outcome, TaskHasEnded)] == [S.CANCELED] * 4
    assert len(await bodies(queued)) == 1


async def test_a_task_given_up_as_unknown_can_still_be_ended(queued: AnyStore) -> None:
    assert await queued.do(task_endings.end_task, TENANT, ending(S.UNKNOWN)) == ends(S.UNKNOWN)
    assert await queued.do(task_endings.end_task, TENANT, ending(S.FAILED)) == ends(S.FAILED)
    with pytest.raises(TaskHasEnded):
        await queued.do(task_endings.end_task, TENANT, ending(S.UNKNOWN))


# Timers


def failed(at: int = AT) -> TaskStatus:
    return TaskStatus(state=S.FAILED, timestamp=timestamp_ms(at))


async def test_a_timer_ends_its_task(ready: AnyStore, heard: Heard) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(deadline_ms=MINUTE))
    await ready.do(task_endings.set_timer, TENANT, TaskTimer(task_id="t-1", kind=SLA, delay_ms=2 * MINUTE, arg="late"))
    run = await claimed(ready)
    assert await ready.do(jobs.claim, "n-2", TIMERS, 9) == []
    await ready.do(pass_time, MINUTE)
    timer = await claimed(ready, "n-2", TIMERS)
    assert (timer.kind, timer.key, timer.arg) == (DEADLINE, "t-1", None)
    assert (await stored(ready)).epoch == run.epoch, "a timer takes no task from its worker"
    heard.clear()
    assert await ready.do(task_endings.expire_timer, timer, failed(), AT) == ends(S.FAILED)
    assert "node:n-1" in heard
    assert ((await stored(ready)).task_state, await waiting(ready)) == (S.FAILED, [])
    with pytest.raises(Fenced):
        await ready.do(task_lifecycle.settle_execution, TENANT, settling(run, S.COMPLETED))


async def test_a_timer_whose_task_has_ended_only_goes(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(deadline_ms=0))
    timer = await claimed(ready, "n-2", TIMERS)
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(await claimed(ready), S.COMPLETED))
    assert await waiting(ready) == [(DEADLINE, "t-1")], "whoever holds it removes it"
    assert await ready.do(task_endings.expire_timer, timer, failed(), AT) == []
    assert await waiting(ready) == []
    assert (await stored(ready)).task_state is S.COMPLETED
    await ready.do(task_endings.set_timer, TENANT, TaskTimer(task_id="nowhere", kind=SLA, delay_ms=0))
    assert await ready.do(task_endings.expire_timer, await claimed(ready, "n-2", TIMERS), failed(), AT) == []


async def test_setting_a_timer_again_moves_it(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(deadline_ms=MINUTE))
    await ready.do(
        task_endings.set_timer, TENANT, TaskTimer(task_id="t-1", kind=DEADLINE, delay_ms=3 * MINUTE, arg="moved")
    )
    await ready.do(pass_time, 2 * MINUTE)
    assert await ready.do(jobs.claim, "n-2", TIMERS, 9) == []
    await ready.do(pass_time, MINUTE)
    assert (await claimed(ready, "n-2", TIMERS)).arg == "moved"


async def test_a_timer_that_is_moved_while_it_goes_off_does_not(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(deadline_ms=0))
    timer = await claimed(ready, "n-2", TIMERS)
    await ready.do(task_endings.set_timer, TENANT, TaskTimer(task_id="t-1", kind=DEADLINE, delay_ms=MINUTE))
    assert await ready.do(task_endings.expire_timer, timer, failed(), AT) == []
    assert (await stored(ready)).task_state is S.SUBMITTED
    await ready.do(pass_time, MINUTE)
    assert await ready.do(task_endings.expire_timer, await claimed(ready, "n-2", TIMERS), failed(), AT) == ends(
        S.FAILED
    )


# Nodes that are gone


async def lose(store: AnyStore, node: str = "n-1") -> ReapedNodes:
    """Let a node's heartbeats stop, and return what the reaper found."""
    await store.do(jobs.heartbeat, node, MINUTE)
    return await store.do(task_endings.reap_nodes, {node: 1})


async def test_lost_nodes_are_replaced_and_fenced(ready: AnyStore, heard: Heard) -> None:
    await ready.do(jobs.heartbeat, "n-2", MINUTE)
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    await ready.do(jobs.heartbeat, "n-1", MINUTE)
    first = await claimed(ready)
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("one"), epoch=first.epoch))
    await ready.do(pass_time, 2 * MINUTE)
    assert await ready.do(task_endings.reap_nodes, {}) == ReapedNodes(nodes=[], ended=[]), (
        "no clock ends what a node holds"
    )
    await ready.do(jobs.heartbeat, "n-2", MINUTE, 2)
    heard.clear()
    assert await ready.do(task_endings.reap_nodes, {"n-1": 1, "n-2": 1}) == ReapedNodes(nodes=["n-1"], ended=[]), (
        "the other lives"
    )
    assert f"queue:{AGENT}" in heard
    assert await ready.do(task_endings.reap_nodes, {"n-1": 1}) == ReapedNodes(nodes=[], ended=[])
    second = await claimed(ready, "n-2")
    assert (second.key, second.attempts) == ("t-1", 2)
    with pytest.raises(Fenced):
        await ready.do(tasks.append, TENANT, appending("t-1", chunk("from the grave"), epoch=first.epoch, after=1))
    assert (await ready.do(jobs.heartbeat, "n-1", MINUTE, 2)).held == {}
    await ready.do(tasks.append, TENANT, appending("t-1", chunk("two"), epoch=second.epoch, after=1))


async def test_jobs_that_kill_their_node_fail_with_the_reason(ready: AnyStore, heard: Heard) -> None:
    work = JobOptions(queue=AGENT, max_attempts=2)
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(work=work, deadline_ms=MINUTE, push=webhook()))
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-2"))
    for attempts in (1, 2):
        found = await ready.do(jobs.claim, "n-1", AGENT, 9)
        assert [job.attempts for job in found] == [attempts, attempts]
        heard.clear()
        assert await lose(ready) == ReapedNodes(nodes=["n-1"], ended=ends(S.FAILED) if attempts == 2 else [])
    given_up = await stored(ready)
    assert given_up.task_state is S.FAILED
    said = given_up.task().status.message
    assert said is not None
    assert said.parts[0].text == "The agent's process was lost 2 times; the task was given up"
    assert len(await bodies(ready)) == 1
    assert {f"task:{TENANT}:t-1", "push"} <= set(heard)
    assert await waiting(ready) == [(EXECUTE_TASK, "t-2")]
    assert (await claimed(ready, "n-2")).attempts == 3
    assert len(await ready.do(webhook_deliveries.claim_webhooks, "n-2", 9)) == 1
    with pytest.raises(Fenced):
        await ready.do(tasks.append, TENANT, appending("t-1", chunk("late"), epoch=2, after=1))


async def test_jobs_with_too_many_attempts_are_failed_by_the_holder(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(deadline_ms=MINUTE))
    lost = await claimed(ready)
    await ready.do(jobs.forget_node, "n-1", counts=True)
    job = await claimed(ready, "n-2")
    assert await ready.do(task_endings.give_up_job, lost) == []
    assert (await stored(ready)).task_state is S.SUBMITTED
    assert await ready.read(jobs.held_jobs, "n-2") == {job.id: job.epoch}
    assert await ready.do(task_endings.give_up_job, job) == ends(S.FAILED)
    found = await stored(ready)
    said = found.task().status.message
    assert said is not None
    assert said.parts[0].text == "The agent's process was lost once; the task was given up"
    assert (found.task_state, found.epoch, await waiting(ready)) == (S.FAILED, job.epoch + 1, [])


async def test_timers_and_webhooks_of_a_lost_node_go_to_others(ready: AnyStore) -> None:
    request = accepting(node="n-2", working=status(S.WORKING), push=webhook(), deadline_ms=0)
    await ready.do(jobs.heartbeat, "n-2", MINUTE)
    await ready.do(task_lifecycle.accept_task, TENANT, request)
    for attempts in range(1, 6):
        assert (await claimed(ready, "n-1", TIMERS)).attempts == attempts, "a timer is not given up"
        assert [due.epoch for due in await ready.do(webhook_deliveries.claim_webhooks, "n-1", 9)] == [attempts]
        await lose(ready)
    assert len(await ready.read(jobs.held_jobs, "n-2")) == 1, "and who lives keeps what it has"


async def test_late_signals_with_too_many_attempts_are_dropped(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    await ready.do(task_endings.end_task, TENANT, ending(S.UNKNOWN))
    await ready.do(task_lifecycle.deliver_signal, TENANT, TaskSignal(task_id="t-1", key="answer", output="42", at=AT))
    for attempts in (1, 2, 3):
        assert (await claimed(ready)).attempts == attempts
        await lose(ready)
    assert ((await stored(ready)).task_state, await waiting(ready)) == (S.FAILED, [])


async def test_work_on_a_task_that_has_ended_is_not_done_for_ever(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(work=JobOptions(queue=AGENT, max_attempts=1)))
    job = await claimed(ready)
    await ready.do(tasks.append, TENANT, appending("t-1", status(S.COMPLETED), epoch=job.epoch))
    assert (await lose(ready)).ended == ends(S.COMPLETED), "who said so was lost before it could tell"
    assert ((await stored(ready)).task_state, await waiting(ready)) == (S.COMPLETED, [])


async def test_jobs_of_a_forgotten_node_are_free(ready: AnyStore) -> None:
    await ready.do(jobs.heartbeat, "n-1", MINUTE)
    await ready.do(jobs.forget_node, "n-1")
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node="n-1", working=status(S.WORKING), push=webhook()))
    await ready.do(webhook_deliveries.claim_webhooks, "n-1", 1)
    assert await ready.do(task_endings.reap_nodes, {}) == ReapedNodes(nodes=["n-1"], ended=[])
    assert (await claimed(ready, "n-2")).attempts == 2
    assert len(await ready.do(webhook_deliveries.claim_webhooks, "n-2", 1)) == 1


async def test_a_lost_node_is_found_once_however_many_look(ready: AnyStore) -> None:
    for at in range(6):
        await ready.do(jobs.heartbeat, f"n-{at}", MINUTE)
        await ready.do(task_lifecycle.accept_task, TENANT, accepting(f"t-{at}", node=f"n-{at}"))
    async with asyncio.timeout(BOUND_SECONDS):
        found = await asyncio.gather(
            *(ready.do(task_endings.reap_nodes, {f"n-{at}": 1 for at in range(6)}) for _ in range(4))
        )
    assert sorted(node for some in found for node in some.nodes) == [f"n-{at}" for at in range(6)]
    assert {job.attempts for job in await ready.do(jobs.claim, "n-9", AGENT, 9)} == {2}


@postgres_only
async def test_reaped_nodes_learn_that_they_hold_no_jobs(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting(node="n-1"))
    await ready.do(jobs.heartbeat, "n-1", MINUTE)
    outcomes = await overlapped(
        ready, lambda tx: task_endings.reap_nodes(tx, {"n-1": 1}), lambda tx: jobs.heartbeat(tx, "n-1", MINUTE, 2)
    )
    assert outcomes == [ReapedNodes(nodes=["n-1"], ended=[]), HeartbeatAnswer(held={}, peers=[], before=1)]
