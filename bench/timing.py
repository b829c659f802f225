"""How something is timed: alone and often enough, by many at once for a while, and in turn with what it is compared to.

Neighbours on the machine disturb everything; the best of a few tries and medians of interleaved rounds disturb less.
"""

import asyncio
import statistics
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from resource import RUSAGE_SELF, getrusage
from time import perf_counter, process_time
from typing import NamedTuple

TRIES = 3
SECONDS = 0.05

Measured = dict[str, float]
Measure = Callable[[], Awaitable[Measured]]

RATE, CPU = "per second", "CPU us"
"""What `paced` measures. The time of the processor is this process's own, without a database server's."""


def microseconds(work: Callable[[], object]) -> float:
    """Return the processor's time of one call that waits for nothing, in microseconds."""
    repeat = 1
    while (taken := _run(work, repeat)) < SECONDS / 5:
        repeat *= 2
    repeat = max(1, int(repeat * SECONDS / taken))
    return min(_run(work, repeat) for _ in range(TRIES)) / repeat * 1e6


def _run(work: Callable[[], object], repeat: int) -> float:
    start = process_time()
    for _ in range(repeat):
        work()
    return process_time() - start


class Spent(NamedTuple):
    """Milliseconds on the clock, and of the processor's time in this process."""

    clock: float
    cpu: float


async def spent(work: Callable[[], Awaitable[object]], repeat: int = 1) -> Spent:
    """Return what so many calls took, one after the other."""
    start, cpu = perf_counter(), _cpu_seconds()
    for _ in range(repeat):
        await work()
    return Spent((perf_counter() - start) * 1e3, (_cpu_seconds() - cpu) * 1e3)


async def best(work: Callable[[], Awaitable[object]], tries: int) -> Spent:
    """Return what one call takes when it is disturbed least."""
    found = [await spent(work) for _ in range(tries)]
    return Spent(min(one.clock for one in found), min(one.cpu for one in found))


async def times_of(work: Callable[[], Awaitable[object]], count: int) -> Measured:
    """Return how long one call takes, of so many one after the other, in milliseconds: the median, and nearly all."""
    taken = sorted([(await spent(work)).clock for _ in range(count)])
    return {"p50": taken[len(taken) // 2], "p99": taken[int(len(taken) * 0.99)]}


async def paced(work: Callable[[int], Awaitable[object]], at_once: int, seconds: float) -> Measured:
    """Let so many do the work over and over for a while; `work` gets the number of the one who does it."""
    done = 0
    start, cpu = perf_counter(), _cpu_seconds()

    async def worker(number: int) -> None:
        nonlocal done
        while perf_counter() - start < seconds:
            await work(number)
            done += 1

    await asyncio.gather(*map(worker, range(at_once)))
    taken = perf_counter() - start
    return {RATE: done / taken, CPU: (_cpu_seconds() - cpu) / done * 1e6}


def _cpu_seconds() -> float:
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def in_rounds(rounds: int, contenders: Mapping[str, Measure]) -> dict[str, list[Measured]]:
    """Measure each in turn, round after round.

    Python looks for garbage as it does in a server of ours, for everybody alike.
    """
    from accord.server.http_server import tune_garbage_collection

    tune_garbage_collection()
    taken: dict[str, list[Measured]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            taken[name].append(await measure())
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return taken


def medians(taken: Mapping[str, Sequence[Measured]]) -> dict[str, Measured]:
    """Return what was measured in the middle of all rounds."""
    return {
        name: {column: statistics.median(one[column] for one in found) for column in found[0]}
        for name, found in taken.items()
    }


async def interleaved(rounds: int, contenders: Mapping[str, Measure]) -> dict[str, Measured]:
    """Measure each in turn, round after round, and return the medians."""
    return medians(await in_rounds(rounds, contenders))
