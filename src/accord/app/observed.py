"""Those who watch a server: metrics always, traces and records by JSON where the settings ask for them.

It only puts together what `telemetry` has; what is not asked for is not even imported.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from accord.a2a import HostedAgent
from accord.auth.audit import Audit, watched
from accord.auth.authentication import Access
from accord.bindings.http import Admit
from accord.config.files import BadSettings
from accord.config.settings import LogFormat, Telemetry
from accord.engine.hooks import Detail, Hook, Hooks, TaskFinished
from accord.telemetry import logs
from accord.telemetry.metrics import Metrics
from accord.telemetry.request_metrics import MeasuredA2A

if TYPE_CHECKING:
    from accord.telemetry.tracing import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
"""The variables that say where traces go, and so that there are any."""


class Observed:
    """What watches the agents of one process."""

    def __init__(
        self, settings: Telemetry, agents: Iterable[str], env: Mapping[str, str], stack: AsyncExitStack
    ) -> None:
        """Watch `agents`; what was seen last is sent when `stack` is left."""
        self.metrics = Metrics(agents)
        self._tracing = tracing_of(settings, env)
        notes: dict[type[Detail], Callable[[Any], None]] = {**self.metrics.notes, TaskFinished: self._ended}
        hooks: list[Hook] = []
        if settings.log_format is LogFormat.JSON:
            hooks.append(logs.log_context_hook)
        if self._tracing is not None:
            hooks.append(self._tracing.hear)
            stack.push_async_callback(self._tracing.flush)
        self.hooks = Hooks(tuple(hooks), notes)

    def _ended(self, detail: TaskFinished) -> None:
        self.metrics.notes[TaskFinished](detail)
        logs.log_task_end(detail)

    def agent(self, inner: HostedAgent, name: str) -> HostedAgent:
        """Return an agent whose use is seen."""
        if self._tracing is None:
            return MeasuredA2A(inner, name, self.metrics)
        from accord.telemetry.tracing import TracedA2A

        return TracedA2A(inner, name, self.metrics, self._tracing)

    def admit(self, access: Access, audit: Audit) -> Admit:
        """Return a way in that is seen, and those whom it refuses, if it refuses anybody."""
        counted = access.admit if not access.schemes else self.metrics.watched(watched(access.admit, audit))
        return counted if self._tracing is None else self._tracing.watched(counted)


def tracing_of(settings: Telemetry, env: Mapping[str, str]) -> "Tracing | None":
    """Return what traces, if that is wanted; to want it without having it is a mistake only in a setting of ours."""
    if settings.traces is False or (settings.traces is None and not any(map(env.get, ENDPOINTS))):
        return None
    try:
        from accord.telemetry.tracing import EXPORTERS, start
    except ImportError as error:
        if settings.traces is None:
            return None
        raise BadSettings("telemetry.traces: traces need OpenTelemetry: pip install 'accord[otel]'") from error
    try:
        return start()
    except ValueError as error:
        raise BadSettings(f"{EXPORTERS}: {error}") from None
