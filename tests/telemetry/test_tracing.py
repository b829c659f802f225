"""What is done for a caller is one trace: the request, the runs it leads to on any node, their steps and children, and
the webhooks; what an agent records itself belongs to its run."""

import asyncio
import logging
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry import trace as otel
from opentelemetry.trace import SpanKind, StatusCode

from accord import Context, agent
from accord.a2a import Caller, HostedAgent
from accord.auth.authentication import Presented
from accord.engine import tracing as process
from accord.engine.hooks import Hooks
from accord.engine.webhook_delivery import Exchange, NotDelivered, WebhookDelivery
from accord.errors import AgentUnavailable, TaskNotFound
from accord.model import GetRequest, PushConfig, PushFormat, SendConfiguration, Task, TaskState
from accord.server.pipeline import pipeline
from accord.service.host import Host
from accord.storage.commands import tasks
from accord.telemetry.logs import JsonFormatter, LineFormatter
from accord.telemetry.metrics import Metrics
from accord.telemetry.tracing import describe
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, all_of, saying, state, text
from tests.engine.test_engine import dies
from tests.http.scripted import Scripted
from tests.telemetry.conftest import parrot
from tests.telemetry.spans import CALLER, TRACE, Spans, id_of, parent_of, spans, traced

__all__ = ["spans"]

WITH_TRACE = replace(ALICE, trace=CALLER, binding="jsonrpc")


def watched(host: Host, spans: Spans) -> HostedAgent:
    name = next(iter(host.services))
    return pipeline(host.default, name, metrics=Metrics(), tracing=spans.tracing)


@agent
async def family(ctx: Context) -> str:
    """Do a step, which calls another agent."""

    async def ask() -> str:
        return (await ctx.call("parrot", ctx.text)).text

    await ctx.usage(input_tokens=3, output_tokens=4, model="m-1")
    await ctx.usage(input_tokens=10)
    return await ctx.step("asks", ask)


async def test_a_request_its_run_steps_and_children_are_one_trace(hosting: Hosting, spans: Spans) -> None:
    host = await hosting(family, parrot, hooks=Hooks((spans.tracing.hear,)))
    task = await watched(host, spans).send(saying("secret words"), WITH_TRACE)
    assert text(task) == "secret words"
    await spans.until(lambda found: len(found.all) >= 4)
    request, run, child = (spans.one(name) for name in ("SendMessage", "invoke_agent family", "invoke_agent parrot"))
    step = spans.one("step")
    assert {traced(span) for span in spans.all} == {TRACE}
    assert parent_of(request) == "00f067aa0ba902b7"
    assert [parent_of(span) for span in (run, step, child)] == [id_of(request), id_of(run), id_of(step)]
    assert (request.kind, run.kind, step.kind) == (SpanKind.SERVER, SpanKind.INTERNAL, SpanKind.INTERNAL)
    assert "secret" not in "".join(span.to_json() for span in spans.all), "what was said is nobody's business"


async def test_spans_follow_the_conventions(hosting: Hosting, spans: Spans) -> None:
    host = await hosting(family, parrot, hooks=Hooks((spans.tracing.hear,)))
    task = await watched(host, spans).send(saying("x"), WITH_TRACE)
    assert isinstance(task, Task)
    await spans.until(lambda found: len(found.all) >= 4)
    assert dict(spans.one("SendMessage").attributes or {}) == {
        "gen_ai.agent.name": "family",
        "rpc.method": "SendMessage",
        "rpc.system": "jsonrpc",
        "a2a.binding": "jsonrpc",
        "a2a.dialect": "v1",
        "a2a.task.id": task.id,
        "a2a.context.id": task.context_id,
        "gen_ai.conversation.id": task.context_id,
    }
    assert dict(spans.one("invoke_agent family").attributes or {}) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "family",
        "gen_ai.agent.id": "family",
        "gen_ai.conversation.id": task.context_id,
        "gen_ai.request.model": "m-1",
        "gen_ai.usage.input_tokens": 13,
        "gen_ai.usage.output_tokens": 4,
        "a2a.context.id": task.context_id,
        "a2a.task.id": task.id,
        "a2a.task.state": "completed",
        "a2a.run.attempt": 1,
        "a2a.tenant": "acme",
    }
    assert dict(spans.one("step").attributes or {}) == {"a2a.step.key": "asks", "a2a.task.id": task.id}


