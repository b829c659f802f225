"""What agents elsewhere report is part of the trace that they bring, and nothing is recorded of strangers."""

import json
from contextlib import suppress

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from accord.engine.tracing import use
from accord.errors import AgentUnavailable
from accord.http.webhooks import WebhookEndpoint
from accord.protocol import http_headers
from accord.remote.flow_reports import WEBHOOK
from accord.remote.tasks import ReportCredentials, ReportSender, WebhookKeys
from tests.engine.conftest import hosting, postgres
from tests.remote.conftest import Joining, joining
from tests.remote.test_receiver import KEY, acknowledged, done, posted
from tests.telemetry.spans import CALLER, TRACE, Spans, id_of, parent_of, spans, traced

__all__ = ["hosting", "joining", "postgres", "spans"]

NAME = "POST report"
TOLD = {"http.request.method": "POST", "url.path": WEBHOOK, "gen_ai.agent.name": "there"}


async def test_a_report_is_a_part_of_the_trace_that_it_brings(joining: Joining, spans: Spans) -> None:
    here = await joining()
    task = await acknowledged(here)
    assert (await posted(here, done(), bearer=here.peer.token, traceparent=CALLER, tracestate="vendor=1")).status == 204
    report = spans.one(NAME)
    assert (traced(report), parent_of(report), report.kind) == (TRACE, CALLER.split("-")[2], SpanKind.SERVER)
    assert dict(report.attributes or {}) == TOLD | {"http.response.status_code": 204, "a2a.task.id": task.id}
    assert report.context is not None
    assert report.context.trace_state.to_header() == "vendor=1"


async def test_reports_without_a_trace_start_one(joining: Joining, spans: Spans) -> None:
    here = await joining()
    await acknowledged(here)
    await posted(here, done(), bearer=here.peer.token, traceparent="nonsense")
    report = spans.one(NAME)
    assert parent_of(report) is None
    assert id_of(report)


async def test_invalid_reports_are_sender_errors(joining: Joining, spans: Spans) -> None:
    here = await joining()
    await acknowledged(here)
    assert (await posted(here, b"nonsense", bearer=here.peer.token, traceparent=CALLER)).status == 400
    refused = spans.one(NAME)
    assert refused.status.status_code is StatusCode.UNSET
    said = dict(refused.attributes or {})
    assert (said["http.response.status_code"], traced(refused)) == (400, TRACE)
    assert said["error.type"]


class Unable:
    """Knows everybody, and fails as it is told."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def admit(self, evidence: ReportCredentials) -> ReportSender:
        return ReportSender(evidence=evidence)

    async def accept(self, _sender: ReportSender, _body: bytes) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind"), [(AgentUnavailable(), "AGENT_UNAVAILABLE"), (RuntimeError("secret"), "RuntimeError")]
)
async def test_unaccepted_reports_are_server_errors(
    joining: Joining, spans: Spans, error: Exception, kind: str
) -> None:
    here = await joining()
    with suppress(RuntimeError):
        await posted(here, done(), receiver=WebhookEndpoint(Unable(error)))
    failed = spans.one(NAME)
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == kind
    assert "secret" not in failed.to_json()


async def test_of_strangers_nothing_is_recorded(joining: Joining, spans: Spans) -> None:
    here = await joining(trust=WebhookKeys(keys=(KEY,)))
    await acknowledged(here)
    body = json.dumps(done()).encode()
    signed = http_headers.sign_webhook(body, here.remotes.now_ms() // 1000, [KEY])
    forged = http_headers.sign_webhook(b"else", here.remotes.now_ms() // 1000, [KEY])
    assert (await posted(here, body, traceparent=CALLER)).status == 401
    assert (await posted(here, body, traceparent=CALLER, bearer="guessed")).status == 401
    assert (await posted(here, body, traceparent=CALLER, x_a2a_signature=forged)).status == 401
    assert spans.named(NAME) == []
    assert (await posted(here, body, x_a2a_signature=signed, traceparent=CALLER)).status == 204
    assert traced(spans.one(NAME)) == TRACE


async def test_without_a_tracer_reports_are_taken_in_as_ever(joining: Joining, spans: Spans) -> None:
    here = await joining()
    await acknowledged(here)
    use(None)
    assert (await posted(here, done(), bearer=here.peer.token, traceparent=CALLER)).status == 204
    assert spans.named(NAME) == []
