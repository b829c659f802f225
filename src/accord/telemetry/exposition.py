"""The page that Prometheus reads: figures of this process, of the interpreter and of the store.

prometheus_client encodes it. It is imported in the thread that writes the first page, because startup must not wait for
it. An unavailable store is reported as a figure, never as an error.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from accord.storage.commands import monitoring
from accord.storage.commands.jobs import TIMERS
from accord.storage.commands.monitoring import Backlog, WaitingCounts
from accord.storage.store import Store, StoreUnavailable
from accord.telemetry.metrics import BUCKETS, Durations, Metric, Metrics, MetricType, Tally

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family


FRESH_SECONDS = 5.0
"""Minimum lifetime of a result: simultaneous scrapes share one query."""

REST_FACTOR = 20
"""Lifetime of a result as a multiple of its query time: queries take at most five percent of the store's time."""

STORE_TIMEOUT_SECONDS = 5.0
"""Timeout for the store. Scrapers usually wait for ten seconds."""

log = logging.getLogger("accord.metrics")

STORE_UP = Metric(
    "accord_store_up",
    MetricType.GAUGE,
    (),
    "Whether the store answered within 5 seconds; if not, what follows is missing",
)
TASKS = Metric("accord_tasks", MetricType.GAUGE, ("state",), "Tasks that have not ended")
JOBS_WAITING = Metric(
    "accord_jobs_waiting", MetricType.GAUGE, ("queue",), "Work that is due and that no node has taken"
)
OLDEST_JOB = Metric(
    "accord_oldest_job_seconds", MetricType.GAUGE, ("queue",), "For how long the oldest of it has been due"
)
WEBHOOKS = Metric(
    "accord_webhooks",
    MetricType.GAUGE,
    ("state",),
    "Webhooks with something to deliver (due), and such as were given up (dead)",
)
NODES = Metric("accord_nodes", MetricType.GAUGE, (), "Nodes that hold a lease")


class StoreFigures:
    """Counts waiting work in a store, with a cache."""

    def __init__(
        self, store: Store, agents: Iterable[str] = (), *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Count in `store`. The queues of `agents` are listed even if empty."""
        self._store = store
        self._queues = (*agents, TIMERS)
        self._clock = clock
        self._found: tuple[Tally, ...] = ()
        self._fresh_until = clock()
        self._asking = asyncio.Lock()

    async def counts(self) -> tuple[Tally, ...]:
        """Return the counts from the cache or, once it has expired, from the store."""
        async with self._asking:
            began = self._clock()
            if began >= self._fresh_until or not self._found:
                waiting = await self._count_waiting()
                now = self._clock()
                rest = 0.0 if waiting is None else REST_FACTOR * (now - began)
                self._found, self._fresh_until = self._tallies(waiting), now + max(FRESH_SECONDS, rest)
        return self._found

    async def _count_waiting(self) -> WaitingCounts | None:
        try:
            async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
                return await self._store.read(monitoring.count_waiting)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("store.unavailable", extra={"doing": "metrics", "reason": str(error) or "no answer in time"})
        except Exception:  # the remaining page must still be served
            log.exception("metrics.not_counted")
        return None

    def _tallies(self, waiting: WaitingCounts | None) -> tuple[Tally, ...]:
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


WORKER = "worker"
"""Label that distinguishes the worker processes behind one address. Each scrape may reach a different one."""

_BOUNDS = (*map(str, BUCKETS), "+Inf")


class Exposition:
    """Writes the page."""

    def __init__(self, metrics: Metrics, store: StoreFigures, *, version: str, worker: str | None = None) -> None:
        """Expose `metrics` and the counts of the store. With several processes, `worker` names this one."""
        self._metrics = metrics
        self._store = store
        self._version = version
        self._worker = worker

    async def __call__(self, accept: str) -> tuple[bytes, str]:
        """Return the page in the format of an Accept header, and its media type."""
        waiting = await self._store.counts()
        return await asyncio.to_thread(self._write, accept, waiting)

    def _write(self, accept: str, waiting: Iterable[Tally]) -> tuple[bytes, str]:
        from prometheus_client.exposition import choose_encoder

        try:
            encode, media_type = choose_encoder(accept)
        except (TypeError, ValueError):  # raised for an invalid version
            encode, media_type = choose_encoder("")
        return encode(_Families(self._families(waiting))), media_type

    def _families(self, waiting: Iterable[Tally]) -> Iterator["Family"]:
        own = (*map(_family, self._metrics.all), *self._process.collect())
        yield from own if self._worker is None else (_labelled(family, WORKER, self._worker) for family in own)
        yield from map(_family, waiting)

    @cached_property
    def _process(self) -> "CollectorRegistry":
        """Figures of the process: version, memory, descriptors, the interpreter and its garbage collection."""
        from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector

        registry = CollectorRegistry()
        Info("accord", "The version of accord", registry=registry).info({"version": self._version})
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        return registry


class _Families:
    """A registry, as encoders require one."""

    def __init__(self, families: Iterator["Family"]) -> None:
        self._families = families

    def collect(self) -> Iterator["Family"]:
        return self._families


def _family(found: Tally | Durations) -> "Family":
    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    name, kind, labels, text = found.metric
    if isinstance(found, Durations):
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for values, spread in found.copy().items():
            buckets = list(zip(_BOUNDS, accumulate(spread.counts), strict=True))
            histogram.add_metric(values, buckets, spread.total)
        return histogram
    family = (CounterMetricFamily if kind is MetricType.COUNTER else GaugeMetricFamily)(name, text, labels=labels)
    for values, number in found.copy().items():
        family.add_metric(values, number)
    return family


def _labelled(family: "Family", name: str, value: str) -> "Family":
    from prometheus_client.metrics_core import Metric

    labelled = Metric(family.name, family.documentation, family.type, family.unit)
    labelled.samples = [sample._replace(labels={**sample.labels, name: value}) for sample in family.samples]
    return labelled
