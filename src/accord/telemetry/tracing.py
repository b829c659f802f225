"""OpenTelemetry traces of a process, and middleware that traces requests; needs the extra `otel`.

Nothing imports this before a setting enables traces. Only W3C trace contexts are propagated: OpenTelemetry's other
data, such as baggage, is not meant for other servers.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from importlib.metadata import entry_points, version
from typing import Any, NamedTuple

from msgspec.structs import replace
from opentelemetry import context as contexts
from opentelemetry import trace as otel
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from accord.a2a import Call, Caller, Handler, Middleware, Pending, TaskEvents
from accord.auth.authentication import Presented
from accord.engine import tracing as process
from accord.engine.hooks import Detail, UsageReported
from accord.engine.tracing import DeliverySpan, ExecutionSpan, Fact, RemoteCallSpan, ReportSpan, SpanStart, StepSpan
from accord.errors import AccordError
from accord.model import Event, Task
from accord.protocol import urls
from accord.protocol.http_headers import TRACEPARENT, TRACESTATE, join_trace, trace_headers
from accord.protocol.operations import Operation
from accord.service.middleware import INTERNAL_REASON

INVOKE = "invoke_agent"
"""OpenTelemetry's operation name for an agent's work, local or remote."""

_INVOKES = frozenset({Operation.SEND.value, Operation.STREAM.value})

BINDINGS = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"}
"""A2A's names of the bindings -> Accord's, as in the metrics."""

SYSTEMS = {"jsonrpc": "jsonrpc", "grpc": "grpc"}
"""Binding -> OpenTelemetry's RPC system. REST has no RPC system."""


class SpanRole(Enum):
    """Role of a span: it answers a call, makes one, or neither."""

    SERVER = "server"
    CLIENT = "client"
    INTERNAL = "internal"


class SpanParent(Enum):
    """Parent of a span: the current span, the stated trace of its task or request, or the first available."""

    HERE = "here"
    STATED = "stated"
    HERE_OR_STATED = "here or stated"


class SpanDescription(NamedTuple):
    """The initial values of a span."""

    name: str
    kind: SpanRole
    parent: SpanParent
    attributes: dict[str, Fact]


class RequestSpan(SpanStart, frozen=True, kw_only=True):
    """A request of a caller. `trace` is the trace context of the request."""

    agent: str
    operation: str
    binding: str | None
    dialect: str | None
    trace: str | None


FACTS: Mapping[str, tuple[str, ...]] = {
    "task_id": ("a2a.task.id",),
    "context_id": ("a2a.context.id", "gen_ai.conversation.id"),
    "state": ("a2a.task.state",),
    "events": ("a2a.stream.events",),
    "status": ("http.response.status_code",),
    "error": ("error.type",),
    "model": ("gen_ai.request.model",),
    "input_tokens": ("gen_ai.usage.input_tokens",),
    "output_tokens": ("gen_ai.usage.output_tokens",),
}
"""Fact recorded during an operation -> its span attributes."""


def describe(doing: SpanStart) -> SpanDescription:
    """Return the initial values of an operation's span."""
    return _DESCRIBED[type(doing)](doing)


def _serving(doing: RequestSpan) -> SpanDescription:
    said = {"gen_ai.agent.name": doing.agent, **_called(doing.operation, doing.binding, doing.dialect)}
    return SpanDescription(doing.operation, SpanRole.SERVER, SpanParent.HERE_OR_STATED, said)


def _running(doing: ExecutionSpan) -> SpanDescription:
    said: dict[str, Fact] = {
        **_invoked(doing.agent),
        "gen_ai.agent.id": doing.agent,
        "gen_ai.conversation.id": doing.context_id,
        "a2a.context.id": doing.context_id,
        "a2a.task.id": doing.task_id,
        "a2a.run.attempt": doing.attempt,
    }
    if doing.tenant:
        said["a2a.tenant"] = doing.tenant
    return SpanDescription(f"{INVOKE} {doing.agent}", SpanRole.INTERNAL, SpanParent.STATED, said)


