"""Names and attributes of spans: OpenTelemetry's semantic conventions, and `a2a.*`.

The tables have a row for each operation and each of its facts. Nothing is recorded here. Attributes never contain
message text.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from accord.engine.tracing import DeliverySpan, ExecutionSpan, Fact, RemoteCallSpan, ReportSpan, SpanStart, StepSpan
from accord.protocol import urls
from accord.protocol.operations import Operation

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
    return SpanDescription("POST report", SpanRole.SERVER, SpanParent.HERE_OR_STATED, _known_values(said))


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
    return _known_values(said)


def _known_values(said: Mapping[str, Fact | None]) -> dict[str, Fact]:
    return {name: value for name, value in said.items() if value is not None}


def _at(url: str) -> dict[str, Fact]:
    """Return the server's attributes. Other parts of the URL may be secrets; an invalid URL gives no attributes."""
    parts = urls.split_url(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    said: dict[str, Fact] = {"server.address": parts.hostname} if parts.hostname else {}
    return said if port is None else said | {"server.port": port}
