"""The tracer of the process, if a setting asks for one."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from accord.errors import AccordError
from accord.protocol import http_headers

Fact = str | int
"""What is known of something done, by the name that it has here."""


class SpanStart(Struct, frozen=True, kw_only=True):
    """Something that takes time, and belongs to a trace."""


class ExecutionSpan(SpanStart, frozen=True, kw_only=True):
    """A run of an agent; `trace` is that of its task."""

    agent: str
    task_id: str
    context_id: str
    tenant: str
    attempt: int
    trace: str | None


class StepSpan(SpanStart, frozen=True, kw_only=True):
    """A step of a run, which is done once."""

    key: str
    task_id: str


class RemoteCallSpan(SpanStart, frozen=True, kw_only=True):
    """A request to an agent elsewhere."""

    agent: str
    operation: str
    binding: str
    dialect: str
    url: str


class DeliverySpan(SpanStart, frozen=True, kw_only=True):
    """A post of an event to a webhook; `trace` is that of its task."""

    task_id: str
    url: str
    seq: int
    attempt: int
    trace: str | None


class ReportSpan(SpanStart, frozen=True, kw_only=True):
    """A report of an agent or a flow elsewhere that comes in; `trace` is what it brought.

    `agent` and `task_id` are of the task that its token belongs to, where it is not by a signature that it is known.
    """

    path: str
    agent: str | None
    task_id: str | None
    trace: str | None


class Span(Protocol):
    """Something being done, as it is traced."""

    def note(self, **facts: Fact | None) -> None:
        """Add what has become known of it; `error` says what kind of failure it ended in."""

    def refused(self, reason: str) -> None:
        """Say why whoever asked got nothing, where that is no failure of ours."""

    def current(self) -> AbstractContextManager[object]:
        """Let what is done inside belong to it."""

    def end(self) -> None:
        """Be done."""


class Tracer(Protocol):
    """Whoever traces."""

    def current(self) -> str | None:
        """Return the context of what is being done here, to be kept or sent on."""

    def around(self, doing: SpanStart) -> AbstractContextManager[Span]:
        """Trace what is done inside; what is raised there is its failure."""

    def begin(self, doing: SpanStart) -> Span:
        """Trace something that does not end where it begins, such as a stream."""


class NoSpan:
    """What stands for a span where nobody traces; there is one, and it does nothing."""

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
"""Whoever traces this process; to be looked up here each time, and set by `use`."""


def use(found: Tracer | None) -> None:
    """Let somebody trace this process, or nobody."""
    global tracer  # noqa: PLW0603 - as said above, it is the process's
    tracer = found


def current() -> str | None:
    """Return the context of what is being done here, if it is traced."""
    return None if tracer is None else tracer.current()


def failure(error: Exception) -> str:
    """Return what kind of failure an exception is: never what it says, which may be anybody's words."""
    return error.row.reason if isinstance(error, AccordError) else type(error).__name__


def headers() -> Mapping[str, str]:
    """Return the headers of a request that is part of what is being done here."""
    return {} if tracer is None else http_headers.trace_headers(tracer.current())
