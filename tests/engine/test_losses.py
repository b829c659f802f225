"""A store that went back in time: what remains continues, and its readers learn where it stands."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from accord import Context, agent
from accord.engine.node import Limits
from accord.model import Event, PushConfig, SendConfiguration, SubscribeRequest, Task, TaskState
from accord.service.host import Host
from accord.storage.commands import tasks
from accord.storage.postgres.driver import PostgresStore
from accord.storage.store import RESTARTED, Row, Store, Tx
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, saying, states, text
from tests.engine.doubles import change, reaches, rows, sent, until
from tests.engine.test_push import URL, Recorder

S = TaskState
TABLES = ("task", "snapshot", "event", "job", "push", "push_attempt", "step", "node", "idempotency")
PATIENT = Limits(lease_seconds=30.0, poll_seconds=0.2)
"""Heartbeats that no test waits for."""

Copy = Mapping[str, list[Row]]


class Gated:
    """An agent that adds a word to its artifact each time it may; a run that is dropped may not go on without more."""

    def __init__(self) -> None:
        self._more = asyncio.Semaphore(0)
        self.begun = 0

    async def __call__(self, ctx: Context) -> None:
        self.begun += 1
        for at in range(int(ctx.text)):
            await self._more.acquire()
            await ctx.artifact(f"{at} ", id="said", append=True, last_chunk=False)
            await ctx.flush()

    def go_on(self, times: int = 1) -> None:
        for _ in range(times):
            self._more.release()


async def copied(store: Store) -> Copy:
    """What a backup holds."""

    async def command(tx: Tx) -> Copy:
        return {table: await tx.all(f"SELECT * FROM {table}") for table in TABLES}

    return await store.read(command)


async def restored(store: Store, copy: Copy) -> None:
    """Put a backup in the place of everything that was committed since."""

    async def command(tx: Tx) -> None:
        for table, lines in copy.items():
            await tx.run(f"DELETE FROM {table}")
            for row in lines:
                values = {f"c{at}": value for at, value in enumerate(row)}
                names = ", ".join(f":{name}" for name in values)
                await tx.run(f"INSERT INTO {table} {numbering} VALUES ({names})", **values)

    numbering = "OVERRIDING SYSTEM VALUE" if isinstance(store, PostgresStore) else ""
    await store.do(command)


async def has(host: Host, task: Task, count: int) -> None:
    """Wait until a task's log has so many events."""

    async def is_so() -> bool:
        head = await host.node.store.read(tasks.read_head, "acme", task.id)
        return head is not None and head.last_seq == count

    await until(is_so)


async def collect(stream: AsyncIterator[Event], into: list[Event]) -> None:
    async for event in stream:
        into.append(event)


def restarted(host: Host) -> None:
    """Tell a node what a connection to another server tells it."""
    host.node.hub.heard([RESTARTED])


def noted(host: Host) -> str:
    """What `/readyz` shows of losses."""
    return host.node.losses.note or ""


async def test_a_run_of_which_events_are_gone_is_claimed_again(hosting: Hosting) -> None:
    gated = Gated()
    host = await hosting(agent(name="gated")(gated), limits=PATIENT)
    task = await sent(host.default, saying("3", configuration=AT_ONCE), ALICE)
    gated.go_on()
    await has(host, task, 2)
    copy = await copied(host.node.store)
    gated.go_on()
    await has(host, task, 3)
    await restored(host.node.store, copy)
    gated.go_on(4)  # the third word is refused: its log is too short; then there are three more
    ended = await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert text(ended) == "0 1 2 "
    assert gated.begun == 2
    assert "1 of this node's running tasks lost events" in noted(host)


async def test_a_task_that_had_ended_is_claimed_again(hosting: Hosting) -> None:
    gated = Gated()
    host = await hosting(agent(name="gated")(gated))
    task = await sent(host.default, saying("2", configuration=AT_ONCE), ALICE)
    gated.go_on()
    await has(host, task, 2)
    copy = await copied(host.node.store)
    gated.go_on()
    await reaches(host.default, task.id, S.COMPLETED, ALICE)
    await restored(host.node.store, copy)
    restarted(host)
    gated.go_on(2)
    ended = await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert text(ended) == "0 1 "


async def test_a_silent_run_whose_events_are_gone_is_claimed_again(hosting: Hosting) -> None:
    begun: list[int] = []

    @agent(name="silent")
    async def silent(ctx: Context) -> None:
        begun.append(ctx.attempt)
        await ctx.artifact("one", id="said")
        await ctx.flush()
        if len(begun) == 1:
            await asyncio.Event().wait()

    host = await hosting(silent, limits=PATIENT)
    task = await sent(host.default, saying("2", configuration=AT_ONCE), ALICE)
    await has(host, task, 2)
    await change(host.node.store, "DELETE FROM event WHERE seq = 2")
    await change(host.node.store, "UPDATE task SET last_seq = 1")
    restarted(host)
    await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert begun == [1, 1], "what the store lost is no fault of the agent"


async def test_a_restart_that_lost_nothing_runs_nothing_again(hosting: Hosting) -> None:
    gated = Gated()
    host = await hosting(agent(name="gated")(gated), limits=PATIENT)
    task = await sent(host.default, saying("3", configuration=AT_ONCE), ALICE)
    seen: list[Event] = []
    following = asyncio.create_task(collect(host.default.subscribe(SubscribeRequest(id=task.id), ALICE, 0), seen))
    gated.go_on()
    await has(host, task, 2)
    restarted(host)
    gated.go_on(2)
    await following
    assert [event.seq for event in seen] == [0, 1, 2, 3, 4, 5]
    assert gated.begun == 1
    assert not noted(host)


