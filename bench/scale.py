"""Three servers on one PostgreSQL: 5,000 tasks at once, each followed, while servers are killed; and what saturates.

Every event that a follower saw is compared with the log afterwards: one that is missing, doubled or out of order ends
the measurement, and so does a task that does not end.
"""

import asyncio
import json
import os
import signal
import statistics
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from time import perf_counter

import uvloop

from accord.storage.address import open_store
from accord.storage.store import Tx
from bench import load
from bench.cluster import Node, cluster, cpu_below
from bench.followers import Follower, Turns, follow_all
from bench.report import Table, Target
from bench.server import sends
from bench.setting import POSTGRES, Setting
from bench.timing import Measured

NODES, TASKS, KILLS, EVERY_SECONDS = 3, 5000, 12, 10.0
WORDS, PAUSE = 24, 5.0
"""What each task says: 24 numbers, one every five seconds, so that all of them last as long as servers are killed."""

RAMP_SECONDS = 20.0
LATE_SECONDS = 600.0
LEASE = "6"
ENV = {
    "ACCORD_ENGINE__LEASE_SECONDS": LEASE,
    "ACCORD_ENGINE__SLOTS": "5000",
    "ACCORD_LIMITS__STREAMS": "10000",
}

LOST, DOUBLED, UNENDED = "lost events", "doubled events", "tasks without an end"


