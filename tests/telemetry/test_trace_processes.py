"""Real processes and one trace: a caller, a server, its children, an agent elsewhere, a command, a webhook, a kill."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.trace import SpanKind

from accord.client import Client
from tests.engine.conftest import bounded
from tests.ports import free_port
from tests.serve.running import BOUND_SECONDS, ROOT, Server, environment, running, said, text_of
from tests.telemetry.catcher import Catcher, catching
from tests.telemetry.spans import CALLER, TRACE, Spans, id_of, parent_of, spans, traced

__all__ = ["spans"]

AGENTS = """
import asyncio

from accord import Context, agent


@agent
async def boss(ctx: Context) -> str:
    async def asks() -> str:
        return (await ctx.call("helper", ctx.text)).text

    near = await ctx.step("near", asks)
    far = (await ctx.call("far", ctx.text)).text
    command = (await ctx.call("command", ctx.text)).text
    return f"{near} {far} {command.strip()}"


@agent
async def helper(text: str) -> str:
    return f"near {text}"


@agent
async def slow(ctx: Context) -> str:
    await ctx.status("begun")
    while ctx.attempt == 1:
        await asyncio.sleep(0.05)
    return f"attempt {ctx.attempt}"
"""

FAR = """
from accord import agent


@agent
async def worker(text: str) -> str:
    return f"far {text}"
"""

SETTINGS = f"""
[agents.command]
type = "process"
command = "{sys.executable}"
args = ["-c", "import os; print(os.environ['TRACEPARENT'])"]
"""


@pytest.fixture
def catcher() -> Iterator[Catcher]:
    with catching() as found:
        yield found


def env(catcher: Catcher, service: str) -> dict[str, str]:
    return {
        **catcher.env,
        "OTEL_SERVICE_NAME": service,
        "ACCORD_PUSH__ALLOW_PRIVATE": "true",
        "ACCORD_ENGINE__LEASE_SECONDS": "2",
    }


def send(server: Server, text: str, *, path: str, hook: str | None = None, at_once: bool = False) -> dict[str, Any]:
    configuration: dict[str, object] = {"returnImmediately": at_once}
    if hook is not None:
        configuration["taskPushNotificationConfig"] = {"url": hook}
    answer = server.post(
        "SendMessage",
        path=path,
        headers={"traceparent": CALLER, "tracestate": "vendor=1"},
        message=said(text, f"m-{text}"),
        configuration=configuration,
    )
    task: dict[str, Any] = answer.json()["result"]["task"]
    return task


def test_all_processes_of_a_task_are_one_trace(tmp_path: Path, catcher: Catcher) -> None:
    (tmp_path / "here.py").write_text(AGENTS)
    (tmp_path / "there.py").write_text(FAR)
    (tmp_path / "accord.toml").write_text(SETTINGS)
    (tmp_path / "there").mkdir()
    with (
        running(tmp_path / "there", "../there.py:worker", **env(catcher, "there")) as there,
        running(
            tmp_path, "here.py:boss", "here.py:helper", "--remote", f"far={there.url}", **env(catcher, "here")
        ) as here,
    ):
        task = send(here, "hello", path="/agents/boss", hook=f"{catcher.url}/hook")
        text = text_of(task)
        request = catcher.one("SendMessage", "here")
        run, step, child = (catcher.one(name) for name in ("invoke_agent boss", "step", "invoke_agent helper"))
        served, done = catcher.one("SendMessage", "there"), catcher.one("invoke_agent worker", "there")
        command = catcher.one("invoke_agent command")
        catcher.until(lambda found: bool(found.named("POST webhook", "here")) and bool(found.hooks))
        catcher.until(lambda found: bool(found.named("POST report", "here")))
    assert text == f"near hello far hello 00-{TRACE}-{command.id}-01"
    assert {span.trace for span in catcher.spans} == {TRACE}
    assert request.parent == "00f067aa0ba902b7"
    assert [run.parent, step.parent, child.parent, command.parent] == [request.id, run.id, step.id, run.id]
    by_id = {span.id: span for span in catcher.spans}
    asked = by_id[served.parent]
    assert (asked.service, asked.name, asked.attributes["rpc.method"]) == ("here", "invoke_agent worker", "SendMessage")
    assert (asked.attributes["server.address"], asked.attributes["server.port"]) == ("localhost", there.port)
    far = by_id[asked.parent]
    assert (far.name, far.parent, done.parent) == ("invoke_agent far", run.id, served.id)
    delivered = {f"00-{TRACE}-{span.id}-01" for span in catcher.named("POST webhook", "here")}
    assert {hook["traceparent"] for hook in catcher.hooks} <= delivered
    assert {hook["tracestate"] for hook in catcher.hooks} == {"vendor=1"}
    reporting = {span.id: span for span in catcher.named("POST webhook", "there")}
    for report in catcher.named("POST report", "here"):
        assert reporting[report.parent].attributes["a2a.task.id"] == done.attributes["a2a.task.id"]
        assert report.attributes == {
            "http.request.method": "POST",
            "http.response.status_code": 204,
            "url.path": "/api/webhook/tasks",
            "gen_ai.agent.name": "far",
            "a2a.task.id": far.attributes["a2a.task.id"],
        }


def test_killed_servers_resume_the_trace(tmp_path: Path, catcher: Catcher) -> None:
    (tmp_path / "here.py").write_text(AGENTS)
    settings: dict[str, Any] = env(catcher, "first")
    first = Server(tmp_path, "here.py:slow", **settings)
    try:
        task = send(first, "x", path="/", at_once=True)
        request = catcher.one("SendMessage", "first")
    finally:
        first.kill()
    with running(tmp_path, "here.py:slow", **env(catcher, "second")):
        run = catcher.one("invoke_agent slow")
    assert (run.service, run.trace, run.parent) == ("second", TRACE, request.id)
    assert run.attributes["a2a.run.attempt"] == 2
    assert run.attributes["a2a.task.id"] == task["id"]


FLOW = """
version: "1.0"
name: flow
swarm: {pattern: dag}
workflows:
  - name: main
    steps:
      - {name: say, type: deterministic, command: "printf '%s' $TRACEPARENT"}
