"""Metrics of a process: a row for each, plain counters, and the hook that updates them.

Labels are agents, operations, bindings, dialects, states and reasons, but never a tenant, an owner or a task, whose
number is unbounded. Every request is counted several times, so counting must cost next to nothing. Numbers are changed
on the event loop only.
"""

from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import suppress
from enum import Enum
from typing import Any, NamedTuple

from accord.a2a import Call, Caller, TaskEvents
from accord.auth.audit import OK
from accord.auth.authentication import Presented
from accord.engine.hooks import (
    Delivered,
    Detail,
    EventsAppended,
    ExecutionEnded,
    ExecutionStarted,
    LeaseLost,
    NodeReaped,
    TaskAccepted,
    TaskFinished,
    UsageReported,
)
from accord.errors import AccordError, AuthenticationFailed
from accord.model import Event
from accord.protocol import lifecycle
from accord.protocol.operations import DialectName, Operation
from accord.service.middleware import INTERNAL_REASON
from accord.storage.encoding import state_name

Labels = tuple[str, ...]
"""Values of a metric's labels, in their order."""

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds in seconds: from reading a task, below a millisecond, to agents that work for minutes."""


class MetricType(Enum):
    """Type of a metric: a counter only grows, a gauge goes up and down, a histogram counts durations."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Metric(NamedTuple):
    """One documented metric. Its label values are few and chosen by the operator or by Accord."""

    name: str
    kind: MetricType
    labels: tuple[str, ...]
    help: str


class Tally(dict[Labels, float]):
    """A counter or a gauge: a number per combination of label values, 0 by default."""

    def __init__(self, metric: Metric) -> None:
        """Start empty. A metric without labels starts at 0."""
        super().__init__({} if metric.labels else {(): 0})
        self.metric = metric

    def __missing__(self, labels: Labels) -> float:
        return 0


