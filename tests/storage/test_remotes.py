"""Links to agents elsewhere: their tokens, what is reported through them, and cancels that are passed on."""

import asyncio

import pytest
from msgspec.structs import replace

from accord.model import TaskState
from accord.storage.commands import jobs, remote_tasks, retention, steps, task_endings, task_lifecycle, tasks
from accord.storage.commands.jobs import EXECUTE_TASK
from accord.storage.commands.remote_tasks import GiveUpRequest, NewRemoteLink, RemoteLink, ReportRequest
from accord.storage.commands.steps import ParentExecution
from accord.storage.commands.tasks import Append, Behind
from accord.storage.store import Tx
from tests.storage.conftest import (
    AGENT,
    AT,
    MINUTE,
    OTHER,
    TENANT,
    AnyStore,
    Heard,
    accepting,
    appending,
    chunk,
    claimed,
    ending,
    parked,
    pass_time,
    status,
    stored,
    table,
    waiting,
    webhook,
)

S = TaskState
HASH = "a" * 64


def expected(task_id: str = "t-1", **fields: object) -> NewRemoteLink:
    given = {"task_id": task_id, "agent": AGENT, "context_id": "c-there", "at": AT, "token_hash": HASH} | fields
    return NewRemoteLink(**given)  # type: ignore[arg-type]


def reporting(
    link: RemoteLink, *bodies: object, after: int = 0, state: TaskState | None = None, **fields: object
) -> ReportRequest:
    last: Append = appending(link.task_id, *bodies, after=after)  # type: ignore[arg-type]
    return ReportRequest(link=link, last=replace(last, state=state), **fields)  # type: ignore[arg-type]


@pytest.fixture
async def linked(ready: AnyStore) -> RemoteLink:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    return await ready.do(remote_tasks.create_link, TENANT, expected())


async def test_a_link_is_made_once_and_found_by_its_tokens(ready: AnyStore, linked: RemoteLink) -> None:
    again = await ready.do(remote_tasks.create_link, TENANT, expected(token_hash="b" * 64, context_id="other"))
    assert again == linked == await ready.read(remote_tasks.find_link, TENANT, "t-1")
    assert await ready.read(remote_tasks.find_link_by_token, HASH) == (HASH, TENANT, linked)
    assert await ready.read(remote_tasks.find_link_by_token, "b" * 64) == ("b" * 64, TENANT, linked)
    assert await ready.read(remote_tasks.find_link_by_token, "c" * 64) is None
    assert await ready.read(remote_tasks.find_link, OTHER, "t-1") is None


async def test_a_token_expires(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting())
    await ready.do(remote_tasks.create_link, TENANT, expected(ttl_ms=MINUTE))
    await ready.do(remote_tasks.create_link, TENANT, expected(token_hash="b" * 64, ttl_ms=-1))
    assert await ready.read(remote_tasks.find_link_by_token, HASH) is not None
    assert await ready.read(remote_tasks.find_link_by_token, "b" * 64) is None


async def test_remote_links_move_only_for_the_last_reader(ready: AnyStore, linked: RemoteLink) -> None:
    bound = replace(linked, remote_id="r-1", mode="push", state=S.WORKING, stamp=5, seq=6, mark="m", sent=1, tries=2)
    bound = replace(bound, polls=3, asks=4, looked=5, heard_at=AT + 1, asked_at=AT + 2)
    assert await ready.do(remote_tasks.update_link, TENANT, bound)
    assert not await ready.do(remote_tasks.update_link, TENANT, linked)
    assert await ready.read(remote_tasks.find_link, TENANT, "t-1") == replace(bound, version=1)
    assert await ready.read(remote_tasks.find_link_by_remote_id, AGENT, "r-1") == (TENANT, replace(bound, version=1))
    assert await ready.read(remote_tasks.find_link_by_remote_id, "other", "r-1") is None