"""


def test_commands_and_remote_flows_get_the_trace(tmp_path: Path, catcher: Catcher) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW)
    (tmp_path / "accord.toml").write_text(f'[agents.hook]\ntype = "http"\nurl = "{catcher.url}/flow"\n')
    with running(tmp_path, "flow.yaml", **env(catcher, "here")) as server:
        task = send(server, "x", path="/")
        step = catcher.one("step")
        send(server, "y", path="/agents/hook")
        run = catcher.one("invoke_agent hook")
    assert f"00-{TRACE}-{step.id}-01" in json.dumps(task)
    assert step.attributes["a2a.step.key"] == "say"
    assert step.parent == catcher.one("invoke_agent flow").id
    assert [hook["traceparent"] for hook in catcher.hooks] == [f"00-{TRACE}-{run.id}-01"]


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
def test_our_client_passes_its_trace_on_over_every_binding(
    tmp_path: Path, catcher: Catcher, spans: Spans, binding: str
) -> None:
    (tmp_path / "there.py").write_text(FAR)

    async def talk(url: str) -> None:
        async with Client.connect(url, binding=binding) as client:
            assert (await client.send_text("hi")).text == "far hi"
            assert "".join([piece async for piece in client.stream_text("again")]) == "far again"

    with running(tmp_path, "there.py:worker", "--grpc-port", str(free_port()), **env(catcher, "there")) as server:
        asyncio.run(bounded(talk)(server.url))
        catcher.until(lambda found: bool(found.named("SendMessage")) and bool(found.named("SendStreamingMessage")))
        numbers = httpx.get(f"{server.url}/metrics").text
    label = {"JSONRPC": "jsonrpc", "HTTP+JSON": "rest", "GRPC": "grpc"}[binding]
    counted = f'agent="worker",binding="{label}",dialect="v1",operation="SendMessage",outcome="ok"'
    assert f"accord_requests_total{{{counted}}} 1.0" in numbers
    ours = {id_of(span): span for span in spans.named("invoke_agent worker")}
    assert len(ours) == 2
    for name in ("SendMessage", "SendStreamingMessage"):
        (theirs,) = catcher.named(name)
        client = ours[theirs.parent]
        assert (theirs.trace, client.kind, parent_of(client)) == (traced(client), SpanKind.CLIENT, None)
        assert (client.attributes or {})["rpc.method"] == theirs.attributes["rpc.method"] == name
        assert (client.attributes or {})["a2a.binding"] == theirs.attributes["a2a.binding"]
        assert ("rpc.system" in theirs.attributes) == (binding != "HTTP+JSON")


def test_the_calls_of_a_program_are_part_of_its_trace(tmp_path: Path, catcher: Catcher) -> None:
    (tmp_path / "there.py").write_text(FAR)
    with running(tmp_path, "there.py:worker", **env(catcher, "there")) as server:
        done = subprocess.run(
            [sys.executable, "examples/traced_client.py", server.url],
            capture_output=True,
            text=True,
            timeout=BOUND_SECONDS,
            check=True,
            env=environment(tmp_path, **catcher.env, OTEL_SERVICE_NAME="shop"),
            cwd=ROOT,
        )
        assert done.stdout == "far hello\n"
        order, call = catcher.one("order"), catcher.one("invoke_agent worker", "shop")
        request, run = catcher.one("SendMessage", "there"), catcher.one("invoke_agent worker", "there")
    assert {span.trace for span in catcher.spans} == {order.trace}
    assert [order.parent, call.parent, request.parent, run.parent] == ["", order.id, call.id, request.id]


def test_without_a_setting_nothing_is_imported(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(
        "import sys\nfrom accord import agent\n\n@agent\nasync def look(text: str) -> str:\n"
        "    return ' '.join(name for name in sys.modules if name.partition('.')[0] == 'opentelemetry')\n"
    )
    with running(tmp_path, "look.py:look") as server:
        assert text_of(server.send("x")) == ""
        answer = server.post("SendMessage", headers={"traceparent": CALLER}, message=said("y", "n"))
        assert text_of(answer.json()["result"]["task"]) == ""