def _stepping(doing: StepSpan) -> SpanDescription:
    said: dict[str, Fact] = {"a2a.step.key": doing.key, "a2a.task.id": doing.task_id}
    return SpanDescription("step", SpanRole.INTERNAL, SpanParent.HERE, said)


def _calling(doing: RemoteCallSpan) -> SpanDescription:
    said = _called(doing.operation, BINDINGS.get(doing.binding, doing.binding), doing.dialect) | _at(doing.url)
    if doing.operation not in _INVOKES:
        return SpanDescription(doing.operation, SpanRole.CLIENT, SpanParent.HERE, said)
    return SpanDescription(f"{INVOKE} {doing.agent}", SpanRole.CLIENT, SpanParent.HERE, _invoked(doing.agent) | said)


def _delivering(doing: DeliverySpan) -> SpanDescription:
    said: dict[str, Fact] = {
        "http.request.method": "POST",
        "a2a.task.id": doing.task_id,
        "a2a.event.seq": doing.seq,
        "a2a.push.attempt": doing.attempt,
        **_at(doing.url),
    }
    return SpanDescription("POST webhook", SpanRole.CLIENT, SpanParent.STATED, said)


def _receiving(doing: ReportSpan) -> SpanDescription:
    said: dict[str, Fact | None] = {
        "http.request.method": "POST",
        "url.path": doing.path,
        "gen_ai.agent.name": doing.agent,
        "a2a.task.id": doing.task_id,
    }
    return SpanDescription("POST report", SpanRole.SERVER, SpanParent.HERE_OR_STATED, _without_none(said))


_DESCRIBED: Mapping[type[SpanStart], Callable[[Any], SpanDescription]] = {
    RequestSpan: _serving,
    ExecutionSpan: _running,
    StepSpan: _stepping,
    RemoteCallSpan: _calling,
    DeliverySpan: _delivering,
    ReportSpan: _receiving,
}


def _invoked(agent: str) -> dict[str, Fact]:
    return {"gen_ai.operation.name": INVOKE, "gen_ai.agent.name": agent}


def _called(operation: str, binding: str | None, dialect: str | None) -> dict[str, Fact]:
    """Return the attributes of a call, common to client and server."""
    said: dict[str, Fact | None] = {
        "rpc.method": operation,
        "rpc.system": SYSTEMS.get(binding or ""),
        "a2a.binding": binding,
        "a2a.dialect": dialect,
    }
    return _without_none(said)


def _without_none(said: Mapping[str, Fact | None]) -> dict[str, Fact]:
    return {name: value for name, value in said.items() if value is not None}