async def test_a_conversation_has_the_name_that_the_agent_gave_it_last(ready: AnyStore, linked: RemoteLink) -> None:
    assert await ready.read(remote_tasks.find_remote_context, TENANT, AGENT, "alice", "c-1") is None
    for name in ("c-own", "c-new"):
        await ready.do(remote_tasks.put_remote_context, TENANT, replace(linked, context_id=name), "alice", "c-1")
        assert await ready.read(remote_tasks.find_remote_context, TENANT, AGENT, "alice", "c-1") == name
    assert await ready.read(remote_tasks.find_remote_context, TENANT, AGENT, "bob", "c-1") is None


async def test_reports_are_added_to_unclaimed_tasks(ready: AnyStore, linked: RemoteLink) -> None:
    await parked(ready)
    before = (await stored(ready)).last_seq
    await ready.do(
        remote_tasks.write_report, TENANT, reporting(replace(linked, remote_id="r-1"), chunk("a"), after=before)
    )
    found = await stored(ready)
    assert (found.last_seq, len(found.task().artifacts)) == (before + 1, 1)
    assert await waiting(ready) == [(EXECUTE_TASK, "t-1")]
    assert await ready.read(tasks.read_head, TENANT, "t-1") is not None
    assert await ready.read(tasks.read_head, TENANT, "t-2") is None


async def test_final_reports_fence_the_execution(ready: AnyStore, linked: RemoteLink, heard: Heard) -> None:
    job = await claimed(ready)
    heard.clear()
    seen = await ready.read(remote_tasks.read_link_and_task, TENANT, "t-1", whole=True)
    assert seen is not None
    report = reporting(linked, status(S.COMPLETED), state=S.COMPLETED)
    await ready.do(remote_tasks.write_report, TENANT, report)
    assert "node:n-1" in heard
    assert (await stored(ready)).task_state is S.COMPLETED
    assert await waiting(ready) == []
    assert not await ready.do(jobs.finish, job)
    assert await ready.do(remote_tasks.claim_cancels, AGENT, 9, MINUTE) == []


async def test_waiting_tasks_are_resumed_once(ready: AnyStore, linked: RemoteLink) -> None:
    await parked(ready)
    head = await ready.read(tasks.read_head, TENANT, "t-1")
    assert head is not None
    assert await ready.do(task_lifecycle.requeue_task, TENANT, head) is None
    assert (await claimed(ready)).key == "t-1"


async def test_tasks_end_with_the_last_report(ready: AnyStore, linked: RemoteLink) -> None:
    head = await ready.read(tasks.read_head, TENANT, "t-1")
    assert head is not None
    last = replace(appending("t-1", chunk("a"), status(S.FAILED)), state=S.FAILED)
    await ready.do(task_endings.end_with_events, TENANT, head, last)
    found = await stored(ready)
    assert (found.task_state, found.last_seq, found.epoch) == (S.FAILED, 2, head.epoch + 1)
    assert await waiting(ready) == []
    assert await ready.do(remote_tasks.claim_cancels, AGENT, 9, MINUTE) == []  # who reports the end need not be told


async def test_reports_on_changed_tasks_are_refused(ready: AnyStore, linked: RemoteLink) -> None:
    await ready.do(remote_tasks.write_report, TENANT, reporting(linked, chunk("a")))
    with pytest.raises(Behind):
        await ready.do(remote_tasks.write_report, TENANT, reporting(linked, chunk("b"), after=1))
    with pytest.raises(Behind):
        await ready.do(remote_tasks.write_report, TENANT, reporting(replace(linked, version=1), chunk("b")))
    with pytest.raises(task_endings.NoSuchTask):
        await ready.do(remote_tasks.write_report, TENANT, reporting(replace(linked, task_id="t-2"), chunk("b", "t-2")))
    assert (await stored(ready)).last_seq == 1