async def killed(database: str, tasks: int, words: int, pause: float, kills: int, every: float) -> Measured:
    """Let many tasks run and be followed while servers are killed, and compare what was seen with what is kept."""
    followers = [Follower(f"m-{number}", f"{words} {pause}") for number in range(tasks)]
    async with cluster(NODES, "bench.agents:pacer", database, ENV) as nodes:
        ask = Turns([node.port for node in nodes])
        begun = perf_counter()
        async with asyncio.timeout(LATE_SECONDS), _progress(followers):
            following = asyncio.create_task(follow_all(followers, ask, RAMP_SECONDS * tasks / TASKS))
            returned = await _kill(nodes, ask, kills, every)
            await following
        seconds = perf_counter() - begun
    async with open_store(database, lambda _: None) as store:
        logs = await store.read(_logs)
    found = judged(followers, logs, words)
    events = sum(len(follower.numbers) for follower in followers)
    silences = sorted(follower.longest for follower in followers)
    return found | {
        "tasks": tasks,
        "events": events,
        "events/s": events / seconds,
        "kills": kills,
        "broken streams": sum(follower.breaks for follower in followers),
        "node back s": statistics.median(returned) if returned else 0.0,
        "longest silence p50 s": silences[len(silences) // 2],
        "longest silence s": silences[-1],
    }


@asynccontextmanager
async def _progress(followers: list[Follower]) -> AsyncIterator[None]:
    """Say now and then how far it is."""

    async def say() -> None:
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            begun = sum(follower.task is not None for follower in followers)
            ended = sum(follower.end is not None for follower in followers)
            events = sum(len(follower.numbers) for follower in followers)
            print(f"{begun} begun, {events} events, {ended} ended", file=sys.stderr, flush=True)

    saying = asyncio.create_task(say())
    try:
        yield
    finally:
        saying.cancel()


async def _kill(nodes: list[Node], ask: Turns, kills: int, every: float) -> list[float]:
    """Kill a server every few seconds, one after the other, start it again, and return how long that took."""
    took, starting = [], []

    async def start(node: Node) -> None:
        begun = perf_counter()
        await node.start()
        ask.back(node.port)
        took.append(perf_counter() - begun)

    for number in range(kills):
        await asyncio.sleep(every)
        node = nodes[number % len(nodes)]
        await node.end(signal.SIGKILL)
        ask.dead(node.port)
        starting.append(asyncio.create_task(start(node)))
    await asyncio.gather(*starting)
    return took


async def _logs(tx: Tx) -> dict[str, list[tuple[int, list[str]]]]:
    """Return the events of every task, as their numbers and the texts in them."""
    logs: dict[str, list[tuple[int, list[str]]]] = {}
    for task_id, seq, kind, data in await tx.all("SELECT task_id, seq, kind, data FROM event ORDER BY task_id, seq"):
        parts = json.loads(data)["artifact"]["parts"] if kind == "artifact" else []
        logs.setdefault(task_id, []).append((seq, [part["text"] for part in parts]))
    return logs


def judged(followers: Iterable[Follower], logs: dict[str, list[tuple[int, list[str]]]], words: int) -> Measured:
    """Count what is wrong: with the logs themselves, and with what each follower saw of them."""
    wrong: Counter[str] = Counter({LOST: 0, DOUBLED: 0, UNENDED: 0})
    for follower in followers:
        log = logs.get((follower.task or b"").decode(), [])
        said = [int(text) for _, texts in log for text in texts]
        for seen, meant in (
            (follower.numbers, list(range(1, len(log) + 1))),
            ([number for number, _ in log], list(range(1, len(log) + 1))),
            (follower.words, list(range(words))),
            (said, list(range(words))),
        ):
            wrong[LOST] += len(set(meant) - set(seen))
            wrong[DOUBLED] += len(seen) - len(set(seen)) + (seen != sorted(seen))
        wrong[UNENDED] += follower.end != b'"TASK_STATE_COMPLETED"'
    return dict(wrong)


# --- what saturates ---------------------------------------------------------------------------------------------------


async def saturated(setting: Setting, count: int) -> Measured:
    """Send to so many servers as fast as they answer, and say what each part costs the processor."""
    database = setting.database(POSTGRES)
    seconds = setting.size(6.0, 0.5)
    async with cluster(count, "bench.agents:bench", database, ENV) as nodes:
        await asyncio.gather(*(load.rate(node.port, sends, 8, seconds / 4) for node in nodes))
        before, asked = sum(node.cpu for node in nodes), os.times()
        kept = cpu_below(setting.postgres_pid)
        rates = await asyncio.gather(*(load.rate(node.port, sends, 32, seconds) for node in nodes))
        per_second = sum(rate.per_second for rate in rates)
        answered = per_second * seconds
        used, ours = sum(node.cpu for node in nodes) - before, os.times()
        stored = cpu_below(setting.postgres_pid) - kept
    driver = ours.user + ours.system - asked.user - asked.system
    return {
        "sends/s": per_second,
        "p99 ms": max(rate.p99 for rate in rates),
        "node CPU us": used / answered * 1e6,
        "PostgreSQL CPU us": stored / answered * 1e6,
        "cores busy": (used + stored + driver) / seconds,
    }


NOTES = (
    f"{NODES} servers on one PostgreSQL, all on this machine, with the followers. Each task says {WORDS} numbers, one"
    f" every {PAUSE:g} s; its follower goes on at another server when one dies, with `Last-Event-ID`. A server is"
    f" killed (SIGKILL) every {EVERY_SECONDS:g} s and started again; a lease lasts {LEASE} s.",
    "Lost and doubled count both: numbers that a follower did not see once, and numbers that the log does not have"
    " once. The longest silence of a follower is what a kill looks like from outside.",
)
COSTS = (
    "Blocking sends of a new task, 32 connections to each server. What a send costs the processor in the servers and in"
    " PostgreSQL is what the model of docs/explanation/scale.md is made of.",
)


def run(setting: Setting) -> list[Table]:
    tasks, words = setting.size(TASKS, 60), setting.size(WORDS, 4)
    pause, kills, every = setting.size(PAUSE, 1.0), setting.size(KILLS, 1), setting.size(EVERY_SECONDS, 1.5)
    found = uvloop.run(killed(setting.database(POSTGRES), tasks, words, pause, kills, every))
    rows = {f"{tasks:,} tasks": found}
    first = next(iter(rows))
    columns = tuple(rows[first])
    targets = tuple(Target(first, name, at_most=0) for name in (LOST, DOUBLED, UNENDED))
    costs = {f"{count} servers": uvloop.run(saturated(setting, count)) for count in range(1, NODES + 1)}
    return [
        Table("Killing servers", "", columns, rows, targets, NOTES),
        Table("What a send costs", "", tuple(next(iter(costs.values()))), costs, (), COSTS),
    ]