class BucketCounts:
    """Number of durations per bucket, and their sum. The last bucket is unbounded."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0


class Durations(dict[Labels, BucketCounts]):
    """A histogram per combination of label values."""

    def __init__(self, metric: Metric) -> None:
        """Start empty."""
        super().__init__()
        self.metric = metric

    def observe(self, labels: Labels, seconds: float) -> None:
        """Add a duration."""
        found = self.get(labels)
        if found is None:
            found = self[labels] = BucketCounts()
        found.counts[bisect_left(BUCKETS, seconds)] += 1
        found.total += seconds


FAILED = "failed"
"""Outcome of a delivery that will be retried or is dead."""

COUNTER, GAUGE, HISTOGRAM = MetricType

REQUESTS = Metric(
    "accord_requests_total",
    COUNTER,
    ("agent", "operation", "binding", "dialect", "outcome"),
    "Requests to agents; the outcome is ok, ABANDONED or the reason of the error",
)
REQUEST_SECONDS = Metric(
    "accord_request_seconds",
    HISTOGRAM,
    ("agent", "operation"),
    "How long requests took; of a stream, until its first event",
)
UNAUTHENTICATED = Metric(
    "accord_authentication_failures_total", COUNTER, (), "Requests whose credentials were missing or wrong"
)
STREAMS_OPEN = Metric("accord_streams_open", GAUGE, ("agent",), "Open streams")
STREAM_EVENTS = Metric("accord_stream_events_total", COUNTER, ("agent",), "Events handed to streams")
STREAM_FAILURES = Metric(
    "accord_stream_failures_total", COUNTER, ("agent", "outcome"), "Streams that an error ended after they had begun"
)
TASKS_CREATED = Metric("accord_tasks_created_total", COUNTER, ("agent",), "Tasks that messages made")
TASKS_ENDED = Metric(
    "accord_tasks_ended_total",
    COUNTER,
    ("agent", "state"),
    "Tasks whose end this process committed, by state; an `unknown` task may end again",
)
RUNS_STARTED = Metric("accord_runs_started_total", COUNTER, ("agent",), "Runs of agents that began")
RUNS_REPEATED = Metric(
    "accord_runs_repeated_total", COUNTER, ("agent",), "Those of them that began because the run before was lost"
)
RUNS_ENDED = Metric(
    "accord_runs_ended_total", COUNTER, ("agent", "state"), "Runs that came to an end or a rest, by the task's state"
)
RUNS_STOPPED = Metric(
    "accord_runs_stopped_total",
    COUNTER,
    ("agent",),
    "Runs stopped before that: the task was ended from outside, handed over, or taken over by another node",
)
RUN_SECONDS = Metric("accord_run_seconds", HISTOGRAM, ("agent",), "How long runs took, however they ended")
EVENTS_APPENDED = Metric(
    "accord_events_appended_total", COUNTER, ("agent",), "Events that runs committed to the logs of their tasks"
)
INPUT_TOKENS = Metric("accord_input_tokens_total", COUNTER, ("agent",), "Tokens that models read for an agent's tasks")
OUTPUT_TOKENS = Metric("accord_output_tokens_total", COUNTER, ("agent",), "Tokens that models wrote for them")
COST = Metric("accord_cost_total", COUNTER, ("agent",), "What those cost, where agents said so, in their own currency")
LEASE_LOSSES = Metric(
    "accord_lease_losses_total",
    COUNTER,
    (),
    "Times that this node could not renew its lease before it ran out: others may have its work",
)
NODES_REAPED = Metric(
    "accord_nodes_reaped_total", COUNTER, (), "Nodes that were gone, and whose work this one gave to others"
)
PUSH_DELIVERIES = Metric(
    "accord_push_deliveries_total", COUNTER, ("outcome",), "Attempts to deliver an event to a webhook: ok or failed"
)


class Metrics:
    """The metrics of one process."""

    def __init__(self, agents: Iterable[str] = ()) -> None:
        """Start with zeros for `agents`.

        A series that appears with its first event has no earlier rate.
        """
        self.requests = Tally(REQUESTS)
        self.request_seconds = Durations(REQUEST_SECONDS)
        self.unauthenticated = Tally(UNAUTHENTICATED)
        self.streams_open = Tally(STREAMS_OPEN)
        self.stream_events = Tally(STREAM_EVENTS)
        self.stream_failures = Tally(STREAM_FAILURES)
        self.tasks_created = Tally(TASKS_CREATED)
        self.tasks_ended = Tally(TASKS_ENDED)
        self.runs_started = Tally(RUNS_STARTED)
        self.runs_repeated = Tally(RUNS_REPEATED)
        self.runs_ended = Tally(RUNS_ENDED)
        self.runs_stopped = Tally(RUNS_STOPPED)
        self.run_seconds = Durations(RUN_SECONDS)
        self.events_appended = Tally(EVENTS_APPENDED)
        self.input_tokens = Tally(INPUT_TOKENS)
        self.output_tokens = Tally(OUTPUT_TOKENS)
        self.cost = Tally(COST)
        self.lease_losses = Tally(LEASE_LOSSES)
        self.nodes_reaped = Tally(NODES_REAPED)
        self.push_deliveries = Tally(PUSH_DELIVERIES)
        self.all: tuple[Tally | Durations, ...] = tuple(
            found for found in vars(self).values() if isinstance(found, Tally | Durations)
        )
        self.push_deliveries.update({(OK,): 0, (FAILED,): 0})
        self.tasks_ended.update({(agent, state_name(state)): 0 for agent in agents for state in lifecycle.ENDED})
        for tally in self.all:
            if isinstance(tally, Tally) and tally.metric.labels == ("agent",):
                tally.update({(agent,): 0 for agent in agents})
        self.notes: dict[type[Detail], Callable[[Any], None]] = {
            TaskAccepted: self._accepted,
            TaskFinished: self._task_ended,
            ExecutionStarted: self._started,
            ExecutionEnded: self._ended,
            EventsAppended: self._appended,
            UsageReported: self._used,
            Delivered: self._delivered,
            NodeReaped: self._reaped,
            LeaseLost: self._lost,
        }
        """Type of a hook's detail -> the method that counts it."""

    def watched(self, admit: Callable[[Presented], Awaitable[Caller]]) -> Callable[[Presented], Awaitable[Caller]]:
        """Wrap an authentication function to count refused requests."""

        async def admit_or_count(presented: Presented) -> Caller:
            try:
                return await admit(presented)
            except AuthenticationFailed:
                self.unauthenticated[()] += 1
                raise

        return admit_or_count

    def _accepted(self, detail: TaskAccepted) -> None:
        if detail.is_new:
            self.tasks_created[(detail.agent,)] += 1

    def _task_ended(self, detail: TaskFinished) -> None:
        self.tasks_ended[(detail.agent, state_name(detail.state))] += 1

    def _started(self, detail: ExecutionStarted) -> None:
        agent = (detail.agent,)
        self.runs_started[agent] += 1
        if detail.attempt > 1:
            self.runs_repeated[agent] += 1

    def _ended(self, detail: ExecutionEnded) -> None:
        self.run_seconds.observe((detail.agent,), detail.seconds)
        if detail.state is None:
            self.runs_stopped[(detail.agent,)] += 1
        else:
            self.runs_ended[(detail.agent, state_name(detail.state))] += 1

    def _appended(self, detail: EventsAppended) -> None:
        self.events_appended[(detail.agent,)] += detail.count

    def _used(self, detail: UsageReported) -> None:
        agent = (detail.agent,)
        self.input_tokens[agent] += detail.use.input_tokens
        self.output_tokens[agent] += detail.use.output_tokens
        self.cost[agent] += detail.use.cost

    def _delivered(self, detail: Delivered) -> None:
        self.push_deliveries[(OK if detail.error is None else FAILED,)] += 1

    def _lost(self, detail: LeaseLost) -> None:
        self.lease_losses[()] += 1

    def _reaped(self, detail: NodeReaped) -> None:
        self.nodes_reaped[()] += 1