async def test_another_node_continues_the_trace(hosting: Hosting, spans: Spans) -> None:
    held, goes_on = asyncio.Event(), asyncio.Event()

    @agent(on_crash="restart")
    async def slow(ctx: Context) -> str:
        if ctx.attempt == 1:
            held.set()
            await asyncio.Event().wait()
        await goes_on.wait()
        return "done"

    first = await hosting(slow)
    sent = await watched(first, spans).send(saying("x", configuration=AT_ONCE), WITH_TRACE)
    assert isinstance(sent, Task)
    await held.wait()
    await dies(first)
    second = await hosting(slow)
    goes_on.set()
    assert state(await second.node.settled("acme", sent.id)) is TaskState.COMPLETED
    await spans.until(lambda found: bool(found.named("invoke_agent slow")))
    run = spans.one("invoke_agent slow")
    assert (run.attributes or {})["a2a.run.attempt"] == 2, "the one that is lost never ended"
    assert (traced(run), parent_of(run)) == (TRACE, id_of(spans.one("SendMessage")))


async def test_a_later_message_brings_its_own_trace(hosting: Hosting, spans: Spans) -> None:
    @agent
    async def asks(ctx: Context) -> str:
        return (await ctx.ask("which?")).text

    host = await hosting(asks)
    served = watched(host, spans)
    task = await served.send(saying("x"), WITH_TRACE)
    assert isinstance(task, Task)
    other = f"00-{'a' * 32}-{'b' * 16}-01"
    await served.send(saying("this", task_id=task.id), replace(WITH_TRACE, trace=other))
    await spans.until(lambda found: len(found.named("invoke_agent asks")) == 2)
    assert [traced(run) for run in spans.named("invoke_agent asks")] == [TRACE, "a" * 32]
    head = await host.node.store.read(tasks.read_head, "acme", task.id)
    assert head is not None
    assert head.trace is not None
    assert head.trace.split("-")[1] == "a" * 32


async def test_a_run_that_asks_ends_its_span_and_has_not_failed(hosting: Hosting, spans: Spans) -> None:
    @agent
    async def asks(ctx: Context) -> str:
        return (await ctx.ask("which?")).text

    host = await hosting(asks)
    await watched(host, spans).send(saying("x"), WITH_TRACE)
    await spans.until(lambda found: bool(found.named("invoke_agent asks")))
    run = spans.one("invoke_agent asks")
    assert (run.attributes or {})["a2a.task.state"] == "input_required"
    assert run.status.status_code is StatusCode.UNSET


async def test_agent_spans_belong_to_the_execution(hosting: Hosting, spans: Spans) -> None:
    lines: list[str] = []
    own = otel.get_tracer("mine")

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Kept()
    handler.setFormatter(LineFormatter())
    log = logging.getLogger("mine")
    log.addHandler(handler)

    @agent
    async def working(ctx: Context) -> str:
        def in_a_thread() -> None:
            with own.start_as_current_span("deep"):
                log.warning("at work")

        with own.start_as_current_span("own"):
            await ctx.call("parrot", "x")
            await asyncio.to_thread(in_a_thread)
        return "done"

    try:
        host = await hosting(working, parrot)
        await watched(host, spans).send(saying("x"), WITH_TRACE)
    finally:
        log.removeHandler(handler)
    await spans.until(lambda found: bool(found.named("invoke_agent working")))
    run, mine, deep = (spans.one(name) for name in ("invoke_agent working", "own", "deep"))
    assert [parent_of(span) for span in (mine, deep)] == [id_of(run), id_of(mine)]
    assert parent_of(spans.one("invoke_agent parrot")) == id_of(mine), "a child belongs to what calls it"
    assert lines[0].endswith(f"WARNING mine: at work trace_id={TRACE} span_id={id_of(deep)}")


