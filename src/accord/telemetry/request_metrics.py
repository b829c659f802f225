"""Metrics of requests: an `A2A` that wraps another and counts and times its use.

Placed outside of the guard, it also counts refused requests. The bindings refuse unreadable requests, which are not
counted here.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from accord.a2a import Caller, HostedAgent
from accord.auth.audit import ABANDONED, OK
from accord.errors import AccordError, InternalError
from accord.model import (
    AgentCard,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    PushPage,
    SendRequest,
    SubscribeRequest,
    Task,
    TaskFilter,
    TaskPage,
)
from accord.protocol.operations import DialectName, Operation
from accord.telemetry.metrics import Metrics

T = TypeVar("T")
R = TypeVar("R", bound=Any)

PendingAnswer = Coroutine[Any, Any, T]

INTERNAL_REASON = InternalError().row.reason
NO_BINDING = "none"
"""Binding and dialect of requests that did not come through a binding."""

_NAMES = {operation: operation.value for operation in Operation}
_DIALECTS = {dialect.value: dialect.value for dialect in DialectName}


class MeasuredA2A:
    """An `A2A` that counts and times its requests."""

    def __init__(
        self, inner: HostedAgent, agent: str, metrics: Metrics, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Measure `inner`, the agent of that name, in `metrics`, which all agents of a process share."""
        self._inner = inner
        self._agent = agent
        self._metrics = metrics
        self._clock = clock

    # --- the operations -------------------------------------------------------------------------------------------

    def send(self, request: SendRequest, caller: Caller) -> PendingAnswer[Task | Message]:
        """Send a message."""
        return self._ask(Operation.SEND, self._inner.send, request, caller)

    def stream(self, request: SendRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Send a message and stream the events."""
        return self._follow(Operation.STREAM, self._inner.stream(request, caller, after), request, caller)

    def get(self, request: GetRequest, caller: Caller) -> PendingAnswer[Task]:
        """Read one task."""
        return self._ask(Operation.GET, self._inner.get, request, caller)

    def list(self, request: TaskFilter, caller: Caller) -> PendingAnswer[TaskPage]:
        """List tasks."""
        return self._ask(Operation.LIST, self._inner.list, request, caller)

    def cancel(self, request: CancelRequest, caller: Caller) -> PendingAnswer[Task]:
        """Cancel one task."""
        return self._ask(Operation.CANCEL, self._inner.cancel, request, caller)

    def execute(self, task_id: str, caller: Caller) -> PendingAnswer[Task]:
        """Start a held task. A2A has no such operation, so it is not counted."""
        return self._inner.execute(task_id, caller)

    def subscribe(self, request: SubscribeRequest, caller: Caller, after: int | None = None) -> AsyncIterator[Event]:
        """Subscribe to a task."""
        return self._follow(Operation.SUBSCRIBE, self._inner.subscribe(request, caller, after), request, caller)

    def push_set(self, request: PushConfig, caller: Caller) -> PendingAnswer[PushConfig]:
        """Create or replace a webhook."""
        return self._ask(Operation.PUSH_SET, self._inner.push_set, request, caller)

    def push_get(self, request: PushGetRequest, caller: Caller) -> PendingAnswer[PushConfig]:
        """Read a webhook."""
        return self._ask(Operation.PUSH_GET, self._inner.push_get, request, caller)

    def push_list(self, request: PushListRequest, caller: Caller) -> PendingAnswer[PushPage]:
        """List a task's webhooks."""
        return self._ask(Operation.PUSH_LIST, self._inner.push_list, request, caller)

    def push_delete(self, request: PushDeleteRequest, caller: Caller) -> PendingAnswer[int]:
        """Remove webhooks."""
        return self._ask(Operation.PUSH_DELETE, self._inner.push_delete, request, caller)

    def extended_card(self, request: CardRequest, caller: Caller) -> PendingAnswer[AgentCard]:
        """Read the card for authenticated callers."""
        return self._ask(Operation.EXTENDED_CARD, self._inner.extended_card, request, caller)

    # --- counting and timing --------------------------------------------------------------------------------------

    async def _ask(
        self, operation: Operation, ask: Callable[[R, Caller], Awaitable[T]], request: R, caller: Caller
    ) -> T:
        began, outcome = self._clock(), ABANDONED
        try:
            result = await ask(request, caller)
            outcome = OK
            return result
        except AccordError as error:
            outcome = error.row.reason
            raise
        except Exception:
            outcome = INTERNAL_REASON
            raise
        finally:
            agent, name = self._agent, _NAMES[operation]
            dialect = _DIALECTS.get(caller.origin or "", NO_BINDING)
            self._metrics.requests[(agent, name, caller.binding or NO_BINDING, dialect, outcome)] += 1
            self._metrics.request_seconds.observe((agent, name), self._clock() - began)

    async def _follow(
        self, operation: Operation, events: AsyncIterator[Event], request: Any, caller: Caller
    ) -> AsyncIterator[Event]:
        metrics, agent = self._metrics, (self._agent,)
        async with aclosing(events):  # type: ignore[type-var]  # every service stream is an async generator
            begun = [await self._ask(operation, lambda *_: anext(events), request, caller)]
            metrics.streams_open[agent] += 1
            try:
                metrics.stream_events[agent] += 1
                yield begun.pop()
                with suppress(StopAsyncIteration):
                    while True:  # hold no event while its reader is slow: it may be a large task
                        begun.append(await anext(events))
                        metrics.stream_events[agent] += 1
                        yield begun.pop()
            except AccordError as error:
                metrics.stream_failures[(self._agent, error.row.reason)] += 1
                raise
            except Exception:
                metrics.stream_failures[(self._agent, INTERNAL_REASON)] += 1
                raise
            finally:
                metrics.streams_open[agent] -= 1
