"""Storage quotas: what an owner and a tenant may store, on an injected clock and against real stores."""

import asyncio

import pytest
from msgspec.structs import replace

from accord import Context, agent
from accord.a2a import Caller, HostedAgent
from accord.auth.rate_limits import AGAIN_SECONDS, Quotas
from accord.errors import StorageQuotaExceeded, UnsupportedOperation
from accord.model import Message, Part, PushConfig, PushPage, Role, Task
from accord.protocol.operations import Operation
from accord.server.pipeline import pipeline
from accord.service.storage_quotas import (
    IDLE_FACTOR,
    MESSAGES,
    REFRESH_SECONDS,
    Account,
    StorageQuotas,
    measuring,
    size_of,
)
from accord.storage.commands import retention
from accord.storage.commands.monitoring import StoredTotal
from accord.storage.store import StoreUnavailable
from tests.engine.conftest import AT_ONCE, Hosting, saying
from tests.http.scripted import Scripted

ALICE, BOB = Caller(tenant="acme", owner="alice"), Caller(tenant="acme", owner="bob")
NEW = Message(message_id="m", role=Role.USER, parts=(Part(text="x" * 10),))
MORE = replace(NEW, task_id="t-1")


class Shop:
    """A store whose sums are set, and a clock that is moved; each sum takes `cost` seconds."""

    def __init__(self, tasks: int = 0, bytes: int = 0) -> None:
        self.stored = StoredTotal(tasks=tasks, bytes=bytes)
        self.now = 1000.0
        self.cost = 0.0
        self.asked: list[Account] = []
        self.is_away = False

    async def measure(self, account: Account) -> StoredTotal:
        self.asked.append(account)
        await asyncio.sleep(0)
        self.now += self.cost
        if self.is_away:
            raise StoreUnavailable("away")
        return self.stored

    def quotas(self, **limits: int) -> StorageQuotas:
        return StorageQuotas(Quotas(**limits), self.measure, lambda: self.now)


async def accepted(quotas: StorageQuotas, caller: Caller = ALICE, message: Message = NEW) -> bool:
    try:
        await quotas.take(caller, message)
    except StorageQuotaExceeded:
        return False
    return True


async def test_without_a_quota_nothing_is_measured() -> None:
    shop = Shop(tasks=10**9, bytes=10**15)
    assert await accepted(shop.quotas())
    assert shop.asked == []


async def test_sums_are_read_seldom_and_the_limit_holds() -> None:
    shop = Shop()
    quotas = shop.quotas(owner_tasks=800)
    assert [await accepted(quotas) for _ in range(801)] == [True] * 800 + [False]
    assert len(shop.asked) == 1, "until it is time to look again, what this node accepted counts"


async def test_foreign_writes_count_with_a_delay() -> None:
    shop = Shop()
    quotas = shop.quotas(owner_tasks=800)
    assert await accepted(quotas)
    shop.stored = StoredTotal(tasks=800, bytes=0)
    shop.now += AGAIN_SECONDS
    assert [await accepted(quotas) for _ in range(100)] == [True] * 99 + [False], "an eighth of 800, with the first"
    shop.stored = StoredTotal(tasks=700, bytes=0)
    assert not await accepted(quotas)
    shop.now += AGAIN_SECONDS
    assert await accepted(quotas), "retention has made room"
    shop.stored = StoredTotal(tasks=800, bytes=0)
    shop.now += REFRESH_SECONDS
    assert not await accepted(quotas)


async def test_a_sum_that_takes_long_is_read_the_less_often() -> None:
    shop = Shop(tasks=800)
    shop.cost = 1.0
    quotas = shop.quotas(owner_tasks=800)
    assert not await accepted(quotas)
    shop.now += IDLE_FACTOR - 1
    assert not await accepted(quotas)
    assert len(shop.asked) == 1
    shop.now += 1
    assert not await accepted(quotas)
    assert len(shop.asked) == 2


async def test_sends_at_the_same_moment_share_one_sum() -> None:
    shop = Shop()
    quotas = shop.quotas(owner_tasks=1000)
    assert all(await asyncio.gather(*(accepted(quotas) for _ in range(50))))
    assert len(shop.asked) == 1


async def test_message_bytes_count() -> None:
    shop = Shop(bytes=90)
    quotas = shop.quotas(owner_bytes=105)
    assert await accepted(quotas, message=MORE)
    assert not await accepted(quotas, message=MORE), "5 bytes are left for 10"
    assert await accepted(quotas, message=replace(MORE, parts=(Part(text="x" * 5),)))


async def test_reply_bytes_count_with_a_delay() -> None:
    shop = Shop()
    quotas = shop.quotas(owner_bytes=10_000)
    assert await accepted(quotas)
    shop.stored = StoredTotal(tasks=1, bytes=10_000)
    shop.now += AGAIN_SECONDS
    assert [await accepted(quotas) for _ in range(MESSAGES)] == [True] * (MESSAGES - 1) + [False]


