"""When there are traces: as a setting or OpenTelemetry's own variable says, if it is installed, into the provider there
is."""

import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from opentelemetry import trace as otel

from accord.engine import tracing as process
from accord.model import GetRequest
from accord.server.optional_services import start_tracing
from accord.server.pipeline import pipeline
from accord.server.settings import TelemetrySettings
from accord.server.settings_loader import BadSettings
from accord.telemetry.metrics import Metrics
from tests.engine.conftest import ALICE
from tests.http.scripted import Scripted
from tests.serve.running import ROOT, accord, environment
from tests.telemetry.spans import CALLER, Spans, id_of, parent_of, spans, traced

__all__ = ["spans"]

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}


@pytest.mark.usefixtures("spans")
@pytest.mark.parametrize(
    ("traces", "env", "are_there"),
    [
        (None, {}, False),
        (None, ENDPOINT, True),
        (None, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:9"}, True),
        (None, {"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        (True, {}, True),
        (False, ENDPOINT, False),
    ],
)
def test_the_setting_counts_more_than_the_variable(traces: bool | None, env: dict[str, str], are_there: bool) -> None:
    assert (start_tracing(TelemetrySettings(traces=traces), env) is not None) is are_there


def test_without_the_extra_only_the_setting_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "accord.telemetry.tracing", None)
    assert start_tracing(TelemetrySettings(), ENDPOINT) is None
    with pytest.raises(BadSettings, match=r"telemetry\.traces: .*accord\[otel\]"):
        start_tracing(TelemetrySettings(traces=True), {})


def test_the_provider_of_an_application_is_kept(spans: Spans) -> None:
    before = otel.get_tracer_provider()
    found = start_tracing(TelemetrySettings(traces=True), {})
    assert otel.get_tracer_provider() is before
    assert found is not None
    with found.around(process.StepSpan(key="k", task_id="t")):
        pass
    assert [span.name for span in spans.all] == ["step"], "it went where the application's own go"


async def test_active_spans_are_parents_of_requests(spans: Spans) -> None:
    served = pipeline(Scripted(), "x", metrics=Metrics(), tracing=spans.tracing)
    with otel.get_tracer("framework").start_as_current_span("GET /") as outer:
        await served.get(GetRequest(id="1"), replace(ALICE, trace=CALLER))
    found = spans.one("GetTask")
    assert parent_of(found) == f"{outer.get_span_context().span_id:016x}"
    await served.get(GetRequest(id="1"), replace(ALICE, trace=CALLER))
    alone = spans.named("GetTask")[1]
    assert (traced(alone), parent_of(alone)) == (CALLER.split("-")[1], CALLER.split("-")[2])
    assert id_of(alone) != id_of(found)


PROVIDER = """
from opentelemetry import trace
from accord.telemetry.tracing import start
start()
provider = trace.get_tracer_provider()
names = [type(one.span_exporter).__module__ for one in provider._active_span_processor._span_processors]
print(provider.resource.attributes["service.name"], names)
"""


@pytest.mark.parametrize(
    ("env", "service", "exporters"),
    [
        ({}, "accord", "['opentelemetry.exporter.otlp.proto.http.trace_exporter']"),
        ({"OTEL_SERVICE_NAME": "mine", "OTEL_TRACES_EXPORTER": "none"}, "mine", "[]"),
        (
            {"OTEL_RESOURCE_ATTRIBUTES": "service.name=ours"},
            "ours",
            "['opentelemetry.exporter.otlp.proto.http.trace_exporter']",
        ),
        ({"OTEL_TRACES_EXPORTER": "console"}, "accord", "['opentelemetry.sdk.trace.export']"),
    ],
)
def test_the_variables_of_opentelemetry_are_heeded(
    tmp_path: Path, env: dict[str, str], service: str, exporters: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROVIDER],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment(tmp_path, **env),
        cwd=ROOT,
    )
    assert done.stdout.strip() == f"{service} {exporters}"


def test_missing_exporters_are_reported_at_start(tmp_path: Path) -> None:
    done = accord(tmp_path, "serve", OTEL_TRACES_EXPORTER="zipkin", ACCORD_TELEMETRY__TRACES="true")
    assert done.returncode != 0
    assert "OTEL_TRACES_EXPORTER: there is no exporter called zipkin" in " ".join(done.stderr.split())
