"""Journals: what a run says, writes down and begins is committed together, and it waits for many things at once."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from accord.model import TaskState
from accord.storage.commands import (
    jobs,
    steps,
    task_endings,
    task_lifecycle,
    webhook_deliveries,
    webhooks,
    workflow_runs,
)
from accord.storage.commands.jobs import ClaimedJob
from accord.storage.commands.steps import ChildWatch
from accord.storage.commands.task_lifecycle import AlreadySignaled
from accord.storage.commands.task_lists import VisibleTasks
from accord.storage.commands.tasks import Behind, Fenced
from accord.storage.commands.workflow_runs import JournalRequest
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
    chunk,
    claimed,
    ending,
    news,
    overlapped,
    postgres_only,
    saying,
    settling,
    status,
    stored,
    webhook,
)
from tests.storage.test_children import calling

S = TaskState


async def running(store: AnyStore, task_id: str = "t-1") -> ClaimedJob:
    await store.do(task_lifecycle.accept_task, TENANT, accepting(task_id))
    return await claimed(store)


def advancing(run: ClaimedJob, *said: object, entries: dict[str, str] | None = None, after: int = 0) -> JournalRequest:
    last = appending(run.key, *said, epoch=run.epoch, after=after)  # type: ignore[arg-type]
    return JournalRequest(last=last, entries=tuple((entries or {}).items()))


# --- writing ----------------------------------------------------------------------------------------------------------


async def test_events_and_entries_are_committed_together(ready: AnyStore, heard: Heard) -> None:
    run = await running(ready)
    done = advancing(run, status(S.WORKING), chunk("a"), entries={"a:1": "1", "b:1": "2"})
    assert await ready.do(workflow_runs.write_journal, TENANT, done) == []
    assert await bodies(ready) == [status(S.WORKING), chunk("a")]
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"a:1": "1", "b:1": "2"}
    found = await stored(ready)
    assert (found.last_seq, found.task_state) == (2, S.WORKING)
    assert f"task:{TENANT}:t-1" in heard


async def test_an_entry_is_written_once(ready: AnyStore) -> None:
    run = await running(ready)
    for value in ("first", "second"):
        await ready.do(workflow_runs.write_journal, TENANT, advancing(run, entries={"a": value}))
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"a": "first"}


async def test_fenced_and_stale_writers_write_nothing(ready: AnyStore) -> None:
    run = await running(ready)
    with pytest.raises(Fenced):
        await ready.do(
            workflow_runs.write_journal, TENANT, advancing(replace(run, epoch=run.epoch - 1), entries={"a": "1"})
        )
    await ready.do(task_lifecycle.add_message, TENANT, saying())
    with pytest.raises(Behind):
        await ready.do(workflow_runs.write_journal, TENANT, advancing(run, chunk("x"), entries={"a": "1"}))
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {}


async def test_a_snapshot_and_webhooks_are_seen_to(ready: AnyStore) -> None:
    run = await running(ready)
    await ready.do(webhooks.put, TENANT, "t-1", webhook(), "v1")
    task = (await stored(ready)).task()
    last = appending("t-1", chunk("x"), epoch=run.epoch, snapshot=replace(task, metadata={"kept": True}))
    await ready.do(workflow_runs.write_journal, TENANT, JournalRequest(last=last, entries=(("a", "1"),)))
    assert (await stored(ready)).doc_seq == 1
    assert len(await ready.do(webhook_deliveries.claim_webhooks, "n-1", 5)) == 1
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"a": "1"}


async def test_tasks_start_with_their_entries_atomically(ready: AnyStore) -> None:
    run = await running(ready)
    begins = replace(advancing(run, chunk("x"), entries={"a": "1"}), calls=(calling(run, "t-2"),))
    (made,) = await ready.do(workflow_runs.write_journal, TENANT, begins)
    assert (made.task_id, made.is_repeated) == ("t-2", False)
    assert (await ready.read(steps.load_steps, TENANT, "t-1"))["m-1/child:1"] == '"t-2"'
    again = replace(advancing(run, after=1), calls=(calling(run, "t-9"),))
    assert [(one.task_id, one.is_repeated) for one in await ready.do(workflow_runs.write_journal, TENANT, again)] == [
        ("t-2", True)
    ]
    behind = replace(advancing(run), calls=(calling(run, "t-3", step="other"),))
    with pytest.raises(Behind):
        await ready.do(workflow_runs.write_journal, TENANT, behind)
    assert await ready.read(steps.open_children, TENANT, "t-1") == ["t-2"]


async def test_last_entries_are_committed_with_the_end(ready: AnyStore) -> None:
    run = await running(ready)
    await ready.do(workflow_runs.write_journal, TENANT, advancing(run, chunk("x"), entries={"a": "first"}))
    last = (("a", "second"), ("b", "1"))
    with pytest.raises(Behind):
        await ready.do(task_lifecycle.settle_execution, TENANT, settling(run, S.COMPLETED, entries=last))
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"a": "first"}
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(run, S.COMPLETED, after=1, entries=last))
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"a": "first", "b": "1"}
    assert (await stored(ready)).task_state is S.COMPLETED


async def test_entries_that_are_there_stay_when_more_are_noted(ready: AnyStore) -> None:
    run = await running(ready)
    await ready.do(steps.put_steps, TENANT, run.key, [("a", "1")], AT)
    await ready.do(steps.put_steps, TENANT, run.key, [("a", "2"), ("b", "2")], AT)
    assert await ready.read(steps.load_steps, TENANT, run.key) == {"a": "1", "b": "2"}


async def test_many_runs_write_at_the_same_time(ready: AnyStore) -> None:
    held = [await running(ready, f"t-{number}") for number in range(20)]
    lost = replace(held[7], epoch=0)
    requests = [advancing(run, chunk("x", run.key), entries={"of": run.key}) for run in (*held[:7], lost, *held[8:])]
    found = await asyncio.gather(
        *(ready.do(workflow_runs.write_journal, TENANT, request) for request in requests), return_exceptions=True
    )
    assert [type(one).__name__ for one in found if one != []] == ["Fenced"]
    for run in held:
        kept = {} if run is held[7] else {"of": run.key}
        assert await ready.read(steps.load_steps, TENANT, run.key) == kept


# --- waiting ----------------------------------------------------------------------------------------------------------


async def parent_and_child(store: AnyStore) -> tuple[ClaimedJob, ClaimedJob]:
    parent = await running(store)
    await store.do(task_lifecycle.accept_task, TENANT, calling(parent, "t-2"))
    return parent, await claimed(store, "n-2")


@pytest.mark.parametrize("state", [S.COMPLETED, S.FAILED, S.INPUT_REQUIRED])
@pytest.mark.parametrize("delay_ms", [None, MINUTE])
async def test_a_run_that_watches_is_woken_by_a_child_that_ends_or_asks(
    ready: AnyStore, state: TaskState, delay_ms: int | None
) -> None:
    parent, child = await parent_and_child(ready)
    watch = ChildWatch(children={"t-2": False})
    await ready.do(
        task_lifecycle.settle_execution, TENANT, settling(parent, S.WORKING, parks=True, watch=watch, delay_ms=delay_ms)
    )
    assert await ready.do(jobs.claim, "n-1", AGENT, 1) == []
    ends = settling(child, state, parks=state is S.INPUT_REQUIRED, parent_id="t-1")
    await ready.do(task_lifecycle.settle_execution, TENANT, ends)
    assert (await claimed(ready)).key == "t-1"


async def test_watching_executions_resume_when_a_child_changes(ready: AnyStore) -> None:
    parent, child = await parent_and_child(ready)
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(child, S.INPUT_REQUIRED, parks=True))
    watch = ChildWatch(children={"t-2": True})
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(parent, S.WORKING, parks=True, watch=watch))
    await ready.do(task_lifecycle.add_message, TENANT, saying("t-2"))
    again = next(job for job in await ready.do(jobs.claim, "n-1", AGENT, 10) if job.key == "t-1")
    watch = ChildWatch(children={"t-2": False})
    await ready.do(
        task_lifecycle.settle_execution, TENANT, settling(again, S.WORKING, after=1, parks=True, watch=watch)
    )
    await ready.do(task_endings.end_task, TENANT, ending(task_id="t-2"))
    assert (await claimed(ready)).key == "t-1"


async def test_executions_do_not_wait_for_past_signals(ready: AnyStore) -> None:
    parent, child = await parent_and_child(ready)
    knows = ChildWatch(children={"t-2": True})
    with pytest.raises(AlreadySignaled):
        await ready.do(task_lifecycle.settle_execution, TENANT, settling(parent, S.WORKING, parks=True, watch=knows))
    await ready.do(task_lifecycle.settle_execution, TENANT, settling(child, S.COMPLETED))
    for watch in (ChildWatch(children={"t-2": False}), ChildWatch(children={"gone": False})):
        with pytest.raises(AlreadySignaled):
            await ready.do(
                task_lifecycle.settle_execution, TENANT, settling(parent, S.WORKING, parks=True, watch=watch)
            )
    assert await ready.do(task_lifecycle.deliver_signal, TENANT, news("step/ok"))
    watch = ChildWatch(keys=("other", "step/ok"))
    with pytest.raises(AlreadySignaled):
        await ready.do(task_lifecycle.settle_execution, TENANT, settling(parent, S.WORKING, parks=True, watch=watch))
    assert await ready.read(steps.have_children_changed, TENANT, ChildWatch()) is False


@postgres_only
async def test_a_child_that_ends_while_its_parent_parks_wakes_it(ready: AnyStore) -> None:
    parent, child = await parent_and_child(ready)
    watch = ChildWatch(children={"t-2": False})
    parks = settling(parent, S.WORKING, parks=True, watch=watch)
    ends = settling(child, S.COMPLETED, parent_id="t-1")
    _, refused = await overlapped(
        ready,
        lambda tx: task_lifecycle.settle_execution(tx, TENANT, ends),
        lambda tx: task_lifecycle.settle_execution(tx, TENANT, parks),
    )
    assert isinstance(refused, AlreadySignaled)


@postgres_only
async def test_a_child_that_ends_after_its_parent_began_to_park_wakes_it(ready: AnyStore) -> None:
    parent, child = await parent_and_child(ready)
    watch = ChildWatch(children={"t-2": False})
    parks = settling(parent, S.WORKING, parks=True, watch=watch)
    ends = settling(child, S.COMPLETED, parent_id="t-1")
    await overlapped(
        ready,
        lambda tx: task_lifecycle.settle_execution(tx, TENANT, parks),
        lambda tx: task_lifecycle.settle_execution(tx, TENANT, ends),
    )
    assert (await claimed(ready)).key == "t-1"


# --- which tasks keep one ---------------------------------------------------------------------------------------------


async def test_tasks_that_note_where_they_come_from_are_found(ready: AnyStore) -> None:
    for task_id in ("t-1", "t-2", "t-3"):
        run = await running(ready, task_id)
        entries = {"other": "1"} if task_id == "t-2" else {workflow_runs.ORIGIN_STEP: f'"{task_id}"', "flow-plan": "{}"}
        await ready.do(workflow_runs.write_journal, TENANT, advancing(run, status(S.WORKING), entries=entries))
    found = await ready.read(workflow_runs.list_runs, workflow_runs.RunListQuery())
    assert [(one.task_id, one.origin, one.tenant, one.agent) for one in found] == [
        ("t-3", '"t-3"', TENANT, AGENT),
        ("t-1", '"t-1"', TENANT, AGENT),
    ]
    assert found[0].state is S.WORKING
    assert [one.task_id for one in await ready.read(workflow_runs.list_runs, workflow_runs.RunListQuery(limit=1))] == [
        "t-3"
    ]
    assert [
        one.task_id for one in await ready.read(workflow_runs.list_runs, workflow_runs.RunListQuery(task_id="t-1"))
    ] == ["t-1"]
    assert await ready.read(workflow_runs.list_runs, workflow_runs.RunListQuery(task_id="t-2")) == []
    await ready.do(task_endings.end_task, TENANT, ending(task_id="t-1"))
    ended = workflow_runs.RunListQuery(states=(S.CANCELED, S.FAILED))
    assert [one.task_id for one in await ready.read(workflow_runs.list_runs, ended)] == ["t-1"]


async def test_runs_are_listed_in_pages_by_visibility(ready: AnyStore) -> None:
    for task_id in ("t-1", "t-2", "t-3"):
        run = await running(ready, task_id)
        await ready.do(
            workflow_runs.write_journal,
            TENANT,
            advancing(run, status(S.WORKING), entries={workflow_runs.ORIGIN_STEP: "1"}),
        )

    async def found(**wanted: Any) -> list[str]:
        return [one.task_id for one in await ready.read(workflow_runs.list_runs, workflow_runs.RunListQuery(**wanted))]

    assert await found(tenant=TENANT, before="t-3", limit=1) == ["t-2"]
    assert await found(before="t-1") == []
    assert await found(tenant="another") == []
    assert (await found(agents=(AGENT, "other")), await found(agents=("other",))) == (["t-3", "t-2", "t-1"], [])
    assert await found(seen=VisibleTasks(owner="alice"), states=(S.WORKING, S.SUBMITTED)) == ["t-3", "t-2", "t-1"]
    assert await found(seen=VisibleTasks(owner="nobody")) == []
    assert await found(seen=VisibleTasks(owner="nobody", others=(AGENT,))) == ["t-3", "t-2", "t-1"]
    assert await found(seen=VisibleTasks(owner="nobody", sees_all=True, hidden=(AGENT,))) == []
    (one,) = await ready.read(workflow_runs.list_runs, workflow_runs.RunListQuery(task_id="t-1"))
    assert one.last_seq == 1


async def test_child_tasks_of_a_run_are_found(ready: AnyStore) -> None:
    run = await running(ready)
    begins = replace(advancing(run), entries=((workflow_runs.ORIGIN_STEP, "1"),), calls=(calling(run),))
    await ready.do(workflow_runs.write_journal, TENANT, begins)
    inner = await claimed(ready)
    await ready.do(workflow_runs.write_journal, TENANT, advancing(inner, entries={workflow_runs.ORIGIN_STEP: "2"}))
    assert [one.task_id for one in await ready.read(workflow_runs.list_runs, workflow_runs.RunListQuery())] == ["t-1"]
    everything = await ready.read(workflow_runs.list_runs, workflow_runs.RunListQuery(inner=True))
    assert [(one.task_id, one.parent_id) for one in everything] == [("t-2", "t-1"), ("t-1", None)]


async def test_the_node_of_a_task_is_recorded(ready: AnyStore) -> None:
    assert await ready.read(workflow_runs.job_status, TENANT, "t-1") is None
    await ready.do(jobs.heartbeat, "n-1", MINUTE)
    run = await running(ready)
    at_work = await ready.read(workflow_runs.job_status, TENANT, "t-1")
    assert at_work is not None
    assert (at_work.is_held, at_work.is_parked, at_work.is_left, at_work.rests) == (True, False, False, False)
    await ready.do(jobs.heartbeat, "n-1", -1)  # its lease is over
    lost = await ready.read(workflow_runs.job_status, TENANT, "t-1")
    assert lost is not None
    assert lost.is_left
    await ready.do(workflow_runs.write_journal, TENANT, replace(advancing(run), calls=(calling(run),)))
    await ready.do(jobs.park, run, MINUTE)  # until a time
    helped = await ready.read(workflow_runs.job_status, TENANT, "t-1")
    assert helped is not None
    assert (helped.is_parked, helped.is_helped, helped.rests) == (True, True, False)
    await ready.do(task_endings.end_task, TENANT, ending(task_id="t-2"))
    done = await ready.read(workflow_runs.job_status, TENANT, "t-1")
    assert done is not None
    assert (done.is_parked, done.is_helped, done.rests) == (True, False, True)
