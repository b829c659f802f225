"""Tasks that tasks have started: they are made under their parent's claim, end with it, and ask through it."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from accord.model import TaskState
from accord.protocol import lifecycle
from accord.storage.commands import jobs, steps, task_endings, task_lifecycle, tasks
from accord.storage.commands.jobs import DEADLINE, EXECUTE_TASK, SLA, TIMERS, ClaimedJob
from accord.storage.commands.steps import ParentExecution, StepResult
from accord.storage.commands.task_endings import LEFT_BEHIND, TaskTimer, TimerRequest
from accord.storage.commands.task_lifecycle import AcceptRequest, AlreadySignaled, JobOptions, SettleRequest
from accord.storage.commands.tasks import EndedTask, Fenced
from accord.storage.store import Tx
from tests.storage.conftest import (
    AGENT,
    AT,
    MINUTE,
    TENANT,
    AnyStore,
    Heard,
    accepting,
    appending,
    bodies,
    claimed,
    ending,
    new,
    news,
    overlapped,
    postgres_only,
    saying,
    settling,
    status,
    stored,
    table,
    waiting,
)

S = TaskState


def calling(parent: ClaimedJob, child: str = "t-2", step: str = "m-1/child:1", **fields: Any) -> AcceptRequest:
    """A message with which a run makes a child."""
    claim = ParentExecution(task_id=parent.key, epoch=parent.epoch, step=step)
    return accepting(child, new=new(child, parent_id=parent.key), parent=claim, **fields)


def ends(**states: TaskState) -> list[EndedTask]:
    """What a command says that ended these tasks, `t1` for t-1."""
    return [EndedTask(TENANT, f"t-{name[1:]}", AGENT, state) for name, state in states.items()]


async def family(store: AnyStore) -> dict[str, ClaimedJob]:
    """A task that runs on n-1 with a child on n-2, which has a child on n-3."""
    await store.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    held = {"t-1": await claimed(store, "n-1")}
    await store.do(task_lifecycle.accept_task, TENANT, calling(held["t-1"], "t-2", deadline_ms=MINUTE))
    held["t-2"] = await claimed(store, "n-2")
    await store.do(task_lifecycle.accept_task, TENANT, calling(held["t-2"], "t-3"))
    held["t-3"] = await claimed(store, "n-3")
    return held


async def states(store: AnyStore) -> dict[str, str]:
    """Every task and its state."""
    return {id: state for id, state in await store.read(table, "task", "id, state")}


async def explained(store: AnyStore, task_id: str) -> str:
    """What a task's status says."""
    message = (await stored(store, task_id)).task().status.message
    assert message is not None
    return message.parts[0].text or ""


# --- being called -----------------------------------------------------------------------------------------------------


async def test_children_are_recorded_by_their_parent(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    made = await ready.do(task_lifecycle.accept_task, TENANT, calling(run, "t-2"))
    again = await ready.do(task_lifecycle.accept_task, TENANT, calling(run, "t-9"))
    other = await ready.do(task_lifecycle.accept_task, TENANT, calling(run, "t-3", step="m-1/child:2"))
    assert [(one.task_id, one.is_repeated) for one in (made, again, other)] == [
        ("t-2", False),
        ("t-2", True),
        ("t-3", False),
    ]
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"m-1/child:1": '"t-2"', "m-1/child:2": '"t-3"'}
    assert await ready.read(steps.open_children, TENANT, "t-1") == ["t-2", "t-3"]
    assert (await stored(ready, "t-3")).parent_id == "t-1"
    assert (
        await ready.do(
            steps.adopt_child, TENANT, ParentExecution(task_id="t-1", epoch=run.epoch, step="new"), "t-4", AT
        )
        is None
    )


