"""The tracer of the process, if a setting asks for one."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from accord.errors import AccordError
from accord.protocol import http_headers

Fact = str | int
"""A span attribute."""


class SpanStart(Struct, frozen=True, kw_only=True):
    """The start of a span: an operation that takes time and belongs to a trace."""


class ExecutionSpan(SpanStart, frozen=True, kw_only=True):
    """An execution of an agent. `trace` is the trace context of its task."""

    agent: str
    task_id: str
    context_id: str
    tenant: str
    attempt: int
    trace: str | None


class StepSpan(SpanStart, frozen=True, kw_only=True):
    """The execution of a step."""

    key: str
    task_id: str


class RemoteCallSpan(SpanStart, frozen=True, kw_only=True):
    """A request to a remote agent."""

    agent: str
    operation: str
    binding: str
    dialect: str
    url: str


class DeliverySpan(SpanStart, frozen=True, kw_only=True):
    """A delivery to a webhook. `trace` is the trace context of its task."""

    task_id: str
    url: str
    seq: int
    attempt: int
    trace: str | None


class ReportSpan(SpanStart, frozen=True, kw_only=True):
    """An incoming report of a remote agent or flow. `trace` is the trace context of the request.

    `agent` and `task_id` belong to the task of its token. They are None for a report with a signature.
    """

    path: str
    agent: str | None
    task_id: str | None
    trace: str | None


class Span(Protocol):
    """An open span."""

    def note(self, **facts: Fact | None) -> None:
        """Add attributes. `error` is the type of failure."""

    def refused(self, reason: str) -> None:
        """Record a refused request, which is not a failure of this server."""

    def current(self) -> AbstractContextManager[object]:
        """Make this span the parent of spans started inside."""

    def end(self) -> None:
        """End the span."""


class Tracer(Protocol):
    """The interface of a tracer."""

    def current(self) -> str | None:
        """Return the current trace context, to be stored or sent."""

    def around(self, doing: SpanStart) -> AbstractContextManager[Span]:
        """Trace the block as a span. An exception in it marks the span as failed."""

    def begin(self, doing: SpanStart) -> Span:
        """Start a span that ends later, such as a stream."""


class NoSpan:
    """A span that does nothing, for processes without a tracer."""

    __slots__ = ()

    def __enter__(self) -> "NoSpan":
        return self

    def __exit__(self, *_raised: object) -> None:
        pass

    def note(self, **_facts: Fact | None) -> None:
        """Do nothing."""

    def refused(self, _reason: str) -> None:
        """Do nothing."""

    def current(self) -> "NoSpan":
        """Do nothing."""
        return self

    def end(self) -> None:
        """Do nothing."""


UNTRACED = NoSpan()

tracer: Tracer | None = None
"""The tracer of this process. Read it here each time and set it with `use`."""


def use(found: Tracer | None) -> None:
    """Set the tracer of this process, or remove it."""
    global tracer  # noqa: PLW0603 - the tracer belongs to the process
    tracer = found


def current() -> str | None:
    """Return the current trace context, or None without a tracer."""
    return None if tracer is None else tracer.current()


def failure(error: Exception) -> str:
    """Return the type of an exception, never its text, which may come from others."""
    return error.row.reason if isinstance(error, AccordError) else type(error).__name__


def headers() -> Mapping[str, str]:
    """Return the trace headers for an outgoing request."""
    return {} if tracer is None else http_headers.trace_headers(tracer.current())
