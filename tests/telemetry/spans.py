"""Traces for tests: one provider for the process, as OpenTelemetry wants it, and what it has recorded."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from accord.engine import tracing as process
from accord.telemetry.tracing import Tracing, start

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = f"00-{TRACE}-00f067aa0ba902b7-01"
"""What a caller brings."""

_MEMORY = InMemorySpanExporter()
_PROVIDER = TracerProvider()
_PROVIDER.add_span_processor(SimpleSpanProcessor(_MEMORY))


class Spans:
    """What was recorded."""

    def __init__(self, tracing: Tracing) -> None:
        self.tracing = tracing

    @property
    def all(self) -> list[ReadableSpan]:
        return list(_MEMORY.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (found,) = self.named(name)
        return found

    async def until(self, is_so: Callable[["Spans"], bool]) -> None:
        """Wait until something was recorded; the tests of this folder are bounded."""
        while not is_so(self):  # noqa: ASYNC110 - OpenTelemetry tells nobody
            await asyncio.sleep(0.01)


def traced(span: ReadableSpan) -> str:
    return f"{span.context.trace_id:032x}" if span.context else ""


def parent_of(span: ReadableSpan) -> str | None:
    return None if span.parent is None else f"{span.parent.span_id:016x}"


def id_of(span: ReadableSpan) -> str:
    return f"{span.context.span_id:016x}" if span.context else ""


@pytest.fixture
def spans() -> Iterator[Spans]:
    """Trace this process while a test runs, with the provider that an application has set."""
    if isinstance(otel.get_tracer_provider(), otel.ProxyTracerProvider):
        otel.set_tracer_provider(_PROVIDER)
    _MEMORY.clear()
    yield Spans(start())
    process.use(None)
    _MEMORY.clear()
