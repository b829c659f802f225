"""Following tasks: nothing is missed, little is read, and nothing is kept."""

import asyncio
import gc
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from accord import Context, agent
from accord.agents.echo import echo
from accord.engine import subscriptions
from accord.engine.execution import Execution
from accord.engine.subscriptions import Hub, LogChannel, at_end, at_turn_end
from accord.errors import TaskNotFound
from accord.model import Event, MessageUpdate, Part, SubscribeRequest, Task, TaskState
from accord.service.host import Host
from accord.storage.commands import retention, tasks
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, saying, state, states, text
from tests.engine.doubles import Meddler, reaches, sent, until

S = TaskState


class Reader:
    """Reads a task's events one by one."""

    def __init__(self, host: Host, task: Task, after: int = 0) -> None:
        self._follower = host.node.hub.follow("acme", task.id, after)
        self._events = self._follower.events(at_end)

    async def next(self) -> Event:
        return await anext(self._events)

    async def rest(self) -> list[Event]:
        async with self._follower:
            return [event async for event in self._events]


def numbers(events: list[Event]) -> list[int]:
    return [event.seq for event in events]


def reads(store: Meddler) -> int:
    """How often a log was read."""
    return store.done.count("tasks.events_after")


class Gated:
    """An agent that says a word each time it is let go on."""

    def __init__(self, words: int) -> None:
        self._words = words
        self._more = asyncio.Semaphore(0)

    async def __call__(self, ctx: Context) -> None:
        for at in range(self._words):
            await self._more.acquire()
            await ctx.artifact(f"{at} ", id="said", append=True, last_chunk=False)
            await ctx.flush()

    def go_on(self, times: int = 1) -> None:
        for _ in range(times):
            self._more.release()


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds between two polls."""
    monkeypatch.setattr(subscriptions, "POLL_SECONDS", 0.05)
    return 0.05


# --- nothing is missed --------------------------------------------------------------------------------------------


async def test_one_may_begin_anywhere(hosting: Hosting) -> None:
    host = await hosting(echo)
    task = await sent(host.default, saying("a b c d e f g h"), ALICE)
    everything = await Reader(host, task).rest()
    assert numbers(everything) == list(range(1, 11))
    for after in range(10):
        assert await Reader(host, task, after).rest() == everything[after:]
    assert host.node.hub._channels == {}


async def test_subscribers_can_start_at_any_event(hosting: Hosting) -> None:
    gated = Gated(6)
    first, second = [await hosting(agent(name="gated")(gated)) for _ in range(2)]
    task = await sent(first.default, saying("x", configuration=AT_ONCE), ALICE)
    begun = Reader(first, task)
    gated.go_on(3)
    seen = [await begun.next() for _ in range(4)]
    late = [Reader(host, task, after) for host in (first, second) for after in range(5)]
    rest = asyncio.gather(begun.rest(), *(reader.rest() for reader in late))
    gated.go_on(3)
    found = await rest
    whole = seen + found[0]
    assert numbers(whole) == list(range(1, 9))
    assert found[1:] == [whole[after:] for _ in range(2) for after in range(5)]


async def test_slow_subscribers_miss_nothing(hosting: Hosting) -> None:
    words = subscriptions.MEMORY * 2 + 100

    @agent
    async def talks(ctx: Context) -> AsyncIterator[str]:
        for at in range(words):
            yield f"{at} "

    host = await hosting(talks)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    slow, quick = Reader(host, task), Reader(host, task)
    first = await slow.next()
    everything = await quick.rest()
    assert numbers(everything) == list(range(1, words + 3))
    assert [first, *await slow.rest()] == everything


async def test_a_channel_keeps_only_so_much(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MEMORY", 4)
    gated = Gated(20)
    host = await hosting(agent(name="gated")(gated))
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    slow, quick = Reader(host, task), Reader(host, task)
    seen = [await slow.next()]
    gated.go_on(10)
    for _ in range(11):
        await quick.next()
    seen.append(await slow.next())
    gated.go_on(10)
    assert numbers(await quick.rest()) == list(range(12, 23))
    assert numbers(seen + await slow.rest()) == list(range(1, 23))


async def test_everything_arrives_without_hints(
    hosting: Hosting, quick_polls: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Hub, "heard", lambda *_: None)

    @agent
    async def asks(ctx: Context) -> str:
        return f"{await ctx.ask('Well?')}"

    first, second = [await hosting(asks) for _ in range(2)]
    task = await sent(first.default, saying("x"), ALICE)
    stream = second.default.subscribe(SubscribeRequest(id=task.id), ALICE)
    assert states([await anext(stream)]) == [S.INPUT_REQUIRED]
    rest = asyncio.create_task(all_of(stream))
    await second.default.send(saying("good", task_id=task.id), ALICE)
    events = await rest
    assert MessageUpdate in [type(event.body) for event in events]
    assert numbers(events) == [3, 4, 5, 6]
    assert states(events) == [S.WORKING, S.COMPLETED]


async def test_compacted_logs_are_sent_as_the_task(hosting: Hosting) -> None:
    host = await hosting(echo)
    task = await sent(host.default, saying("one two three"), ALICE)
    behind = Reader(host, task, 1)
    assert await host.node.store.do(retention.compact, -60_000, 10) == 1
    (whole,) = await behind.rest()
    assert whole.seq == 5
    assert whole.body == task
    for after in (0, 2, 5, 99):
        again = await all_of(host.default.subscribe(SubscribeRequest(id=task.id), ALICE, after=after))
        assert [event.body for event in again] == [task]
    assert host.node.hub._channels == {}


# --- little is read -----------------------------------------------------------------------------------------------


class Between:
    store: Meddler

    def __call__(self, store: Any) -> Meddler:
        self.store = Meddler(store)
        return self.store


async def test_concurrent_subscribers_share_reads(hosting: Hosting) -> None:
    gated, between, followers = Gated(10), Between(), 40
    first = await hosting(agent(name="gated")(gated))
    second = await hosting(agent(name="gated")(gated), wrap=between)
    task = await sent(first.default, saying("x", configuration=AT_ONCE), ALICE)
    readers = [Reader(second, task) for _ in range(followers)]
    await asyncio.gather(*(reader.next() for reader in readers))
    assert reads(between.store) <= 3
    rest = asyncio.gather(*(reader.rest() for reader in readers))
    gated.go_on(10)
    assert all(numbers(found) == list(range(2, 13)) for found in await rest)
    assert reads(between.store) <= 45


async def test_the_sender_s_stream_reads_nothing(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "POLL_SECONDS", 60.0)
    between = Between()
    host = await hosting(echo, wrap=between)
    events = await all_of(host.default.stream(saying("a b c"), ALICE))
    assert numbers(events) == list(range(6))
    assert states(events) == [S.SUBMITTED, S.WORKING, S.COMPLETED]
    assert reads(between.store) == 0
    task = events[0].body
    assert isinstance(task, Task)
    again = await all_of(host.default.subscribe(SubscribeRequest(id=task.id), ALICE, after=0))
    assert again[1:] == events[1:], "what was not read is what is kept"


async def test_subscribers_on_the_executing_node_read_nothing(hosting: Hosting) -> None:
    gated, between = Gated(10), Between()
    host = await hosting(agent(name="gated")(gated), wrap=between)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    readers = [Reader(host, task) for _ in range(10)]
    await asyncio.gather(*(reader.next() for reader in readers))
    before = reads(between.store)
    rest = asyncio.gather(*(reader.rest() for reader in readers))
    gated.go_on(10)
    assert all(len(found) == 11 for found in await rest)
    assert reads(between.store) - before <= 3


async def test_one_poll_covers_all_subscribed_tasks(
    hosting: Hosting, quick_polls: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "LOOKED_AT", 4)
    gated, between = Gated(1), Between()
    host = await hosting(agent(name="gated")(gated), wrap=between)
    begun = [await sent(host.default, saying("x", configuration=AT_ONCE), ALICE) for _ in range(10)]
    readers = [Reader(host, task) for task in begun for _ in range(3)]
    for reader in readers:
        await reader.next()
    following = [asyncio.create_task(reader.rest()) for reader in readers]
    channels = list(host.node.hub._channels.values())
    for channel in channels:
        await until(partial(_all_wait, channel))
    before, looks = reads(between.store), between.store.done.count("tasks.log_lengths")
    await until(partial(_have_looked, between.store, looks + 9))
    assert reads(between.store) == before
    for _ in begun:
        gated.go_on()
    await asyncio.gather(*following)


async def test_followers_with_different_cursors_see_a_log_that_is_gone(hosting: Hosting) -> None:
    """The first one is told the task as it is, and so is every other that has not seen as much."""
    host = await hosting(echo)
    task = await sent(host.default, saying("x"), ALICE)
    assert await host.node.store.do(retention.compact, -60_000, 10) == 1
    hub = host.node.hub
    followed = [hub.follow("acme", task.id, after) for after in (1, 0, 2)]
    heard = []
    for follower in followed:
        async with follower, asyncio.timeout(30):
            heard.append([event async for event in follower.events(at_end)])
    assert [[type(event.body) for event in events] for events in heard] == [[Task]] * 3


async def test_a_hint_about_nothing_is_looked_into_once(hosting: Hosting) -> None:
    gated, between = Gated(1), Between()
    first = await hosting(agent(name="gated")(gated))
    second = await hosting(agent(name="gated")(gated), wrap=between)
    task = await sent(first.default, saying("x", configuration=AT_ONCE), ALICE)
    readers = [Reader(second, task) for _ in range(30)]
    await asyncio.gather(*(reader.next() for reader in readers))
    rest = asyncio.gather(*(reader.rest() for reader in readers))
    (channel,) = second.node.hub._channels.values()
    await until(lambda: _all_wait(channel))
    before = reads(between.store)
    second.node.hub.heard([tasks.task_topic("acme", task.id)])
    await until(lambda: _are_read(between.store, before + 1))
    await until(lambda: _all_wait(channel))
    assert reads(between.store) - before <= 3
    gated.go_on()
    await rest


async def _all_wait(channel: LogChannel) -> bool:
    return len(channel._waiting) == channel.followers


async def _have_looked(store: Meddler, count: int) -> bool:
    return store.done.count("tasks.log_lengths") >= count


async def _are_read(store: Meddler, count: int) -> bool:
    return reads(store) >= count


# --- nothing is kept ----------------------------------------------------------------------------------------------


async def test_leaving_frees_everything(hosting: Hosting) -> None:
    gated = Gated(1)
    host = await hosting(agent(name="gated")(gated))
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    streams = [host.default.subscribe(SubscribeRequest(id=task.id), ALICE) for _ in range(3)]
    for stream in streams:
        await anext(stream)
    assert [channel.followers for channel in host.node.hub._channels.values()] == [3]
    left, gone, last = streams
    await left.aclose()  # type: ignore[attr-defined]  # it is a generator
    waiting = asyncio.create_task(all_of(gone))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [channel.followers for channel in host.node.hub._channels.values()] == [1]
    gated.go_on()
    assert states(await all_of(last))[-1] is S.COMPLETED
    assert host.node.hub._channels == {}


async def test_ended_subscriptions_free_their_memory(hosting: Hosting) -> None:
    before = _alive(Execution) | _alive(LogChannel)  # a thread of another test may still hold something of its own
    host = await hosting(echo)
    long = {"task_config": {"timeout": 3_600_000}}
    for _ in range(5):
        await _work(host, long)
    engine, hub = host.node, host.node.hub
    assert (engine._executions, engine._working, engine._orphans, hub._channels) == ({}, {}, {}, {})
    await until(lambda: _has_no_plans(host))
    assert (_alive(Execution) - before, _alive(LogChannel) - before) == (set(), set())
    assert _alarms(host) <= 1


async def _work(host: Host, hints: dict[str, Any]) -> None:
    sends = [sent(host.default, saying("a b c", metadata=hints), ALICE) for _ in range(10)]
    streams = [all_of(host.default.stream(saying("a b c", metadata=hints), ALICE)) for _ in range(10)]
    await asyncio.gather(*sends, *streams)


async def _has_no_plans(host: Host) -> bool:
    return not host.node.slots.reserved.total()


def _alive(kind: type[object]) -> set[int]:
    gc.collect()
    return {id(found) for found in gc.get_objects() if type(found) is kind}


def _alarms(host: Host) -> int:
    handles: list[Any] = [found for found in gc.get_objects() if type(found) is asyncio.TimerHandle]
    return sum(not handle.cancelled() and handle._callback == host.node._due.set for handle in handles)


async def test_a_blocking_send_keeps_no_channel_while_its_own_run_works(hosting: Hosting) -> None:
    gated = Gated(1)
    host = await hosting(agent(name="gated")(gated))
    task = asyncio.create_task(sent(host.default, saying("x", parts=(Part(text="x"),)), ALICE))
    await until(lambda: _is_running(host))
    assert host.node.hub._channels == {}
    gated.go_on()
    assert (state(await task), text(await task)) == (S.COMPLETED, "0 ")


async def _is_running(host: Host) -> bool:
    return bool(host.node._executions)


async def test_at_rest_ends_a_wait_for_the_caller(hosting: Hosting) -> None:
    @agent
    async def asks(ctx: Context) -> str:
        return f"{await ctx.ask('Well?')}"

    host = await hosting(asks)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    async with host.node.hub.follow("acme", task.id, 0) as follower:
        events = [event async for event in follower.events(at_turn_end)]
    assert states(events) == [S.WORKING, S.INPUT_REQUIRED]
    await reaches(host.default, task.id, S.INPUT_REQUIRED, ALICE)


# --- what is gone -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_polls")
async def test_subscribers_of_deleted_tasks_get_an_error(hosting: Hosting) -> None:
    host = await hosting(echo)
    task = await sent(host.default, saying("a b c"), ALICE)
    stored = await host.node.store.read(tasks.read_task, "acme", task.id)
    assert stored is not None
    waiting = [asyncio.create_task(Reader(host, task, stored.last_seq).rest()) for _ in range(2)]
    behind = Reader(host, task, 1)
    await until(lambda: _has_looked(host))
    assert await host.node.store.do(retention.purge, -60_000, 10) == 1
    for one in (*waiting, asyncio.create_task(behind.rest())):
        with pytest.raises(TaskNotFound) as gone:
            await one
        assert gone.value.metadata == {"taskId": task.id}
    assert host.node.hub._channels == {}


async def _has_looked(host: Host) -> bool:
    """Whether somebody has read all there is, and waits for more."""
    return all(channel._waiting for channel in host.node.hub._channels.values())