async def test_a_report_may_wake_its_task_once(ready: AnyStore, linked: RemoteLink) -> None:
    await parked(ready)
    await ready.do(remote_tasks.write_report, TENANT, reporting(linked, step="wait:remote:1", output='"x"'))
    assert await ready.read(steps.load_steps, TENANT, "t-1") == {"wait:remote:1": '"x"'}
    assert (await claimed(ready)).key == "t-1"


async def test_a_task_is_given_up_unless_something_was_reported(ready: AnyStore, linked: RemoteLink) -> None:
    await parked(ready)
    moved = replace(linked, version=7)
    assert not await ready.do(
        remote_tasks.give_up_remote_task, TENANT, GiveUpRequest(link=moved, reason="gone", at=AT, again_ms=MINUTE)
    )
    assert await ready.do(
        remote_tasks.give_up_remote_task, TENANT, GiveUpRequest(link=linked, reason="gone", at=AT, again_ms=MINUTE)
    )
    found = (await stored(ready)).task()
    assert found.status.state is S.UNKNOWN
    assert found.status.message is not None
    assert found.status.message.parts[0].text == "gone"
    assert await ready.do(jobs.claim, "n-1", AGENT, 9) == []
    await ready.do(pass_time, 2 * MINUTE)
    assert [job.key for job in await ready.do(jobs.claim, "n-1", AGENT, 9)] == ["t-1"]


async def test_a_task_that_was_given_up_can_be_tried_again(ready: AnyStore, linked: RemoteLink) -> None:
    await parked(ready)
    await ready.do(
        remote_tasks.give_up_remote_task, TENANT, GiveUpRequest(link=linked, reason="gone", at=AT, again_ms=MINUTE)
    )
    more = replace(linked, version=1, asks=1)
    assert await ready.do(remote_tasks.retry_remote_task, TENANT, more, "wait:remote:1", AT)
    assert [job.key for job in await ready.do(jobs.claim, "n-1", AGENT, 9)] == ["t-1"]
    with pytest.raises(Behind):
        await ready.do(remote_tasks.retry_remote_task, TENANT, more, "wait:remote:1", AT)
    await ready.do(task_endings.end_task, TENANT, ending())
    assert not await ready.do(remote_tasks.retry_remote_task, TENANT, more, "wait:remote:1", AT)


async def test_cancels_are_forwarded_until_delivered(ready: AnyStore, linked: RemoteLink, heard: Heard) -> None:
    assert await ready.do(remote_tasks.claim_cancels, AGENT, 9, MINUTE) == []
    heard.clear()
    await ready.do(task_endings.end_task, TENANT, ending())
    assert task_endings.REMOTE_CANCELS in heard
    assert await ready.do(remote_tasks.claim_cancels, "other", 9, MINUTE) == []
    (cancel,) = await ready.do(remote_tasks.claim_cancels, AGENT, 9, MINUTE)
    assert (cancel.tenant, cancel.link.task_id, cancel.cancels) == (TENANT, "t-1", 0)
    assert await ready.do(remote_tasks.claim_cancels, AGENT, 9, MINUTE) == []
    await ready.do(task_endings.pass_on_cancel, TENANT, "t-1")
    (again,) = await ready.do(remote_tasks.claim_cancels, AGENT, 9, MINUTE)
    assert again.cancels == 1
    await ready.do(remote_tasks.clear_cancel, TENANT, "t-1")
    assert await ready.read(table, "remote", "task_id, cancel_at") == [("t-1", None)]


async def test_status_of_remote_tasks(ready: AnyStore, linked: RemoteLink) -> None:
    (standing,) = await ready.read(remote_tasks.list_remote_tasks, None, None, 10)
    assert (standing.tenant, standing.here, standing.link) == (TENANT, S.SUBMITTED, linked)
    assert await ready.read(remote_tasks.list_remote_tasks, "t-1", S.SUBMITTED, 10) == [standing]
    assert await ready.read(remote_tasks.list_remote_tasks, "t-2", None, 10) == []
    assert await ready.read(remote_tasks.list_remote_tasks, None, S.UNKNOWN, 10) == []
    assert await ready.read(remote_tasks.list_remote_tasks, None, None, 0) == []