def _at(url: str) -> dict[str, Fact]:
    """Return the server's attributes. Other parts of the URL may be secrets; an invalid URL gives no attributes."""
    parts = urls.split_url(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    said: dict[str, Fact] = {"server.address": parts.hostname} if parts.hostname else {}
    return said if port is None else said | {"server.port": port}


SCOPE = "accord"
"""Name of the instrumentation, and the default name of the service."""

FLUSH_MS = 3000
"""How long a stopping server waits for its last spans, so that it is not killed because of them."""

EXPORTERS = "OTEL_TRACES_EXPORTER"
_GROUP = "opentelemetry_traces_exporter"
_OTLP = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_KINDS = {
    SpanRole.SERVER: otel.SpanKind.SERVER,
    SpanRole.CLIENT: otel.SpanKind.CLIENT,
    SpanRole.INTERNAL: otel.SpanKind.INTERNAL,
}
_W3C = TraceContextTextMapPropagator()
_EXECUTION = contexts.create_key("accord-run")


class RecordedSpan:
    """The span of an operation."""

    def __init__(self, span: otel.Span, around: Context | None, *, is_run: bool) -> None:
        """Record in `span`, a child of `around`. `is_run` makes it available to operations within the execution."""
        context = otel.set_span_in_context(span, around)
        self._span = span
        self._context = contexts.set_value(_EXECUTION, self, context) if is_run else context
        self._used: dict[str, int] = {}

    def note(self, **facts: Fact | None) -> None:
        """Add facts. An `error` or a failed task marks the span as failed."""
        for name, value in facts.items():
            if value is not None:
                for attribute in FACTS[name]:
                    self._span.set_attribute(attribute, value)
        error = facts.get("error") or ("failed" if facts.get("state") == "failed" else None)
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(otel.StatusCode.ERROR)

    def refused(self, reason: str) -> None:
        """Record the reason of a refused request, which OpenTelemetry does not count as a server failure."""
        self._span.set_attribute("error.type", reason)

    def use(self, **amounts: int) -> None:
        """Add to the usage so far."""
        for name, amount in amounts.items():
            self._used[name] = self._used.get(name, 0) + amount
        self.note(**self._used)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make this the current span of the block."""
        token = contexts.attach(self._context)
        try:
            yield
        finally:
            contexts.detach(token)

    def end(self) -> None:
        """End the span."""
        self._span.end()


class Tracing:
    """Traces this process."""

    def __init__(self, provider: otel.TracerProvider) -> None:
        """Record with tracers of `provider`."""
        self._provider = provider
        self._tracer = provider.get_tracer(SCOPE, version(SCOPE))

    def current(self) -> str | None:
        """Return the current trace context, which may be of the agent's own span."""
        found = otel.get_current_span().get_span_context()
        if not found.is_valid:
            return None
        parent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"
        return join_trace(parent, found.trace_state.to_header() if found.trace_state else None)

    def begin(self, doing: SpanStart) -> RecordedSpan:
        """Begin a span that ends in a different place."""
        described = describe(doing)
        parent = _parent(described.parent, getattr(doing, "trace", None))
        span = self._tracer.start_span(
            described.name, context=parent, kind=_KINDS[described.kind], attributes=described.attributes
        )
        return RecordedSpan(span, parent, is_run=isinstance(doing, ExecutionSpan))

    @contextmanager
    def around(self, doing: SpanStart) -> Iterator[RecordedSpan]:
        """Trace a block. A cancellation does not mark the span as failed."""
        span = self.begin(doing)
        with span.current():
            try:
                yield span
            except Exception as error:
                span.note(error=process.failure(error))
                raise
            finally:
                span.end()

    def hear(self, detail: Detail) -> None:
        """Add reported model usage to the span of its execution; this is the hook."""
        if isinstance(detail, UsageReported):
            span = contexts.get_value(_EXECUTION)
            if isinstance(span, RecordedSpan):
                span.note(model=detail.model)
                span.use(input_tokens=detail.use.input_tokens, output_tokens=detail.use.output_tokens)

    def watched(self, admit: Callable[[Presented], Awaitable[Caller]]) -> Callable[[Presented], Awaitable[Caller]]:
        """Wrap an authentication function so that callers carry the trace context of their requests."""

        async def admit_traced(presented: Presented) -> Caller:
            caller = await admit(presented)
            return replace(caller, trace=join_trace(presented.header(TRACEPARENT), presented.header(TRACESTATE)))

        return admit_traced

    def middleware(self, inner: Handler, agent: str) -> "Traced":
        """Return middleware that traces calls of the agent with that name."""
        return Traced(inner, agent, self)

    async def flush(self) -> None:
        """Send recorded spans, with a short timeout."""
        if isinstance(self._provider, TracerProvider):
            await asyncio.to_thread(self._provider.force_flush, FLUSH_MS)


def start() -> Tracing:
    """Trace this process, for programs that only call agents. Servers have a setting.

    It uses the provider of the surrounding application, or one configured by `OTEL_*`.
    """
    provider = otel.get_tracer_provider()
    if isinstance(provider, otel.ProxyTracerProvider):
        provider = _own()
        otel.set_tracer_provider(provider)
    found = Tracing(provider)
    process.use(found)
    return found


def _parent(parent: SpanParent, stated: str | None) -> Context | None:
    """Return the parent context of a span. None selects the current span, as for OpenTelemetry."""
    if parent is SpanParent.HERE:
        return None
    if parent is SpanParent.HERE_OR_STATED and otel.get_current_span().get_span_context().is_valid:
        return None
    return _W3C.extract(trace_headers(stated), Context())


def _own() -> TracerProvider:
    """Return a provider configured by OpenTelemetry's variables. Its own components read most of them."""
    resource = Resource.create({SERVICE_VERSION: version(SCOPE)})
    if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: SCOPE}))
    provider = TracerProvider(resource=resource)
    for name in filter(None, map(str.strip, os.environ.get(EXPORTERS, "otlp").split(","))):
        if name != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    return provider


