"""Claims of webhooks: callers in turn, none with all the room, and no host that hides the others of its caller."""

from collections import Counter

from msgspec.structs import replace

from accord.storage.commands import tasks, webhook_deliveries, webhooks
from accord.storage.commands.webhook_deliveries import DeliveryLoad
from accord.storage.commands.webhooks import ClaimedWebhook
from accord.storage.store import Tx
from tests.storage.conftest import MINUTE, OTHER, TENANT, AnyStore, appending, chunk, new, pass_time, webhook

ROOM = 30


async def due(store: AnyStore, count: int, tenant: str = TENANT, owner: str = "alice", host: str = "a.example") -> None:
    """Make webhooks that are due, each of a task of its own."""
    for at in range(count):
        task_id = f"{owner}-{host}-{at}"
        await store.do(tasks.create_task, tenant, replace(new(task_id), owner=owner))
        await store.do(webhooks.put, tenant, task_id, webhook(url=f"https://{host}/hook"), "v1")
        await store.do(tasks.append, tenant, appending(task_id, chunk("x", task_id), epoch=0, after=0))


async def claimed(store: AnyStore, room: int = ROOM, busy: DeliveryLoad | None = None) -> list[ClaimedWebhook]:
    return await store.do(webhook_deliveries.claim_webhooks, "n-1", room, busy or DeliveryLoad())


def by_caller(found: list[ClaimedWebhook]) -> Counter[str]:
    return Counter(one.caller for one in found)


ALICE, BOB, CAROL = (webhooks.caller_of(*of) for of in ((TENANT, "alice"), (TENANT, "bob"), (OTHER, "carol")))


async def test_one_caller_gets_a_third_of_the_room(ready: AnyStore) -> None:
    await due(ready, ROOM)
    assert len(await claimed(ready)) == ROOM // 3
    under_way = DeliveryLoad(tenants={TENANT: 10}, callers={ALICE: 10}, hosts={(ALICE, "a.example"): 10})
    assert await claimed(ready, ROOM - 10, under_way) == [], "what is left is for others"


async def test_callers_that_wait_share_the_room(ready: AnyStore) -> None:
    await due(ready, ROOM)
    await ready.do(pass_time, MINUTE)
    await due(ready, 2, owner="bob")
    await due(ready, 2, OTHER, "carol")
    assert by_caller(await claimed(ready)) == {ALICE: 10, BOB: 2, CAROL: 2}


async def test_owners_of_one_tenant_leave_room_for_another_tenant(ready: AnyStore) -> None:
    for owner in ("ann", "ben", "cid", "dan", "eve"):
        await due(ready, 8, owner=owner)
    under_way: list[ClaimedWebhook] = []
    while found := await claimed(ready, ROOM - len(under_way), _busy(under_way)):
        under_way += found
    assert len(under_way) <= 3 * ROOM / 4
    await due(ready, 1, OTHER, "carol")
    (other,) = await claimed(ready, ROOM - len(under_way), _busy(under_way))
    assert other.tenant == OTHER


async def test_owners_of_one_tenant_leave_room_for_another_owner(ready: AnyStore) -> None:
    for owner in ("ann", "ben", "cid", "dan", "eve"):
        await due(ready, 8, owner=owner)
    under_way: list[ClaimedWebhook] = []
    while found := await claimed(ready, ROOM - len(under_way), _busy(under_way)):
        under_way += found
    await due(ready, 2, owner="zoe")
    (other,) = await claimed(ready, ROOM - len(under_way), _busy(under_way))
    assert other.caller == webhooks.caller_of(TENANT, "zoe")
    under_way += [replace(other, caller=webhooks.caller_of(TENANT, str(at))) for at in range(3 * ROOM // 4)]
    await due(ready, 1, owner="zac")
    assert await claimed(ready, ROOM // 4, _busy(under_way[-3 * ROOM // 4 :])) == [], (
        "what is left is for other tenants"
    )


def _busy(under_way: list[ClaimedWebhook]) -> DeliveryLoad:
    return DeliveryLoad(
        tenants=Counter(one.tenant for one in under_way),
        callers=by_caller(under_way),
        hosts=Counter((one.caller, one.host) for one in under_way),
    )


async def test_a_host_that_rests_hides_no_other(ready: AnyStore) -> None:
    await due(ready, webhook_deliveries.LOOK + 10, host="slow.example")
    await ready.do(pass_time, MINUTE)
    await due(ready, 2)
    lane = (ALICE, "slow.example")
    found = await claimed(ready, busy=DeliveryLoad(resting={lane: MINUTE}, hung=frozenset({lane})))
    assert [one.host for one in found] == ["a.example"] * 2
    assert await claimed(ready) == [], "the others are put off for as long as the host rests"
    await ready.do(pass_time, MINUTE)
    (probe,) = await claimed(ready, busy=DeliveryLoad(hung=frozenset({lane})))
    assert (probe.host, probe.attempts) == ("slow.example", 0)


async def test_claim_puts_off_no_webhook_twice(ready: AnyStore) -> None:
    """A rest that is nearly over would let the same webhooks be due again while the claim goes on."""
    await due(ready, 1)
    (before,) = await ready.read(times, "SELECT {now}")
    assert await claimed(ready, busy=DeliveryLoad(resting={(ALICE, "a.example"): 1})) == []
    (after,) = await ready.read(times, "SELECT due_at FROM push")
    assert after - before >= webhook_deliveries.FULL_HOST_DELAY_MS


async def times(tx: Tx, query: str) -> list[int]:
    return [int(row[0]) for row in await tx.all(query)]


async def test_a_host_that_rests_for_one_caller_is_claimed_for_others(ready: AnyStore) -> None:
    await due(ready, 1, host="shared.example")
    await due(ready, 1, owner="bob", host="shared.example")
    (found,) = await claimed(ready, busy=DeliveryLoad(resting={(ALICE, "shared.example"): MINUTE}))
    assert found.caller == BOB


async def test_a_full_host_gets_no_more(ready: AnyStore) -> None:
    await due(ready, 3)
    assert (
        len(await claimed(ready, busy=DeliveryLoad(hosts={(ALICE, "a.example"): webhook_deliveries.HOST_LIMIT - 1})))
        == 1
    )
