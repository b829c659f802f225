"""Metrics of requests: each call is counted and timed, and so are the events of streams.

The bindings refuse unreadable requests, which are not counted here.
"""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from accord.a2a import Call, TaskEvents
from accord.errors import AccordError
from accord.model import Event
from accord.protocol.operations import DialectName, Operation
from accord.service.middleware import INTERNAL_REASON
from accord.telemetry.metrics import Metrics

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
        if call.executes:
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
