"""What waits in the store, asked for when somebody wants to see it: tasks, work, webhooks, and the nodes there are.

A store that is away is a number like any other and never an error: whoever looks needs the rest of the page most then.
Others' processes share the store, so these numbers are the same on every node.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from accord.storage.commands import metrics
from accord.storage.commands.jobs import TIMERS
from accord.storage.commands.metrics import Backlog, Waiting
from accord.storage.store import Store, StoreUnavailable
from accord.telemetry.tally import Kind, Metric, Tally

FRESH_SECONDS = 5.0
"""How long an answer holds: several who look at the same time cost no more than one."""

REST = 20
"""How many times as long as the question took the store is left alone: looking costs it five percent at most."""

PATIENCE_SECONDS = 5.0
"""How long to wait for the store: those who look wait for ten, usually."""

log = logging.getLogger("accord.metrics")

STORE_UP = Metric(
    "accord_store_up", Kind.GAUGE, (), "Whether the store answered within 5 seconds; if not, what follows is missing"
)
TASKS = Metric("accord_tasks", Kind.GAUGE, ("state",), "Tasks that have not ended")
JOBS_WAITING = Metric("accord_jobs_waiting", Kind.GAUGE, ("queue",), "Work that is due and that no node has taken")
OLDEST_JOB = Metric("accord_oldest_job_seconds", Kind.GAUGE, ("queue",), "For how long the oldest of it has been due")
WEBHOOKS = Metric(
    "accord_webhooks",
    Kind.GAUGE,
    ("state",),
    "Webhooks with something to deliver (due), and such as were given up (dead)",
)
NODES = Metric("accord_nodes", Kind.GAUGE, (), "Nodes that hold a lease")


class StoreLook:
    """Looks into a store, now and then."""

    def __init__(
        self, store: Store, agents: Iterable[str] = (), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Look into `store`; the queues of `agents` are named even if nothing waits there."""
        self._store = store
        self._queues = (*agents, TIMERS)
        self._clock = clock
        self._found: tuple[Tally, ...] = ()
        self._fresh_until = clock()
        self._asking = asyncio.Lock()

    async def look(self) -> tuple[Tally, ...]:
        """Return what waits, as of a few seconds ago at most."""
        async with self._asking:
            began = self._clock()
            if began >= self._fresh_until or not self._found:
                waiting = await self._ask()
                now = self._clock()
                rest = 0.0 if waiting is None else REST * (now - began)
                self._found, self._fresh_until = self._tallies(waiting), now + max(FRESH_SECONDS, rest)
        return self._found

    async def _ask(self) -> Waiting | None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await self._store.read(metrics.count)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("store unavailable", extra={"doing": "metrics", "reason": str(error) or "no answer in time"})
        except Exception:  # the rest of the page must be shown all the same
            log.exception("nothing could be counted")
        return None

    def _tallies(self, waiting: Waiting | None) -> tuple[Tally, ...]:
        if waiting is None:
            return (_tally(STORE_UP, {(): 0}),)
        queues = {queue: Backlog(due=0, oldest_ms=0) for queue in self._queues} | waiting.queues
        return (
            _tally(STORE_UP, {(): 1}),
            _tally(TASKS, {(state,): number for state, number in waiting.tasks.items()}),
            _tally(JOBS_WAITING, {(queue,): found.due for queue, found in queues.items()}),
            _tally(OLDEST_JOB, {(queue,): found.oldest_ms / 1000 for queue, found in queues.items()}),
            _tally(WEBHOOKS, {("due",): waiting.webhooks_due, ("dead",): waiting.webhooks_dead}),
            _tally(NODES, {(): waiting.nodes}),
        )


def _tally(metric: Metric, numbers: dict[tuple[str, ...], float]) -> Tally:
    tally = Tally(metric)
    tally.update(numbers)
    return tally