async def test_a_failure_is_one_and_a_refusal_is_not(hosting: Hosting, spans: Spans) -> None:
    @agent
    async def broken(ctx: Context) -> str:
        raise RuntimeError(ctx.text)

    host = await hosting(broken)
    await watched(host, spans).send(saying("secret"), WITH_TRACE)
    with pytest.raises(TaskNotFound):
        await watched(host, spans).get(GetRequest(id="nobody's"), WITH_TRACE)
    await spans.until(lambda found: len(found.all) == 3)
    run, refused, request = (spans.one(name) for name in ("invoke_agent broken", "GetTask", "SendMessage"))
    assert run.status.status_code is StatusCode.ERROR
    assert (run.attributes or {})["error.type"] == "failed"
    assert refused.status.status_code is StatusCode.UNSET
    assert (refused.attributes or {})["error.type"] == "TASK_NOT_FOUND"
    assert request.status.status_code is StatusCode.UNSET
    assert "secret" not in run.to_json()


async def test_unanswered_requests_are_server_errors(spans: Spans) -> None:
    for error in (AgentUnavailable(), RuntimeError("secret")):
        served = pipeline(Scripted(error), "x", metrics=Metrics(), tracing=spans.tracing)
        with pytest.raises(type(error)):
            await served.get(GetRequest(id="1"), ALICE)
        with pytest.raises(type(error)):
            await all_of(served.stream(saying("x"), ALICE))
    assert {span.status.status_code for span in spans.all} == {StatusCode.ERROR}
    assert [(span.attributes or {})["error.type"] for span in spans.all] == [
        *["AGENT_UNAVAILABLE"] * 2,
        *["INTERNAL_ERROR"] * 2,
    ]
    assert "secret" not in "".join(span.to_json() for span in spans.all)


async def test_a_stream_lasts_as_long_as_its_span(hosting: Hosting, spans: Spans) -> None:
    @agent
    async def counts(ctx: Context) -> Any:
        for at in range(3):
            yield str(at)

    host = await hosting(counts)
    served = watched(host, spans)
    stream = served.stream(saying("x"), WITH_TRACE)
    first = await anext(stream)
    assert not otel.get_current_span().get_span_context().is_valid, "its reader does other things meanwhile"
    assert spans.named("SendStreamingMessage") == []
    rest = await all_of(stream)
    request = spans.one("SendStreamingMessage")
    assert (request.attributes or {})["a2a.stream.events"] == len(rest) + 1
    assert isinstance(first.body, Task)
    await spans.until(lambda found: bool(found.named("invoke_agent counts")))
    assert parent_of(spans.one("invoke_agent counts")) == id_of(request)


class Hooked:
    """A sender that keeps what would be sent along."""

    def __init__(self, fails: int = 0) -> None:
        self.headers: list[dict[str, str]] = []
        self._fails = fails

    def check(self, config: PushConfig) -> None:
        """Take any."""

    def form(self, dialect: str) -> PushFormat:
        return PushFormat.TASK

    async def send(self, delivery: WebhookDelivery) -> Exchange:
        self.headers.append(dict(process.headers()))
        if len(self.headers) <= self._fails:
            raise NotDelivered("busy", is_final=True, sent=Exchange(status=503))
        return Exchange(status=204)


async def test_webhooks_get_the_trace_of_their_task(hosting: Hosting, spans: Spans) -> None:
    sender = Hooked()
    host = await hosting(parrot, sender=sender)
    push = PushConfig(url="https://user:secret@hooks.example.com/x?token=secret", events=("completed",))
    asked = saying("x", configuration=SendConfiguration(task_push_notification_config=push))
    await watched(host, spans).send(asked, WITH_TRACE)
    await spans.until(lambda found: bool(found.named("POST webhook")))
    delivery = spans.one("POST webhook")
    assert (traced(delivery), parent_of(delivery)) == (TRACE, id_of(spans.one("SendMessage")))
    assert sender.headers == [{"traceparent": f"00-{TRACE}-{id_of(delivery)}-01"}]
    said = dict(delivery.attributes or {})
    assert said.pop("a2a.task.id")
    assert said.pop("a2a.event.seq")
    assert said == {
        "http.request.method": "POST",
        "http.response.status_code": 204,
        "server.address": "hooks.example.com",
        "server.port": 443,
        "a2a.push.attempt": 1,
    }


