"""The tables of docs/how-to/operations.md are those of the code, word for word."""

import re
from pathlib import Path

from accord.auth.roles import BUILT_IN
from accord.engine.tracing import DeliverySpan, ExecutionSpan, RemoteCallSpan, ReportSpan, StepSpan
from accord.http import operator_endpoints
from accord.http.operator_endpoints import METRICS_PATH, METRICS_ROLES
from accord.storage.commands.monitoring import MAX_COUNTED_ROWS
from accord.telemetry import exposition, metrics
from accord.telemetry.logs import OWN_FIELDS
from accord.telemetry.metrics import Metric
from accord.telemetry.tracing import FACTS, RequestSpan, SpanRole, describe

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(accord_\w+)` \| (\w+) \|([^|]*)\| ([^|]+) \|$", re.MULTILINE)


def test_every_metric_is_documented_as_it_is() -> None:
    documented = [
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)), meaning)
        for name, kind, labels, meaning in ROW.findall(PAGE)
    ]
    known = [found for module in (metrics, exposition) for found in vars(module).values() if isinstance(found, Metric)]
    assert documented == [(found.name, found.kind.value, found.labels, found.help) for found in known]


def test_the_page_s_text_is_true() -> None:
    for path in (operator_endpoints.HEALTH_PATH, operator_endpoints.READY_PATH, METRICS_PATH):
        assert f"| `{path}` |" in PAGE
    assert {f"{seconds:.0f} seconds" for seconds in (exposition.STORE_TIMEOUT_SECONDS,)} <= set(
        re.findall(r"\d+ seconds", PAGE)
    )
    assert "five\nseconds old" in PAGE
    assert (exposition.FRESH_SECONDS, exposition.REST_FACTOR) == (5, 20)
    assert f"Numbers end at {MAX_COUNTED_ROWS:,}" in PAGE
    assert {role.name for role in BUILT_IN if role.sees_all} == METRICS_ROLES
    assert "the role `admin` or `operator`" in PAGE


def test_the_queries_name_metrics_that_there_are() -> None:
    known = {
        found.name for module in (metrics, exposition) for found in vars(module).values() if isinstance(found, Metric)
    }
    named = {name.removesuffix("_bucket") for name in re.findall(r"accord_[a-z_]+", PAGE)} - {"accord_info"}
    assert named == known


def test_the_keys_of_a_record_are_described() -> None:
    (described,) = re.findall(r"^\| key \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    named = {name for row in described.strip().splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    about = {"task_id", "context_id", "agent", "tenant", "trace_id", "span_id"}
    assert named == {*OWN_FIELDS, *about}


def test_every_span_and_attribute_is_documented() -> None:
    rows = re.findall(r"^\| (`[^|]+) \| (server|client|internal) \| [^|]+ \| ([^|]+) \|$", PAGE, re.MULTILINE)
    described = [(kind, set(re.findall(r"`([\w.]+)`", said))) for _, kind, said in rows]
    begun = [
        describe(RequestSpan(agent="a", operation="GetTask", binding="grpc", dialect="v1", trace=None)),
        describe(ExecutionSpan(agent="a", task_id="t", context_id="c", tenant="x", attempt=1, trace=None)),
        describe(StepSpan(key="k", task_id="t")),
        describe(RemoteCallSpan(agent="a", operation="SendMessage", binding="GRPC", dialect="v1", url="https://x")),
        describe(DeliverySpan(task_id="t", url="https://x", seq=1, attempt=1, trace=None)),
        describe(ReportSpan(path="/x", agent="a", task_id="t", trace=None)),
    ]
    later = [
        {*FACTS["task_id"], *FACTS["context_id"]},
        {*FACTS["state"], *FACTS["model"], *FACTS["input_tokens"], *FACTS["output_tokens"]},
        set(),
        set(),
        set(FACTS["status"]),
        set(FACTS["status"]),
    ]
    assert described == [
        (span.kind.value, span.attributes.keys() | more) for span, more in zip(begun, later, strict=True)
    ]
    assert {kind for kind, _ in described} == {kind.value for kind in SpanRole}
    for name in (*FACTS["events"], *FACTS["error"]):
        assert f"`{name}`" in PAGE