async def test_creating_a_child_returns_the_count(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    assert await ready.do(tasks.extend, TENANT, appending("t-1", epoch=run.epoch)) == 0
    await ready.do(task_lifecycle.accept_task, TENANT, calling(run, "t-2"))
    assert await ready.do(tasks.extend, TENANT, appending("t-1", epoch=run.epoch)) == 1


async def test_only_the_claim_holder_creates_children(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    with pytest.raises(Fenced):
        await ready.do(task_lifecycle.accept_task, TENANT, calling(replace(run, epoch=run.epoch - 1)))
    with pytest.raises(Fenced):
        await ready.do(task_lifecycle.accept_task, TENANT, calling(replace(run, key="nowhere")))
    await ready.do(tasks.append, TENANT, appending("t-1", status(S.COMPLETED), epoch=run.epoch))
    with pytest.raises(lifecycle.TaskEnded):
        await ready.do(task_lifecycle.accept_task, TENANT, calling(run))
    assert await states(ready) == {"t-1": "completed"}


async def test_canceled_executions_create_no_children(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    await ready.do(task_endings.end_task, TENANT, ending())
    with pytest.raises(Fenced):
        await ready.do(task_lifecycle.accept_task, TENANT, calling(run))
    assert await states(ready) == {"t-1": "canceled"}


# --- ending together --------------------------------------------------------------------------------------------------


async def test_children_end_with_a_task_that_is_ended(ready: AnyStore, heard: Heard) -> None:
    held = await family(ready)
    heard.clear()
    await ready.do(task_endings.end_task, TENANT, ending())
    assert await states(ready) == {"t-1": "canceled", "t-2": "canceled", "t-3": "canceled"}
    assert await explained(ready, "t-3") == LEFT_BEHIND
    assert await waiting(ready) == []
    assert {"node:n-1", "node:n-2", "node:n-3", f"task:{TENANT}:t-2", f"task:{TENANT}:t-3"} <= set(heard)
    for job in held.values():
        with pytest.raises(Fenced):
            await ready.do(task_lifecycle.settle_execution, TENANT, settling(job, S.COMPLETED))


@pytest.mark.parametrize("kind", [DEADLINE, SLA])
async def test_children_end_with_a_task_whose_time_is_up(ready: AnyStore, kind: str) -> None:
    await family(ready)
    await ready.do(task_endings.set_timer, TENANT, TaskTimer(task_id="t-1", kind=kind, delay_ms=0))
    timer = await claimed(ready, "n-4", TIMERS)
    ended = S.FAILED if kind == DEADLINE else S.UNKNOWN
    told = await ready.do(task_endings.expire_timer, timer, status(ended).status, AT)
    assert told == ends(t1=ended, t2=S.CANCELED, t3=S.CANCELED)
    assert await states(ready) == {"t-1": ended.name.lower(), "t-2": "canceled", "t-3": "canceled"}
    assert await waiting(ready) == []


async def test_children_end_with_a_task_that_lost_its_node_too_often(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1", work=JobOptions(queue=AGENT, max_attempts=1)))
    run = await claimed(ready, "n-1")
    await ready.do(
        task_lifecycle.accept_task, TENANT, calling(run, "t-2", work=JobOptions(queue=AGENT, max_attempts=1))
    )
    await claimed(ready, "n-1")
    await ready.do(task_lifecycle.accept_task, TENANT, calling(run, "t-3", step="m-1/child:2"))
    await claimed(ready, "n-2")
    await ready.do(jobs.heartbeat, "n-2", MINUTE)
    await ready.do(jobs.heartbeat, "n-1", MINUTE)
    reaped = await ready.do(task_endings.reap_nodes, {"n-1": 1})
    assert (reaped.nodes, sorted(reaped.ended)) == (["n-1"], ends(t1=S.FAILED, t2=S.CANCELED, t3=S.CANCELED))
    assert await states(ready) == {"t-1": "failed", "t-2": "canceled", "t-3": "canceled"}
    assert await waiting(ready) == []


async def test_children_end_with_a_task_that_is_given_up(ready: AnyStore) -> None:
    held = await family(ready)
    told = await ready.do(task_endings.give_up_job, held["t-1"])
    assert told == ends(t1=S.FAILED, t2=S.CANCELED, t3=S.CANCELED)
    assert await states(ready) == {"t-1": "failed", "t-2": "canceled", "t-3": "canceled"}


@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.CANCELED, S.REJECTED])
async def test_children_end_with_a_run_however_it_ends(ready: AnyStore, state: TaskState) -> None:
    held = await family(ready)
    told = await ready.do(task_lifecycle.settle_execution, TENANT, settling(held["t-1"], state))
    assert told == ends(t1=state, t2=S.CANCELED, t3=S.CANCELED)
    assert await states(ready) == {"t-1": state.name.lower(), "t-2": "canceled", "t-3": "canceled"}
    assert await waiting(ready) == []


async def test_children_of_runs_that_end_together_end(ready: AnyStore) -> None:
    held = [await _with_child(ready, number) for number in range(6)]
    plain = [await _alone(ready, number) for number in range(6)]
    settled = (ready.do(task_lifecycle.settle_execution, TENANT, settling(job, S.COMPLETED)) for job in (*held, *plain))
    assert [len(told) for told in await asyncio.gather(*settled)] == [2] * 6 + [1] * 6
    found = await states(ready)
    assert {found[f"parent-{at}"] + found[f"child-{at}"] + found[f"alone-{at}"] for at in range(6)} == {
        "completedcanceledcompleted"
    }
    assert await waiting(ready) == []


async def _with_child(store: AnyStore, number: int) -> ClaimedJob:
    await store.do(task_lifecycle.accept_task, TENANT, accepting(f"parent-{number}"))
    run = await claimed(store)
    await store.do(task_lifecycle.accept_task, TENANT, calling(run, f"child-{number}"))
    await claimed(store, "n-2")
    return run


async def _alone(store: AnyStore, number: int) -> ClaimedJob:
    await store.do(task_lifecycle.accept_task, TENANT, accepting(f"alone-{number}"))
    return await claimed(store)


async def test_children_run_while_their_parent_waits(ready: AnyStore) -> None:
    held = await family(ready)
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(held["t-1"], S.INPUT_REQUIRED, parks=True))
    assert await states(ready) == {"t-1": "input_required", "t-2": "submitted", "t-3": "submitted"}


async def test_a_child_that_has_ended_stays_as_it_is(ready: AnyStore) -> None:
    held = await family(ready)
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(held["t-3"], S.COMPLETED))
    await ready.do(task_endings.end_task, TENANT, ending(S.UNKNOWN, "t-2"))
    await ready.do(task_endings.end_task, TENANT, ending())
    assert await states(ready) == {"t-1": "canceled", "t-2": "unknown", "t-3": "completed"}
    assert len(await bodies(ready, "t-2")) == 1