async def test_a_link_goes_with_its_task(ready: AnyStore, linked: RemoteLink) -> None:
    await ready.do(task_endings.end_task, TENANT, ending())
    await ready.do(retention.purge, 0, 10)
    for name in ("remote", "remote_token"):
        assert await ready.read(table, name) == []


async def test_reports_on_many_tasks_at_once_are_each_their_own(ready: AnyStore) -> None:
    """Some add to their task, some end it, some only move the link, and some cannot be written with others."""
    links: list[RemoteLink] = []
    for number in range(24):
        task_id = f"t-{number:02}"
        push = webhook() if number % 4 == 3 else None
        await ready.do(task_lifecycle.accept_task, TENANT, accepting(task_id, deadline_ms=MINUTE, push=push))
        links.append(await ready.do(remote_tasks.create_link, TENANT, expected(task_id, token_hash=task_id)))

    def report(number: int, link: RemoteLink) -> ReportRequest:
        moved = replace(link, remote_id=f"r-{number}", heard_at=AT + number, state=S.WORKING, sent=number)
        match number % 4:
            case 0:
                return reporting(moved, status(S.COMPLETED, link.task_id), state=S.COMPLETED)
            case 1:
                return reporting(moved)
            case _:
                return reporting(moved, chunk("a", link.task_id), chunk("b", link.task_id))

    commits = ready.commits
    await asyncio.gather(
        *(ready.do(remote_tasks.write_report, TENANT, report(number, link)) for number, link in enumerate(links))
    )
    assert ready.commits - commits < len(links)
    for number, link in enumerate(links):
        found, seen = await ready.read(remote_tasks.find_link, TENANT, link.task_id), await stored(ready, link.task_id)
        moved = report(number, link).link
        assert found == replace(moved, version=1)
        ended, lasts = number % 4 == 0, {0: 1, 1: 0, 2: 2, 3: 2}
        assert (seen.task_state is S.COMPLETED, seen.last_seq, seen.epoch) == (ended, lasts[number % 4], int(ended))
        assert [seq for seq, *_ in seen.events] == list(range(1, seen.last_seq + 1))
    left = {key for _, key in await waiting(ready)}
    assert left == {link.task_id for number, link in enumerate(links) if number % 4}
    due = [row for row in await ready.read(table, "push", "task_id, due_at") if row[1] is not None]
    assert len(due) == 6


async def test_a_report_rouses_the_parent_that_waits_with_its_question(ready: AnyStore) -> None:
    await ready.do(task_lifecycle.accept_task, TENANT, accepting("t-0", node="n-1"))
    parent = ParentExecution(task_id="t-0", epoch=1, step="child:1")
    child = accepting("t-1", parent=parent)
    await ready.do(task_lifecycle.accept_task, TENANT, replace(child, new=replace(child.new, parent_id="t-0")))
    link = await ready.do(remote_tasks.create_link, TENANT, expected())
    asks = reporting(link, status(S.INPUT_REQUIRED), state=S.INPUT_REQUIRED)
    await ready.do(remote_tasks.write_report, TENANT, asks)
    await ready.do(wait_for, "t-0", "t-1")
    works = reporting(replace(link, version=1), status(S.WORKING), after=1, state=S.WORKING)
    await ready.do(remote_tasks.write_report, TENANT, works)
    assert ("t-0", 0) in await ready.read(table, "job", "key, parked")


async def wait_for(tx: Tx, parent_id: str, child_id: str) -> None:
    """Let a task wait with the question of another."""
    await tx.run(
        "UPDATE job SET node = NULL, parked = 1, child = :child WHERE key = :key", child=child_id, key=parent_id
    )