@pytest.mark.parametrize("url", ["http://[", "http://[::1", "agents.example:x", "https://agents.example:99999/"])
def test_calls_to_invalid_addresses_have_a_span_without_server(url: str) -> None:
    called = process.RemoteCallSpan(agent="x", operation="GetTask", binding="JSONRPC", dialect="v1", url=url)
    assert "server.address" not in describe(called).attributes


async def test_a_webhook_that_fails_is_a_failed_span(hosting: Hosting, spans: Spans) -> None:
    host = await hosting(parrot, sender=Hooked(fails=1))
    push = PushConfig(url="https://hooks.example.com/", events=("completed",))
    asked = saying("x", configuration=SendConfiguration(task_push_notification_config=push))
    await watched(host, spans).send(asked, WITH_TRACE)
    await spans.until(lambda found: bool(found.named("POST webhook")))
    failed = spans.one("POST webhook")
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["http.response.status_code"] == 503
    assert (failed.attributes or {})["error.type"] == "NotDelivered"


async def test_trace_headers_are_read_after_authentication(spans: Spans) -> None:
    async def admit(_presented: Presented) -> Caller:
        return ALICE

    async def let_in(*headers: tuple[bytes, bytes]) -> str | None:
        return (await spans.tracing.watched(admit)(Presented(headers=headers))).trace

    parent = (b"traceparent", CALLER.encode())
    assert await let_in(parent) == CALLER
    assert await let_in(parent, (b"tracestate", b"a=1,b=2")) == f"{CALLER} a=1,b=2"
    assert await let_in(parent, parent) is None, "which of two"
    assert await let_in((b"traceparent", b"00-0-0-01")) is None
    assert await let_in() is None


async def test_the_state_of_other_vendors_is_passed_on(hosting: Hosting, spans: Spans) -> None:
    found: list[dict[str, str]] = []

    @agent
    async def looks(ctx: Context) -> str:
        found.append(dict(process.headers()))
        return "done"

    host = await hosting(looks)
    await watched(host, spans).send(saying("x"), replace(WITH_TRACE, trace=f"{CALLER} vendor=1"))
    assert found[0]["tracestate"] == "vendor=1"
    assert found[0]["traceparent"].split("-")[1] == TRACE


async def test_a_caller_that_does_not_record_is_heeded(hosting: Hosting, spans: Spans) -> None:
    host = await hosting(family, parrot)
    task = await watched(host, spans).send(saying("x"), replace(WITH_TRACE, trace=f"{CALLER[:-2]}00"))
    assert isinstance(task, Task)
    head = await host.node.store.read(tasks.read_head, "acme", task.id)
    assert head is not None
    assert spans.all == []
    parts = (head.trace or "").split("-")
    assert (parts[1], parts[3]) == (TRACE, "00"), "it is passed on all the same"


async def test_without_tracing_no_context_is_stored(hosting: Hosting) -> None:
    assert process.tracer is None
    host = await hosting(family, parrot)
    task = await host.default.send(saying("x"), WITH_TRACE)
    assert isinstance(task, Task)
    head = await host.node.store.read(tasks.read_head, "acme", task.id)
    assert head is not None
    assert head.trace is None
    assert process.current() is None
    assert process.headers() == {}


async def test_a_task_from_before_begins_a_trace_of_its_own(hosting: Hosting, spans: Spans) -> None:
    host = await hosting(parrot)
    await host.default.send(saying("x"), ALICE)  # not through what traces requests
    await spans.until(lambda found: bool(found.named("invoke_agent parrot")))
    run = spans.one("invoke_agent parrot")
    assert run.parent is None
    assert traced(run) != TRACE


def test_json_records_carry_the_trace(spans: Spans) -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "y", (), None)
    with spans.tracing.around(process.StepSpan(key="k", task_id="t")):
        assert f'"trace_id": "{(process.current() or "").split("-")[1]}"' in JsonFormatter().format(record)
    assert "trace_id" not in JsonFormatter().format(record)
