"""What is asked of agents is counted by operation, dialect and outcome, and timed; streams while they are open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from accord.a2a import A2A, Caller, HostedAgent, handler_of
from accord.errors import TABLE, AccordError, RateLimited
from accord.model import GetRequest, SendRequest, SubscribeRequest, Task
from accord.protocol.operations import TABLE as OPERATIONS
from accord.protocol.operations import DialectName, Operation
from accord.service.middleware import Observed
from accord.telemetry.metrics import Metrics, MetricsObserver
from tests.engine.conftest import ALICE, Hosting, all_of, saying
from tests.http.scripted import Scripted
from tests.telemetry.conftest import parrot

METHODS = {
    Operation.SEND: "send",
    Operation.STREAM: "stream",
    Operation.GET: "get",
    Operation.LIST: "list",
    Operation.CANCEL: "cancel",
    Operation.SUBSCRIBE: "subscribe",
    Operation.PUSH_SET: "push_set",
    Operation.PUSH_GET: "push_get",
    Operation.PUSH_LIST: "push_list",
    Operation.PUSH_DELETE: "push_delete",
    Operation.EXTENDED_CARD: "extended_card",
}


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def measured(inner: Any, metrics: Metrics, **more: Any) -> A2A:
    return HostedAgent(Observed(handler_of(inner), [MetricsObserver(metrics, "parrot")], **more))


async def ask(agent: A2A, operation: Operation, caller: Caller = ALICE) -> Any:
    """Ask anything; a stream is read to its end."""
    answer = getattr(agent, METHODS[operation])(None, caller)
    return await all_of(answer) if operation in (Operation.STREAM, Operation.SUBSCRIBE) else await answer


@pytest.mark.parametrize("operation", Operation, ids=lambda operation: operation.value)
async def test_every_operation_is_passed_on_and_counted(operation: Operation, metrics: Metrics) -> None:
    scripted = Scripted()
    direct = await ask(scripted, operation)
    assert await ask(measured(scripted, metrics), operation) == direct
    asked = [(call.operation, call.caller) for call in scripted.calls]
    assert asked == [(operation, ALICE)] * 2
    assert metrics.requests == {("parrot", operation.value, "none", "v1", "ok"): 1}
    assert sum(metrics.request_seconds["parrot", operation.value].counts) == 1
    assert {row.operation for row in OPERATIONS} == METHODS.keys()


@pytest.mark.parametrize("error", TABLE, ids=lambda error: error.__name__)
async def test_the_outcome_of_a_refusal_is_its_reason(error: type[AccordError], metrics: Metrics) -> None:
    for operation in (Operation.GET, Operation.STREAM):
        with pytest.raises(error):
            await ask(measured(Scripted(error()), metrics), operation)
    reason = TABLE[error].reason
    assert metrics.requests == {
        ("parrot", operation.value, "none", "v1", reason): 1 for operation in (Operation.GET, Operation.STREAM)
    }
    assert metrics.streams_open == metrics.stream_events == metrics.stream_failures == {}


async def test_unexpected_errors_count_as_internal(metrics: Metrics) -> None:
    with pytest.raises(ZeroDivisionError):
        await ask(measured(Scripted(ZeroDivisionError("secret")), metrics), Operation.GET)
    assert metrics.requests == {("parrot", "GetTask", "none", "v1", "INTERNAL_ERROR"): 1}


async def test_a_caller_that_leaves_abandons_its_request(metrics: Metrics) -> None:
    asked = asyncio.Event()

    class Slow:
        async def get(self, request: GetRequest, caller: Caller) -> Task:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

    waiting = asyncio.create_task(ask(measured(Slow(), metrics), Operation.GET))
    await asked.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    assert metrics.requests == {("parrot", "GetTask", "none", "v1", "ABANDONED"): 1}


@pytest.mark.parametrize(
    ("origin", "dialect"),
    [*((name.value, name.value) for name in DialectName), (None, "none"), ("whatever a caller says", "none")],
)
async def test_only_known_dialects_are_labels(origin: str | None, dialect: str, metrics: Metrics) -> None:
    await ask(measured(Scripted(), metrics), Operation.GET, Caller(origin=origin))
    assert metrics.requests == {("parrot", "GetTask", "none", dialect, "ok"): 1}


async def test_requests_are_timed(metrics: Metrics) -> None:
    clock = Clock()

    class Slow:
        async def get(self, request: GetRequest, caller: Caller) -> None:
            clock.now += 0.2

        async def stream(self, request: SendRequest, caller: Caller, after: int | None) -> AsyncIterator[int]:
            clock.now += 2
            yield 1
            clock.now += 1000
            yield 2

    agent = measured(Slow(), metrics, clock=clock)
    await ask(agent, Operation.GET)
    await ask(agent, Operation.STREAM)
    assert metrics.request_seconds["parrot", "GetTask"].total == pytest.approx(0.2)
    assert metrics.request_seconds["parrot", "SendStreamingMessage"].total == pytest.approx(2), "until its first event"


# --- streams --------------------------------------------------------------------------------------------------------


async def test_a_stream_is_open_until_it_ends(hosting: Hosting, metrics: Metrics) -> None:
    host = await hosting(parrot)
    events = measured(host.default, metrics).stream(saying("x"), ALICE)
    await anext(events)
    assert metrics.streams_open == {("parrot",): 1}
    assert metrics.requests == {("parrot", "SendStreamingMessage", "none", "v1", "ok"): 1}
    rest = await all_of(events)
    assert metrics.streams_open == {("parrot",): 0}
    assert metrics.stream_events == {("parrot",): 1 + len(rest)}


async def test_leaving_a_stream_closes_the_inner_stream(metrics: Metrics) -> None:
    scripted = Scripted()
    events: Any = measured(scripted, metrics).subscribe(SubscribeRequest(id="t-1"), ALICE)
    async with aclosing(events):
        await anext(events)
        assert metrics.streams_open == {("parrot",): 1}
    assert metrics.streams_open == {("parrot",): 0}
    assert metrics.stream_events == {("parrot",): 1}
    assert metrics.stream_failures == {}
    assert scripted.closed == 1


@pytest.mark.parametrize(
    ("error", "outcome"), [(RateLimited(), "RATE_LIMITED"), (ZeroDivisionError("secret"), "INTERNAL_ERROR")]
)
async def test_a_stream_that_breaks_after_it_began_is_counted_apart(
    error: Exception, outcome: str, metrics: Metrics
) -> None:
    with pytest.raises(type(error)):
        await ask(measured(Scripted(broken=error), metrics), Operation.STREAM)
    assert metrics.requests == {("parrot", "SendStreamingMessage", "none", "v1", "ok"): 1}
    assert metrics.stream_failures == {("parrot", outcome): 1}
    assert metrics.streams_open == {("parrot",): 0}


async def test_the_stream_cursor_is_passed_on(metrics: Metrics) -> None:
    scripted = Scripted()
    events = await all_of(measured(scripted, metrics).subscribe(SubscribeRequest(id="t-1"), ALICE, 1))
    assert scripted.only.after == 1
    assert [event.seq for event in events] == [2]