NO_BINDING = "none"
"""Binding and dialect of requests that did not come through a binding."""

_NAMES = {operation: operation.value for operation in Operation}
_DIALECTS = {dialect.value: dialect.value for dialect in DialectName}


class MetricsObserver:
    """Counts and times the calls of an agent."""

    def __init__(self, metrics: Metrics, agent: str) -> None:
        """Measure the agent of that name in `metrics`, which all agents of a process share."""
        self._metrics = metrics
        self._agent = agent

    def note(self, call: Call, outcome: str, _result: Any, seconds: float) -> None:
        """Count a call. Starting a held task is not an operation of A2A and not counted."""
        if call.starts_held_task:
            return
        agent, name, caller = self._agent, _NAMES[call.operation], call.caller
        dialect = _DIALECTS.get(caller.origin or "", NO_BINDING)
        self._metrics.requests[(agent, name, caller.binding or NO_BINDING, dialect, outcome)] += 1
        self._metrics.request_seconds.observe((agent, name), seconds)

    def note_stream(self, stream: TaskEvents) -> None:
        """Count an open stream and its events."""
        self._metrics.streams_open[(self._agent,)] += 1
        self._metrics.stream_events[(self._agent,)] += 1
        stream.pass_through(self._count(stream.rest))
        stream.on_close(self._close)

    async def _count(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        metrics, agent = self._metrics, (self._agent,)
        counted: list[Event] = []
        try:
            with suppress(StopAsyncIteration):
                while True:  # hold no event while its reader is slow: it may be a large task
                    counted.append(await anext(events))
                    metrics.stream_events[agent] += 1
                    yield counted.pop()
        except AccordError as error:
            metrics.stream_failures[(self._agent, error.row.reason)] += 1
            raise
        except Exception:
            metrics.stream_failures[(self._agent, INTERNAL_REASON)] += 1
            raise

    def _close(self) -> None:
        self._metrics.streams_open[(self._agent,)] -= 1
