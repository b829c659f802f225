"""Webhooks: a cursor over the log, due when it grows, sent by one node at a time, retried, dead, redelivered."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from accord.model import Authentication, PushConfig, PushFormat
from accord.storage import schema
from accord.storage.commands import jobs, tasks, webhook_deliveries, webhooks
from accord.storage.commands.tasks import Fenced
from accord.storage.commands.webhooks import ClaimedWebhook, DeliveryAttempt
from accord.storage.store import Tx
from tests.storage.conftest import (
    BOUND_SECONDS,
    MINUTE,
    OTHER,
    TENANT,
    AnyStore,
    Heard,
    appending,
    chunk,
    new,
    overlapped,
    pass_time,
    postgres_only,
    table,
    webhook,
)


@pytest.fixture
async def with_task(ready: AnyStore) -> AnyStore:
    """A store with the task t-1."""
    await ready.do(tasks.create_task, TENANT, new())
    return ready


@pytest.fixture
async def with_hook(with_task: AnyStore) -> AnyStore:
    """A store with the task t-1, which has the webhook w-1."""
    await with_task.do(webhooks.put, TENANT, "t-1", webhook(), "v1")
    return with_task


async def grow(tx: Tx, tenant: str = TENANT, task_id: str = "t-1") -> int:
    """Append one more event, whoever holds the task."""
    found = await tasks.lock_task(tx, tenant, task_id)
    assert found is not None
    return await tasks.append(
        tx, tenant, appending(task_id, chunk("x", task_id), epoch=found.epoch, after=found.last_seq)
    )


async def ids(store: AnyStore, tenant: str = TENANT, task_id: str = "t-1") -> Sequence[str | None]:
    return [hook.config.id for hook in await store.read(webhooks.list_webhooks, tenant, task_id)]


async def count(store: AnyStore, tenant: str = TENANT) -> int:
    """How many webhooks the task believes to have."""
    found = await store.read(tasks.read_task, tenant, "t-1")
    assert found is not None
    return found.pushes


async def taken(store: AnyStore, node: str = "n-1") -> ClaimedWebhook:
    """Take the one webhook that is due."""
    (due,) = await store.do(webhook_deliveries.claim_webhooks, node, 10)
    return due


async def is_idle(store: AnyStore) -> bool:
    return await store.do(webhook_deliveries.claim_webhooks, "nobody", 10) == []


# Setting, reading, removing


async def test_a_webhook_is_kept_as_it_was_given(ready: AnyStore) -> None:
    given = PushConfig(
        id="w-1",
        url="https://example.com/hook",
        token="secret",
        authentication=Authentication(scheme="Bearer", credentials="x"),
        payload_format=PushFormat.SIMPLE,
        events=("status",),
    )
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(grow)
    assert await ready.do(webhooks.put, TENANT, "t-1", given, "v03") is True
    (found,) = await ready.read(webhooks.list_webhooks, TENANT, "t-1")
    assert (found.config, found.dialect, found.cursor) == (given, "v03", 1), "it begins with what happens from now on"
    assert (found.attempts, found.is_dead, found.last_error) == (0, False, None)
    assert await ready.do(webhooks.put, TENANT, "nowhere", given, "v1") is False
    assert await ready.do(webhooks.put, OTHER, "t-1", given, "v1") is False


async def test_a_webhook_is_replaced_by_its_id(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    for id, url in (("w-2", "https://a"), ("w-1", "https://b"), ("w-2", "https://c")):
        await ready.do(webhooks.put, TENANT, "t-1", webhook(id, url), "v1")
    hooks = await ready.read(webhooks.list_webhooks, TENANT, "t-1")
    assert [(hook.config.id, hook.config.url) for hook in hooks] == [("w-1", "https://b"), ("w-2", "https://c")]
    assert await count(ready) == 2


async def test_webhooks_may_start_at_an_earlier_event(ready: AnyStore, heard: Heard) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    for _ in range(3):
        await ready.do(grow)
    heard.clear()
    await ready.do(webhooks.put, TENANT, "t-1", webhook(), "v1", after=1)
    assert "push" in heard
    assert (await taken(ready)).cursor == 1
    await ready.do(webhooks.put, TENANT, "t-1", webhook("w-2"), "v1", after=3)
    assert await is_idle(ready)


async def test_a_webhook_that_is_replaced_keeps_its_place(with_hook: AnyStore) -> None:
    await with_hook.do(grow)
    await with_hook.do(webhooks.advance, await taken(with_hook), 1, keeps=False)
    await with_hook.do(webhooks.put, TENANT, "t-1", webhook(url="https://new"), "v03", after=0)
    assert await is_idle(with_hook)
    await with_hook.do(grow)
    due = await taken(with_hook)
    assert (due.config.url, due.dialect, due.cursor) == ("https://new", "v03", 1)


async def test_deliveries_continue_unless_the_webhook_changes(with_hook: AnyStore) -> None:
    for _ in range(4):
        await with_hook.do(grow)
    busy = await taken(with_hook)
    same = replace(busy.config, token="new")
    await with_hook.do(webhooks.put, TENANT, "t-1", same, "v03")
    assert await is_idle(with_hook)
    told = await with_hook.do(webhooks.advance, busy, 1, keeps=True)
    assert (told.config, told.dialect, told.cursor) == (same, "v03", 1)
    await with_hook.do(webhooks.put, TENANT, "t-1", replace(same, token="newer"), "v03")
    await with_hook.do(webhooks.fail, told, "401", None)
    (hook,) = await with_hook.read(webhooks.list_webhooks, TENANT, "t-1")
    assert (hook.is_dead, hook.attempts, hook.config.token) == (False, 0, "newer")
    again = await taken(with_hook)
    await with_hook.do(webhooks.put, TENANT, "t-1", replace(again.config, url="https://new"), "v03")
    assert (await taken(with_hook, "n-2")).cursor == 1
    with pytest.raises(Fenced):
        await with_hook.do(webhooks.advance, again, 2, keeps=True)


async def test_a_dead_webhook_that_is_replaced_is_tried_again(with_hook: AnyStore) -> None:
    await with_hook.do(grow)
    await with_hook.do(webhooks.fail, await taken(with_hook), "no", None)
    await with_hook.do(webhooks.put, TENANT, "t-1", webhook(url="https://new"), "v1")
    (found,) = await with_hook.read(webhooks.list_webhooks, TENANT, "t-1")
    assert (found.cursor, found.attempts, found.is_dead, found.last_error) == (0, 0, False, None)
    due = await taken(with_hook)
    assert (due.config.url, due.cursor) == ("https://new", 0)


async def test_webhooks_are_removed_by_id_by_url_or_all(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    hooks = [webhook(f"w-{at}", f"https://{'ab'[at % 2]}") for at in range(6)]
    for hook in hooks:
        await ready.do(webhooks.put, TENANT, "t-1", hook, "v1")
    assert await ready.do(webhooks.delete, TENANT, "t-1", id="w-0") == 1
    assert await ready.do(webhooks.delete, TENANT, "t-1", id="w-0") == 0
    assert await ready.do(webhooks.delete, TENANT, "t-1", id="w-1", url="https://a") == 0
    assert await ready.do(webhooks.delete, TENANT, "t-1", url="https://b") == 3
    assert await ids(ready) == ["w-2", "w-4"]
    assert await count(ready) == 2
    assert await ready.do(webhooks.delete, TENANT, "t-1") == 2
    assert await ids(ready) == []
    assert await count(ready) == 0
    assert await ready.do(webhooks.delete, TENANT, "nowhere") == 0


async def test_tenants_have_webhooks_of_their_own(ready: AnyStore) -> None:
    for tenant in (TENANT, OTHER):
        await ready.do(tasks.create_task, tenant, new())
        await ready.do(webhooks.put, tenant, "t-1", webhook(url=f"https://{tenant}"), "v1")
    await ready.do(grow, OTHER)
    due = await taken(ready)
    assert (due.tenant, due.config.url) == (OTHER, f"https://{OTHER}")
    await ready.do(webhooks.advance, due, 1, keeps=False)
    assert [hook.cursor for hook in await ready.read(webhooks.list_webhooks, TENANT, "t-1")] == [0]
    assert await ready.do(webhooks.redeliver, "nowhere", "t-1", "w-1") is False
    assert await ready.do(webhooks.delete, OTHER, "t-1") == 1
    assert await ids(ready) == ["w-1"]
    assert (await count(ready), await count(ready, OTHER)) == (1, 0)


async def test_concurrent_changes_keep_the_webhook_count(with_task: AnyStore) -> None:
    async def set_and_remove(at: int) -> None:
        await with_task.do(webhooks.put, TENANT, "t-1", webhook(f"w-{at % 3}"), "v1")
        await asyncio.gather(*(with_task.do(webhooks.delete, TENANT, "t-1", id=f"w-{at % 3}") for _ in range(2)))

    async with asyncio.timeout(BOUND_SECONDS):
        await asyncio.gather(*(set_and_remove(at) for at in range(9)))
    assert await count(with_task) == len(await ids(with_task)) == 0


@postgres_only
async def test_a_webhook_that_two_remove_at_once_is_removed_once(with_hook: AnyStore) -> None:
    outcomes = await overlapped(
        with_hook,
        lambda tx: webhooks.delete(tx, TENANT, "t-1"),
        lambda tx: webhooks.delete(tx, TENANT, "t-1"),
    )
    assert outcomes == [1, 0]
    assert await count(with_hook) == 0


# Delivering


async def test_a_webhook_is_due_when_the_log_grows_and_taken_once(ready: AnyStore, heard: Heard) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(grow)
    await ready.do(webhooks.put, TENANT, "t-1", webhook(), "v1")
    assert await is_idle(ready), "what happened before is not sent"
    heard.clear()
    await ready.do(grow)
    assert "push" in heard
    (due,) = await ready.do(webhook_deliveries.claim_webhooks, "n-1", 10)
    assert due == ClaimedWebhook(
        tenant=TENANT,
        task_id="t-1",
        id="w-1",
        caller=due.caller,
        host="example.com",
        config=webhook(),
        dialect="v1",
        cursor=1,
        attempts=0,
        epoch=1,
    )
    assert await is_idle(ready)
    await ready.do(webhooks.advance, due, 2, keeps=False)
    assert await is_idle(ready)
    (hook,) = await ready.read(webhooks.list_webhooks, TENANT, "t-1")
    assert hook.cursor == 2


async def test_longest_waiting_webhooks_come_first(ready: AnyStore) -> None:
    for task_id in ("t-3", "t-1", "t-2"):
        await ready.do(tasks.create_task, TENANT, new(task_id))
        await ready.do(webhooks.put, TENANT, task_id, webhook(), "v1")
        await ready.do(grow, TENANT, task_id)
        await ready.do(pass_time, MINUTE)
    assert [due.task_id for due in await ready.do(webhook_deliveries.claim_webhooks, "n-1", 6)] == ["t-3", "t-1"]
    assert [due.task_id for due in await ready.do(webhook_deliveries.claim_webhooks, "n-1", 6)] == ["t-2"]


async def test_claimed_webhooks_are_exclusive(ready: AnyStore) -> None:
    for at in range(20):
        await ready.do(tasks.create_task, TENANT, new(f"t-{at}"))
        await ready.do(webhooks.put, TENANT, f"t-{at}", webhook(), "v1")
        await ready.do(grow, TENANT, f"t-{at}")
    async with asyncio.timeout(BOUND_SECONDS):
        claims = await asyncio.gather(*(ready.do(webhook_deliveries.claim_webhooks, f"n-{at}", 9) for at in range(12)))
    found = [due.task_id for some in claims for due in some]
    found += [due.task_id for due in await ready.do(webhook_deliveries.claim_webhooks, "n-1", 60)]
    assert len(found) == len(set(found)) == 20


async def test_senders_continue_claimed_webhooks(with_hook: AnyStore) -> None:
    for _ in range(3):
        await with_hook.do(grow)
    due = await taken(with_hook)
    await with_hook.do(webhooks.advance, due, 1, keeps=True)
    assert await is_idle(with_hook)
    await with_hook.do(webhooks.advance, due, 2, keeps=True)
    await with_hook.do(jobs.forget_node, "n-1")
    again = await taken(with_hook, "n-2")
    assert (again.cursor, again.epoch) == (2, 2), "nothing is sent twice that was confirmed"


async def test_new_events_during_a_delivery_make_it_due_again(with_hook: AnyStore) -> None:
    await with_hook.do(grow)
    due = await taken(with_hook)
    await with_hook.do(grow)
    assert await is_idle(with_hook)
    await with_hook.do(webhooks.advance, due, 1, keeps=False)
    assert (await taken(with_hook)).cursor == 1


@postgres_only
async def test_events_committed_at_the_end_are_delivered(with_hook: AnyStore) -> None:
    await with_hook.do(grow)
    due = await taken(with_hook)
    outcomes = await overlapped(with_hook, grow, lambda tx: webhooks.advance(tx, due, 1, keeps=False))
    assert outcomes == [2, replace(due, cursor=1)]
    assert (await taken(with_hook)).cursor == 1


async def test_failed_deliveries_retry_until_success(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(webhooks.put, TENANT, "t-1", webhook(), "v1")
    await ready.do(grow)
    for attempts in range(3):
        due = await taken(ready)
        assert (due.attempts, due.cursor) == (attempts, 0)
        await ready.do(webhooks.fail, due, f"503 {attempts}", MINUTE)
        (hook,) = await ready.read(webhooks.list_webhooks, TENANT, "t-1")
        assert (hook.attempts, hook.last_error, hook.is_dead) == (attempts + 1, f"503 {attempts}", False)
        await ready.do(grow)
        assert await is_idle(ready), "what is new does not hurry it"
        await ready.do(pass_time, MINUTE)
    await ready.do(webhooks.advance, await taken(ready), 4, keeps=False)
    (hook,) = await ready.read(webhooks.list_webhooks, TENANT, "t-1")
    assert (hook.attempts, hook.last_error) == (0, None)


async def test_a_dead_webhook_rests_until_it_is_redelivered(ready: AnyStore, heard: Heard) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(webhooks.put, TENANT, "t-1", webhook(), "v1")
    await ready.do(grow)
    await ready.do(webhooks.fail, await taken(ready), "410", None)
    (hook,) = await ready.read(webhooks.list_webhooks, TENANT, "t-1")
    assert (hook.is_dead, hook.attempts, hook.last_error) == (True, 1, "410")
    await ready.do(grow)
    await ready.do(pass_time, 1_000_000 * MINUTE)
    assert await is_idle(ready)
    heard.clear()
    assert await ready.do(webhooks.redeliver, TENANT, "t-1", "w-1") is True
    assert "push" in heard
    due = await taken(ready)
    assert (due.cursor, due.attempts) == (0, 0)
    assert await ready.do(webhooks.redeliver, TENANT, "t-1", "w-9") is False


async def test_deliveries_can_restart_from_an_earlier_event(with_hook: AnyStore) -> None:
    for _ in range(3):
        await with_hook.do(grow)
    await with_hook.do(webhooks.advance, await taken(with_hook), 3, keeps=False)
    assert await with_hook.do(webhooks.redeliver, TENANT, "t-1", "w-1", after=1) is True
    assert (await taken(with_hook)).cursor == 1


async def test_redelivery_is_not_forgotten_by_a_sender_that_is_busy(with_hook: AnyStore) -> None:
    for _ in range(3):
        await with_hook.do(grow)
    busy = await taken(with_hook)
    await with_hook.do(webhooks.redeliver, TENANT, "t-1", "w-1", after=1)
    with pytest.raises(Fenced):
        await with_hook.do(webhooks.advance, busy, 3, keeps=False)
    assert (await taken(with_hook, "n-2")).cursor == 1


async def test_a_sender_that_lost_its_webhook_cannot_write(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new())
    await ready.do(webhooks.put, TENANT, "t-1", webhook(), "v1")
    await ready.do(grow)
    lost = await taken(ready)
    await ready.do(jobs.forget_node, "n-1")
    await taken(ready, "n-2")
    before = await ready.read(table, "push")
    for keeps in (True, False):
        with pytest.raises(Fenced):
            await ready.do(webhooks.advance, lost, 1, keeps=keeps)
    for delay_ms in (MINUTE, None):
        with pytest.raises(Fenced):
            await ready.do(webhooks.fail, lost, "late", delay_ms)
    assert await ready.read(table, "push") == before


async def test_a_webhook_that_was_removed_is_not_sent_on(with_hook: AnyStore) -> None:
    await with_hook.do(grow)
    due = await taken(with_hook)
    await with_hook.do(webhooks.delete, TENANT, "t-1", id="w-1")
    with pytest.raises(Fenced):
        await with_hook.do(webhooks.advance, due, 1, keeps=False)
    with pytest.raises(Fenced):
        await with_hook.do(webhooks.fail, due, "gone", MINUTE)
    await with_hook.do(grow)
    assert await is_idle(with_hook)


async def test_undelivered_claims_are_released(with_hook: AnyStore) -> None:
    await with_hook.do(tasks.append, TENANT, appending("t-1", chunk("a")))
    (due,) = await with_hook.do(webhook_deliveries.claim_webhooks, "n-1", 5)
    await with_hook.do(webhooks.release, "n-1", [due])
    await with_hook.do(webhooks.release, "n-2", [])
    assert await with_hook.do(webhook_deliveries.claim_webhooks, "n-2", 5) == [], "it is being delivered"
    await with_hook.do(webhooks.release, "n-1", [])
    assert [again.id for again in await with_hook.do(webhook_deliveries.claim_webhooks, "n-2", 5)] == [due.id]


async def test_operators_list_webhooks_and_redeliver(with_hook: AnyStore) -> None:
    await with_hook.do(tasks.create_task, OTHER, new())
    await with_hook.do(webhooks.put, OTHER, "t-1", webhook(), "v1")
    await with_hook.do(grow)
    (due,) = await with_hook.do(webhook_deliveries.claim_webhooks, "node", 10)
    await with_hook.do(webhooks.fail, due, "refused", None)

    everyone = await with_hook.read(webhooks.list_statuses, "all", None, 10)
    assert sorted((one.tenant, one.task_id, one.last_error) for one in everyone) == sorted(
        [(TENANT, "t-1", "refused"), (OTHER, "t-1", None)]
    )
    (dead,) = await with_hook.read(webhooks.list_statuses, "dead", "t-1", 10)
    assert (dead.tenant, dead.cursor, dead.last_seq, dead.attempts) == (TENANT, 0, 1, 1)
    assert await with_hook.read(webhooks.list_statuses, "all", "t-2", 10) == []
    assert len(await with_hook.read(webhooks.list_statuses, "all", None, 1)) == 1

    assert await with_hook.do(webhooks.redeliver_dead) == 1
    assert await with_hook.do(webhooks.redeliver_dead) == 0
    assert await with_hook.read(webhooks.list_statuses, "dead", None, 10) == []
    (again,) = await with_hook.do(webhook_deliveries.claim_webhooks, "node", 10)
    assert (again.tenant, again.attempts, again.epoch > due.epoch) == (TENANT, 0, True)


# Attempts


def attempt(n: int = 1, **fields: Any) -> DeliveryAttempt:
    return DeliveryAttempt(seq=n, attempt=n, at=1000 + n, duration_ms=7, **fields)


async def test_attempts_are_stored_with_outcome_and_expire(with_hook: AnyStore, heard: Heard) -> None:
    await with_hook.do(grow)
    due = await taken(with_hook)
    await with_hook.do(webhooks.fail, due, "503", 0, attempt(1, status=503, error="503", detail='["a", "b"]'))
    assert webhooks.attempts_topic(TENANT, "t-1") in heard
    due = await taken(with_hook)
    for n in range(2, webhooks.KEPT_ATTEMPTS + 5):
        await with_hook.do(webhooks.advance, due, n, keeps=True, attempt=attempt(n, status=204))
    found = await with_hook.read(webhooks.list_attempts, TENANT, "t-1", "w-1", 1000)
    assert [one.seq for _, one in found] == list(range(webhooks.KEPT_ATTEMPTS + 4, 4, -1)), (
        "the newest, and no more than are kept"
    )
    assert {(id, one.status, one.error) for id, one in found} == {("w-1", 204, None)}
    assert await with_hook.read(webhooks.list_attempts, OTHER, "t-1") == []
    await with_hook.do(webhooks.delete, TENANT, "t-1", "w-1")
    assert await with_hook.read(webhooks.list_attempts, TENANT, "t-1") == []


async def test_lost_claims_record_nothing(with_hook: AnyStore) -> None:
    await with_hook.do(grow)
    due = await taken(with_hook)
    await with_hook.do(webhooks.redeliver, TENANT, "t-1", "w-1")
    with pytest.raises(Fenced):
        await with_hook.do(webhooks.advance, due, 1, keeps=True, attempt=attempt())
    assert await with_hook.read(webhooks.list_attempts, TENANT, "t-1") == []


async def test_migration_fills_in_lanes_of_stored_webhooks(store: AnyStore) -> None:
    for migration in schema.known_migrations()[:4]:
        await store.do(schema._apply_migration, migration)

    async def write(tx: Tx) -> None:
        await tx.run(
            """INSERT INTO task (tenant, id, context_id, agent, owner, state, updated_at)
               VALUES ('acme', 't', 'c', 'a', 'alice', 'working', 1)"""
        )
        for id, url in (("1", "https://Example.com:8443/a?key=x"), ("2", "http://example.com")):
            await tx.run(
                "INSERT INTO push (tenant, task_id, id, config, dialect) VALUES ('acme', 't', :id, :config, 'v1')",
                id=id,
                config=msgspec.json.encode(PushConfig(url=url, id=id)).decode(),
            )

    await store.do(write)
    await schema.upgrade_schema(store)
    assert await store.read(table, "push", "id, caller, host, address") == [
        ("1", "acme\nalice", "example.com:8443", "https://Example.com:8443/a"),
        ("2", "acme\nalice", "example.com", "http://example.com"),
    ]


async def test_webhooks_are_paged_by_their_keys(with_hook: AnyStore) -> None:
    await with_hook.do(tasks.create_task, OTHER, new())
    await with_hook.do(webhooks.put, OTHER, "t-1", webhook("w-2"), "v1")
    first = await with_hook.read(webhooks.page, ("", "", ""), 1)
    rest = await with_hook.read(webhooks.page, (first[0].tenant, first[0].task_id, first[0].id), 10)
    assert {(kept.tenant, kept.id) for kept in first + rest} == {(TENANT, "w-1"), (OTHER, "w-2")}
    assert [len(first), len(rest)] == [1, 1]


async def test_a_webhook_that_changed_meanwhile_is_not_resealed(with_hook: AnyStore) -> None:
    (kept,) = await with_hook.read(webhooks.page, ("", "", ""), 10)
    sealed = replace(kept.config, token="sealed")
    assert await with_hook.do(webhooks.reseal, kept, sealed)
    assert not await with_hook.do(webhooks.reseal, kept, replace(kept.config, token="older"))
    (listed,) = await with_hook.read(webhooks.list_webhooks, TENANT, "t-1")
    assert listed.config.token == "sealed"