async def test_a_task_that_ended_before_its_run_did_still_ends_its_children(ready: AnyStore) -> None:
    """As if the process had died after the agent said that it is done."""
    held = await family(ready)
    await ready.do(tasks.append, TENANT, appending("t-1", status(S.COMPLETED), epoch=held["t-1"].epoch))
    await ready.do(jobs.forget_node, "n-1")
    again = await claimed(ready, "n-4")
    assert await ready.do(task_endings.release_ended_job, held["t-1"]) == []
    assert (await states(ready))["t-2"] == "submitted", "whoever lost the job lets nothing go"
    told = await ready.do(task_endings.release_ended_job, again)
    assert told == ends(t1=S.COMPLETED, t2=S.CANCELED, t3=S.CANCELED)
    assert await states(ready) == {"t-1": "completed", "t-2": "canceled", "t-3": "canceled"}
    assert await waiting(ready) == []


async def test_a_task_that_ended_before_it_was_given_up_ends_its_children(ready: AnyStore) -> None:
    held = await family(ready)
    await ready.do(tasks.append, TENANT, appending("t-1", status(S.COMPLETED), epoch=held["t-1"].epoch))
    await ready.do(task_endings.give_up_job, held["t-1"])
    assert await states(ready) == {"t-1": "completed", "t-2": "canceled", "t-3": "canceled"}


async def test_leftover_children_end_once(ready: AnyStore) -> None:
    await family(ready)
    await ready.do(task_endings.end_leftovers, TENANT, "t-2", AT)
    await ready.do(task_endings.end_leftovers, TENANT, "t-2", AT)
    assert await states(ready) == {"t-1": "submitted", "t-2": "submitted", "t-3": "canceled"}
    assert await waiting(ready) == [(EXECUTE_TASK, "t-1"), (EXECUTE_TASK, "t-2")]
    assert len(await bodies(ready, "t-3")) == 1


