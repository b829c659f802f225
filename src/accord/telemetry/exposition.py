"""The page that Prometheus reads: the numbers of this process, of the interpreter and of the store, as text.

prometheus_client writes it, in the form that the reader asks for, and knows the process; it is imported in the thread
that writes the first page, because starting must not wait for it. Which path the page has is for `bindings.metrics`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from accord.telemetry.metrics import Metrics
from accord.telemetry.tally import BUCKETS, Durations, Kind, Tally
from accord.telemetry.waiting import StoreLook

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric as Family

WORKER = "worker"
"""The label that tells the processes of one address apart, of which every reading reaches another."""

_BOUNDS = (*map(str, BUCKETS), "+Inf")


class Exposition:
    """Writes the page."""

    def __init__(self, metrics: Metrics, store: StoreLook, *, version: str, worker: str | None = None) -> None:
        """Show `metrics` and what waits in the store; of several processes, each is a `worker` of another name."""
        self._metrics = metrics
        self._store = store
        self._version = version
        self._worker = worker

    async def __call__(self, accept: str) -> tuple[bytes, str]:
        """Return the page in the form that an Accept header asks for, and that form's media type."""
        waiting = await self._store.look()
        return await asyncio.to_thread(self._write, accept, waiting)

    def _write(self, accept: str, waiting: Iterable[Tally]) -> tuple[bytes, str]:
        from prometheus_client.exposition import choose_encoder

        try:
            encode, media_type = choose_encoder(accept)
        except (TypeError, ValueError):  # how it refuses a version that is none
            encode, media_type = choose_encoder("")
        return encode(_Families(self._families(waiting))), media_type

    def _families(self, waiting: Iterable[Tally]) -> Iterator["Family"]:
        own = (*map(_family, self._metrics.all), *self._process.collect())
        yield from own if self._worker is None else (_labelled(family, WORKER, self._worker) for family in own)
        yield from map(_family, waiting)

    @cached_property
    def _process(self) -> "CollectorRegistry":
        """What is known about the process: the version, its memory and descriptors, the interpreter and its garbage."""
        from prometheus_client import CollectorRegistry, GCCollector, Info, PlatformCollector, ProcessCollector

        registry = CollectorRegistry()
        Info("accord", "The version of accord", registry=registry).info({"version": self._version})
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=registry)
        return registry


class _Families:
    """A registry as encoders see one."""

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
    family = (CounterMetricFamily if kind is Kind.COUNTER else GaugeMetricFamily)(name, text, labels=labels)
    for values, number in found.copy().items():
        family.add_metric(values, number)
    return family


def _labelled(family: "Family", name: str, value: str) -> "Family":
    """Return a family whose samples have one more label."""
    from prometheus_client.metrics_core import Metric

    labelled = Metric(family.name, family.documentation, family.type, family.unit)
    labelled.samples = [sample._replace(labels={**sample.labels, name: value}) for sample in family.samples]
    return labelled
