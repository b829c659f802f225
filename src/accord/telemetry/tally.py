"""Numbers by label, as plain Python: every request passes here several times, so counting must cost next to nothing.

Nothing here knows how numbers are written; that is `telemetry.exposition`, which may read them in a thread. They are
changed on the event loop only.
"""

from bisect import bisect_left
from enum import Enum
from typing import NamedTuple

Labels = tuple[str, ...]
"""The values of a metric's labels, in their order."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds in seconds: from reading a task, which is below a millisecond, to agents that work for minutes."""


class Kind(Enum):
    """What a number does: it only grows, it goes up and down, or it is many durations."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One row of the documentation: the values of its labels are few and chosen by the operator or by us."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


class Tally(dict[Labels, float]):
    """A counter or a gauge: a number for each combination of label values, 0 where there is none yet."""

    def __init__(self, metric: Metric) -> None:
        """Begin with nothing; what has no labels begins with 0."""
        super().__init__({} if metric.labels else {(): 0})
        self.metric = metric

    def __missing__(self, labels: Labels) -> float:
        return 0


class Spread:
    """How many durations fell into each bucket, the last of which has no bound, and what they add up to."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0


class Durations(dict[Labels, Spread]):
    """A histogram for each combination of label values."""

    def __init__(self, metric: Metric) -> None:
        """Begin with nothing."""
        super().__init__()
        self.metric = metric

    def observe(self, labels: Labels, seconds: float) -> None:
        """Add one."""
        found = self.get(labels)
        if found is None:
            found = self[labels] = Spread()
        found.counts[bisect_left(BUCKETS, seconds)] += 1
        found.total += seconds