async def test_subscribers_start_from_the_task(hosting: Hosting) -> None:
    """On the node that runs the task, and on another one."""
    gated = Gated()
    hosts = [await hosting(agent(name="gated")(gated), limits=PATIENT) for _ in range(2)]
    task = await sent(hosts[0].default, saying("4", configuration=AT_ONCE), ALICE)
    gated.go_on()
    await has(hosts[0], task, 2)
    copy = await copied(hosts[0].node.store)
    seen: list[list[Event]] = [[], []]
    following = [
        asyncio.create_task(collect(host.default.subscribe(SubscribeRequest(id=task.id), ALICE, 0), into))
        for host, into in zip(hosts, seen, strict=True)
    ]
    gated.go_on()
    await until(lambda: _all_have(seen, 3))
    await restored(hosts[0].node.store, copy)
    for host in hosts:
        restarted(host)
    gated.go_on(10)
    await asyncio.gather(*following)
    for events in seen:
        numbers = [event.seq for event in events]
        starts = [at for at, event in enumerate(events) if isinstance(event.body, Task)]
        assert numbers[: starts[1]] == [0, 1, 2, 3]
        assert numbers[starts[-1] :] == list(range(numbers[starts[-1]], 8)), "after the events that are gone, the task"
        assert states(events)[-1] is S.COMPLETED


async def test_subscribers_notice_a_log_that_has_grown_again(hosting: Hosting) -> None:
    gated = Gated()
    host = await hosting(agent(name="gated")(gated), limits=PATIENT)
    task = await sent(host.default, saying("2", configuration=AT_ONCE), ALICE)
    seen: list[Event] = []
    following = asyncio.create_task(collect(host.default.subscribe(SubscribeRequest(id=task.id), ALICE, 0), seen))
    gated.go_on()
    await until(lambda: _all_have([seen], 2))
    await change(host.node.store, "UPDATE event SET at = at + 1 WHERE seq = 2")
    restarted(host)
    await until(lambda: _has_task(seen, 2))
    gated.go_on()
    await following
    assert [event.seq for event in seen] == [0, 1, 2, 2, 3, 4]


async def _has_task(seen: list[Event], seq: int) -> bool:
    return isinstance(seen[-1].body, Task) and seen[-1].seq == seq


async def _all_have(seen: list[list[Event]], seq: int) -> bool:
    return all(events and events[-1].seq == seq for events in seen)


async def test_cursors_beyond_the_log_get_the_task(hosting: Hosting) -> None:
    gated = Gated()
    host = await hosting(agent(name="gated")(gated), limits=PATIENT)
    task = await sent(host.default, saying("2", configuration=AT_ONCE), ALICE)
    gated.go_on()
    await has(host, task, 2)
    seen: list[Event] = []
    following = asyncio.create_task(collect(host.default.subscribe(SubscribeRequest(id=task.id), ALICE, 40), seen))
    await until(lambda: _all_have([seen], 2))
    gated.go_on()
    await following
    assert [event.seq for event in seen] == [2, 3, 4]


async def test_a_caller_without_its_child_is_run_again(hosting: Hosting) -> None:
    gated = Gated()
    calls: list[str] = []
    ready = asyncio.Event()

    @agent(name="parent")
    async def parent(ctx: Context) -> str:
        calls.append(ctx.task_id)
        await ready.wait()
        return (await ctx.call("gated", "1")).text

    host = await hosting(parent, agent(name="gated")(gated), limits=PATIENT)
    task = await sent(host.default, saying("x", configuration=AT_ONCE), ALICE)
    await has(host, task, 1)
    copy = await copied(host.node.store)
    ready.set()
    await until(lambda: _begun(gated, 1))
    await restored(host.node.store, copy)
    restarted(host)
    await until(lambda: _begun(gated, 2))
    gated.go_on(2)
    ended = await reaches(host.default, task.id, S.COMPLETED, ALICE)
    assert (text(ended), calls) == ("0 ", [task.id] * 2)


async def _begun(gated: Gated, times: int) -> bool:
    return gated.begun == times


async def test_a_webhook_continues_where_the_log_ends(hosting: Hosting) -> None:
    gated, sender = Gated(), Recorder()
    host = await hosting(agent(name="gated")(gated), sender=sender)
    hook = SendConfiguration(return_immediately=True, task_push_notification_config=PushConfig(url=URL, id="w"))
    await sent(host.default, saying("1", configuration=hook), ALICE)
    await sender.told(S.WORKING)
    await until(lambda: _is_quiet(host))
    copy = await copied(host.node.store)
    sender.held["w"] = asyncio.Event()
    gated.go_on()
    await sender.until(lambda: _tries(sender, S.COMPLETED) == 1)
    await restored(host.node.store, copy)
    await change(host.node.store, "UPDATE push SET epoch = epoch + 1")  # as it was claimed for this delivery
    sender.held["w"].set()
    await until(lambda: _is_quiet(host))
    assert await rows(host.node.store, "push", "cursor") == [(1,)], "not beyond the log, as the delivery was"
    gated.go_on()
    await sender.until(lambda: sender.states().count(S.COMPLETED) == 2)


def _tries(sender: Recorder, wanted: TaskState) -> int:
    bodies = [delivery.event.body for delivery in sender.tried]
    return sum(getattr(getattr(body, "status", None), "state", None) is wanted for body in bodies)


async def _is_quiet(host: Host) -> bool:
    assert host.pusher is not None
    return not host.pusher._delivering


async def test_lost_heartbeats_are_reported(hosting: Hosting) -> None:
    host = await hosting(agent(name="gated")(Gated()), limits=PATIENT)
    copy = await copied(host.node.store)
    await host.node._beat()
    await host.node._beat()
    assert not noted(host)
    await restored(host.node.store, copy)
    await host.node._beat()
    assert "up to 30 s of changes are lost" in noted(host)
