"""How much a caller may ask for: rates on an injected clock, streams, open tasks."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.a2a import Caller
from accord.auth.rate_limits import AGAIN_SECONDS, SHARE, SWEEP_AT, Bucket, CallerUsage, Quotas
from accord.errors import RateLimited
from accord.storage.store import StoreUnavailable

ALICE, BOB, NOBODY = Caller(tenant="acme", owner="alice"), Caller(tenant="acme", owner="bob"), Caller(roams=True)


class Clock:
    """A clock that moves when told so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


# --- rates ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("4-31")
def test_a_burst_passes_and_then_one_per_step() -> None:
    clock = Clock()
    bucket = Bucket(10.0, 5, clock)
    assert [bucket.take("a") for _ in range(5)] == [0.0] * 5
    wait = bucket.take("a")
    assert wait == pytest.approx(0.1)
    assert bucket.take("b") == 0.0
    clock.now += wait
    assert bucket.take("a") == 0.0
    assert bucket.take("a") > 0
    clock.now += 60
    assert [bucket.take("a") for _ in range(6)].count(0.0) == 5


@given(st.floats(0.5, 1000), st.integers(1, 50), st.lists(st.floats(0, 0.5), max_size=200))
def test_no_window_ever_gets_more_than_burst_and_rate_allow(rate: float, burst: int, pauses: list[float]) -> None:
    clock = Clock()
    bucket = Bucket(rate, burst, clock)
    taken: list[float] = []
    for pause in pauses:
        clock.now += pause
        if not bucket.take("a"):
            taken.append(clock.now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            assert last - first + 1 <= burst + (taken[last] - taken[first]) * rate + 1e-6


@given(st.floats(0.5, 1000), st.integers(1, 50), st.integers(1, 300))
def test_retry_after_is_exact(rate: float, burst: int, count: int) -> None:
    clock = Clock()
    bucket = Bucket(rate, burst, clock)
    served: list[float] = []
    while len(served) < count:
        wait = bucket.take("a")
        if wait:
            assert Bucket.take(bucket, "a") == wait, "being refused costs nothing"
            clock.now += wait
        else:
            served.append(clock.now)
    assert all(one <= other for one, other in pairwise(served))
    assert served[-1] - served[0] == pytest.approx(max(0, count - burst) / rate, abs=1e-6 * count)


def test_callers_of_long_ago_are_forgotten() -> None:
    clock = Clock()
    bucket = Bucket(1.0, 1, clock)
    for number in range(SWEEP_AT):
        bucket.take(number)
    clock.now += 10
    bucket.take("new")
    bucket.take("newer")
    assert len(bucket._full_at) < SWEEP_AT
    assert bucket.take("new") > 0, "and those of now are not"


@pytest.mark.proves("4-31")
def test_a_rate_is_refused_by_name_with_the_time_to_wait() -> None:
    clock = Clock()
    usage = CallerUsage(Quotas(rate=0.25, burst=2), clock=clock)
    usage.take(ALICE)
    usage.take(ALICE)
    with pytest.raises(RateLimited, match=r"More than 0\.25 requests per second") as refused:
        usage.take(ALICE)
    assert (refused.value.retry_after, refused.value.metadata) == (4, {"limit": "rate"})
    usage.take(BOB)
    usage.take(Caller(tenant="globex", owner="alice"))
    clock.now += 4
    usage.take(ALICE)


def test_callers_without_a_name_share_a_rate_that_is_off_unless_set() -> None:
    free, bounded = CallerUsage(Quotas(rate=1.0, burst=1)), CallerUsage(Quotas(open_rate=1.0, burst=3), clock=Clock())
    for _ in range(5):
        free.take(NOBODY)
    for _ in range(3):
        bounded.take(NOBODY)
    with pytest.raises(RateLimited):
        bounded.take(NOBODY)
    bounded.take(ALICE)


def test_without_a_rate_requests_are_not_counted() -> None:
    usage = CallerUsage(Quotas(rate=None))
    for _ in range(5000):
        usage.take(ALICE)


# --- streams --------------------------------------------------------------------------------------------------------


def test_open_streams_are_counted_by_caller_and_given_back() -> None:
    usage = CallerUsage(Quotas(streams=2))
    for caller in (ALICE, ALICE, BOB):
        usage.open_stream(caller)
    with pytest.raises(RateLimited, match="2 streams are open already") as refused:
        usage.open_stream(ALICE)
    assert refused.value.retry_after == AGAIN_SECONDS
    usage.close_stream(ALICE)
    usage.open_stream(ALICE)
    for caller in (ALICE, ALICE, BOB):
        usage.close_stream(caller)
    assert not usage._streams, "whoever has none open is not remembered"


def test_roaming_callers_share_one_rate_limit() -> None:
    usage = CallerUsage(Quotas(streams=2, rate=1, burst=2), clock=Clock())
    roaming = [Caller(tenant=tenant, owner="alice", roams=True) for tenant in ("acme", "globex", "")]
    for caller in roaming[:2]:
        usage.take(caller)
        usage.open_stream(caller)
    with pytest.raises(RateLimited, match="streams"):
        usage.open_stream(roaming[2])
    with pytest.raises(RateLimited, match="requests"):
        usage.take(roaming[2])
    usage.open_stream(ALICE)
    usage.close_stream(roaming[2])
    usage.open_stream(roaming[2])


# --- open tasks -----------------------------------------------------------------------------------------------------


class Counting:
    """Counts what was let in, as a store would, and how often it was asked."""

    def __init__(self, count: int = 0) -> None:
        self.count = count
        self.asked: list[tuple[str | None, str, int]] = []
        self.error: Exception | None = None

    async def __call__(self, tenant: str | None, owner: str, limit: int) -> int:
        self.asked.append((tenant, owner, limit))
        if self.error is not None:
            raise self.error
        return min(self.count, limit)


async def test_open_tasks_are_counted_seldom_and_the_limit_holds() -> None:
    counting = Counting()
    usage = CallerUsage(Quotas(open_tasks=800), count=counting, clock=Clock())
    for _ in range(800):
        await usage.open_task(ALICE)
        counting.count += 1
    with pytest.raises(RateLimited, match="800 tasks have not ended yet") as refused:
        await usage.open_task(ALICE)
    assert refused.value.metadata == {"limit": "open_tasks"}
    assert refused.value.retry_after == AGAIN_SECONDS
    assert set(counting.asked) == {("acme", "alice", 800)}
    assert len(counting.asked) < 800 / SHARE, "it may be asked more often only near the limit"


async def test_over_limit_counts_are_cached() -> None:
    counting, clock = Counting(10), Clock()
    usage = CallerUsage(Quotas(open_tasks=10), count=counting, clock=clock)
    for _ in range(5):
        with pytest.raises(RateLimited):
            await usage.open_task(ALICE)
    assert len(counting.asked) == 1
    counting.count = 9
    clock.now += AGAIN_SECONDS
    await usage.open_task(ALICE)
    assert len(counting.asked) == 2


async def test_open_tasks_of_one_are_no_concern_of_another() -> None:
    counting = Counting(10)
    usage = CallerUsage(Quotas(open_tasks=10), count=counting, clock=Clock())
    with pytest.raises(RateLimited):
        await usage.open_task(ALICE)
    counting.count = 0
    await usage.open_task(BOB)
    await usage.open_task(Caller(tenant="globex", owner="alice"))


async def test_roaming_callers_share_one_task_count() -> None:
    counting = Counting(9)
    usage = CallerUsage(Quotas(open_tasks=10), count=counting, clock=Clock())
    await usage.open_task(Caller(tenant="acme", owner="alice", roams=True))
    counting.count += 1
    with pytest.raises(RateLimited):
        await usage.open_task(Caller(tenant="globex", owner="alice", roams=True))
    assert set(counting.asked) == {(None, "alice", 10)}


async def test_a_store_that_is_away_is_left_to_the_send_itself() -> None:
    counting = Counting()
    counting.error = StoreUnavailable("away")
    usage = CallerUsage(Quotas(open_tasks=10), count=counting)
    for _ in range(20):
        await usage.open_task(ALICE)


async def test_callers_are_not_remembered_for_ever() -> None:
    counting: Any = Counting()
    usage = CallerUsage(Quotas(open_tasks=1000), count=counting)
    for number in range(SWEEP_AT + 10):
        await usage.open_task(Caller(owner=f"o-{number}"))
    assert len(usage._room) < SWEEP_AT


def test_every_limit_can_be_set_and_a_misspelt_one_is_refused() -> None:
    import msgspec

    assert msgspec.convert({"rate": 5, "open_tasks": 3}, Quotas) == Quotas(rate=5.0, open_tasks=3)
    with pytest.raises(msgspec.ValidationError, match="ratte"):
        msgspec.convert({"ratte": 5}, Quotas)