async def test_a_full_quota_of_tasks_lets_messages_to_open_tasks_through() -> None:
    quotas = Shop(tasks=7).quotas(owner_tasks=5)
    assert not await accepted(quotas)
    assert await accepted(quotas, message=MORE)


async def test_a_tenant_shares_its_quota_and_another_has_its_own() -> None:
    shop = Shop(tasks=3)
    quotas = shop.quotas(tenant_tasks=5)
    assert [await accepted(quotas, caller) for caller in (ALICE, BOB, ALICE)] == [True, True, False]
    assert await accepted(quotas, replace(ALICE, tenant="globex"))
    assert shop.asked == [("acme", None), ("globex", None)]


async def test_a_refused_message_uses_up_nothing_of_the_other_quota() -> None:
    quotas = Shop(tasks=4).quotas(owner_tasks=5, tenant_tasks=4)
    assert not await accepted(quotas)
    assert [room.tasks for room in quotas._rooms.values()] == [1, 0]


async def test_a_caller_of_any_tenant_is_one_owner_in_all_of_them() -> None:
    shop = Shop(tasks=5)
    quotas = shop.quotas(owner_tasks=5)
    for tenant in ("a", "b"):
        assert not await accepted(quotas, Caller(tenant=tenant, owner="", roams=True))
    assert shop.asked == [(None, "")]


async def test_a_store_that_is_away_is_reported_by_the_send_itself() -> None:
    shop = Shop(tasks=5)
    shop.is_away = True
    quotas = shop.quotas(owner_tasks=5)
    assert await accepted(quotas)
    shop.is_away = False
    assert not await accepted(quotas)


def test_message_size_is_the_size_of_its_content() -> None:
    parts = (Part(text="abc"), Part(raw=b"12345"), Part(data={"a": 1}))
    assert size_of(replace(NEW, parts=parts)) == 3 + 5 + len('{"a":1}')
    linked = Part(url="data:,x", metadata={"b": 2})
    assert size_of(replace(NEW, parts=(linked,), metadata={"c": 3})) == len('"data:,x"{"b":2}{"c":3}')


@agent
async def brief(ctx: Context) -> str:
    """Says one word."""
    return "word"


async def test_quotas_hold_over_nodes_and_after_retention(hosting: Hosting) -> None:
    host = await hosting(brief)
    store = host.node.store

    def node() -> HostedAgent:
        quotas = StorageQuotas(Quotas(owner_tasks=3), measuring(store))
        return pipeline(host.default, "brief", storage=quotas)

    one, two = node(), node()
    for guarded in (one, two, two):
        task = await guarded.send(saying("x"), ALICE)
        assert isinstance(task, Task)
    with pytest.raises(StorageQuotaExceeded, match="You may store 3 tasks") as refused:
        await node().send(saying("x"), ALICE)
    assert refused.value.row.http == refused.value.row.rpc_http == 429
    assert refused.value.metadata == {"limit": "owner_tasks"}
    assert refused.value.retry_after is None
    await node().send(saying("x", configuration=AT_ONCE), BOB)
    assert await store.do(retention.purge, -60_000, 2) == 2
    await node().send(saying("x"), ALICE)


async def test_a_webhook_that_exceeds_the_quota_is_refused() -> None:
    inner = Scripted(results={Operation.PUSH_LIST: PushPage()})
    guarded = pipeline(inner, "brief", storage=Shop(bytes=90).quotas(owner_bytes=105))
    with pytest.raises(StorageQuotaExceeded):
        await guarded.push_set(PushConfig(task_id="t-1", url=f"https://example.com/{'x' * 100}"), ALICE)
    assert Operation.PUSH_SET not in [call.operation for call in inner.calls]


async def test_a_message_that_is_not_stored_uses_up_nothing(hosting: Hosting) -> None:
    """Or a caller could use up the quota of its tenant with messages that fail."""
    host = await hosting(brief)
    quotas = StorageQuotas(Quotas(tenant_bytes=100_000), measuring(host.node.store), lambda: 0.0)
    guarded = pipeline(host.default, "brief", storage=quotas)
    task = await guarded.send(saying("x"), ALICE)
    assert isinstance(task, Task)
    for _ in range(20):
        with pytest.raises(UnsupportedOperation):
            await guarded.send(saying("x" * 10_000, task_id=task.id), ALICE)
    await guarded.send(saying("x" * 50_000), BOB)


async def test_measurements_meanwhile_are_kept() -> None:
    shop = Shop()
    quotas = shop.quotas(owner_tasks=800)
    taken = await quotas.take(ALICE, NEW)
    shop.now += REFRESH_SECONDS
    assert await accepted(quotas)
    assert taken is not None
    taken.give_back()
    assert [room.tasks for room in quotas._rooms.values()] == [799]
