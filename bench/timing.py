"""How something is timed: enough repetitions to last, the best of a few tries, so that neighbours disturb less."""

from collections.abc import Callable
from time import perf_counter

TRIES = 3
SECONDS = 0.05


def microseconds(work: Callable[[], object]) -> float:
    """Return the time of one call, in microseconds."""
    repeat = 1
    while (taken := _run(work, repeat)) < SECONDS / 5:
        repeat *= 2
    repeat = max(1, int(repeat * SECONDS / taken))
    return min(_run(work, repeat) for _ in range(TRIES)) / repeat * 1e6


def _run(work: Callable[[], object], repeat: int) -> float:
    start = perf_counter()
    for _ in range(repeat):
        work()
    return perf_counter() - start
