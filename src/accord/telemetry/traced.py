"""The A2A interface as callers' requests are traced: what `Measured` counts, with a span for each.

It is there only where a setting asks for traces, so that others pay nothing. A span of a stream lasts as long as the
stream; what the request begins belongs to it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

from accord.a2a import Caller, HostedAgent
from accord.errors import AccordError
from accord.model import Event, Task
from accord.protocol.operations import ROWS, Operation
from accord.telemetry.conventions import Serving
from accord.telemetry.measured import INTERNAL, Measured, R, T
from accord.telemetry.metrics import Metrics
from accord.telemetry.tracing import Traced, Tracing


class TracedRequests(Measured):
    """An `A2A` whose use is counted and traced."""

    def __init__(self, inner: HostedAgent, agent: str, metrics: Metrics, tracing: Tracing) -> None:
        """Trace what is asked of `inner`."""
        super().__init__(inner, agent, metrics)
        self._tracing = tracing

    async def _ask(
        self, operation: Operation, ask: Callable[[R, Caller], Awaitable[T]], request: R, caller: Caller
    ) -> T:
        if ROWS[operation].streams:  # of which this is the beginning
            return await super()._ask(operation, ask, request, caller)
        span = self._begin(operation, caller)
        try:
            with span.current():
                result = await super()._ask(operation, ask, request, caller)
            _note(span, result)
            return result
        except Exception as error:
            _note_failure(span, error)
            raise
        finally:
            span.end()

    async def _follow(
        self, operation: Operation, events: AsyncIterator[Event], request: Any, caller: Caller
    ) -> AsyncIterator[Event]:
        span, count = self._begin(operation, caller), 0
        try:
            async with aclosing(super()._follow(operation, events, request, caller)) as inner:  # type: ignore[type-var]
                with span.current():  # never around a yield: whoever reads a stream does other things meanwhile
                    begun = [await anext(inner)]
                _note(span, begun[0].body)
                count = 1
                yield begun.pop()
                with suppress(StopAsyncIteration):
                    while True:  # no event is held while its reader takes its time: it may be a large task
                        begun.append(await anext(inner))
                        count += 1
                        yield begun.pop()
        except Exception as error:
            _note_failure(span, error)
            raise
        finally:
            span.note(events=count)
            span.end()

    def _begin(self, operation: Operation, caller: Caller) -> Traced:
        return self._tracing.begin(
            Serving(
                agent=self._agent,
                operation=operation.value,
                binding=caller.binding,
                dialect=caller.origin,
                trace=caller.trace,
            )
        )


def _note(span: Traced, result: object) -> None:
    if isinstance(result, Task):
        span.note(task_id=result.id, context_id=result.context_id)


def _note_failure(span: Traced, error: Exception) -> None:
    """A request that cannot be answered is its caller's failure, unless the answer would have been ours to give."""
    if isinstance(error, AccordError) and error.row.http < 500:
        span.refused(error.row.reason)
    else:
        span.note(error=error.row.reason if isinstance(error, AccordError) else INTERNAL)