@postgres_only
async def test_a_child_that_is_made_while_its_parent_ends_ends_with_it(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    made, ended = await overlapped(
        ready,
        lambda tx: task_lifecycle.accept_task(tx, TENANT, calling(run)),
        lambda tx: task_endings.end_task(tx, TENANT, ending()),
    )
    assert (made.task_id, ended) == ("t-2", ends(t1=S.CANCELED, t2=S.CANCELED))
    assert await states(ready) == {"t-1": "canceled", "t-2": "canceled"}


@postgres_only
async def test_children_created_during_batch_ends_end_too(ready: AnyStore) -> None:
    held = [await _alone(ready, number) for number in range(3)]
    begun, commit = asyncio.Event(), asyncio.Event()

    async def calls(tx: Tx) -> None:
        await task_lifecycle.accept_task(tx, TENANT, calling(held[0], "child"))
        begun.set()
        await commit.wait()

    making = asyncio.create_task(ready.do(calls))
    await begun.wait()
    settling_all = [
        asyncio.create_task(ready.do(task_lifecycle.settle_execution, TENANT, settling(job, S.FAILED))) for job in held
    ]
    while not await ready.read(_somebody_waits):
        pass
    commit.set()
    await making
    assert [len(told) for told in await asyncio.gather(*settling_all)] == [2, 1, 1]
    assert (await states(ready))["child"] == "canceled"


async def _somebody_waits(tx: Tx) -> bool:
    return await tx.one("SELECT 1 FROM pg_locks WHERE NOT granted") is not None


@postgres_only
async def test_a_child_is_not_made_once_its_parent_is_ending(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    _, refused = await overlapped(
        ready,
        lambda tx: task_endings.end_task(tx, TENANT, ending()),
        lambda tx: task_lifecycle.accept_task(tx, TENANT, calling(run)),
    )
    assert isinstance(refused, Fenced)
    assert await states(ready) == {"t-1": "canceled"}


# --- asking through the parent ----------------------------------------------------------------------------------------


async def asking(store: AnyStore) -> dict[str, ClaimedJob]:
    """A task that waits with the question of its child."""
    await store.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    held = {"t-1": await claimed(store)}
    await store.do(task_lifecycle.accept_task, TENANT, calling(held["t-1"], "t-2"))
    held["t-2"] = await claimed(store)
    await store.do(task_lifecycle.settle_execution, TENANT, settling(held["t-2"], S.INPUT_REQUIRED, parks=True))
    await store.do(task_lifecycle.settle_execution, TENANT, passing_on(held["t-1"]))
    return held


def passing_on(job: ClaimedJob, child: str = "t-2") -> SettleRequest:
    """The end of a run that waits with the question of its child."""
    return settling(job, S.INPUT_REQUIRED, parks=True, child=child)


async def due(store: AnyStore) -> list[str]:
    """The tasks that somebody should run now."""
    return [job.key for job in await store.do(jobs.claim, "n-9", AGENT, 10)]


async def test_children_do_not_resume_parents_waiting_for_others(ready: AnyStore) -> None:
    held = await asking(ready)
    await ready.do(
        task_lifecycle.settle_execution, TENANT, settling(held["t-1"], S.INPUT_REQUIRED, parks=True, after=1)
    )
    await ready.do(steps.wake_parent, TENANT, "t-1", "t-2")
    assert await due(ready) == []


async def test_a_parent_waits_while_its_child_asks(ready: AnyStore) -> None:
    await asking(ready)
    assert await ready.do(steps.is_waiting_for_answer, TENANT, "t-2")
    assert not await ready.do(steps.is_waiting_for_answer, TENANT, "nowhere")
    assert await due(ready) == []
    await ready.do(steps.wake_parent, TENANT, "t-1", "t-3")
    assert await due(ready) == [], "it waits for another"


async def test_answered_children_resume_their_parent(ready: AnyStore, heard: Heard) -> None:
    await asking(ready)
    heard.clear()
    await ready.do(task_lifecycle.add_message, TENANT, saying("t-2", "blue"))
    assert f"queue:{AGENT}" in heard
    assert await due(ready) == ["t-1", "t-2"]


async def test_a_parent_looks_again_when_its_child_ends(ready: AnyStore) -> None:
    await asking(ready)
    await ready.do(task_endings.end_task, TENANT, ending(task_id="t-2"))
    assert await due(ready) == ["t-1"]


async def test_a_parent_looks_again_when_its_child_got_news(ready: AnyStore) -> None:
    await asking(ready)
    await ready.do(task_lifecycle.deliver_signal, TENANT, news(task_id="t-2"))
    run = await claimed(ready)
    assert run.key == "t-2"
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(run, S.COMPLETED, after=1, parent_id="t-1"))
    assert await due(ready) == ["t-1"]


async def test_a_child_that_asks_no_longer_is_not_waited_for(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    await ready.do(task_lifecycle.accept_task, TENANT, calling(run))
    with pytest.raises(AlreadySignaled):
        await ready.do(task_lifecycle.settle_execution, TENANT, passing_on(run))
    with pytest.raises(AlreadySignaled):
        await ready.do(task_lifecycle.settle_execution, TENANT, passing_on(run, "nowhere"))
    assert ((await stored(ready)).task_state, await bodies(ready)) == (S.SUBMITTED, [])
    assert await ready.read(jobs.held_jobs, "n-1") == {run.id: run.epoch}


async def test_a_parent_that_was_answered_waits_for_no_child(ready: AnyStore) -> None:
    await asking(ready)
    await ready.do(task_lifecycle.add_message, TENANT, saying("t-1", "blue"))
    again = await claimed(ready)
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(again, S.INPUT_REQUIRED, after=3, parks=True))
    await ready.do(task_lifecycle.add_message, TENANT, saying("t-2", "blue"))
    assert await due(ready) == ["t-2"]


@postgres_only
async def test_answers_during_suspension_are_not_missed(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    await ready.do(task_lifecycle.accept_task, TENANT, calling(run))
    await ready.do(
        task_lifecycle.settle_execution, TENANT, settling(await claimed(ready), S.INPUT_REQUIRED, parks=True)
    )
    _, refused = await overlapped(
        ready,
        lambda tx: task_lifecycle.add_message(tx, TENANT, saying("t-2", "blue")),
        lambda tx: task_lifecycle.settle_execution(tx, TENANT, passing_on(run)),
    )
    assert isinstance(refused, AlreadySignaled)


@postgres_only
async def test_an_answer_that_comes_after_the_parent_began_to_wait_wakes_it(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    await ready.do(task_lifecycle.accept_task, TENANT, calling(run))
    await ready.do(
        task_lifecycle.settle_execution, TENANT, settling(await claimed(ready), S.INPUT_REQUIRED, parks=True)
    )
    outcomes = await overlapped(
        ready,
        lambda tx: task_lifecycle.settle_execution(tx, TENANT, passing_on(run)),
        lambda tx: task_lifecycle.add_message(tx, TENANT, saying("t-2", "blue")),
    )
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert await due(ready) == ["t-1", "t-2"]


@postgres_only
async def test_answering_a_child_of_an_ending_parent_does_not_deadlock(ready: AnyStore) -> None:
    await asking(ready)
    outcomes = await overlapped(
        ready,
        lambda tx: task_lifecycle.add_message(tx, TENANT, saying("t-2", "blue")),
        lambda tx: task_endings.end_task(tx, TENANT, ending()),
    )
    assert not [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    assert (await states(ready), await waiting(ready)) == ({"t-1": "canceled", "t-2": "canceled"}, [])


# --- limits that are set once -----------------------------------------------------------------------------------------


async def test_timers_are_set_once_by_the_claim_holder(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-1"))
    run = await claimed(ready)
    step = StepResult(task_id="t-1", epoch=run.epoch, key="m-1/sla:1", output="5", at=AT)
    limit = TimerRequest(timer=TaskTimer(task_id="t-1", kind=SLA, delay_ms=MINUTE, arg="late"), step=step)
    await ready.do(task_endings.set_timer_once, TENANT, limit)
    assert await ready.read(steps.find_step, TENANT, "t-1", "m-1/sla:1") == "5"
    await ready.do(task_endings.raise_fence, TENANT, "t-1")
    with pytest.raises(Fenced):
        await ready.do(task_endings.set_timer_once, TENANT, replace(limit, step=replace(step, key="m-1/sla:2")))
    assert sorted(await waiting(ready)) == [(EXECUTE_TASK, "t-1"), (SLA, "t-1")]


@pytest.mark.parametrize("store", ["sqlite-file"], indirect=True)
async def test_a_task_without_children_is_ended_without_looking_at_others(ready: AnyStore) -> None:
    looks: list[str] = []

    class Explaining:
        def __init__(self, tx: Tx) -> None:
            self._tx = tx

        async def one(self, sql: str, /, **values: Any) -> Any:
            looks.extend(str(row[-1]) for row in await self._tx.all(f"EXPLAIN QUERY PLAN {sql}", **values))
            return await self._tx.one(sql, **values)

        async def all(self, sql: str, /, **values: Any) -> Any:
            looks.extend(str(row[-1]) for row in await self._tx.all(f"EXPLAIN QUERY PLAN {sql}", **values))
            return await self._tx.all(sql, **values)

    async def explained(tx: Tx, children_count: int) -> None:
        await tx.run("UPDATE task SET children = :count", count=children_count)
        explaining: Any = Explaining(tx)
        await steps.open_children(explaining, TENANT, "t-1")

    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(explained, 0)
    assert len(looks) == 1
    assert looks[0].endswith("(tenant=? AND id=?)")
    await ready.do(explained, 1)
    assert "task_by_parent (tenant=? AND parent_id=?)" in looks[-1]