def _exporter(name: str) -> SpanExporter:
    if name == "otlp":
        said = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        protocol = next(filter(None, map(os.environ.get, said)), "http/protobuf")
        name = _OTLP.get(protocol, protocol)
    found = next(iter(entry_points(group=_GROUP, name=name)), None)
    if found is None:
        raise ValueError(f"there is no exporter called {name}; those that are installed are {_installed()}")
    exporter: SpanExporter = found.load()()
    return exporter


def _installed() -> str:
    return ", ".join(sorted({found.name for found in entry_points(group=_GROUP)}))


class Traced(Middleware):
    """Traces calls."""

    def __init__(self, inner: Handler, agent: str, tracing: Tracing) -> None:
        """Trace calls of `inner`, the agent with that name."""
        super().__init__(inner)
        self._agent = agent
        self._tracing = tracing

    def handle(self, call: Call) -> Pending[Any]:
        """Trace an operation with a single reply. Starting a held task is not an operation of A2A."""
        return self.inner.handle(call) if call.starts_held_task else self._handle(call)

    async def _handle(self, call: Call) -> Any:
        span = self._begin(call)
        try:
            with span.current():
                result = await self.inner.handle(call)
            _note_result(span, result)
            return result
        except Exception as error:
            _note_failure(span, error)
            raise
        finally:
            span.end()

    async def follow(self, call: Call) -> TaskEvents:
        """Trace a streaming operation until its stream is closed."""
        traced = _TracedStream(self._begin(call))
        try:
            with traced.span.current():  # never around the events: their reader does other work meanwhile
                stream = await self.inner.follow(call)
        except BaseException as error:
            if isinstance(error, Exception):
                _note_failure(traced.span, error)
            traced.end()
            raise
        _note_result(traced.span, stream.head.body)
        traced.events = 1
        stream.pass_through(traced.count(stream.rest))
        stream.on_close(traced.end)
        return stream

    def _begin(self, call: Call) -> RecordedSpan:
        caller = call.caller
        return self._tracing.begin(
            RequestSpan(
                agent=self._agent,
                operation=call.operation.value,
                binding=caller.binding,
                dialect=caller.origin,
                trace=caller.trace,
            )
        )


class _TracedStream:
    """The span of a stream, and the number of its events."""

    def __init__(self, span: RecordedSpan) -> None:
        self.span = span
        self.events = 0

    async def count(self, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
        counted: list[Event] = []
        try:
            with suppress(StopAsyncIteration):
                while True:  # hold no event while its reader is slow: it may be a large task
                    counted.append(await anext(events))
                    self.events += 1
                    yield counted.pop()
        except Exception as error:
            _note_failure(self.span, error)
            raise

    def end(self) -> None:
        self.span.note(events=self.events)
        self.span.end()


def _note_result(span: RecordedSpan, result: object) -> None:
    if isinstance(result, Task):
        span.note(task_id=result.id, context_id=result.context_id)


def _note_failure(span: RecordedSpan, error: Exception) -> None:
    """Record a failure. Errors below 500 are the caller's, all others the server's."""
    if isinstance(error, AccordError) and error.row.http < 500:
        span.refused(error.row.reason)
    else:
        span.note(error=error.row.reason if isinstance(error, AccordError) else INTERNAL_REASON)
