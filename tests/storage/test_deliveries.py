"""Webhooks as they are looked through: by how they stand, in pages, and only of tasks that are seen."""

import pytest

from accord.model import Authentication, PushConfig
from accord.storage.commands import tasks, webhook_deliveries, webhooks
from accord.storage.commands.task_lists import VisibleTasks
from accord.storage.commands.webhook_deliveries import DeliveryListQuery
from accord.storage.commands.webhooks import DeliveryAttempt
from tests.storage.conftest import MINUTE, OTHER, TENANT, AnyStore, appending, chunk, new

ALL = VisibleTasks(owner="nobody", sees_all=True)
STATES = {"t-1": "dead", "t-2": "retrying", "t-3": "pending", "t-4": "delivered"}


@pytest.fixture
async def with_hooks(ready: AnyStore) -> AnyStore:
    """A webhook for each way in which one may stand, and one of another tenant."""
    for task_id in (*STATES, "t-5"):
        tenant = OTHER if task_id == "t-5" else TENANT
        await ready.do(tasks.create_task, tenant, new(task_id))
        config = PushConfig(url=f"https://example.com/{task_id}_%?key=secret", id="w")
        await ready.do(webhooks.put, tenant, task_id, config, "v1")
        if task_id in ("t-1", "t-2", "t-3"):
            await ready.do(tasks.append, tenant, appending(task_id, chunk("x", task_id), epoch=0, after=0))
    claimed = {due.task_id: due for due in await ready.do(webhook_deliveries.claim_webhooks, "n-1", 10)}
    tried = DeliveryAttempt(seq=1, attempt=1, at=77, duration_ms=5, status=503, error="503")
    await ready.do(webhooks.fail, claimed["t-1"], "410", None, tried)
    await ready.do(webhooks.fail, claimed["t-2"], "503", MINUTE)
    return ready


async def test_webhooks_are_found_by_how_they_stand(with_hooks: AnyStore) -> None:
    found = await with_hooks.read(webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery())
    assert {one.task_id: one.state for one in found} == STATES
    for task_id, state in STATES.items():
        (one,) = await with_hooks.read(webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(state=state))
        assert (one.task_id, one.id, one.last_seq) == (task_id, "w", 0 if state == "delivered" else 1)
    (dead,) = await with_hooks.read(webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(state="dead"))
    assert (dead.last_at, dead.last_status, dead.last_error, dead.attempts) == (77, 503, "410", 1)


async def test_webhooks_are_found_by_task_id_and_address(with_hooks: AnyStore) -> None:
    (one,) = await with_hooks.read(
        webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(task_id="t-2", id="w")
    )
    assert one.task_id == "t-2"
    assert [
        one.task_id
        for one in await with_hooks.read(
            webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(url="t-3_%")
        )
    ] == ["t-3"]
    assert (
        await with_hooks.read(webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(url="t-3%%")) == []
    ), "no pattern of the caller's"
    assert (
        await with_hooks.read(webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(task_id="t-5")) == []
    ), "another tenant's"


async def test_search_matches_the_shown_address_only(ready: AnyStore) -> None:
    await ready.do(tasks.create_task, TENANT, new("t-1"))
    config = PushConfig(
        url="https://user:pass@Example.com/hooks?key=in-query",
        id="in-id",
        token="in-token",
        authentication=Authentication(scheme="Bearer", credentials="in-credentials"),
    )
    await ready.do(webhooks.put, TENANT, "t-1", config, "v1")
    (shown,) = await ready.read(
        webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(url="example.com/hooks")
    )
    assert shown.address == "https://example.com/hooks"
    for hidden in ("in-query", "in-id", "in-token", "in-credentials", "Bearer", "pass", '"url"'):
        assert await ready.read(webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(url=hidden)) == [], (
            hidden
        )


async def test_pages_continue_at_their_token(with_hooks: AnyStore) -> None:
    first = await with_hooks.read(webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(limit=3))
    assert [one.task_id for one in first] == ["t-4", "t-3", "t-2"]
    rest = await with_hooks.read(
        webhook_deliveries.list_deliveries,
        TENANT,
        ALL,
        DeliveryListQuery(limit=3, before=(first[-1].task_id, first[-1].id)),
    )
    assert [one.task_id for one in rest] == ["t-1"]


async def test_only_webhooks_of_seen_tasks_are_found_and_tried_again(with_hooks: AnyStore) -> None:
    head = await with_hooks.read(tasks.read_head, TENANT, "t-1")
    assert head is not None
    for seen, count in (
        (VisibleTasks(owner="nobody"), 0),
        (VisibleTasks(owner=head.owner), 1),
        (VisibleTasks(owner="nobody", others=(head.agent,)), 1),
        (VisibleTasks(owner="nobody", sees_all=True, others=(head.agent,)), 0),
        (VisibleTasks(owner=head.owner, hidden=(head.agent,)), 0),
    ):
        found = await with_hooks.read(webhook_deliveries.list_deliveries, TENANT, seen, DeliveryListQuery(state="dead"))
        assert len(found) == count, seen
        assert seen.sees(head.agent, head.owner) is bool(count)
    assert await with_hooks.do(webhook_deliveries.redeliver_visible, TENANT, VisibleTasks(owner="nobody"), 10) == 0
    assert await with_hooks.do(webhook_deliveries.redeliver_visible, TENANT, ALL, 10) == 1
    assert await with_hooks.read(webhook_deliveries.list_deliveries, TENANT, ALL, DeliveryListQuery(state="dead")) == []
