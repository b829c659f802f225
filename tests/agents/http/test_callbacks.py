"""Flows that call back: the task waits as rows only, and what is reported gets into it once."""

import asyncio
import base64
import hashlib
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from accord.agents.http import AGENT_TYPE
from accord.agents.http.flow import HttpOptions
from accord.api.agent_types import AgentArguments
from accord.model import Task, TaskState
from accord.remote.tasks import RemoteAgentPort, RemoteTasks
from accord.storage.store import Tx
from accord.testing import MovableClock, Running, running, text_in
from tests.agents.http.test_answers import parts, text_in_status
from tests.agents.http.webhook import Asked, Behave, Webhook, hangs, says, webhook, writes
from tests.cases import each
from tests.engine.doubles import is_parked, until
from tests.serve.running import BOUND_SECONDS, Server, text_of

TAKEN = says({"message": "Workflow was started"})


class Flow:
    """A flow that was told something, and how it reports."""

    def __init__(self, a2a: Running, hook: Webhook) -> None:
        self.a2a, self.hook = a2a, hook
        self._http = httpx.AsyncClient(transport=httpx.ASGITransport(app=a2a.app))

    def url(self, at: int = -1) -> str:
        found: str = self.hook.asked[at].json["callbackUrl"]
        return found

    async def reports(self, report: Any = None, *, at: int = -1, url: str | None = None, **more: Any) -> int:
        body = more or {"json": report}
        return (await self._http.post(url or self.url(at), **body)).status_code

    async def page(self, path: str) -> str:
        return (await self._http.get(f"http://localhost:8000{path}")).text

    async def told(self, text: str = "work", *, messages: int = 1, **more: Any) -> Task:
        """Say something, and wait until the flow was told."""
        task = await self.a2a.send_text(text, at_once=True, **more)
        await self.hook.until(lambda: len(self.hook.asked) >= messages)
        return task

    async def waits(self, task: Task) -> None:
        """Wait until the task does: the flow has said that it was told, or something was reported."""
        await until(lambda: is_parked(self.a2a.app.host.node.store, task.id))


@asynccontextmanager
async def flowing(*answers: Behave, clock: MovableClock | None = None, **options: Any) -> AsyncIterator[Flow]:
    """Host a flow that calls back."""
    async with webhook(*(answers or (TAKEN,))) as hook:
        given = HttpOptions(url=hook.url, mode="callback", **{"backoff": 0.001} | options)
        agent = AGENT_TYPE.make(AgentArguments(options=given, name="flow"))
        assert isinstance(agent, RemoteAgentPort)
        async with running(agent, clock=clock) as a2a:
            yield Flow(a2a, hook)


async def test_flows_report_progress_and_result() -> None:
    async with flowing() as flow:
        task = await flow.told("count")
        sent = flow.hook.asked[0].json
        assert sent["message"] == "count"
        assert urlsplit(sent["callbackUrl"]).path == "/api/callbacks"
        assert await flow.reports({"status": "working", "text": "half"}) == 204
        done = {
            "status": "completed",
            "text": "three",
            "data": {"n": 3},
            "files": [
                {"name": "a", "mime_type": "image/png", "data": base64.b64encode(b"\x00").decode()},
                {"uri": "https://files.example/b"},
            ],
        }
        assert await flow.reports(done) == 204
        ended = await flow.a2a.get(task)
        assert ended.status.state is TaskState.COMPLETED
        text, data, file, link = parts(ended)
        assert (text.text, data.data, file.raw, file.filename) == ("three", {"n": 3}, b"\x00", "a")
        assert link.url == "https://files.example/b"
        assert "half" in [part.text for said in ended.history for part in said.parts]


async def test_duplicate_reports_are_applied_once() -> None:
    async with flowing() as flow:
        task = await flow.told()
        for report in ({"status": "working", "text": "half"}, {"status": "completed", "text": "done"}):
            assert [await flow.reports(report) for _ in range(3)] == [204] * 3
        assert await flow.reports({"status": "failed", "text": "no"}) == 204, "it has ended, and stays so"
        assert await flow.reports({"status": "working"}) == 204
        ended = await flow.a2a.get(task)
        assert (ended.status.state, text_in(ended)) == (TaskState.COMPLETED, "done")
        assert len([said for said in ended.history if said.parts[0].text == "half"]) == 1


async def test_numbered_reports_that_are_overtaken_change_nothing() -> None:
    async with flowing() as flow:
        task = await flow.told()
        for number, text in ((2, "second"), (1, "first"), (2, "second again")):
            assert await flow.reports({"status": "working", "text": text, "sequence": number}) == 204
        assert text_in_status(await flow.a2a.get(task)) == "second"


async def test_flow_usage_is_counted_and_limited() -> None:
    async with flowing(max_tokens=10) as flow:
        task = await flow.told()
        used = {"inputTokens": 3, "outputTokens": 4, "cost": 0.5, "model": "m"}
        assert [await flow.reports({"status": "working", "usage": used}) for _ in range(2)] == [204] * 2
        assert await flow.reports({"status": "completed", "text": "done", "usage": used | {"outputTokens": 5}}) == 204
        ended = await flow.a2a.get(task)
        assert (ended.status.state, (ended.metadata or {})["usage"]["totalTokens"]) == (TaskState.COMPLETED, 8)
        metrics = await flow.page("/metrics")
        assert 'accord_input_tokens_total{agent="flow"} 3.0\n' in metrics
        assert 'accord_output_tokens_total{agent="flow"} 5.0\n' in metrics
        late = await flow.told(messages=2)
        assert await flow.reports({"status": "working", "usage": {"inputTokens": 11}}) == 404, "it can stop"
        assert await flow.reports({"status": "completed", "text": "done"}) == 404
        ended = await flow.a2a.get(late)
        assert (ended.status.state, text_in(ended)) == (TaskState.FAILED, "The budget of 10 tokens is spent")


async def test_a_failure_is_the_flows_own_to_explain() -> None:
    async with flowing() as flow:
        for report, text in (
            ({"status": "failed", "text": "no such city"}, "no such city"),
            ({"status": "failed"}, "The flow failed"),
        ):
            task = await flow.told(messages=len(flow.hook.asked) + 1)
            assert await flow.reports(report) == 204
            ended = await flow.a2a.get(task)
            assert (ended.status.state, text_in(ended)) == (TaskState.FAILED, text)


async def test_a_question_is_passed_on_and_the_answer_posted() -> None:
    async with flowing() as flow:
        task = await flow.told("book")
        assert await flow.reports({"status": "input-required", "text": "Which city?"}) == 204
        assert await flow.reports({"status": "working", "text": "late news"}) == 204, "and the question stands"
        asked = await flow.a2a.reaches(task, TaskState.INPUT_REQUIRED)
        assert text_in(asked) == "Which city?"
        await flow.told("Rome", messages=2, task=asked)
        assert [one.json["message"] for one in flow.hook.asked] == ["book", "Rome"]
        assert flow.url(0) != flow.url(1)
        await flow.a2a.reaches(task, TaskState.WORKING)
        assert await flow.reports({"status": "input-required", "text": "Which city?"}) == 204
        asked = await flow.a2a.reaches(task, TaskState.INPUT_REQUIRED)
        await flow.told("Roma", messages=3, task=asked)
        await flow.a2a.reaches(task, TaskState.WORKING)
        assert await flow.reports({"status": "completed", "text": "to Roma"}) == 204
        assert text_in(await flow.a2a.get(task)) == "to Roma"


@pytest.mark.parametrize(
    "answer", [says(b"ok"), says(b"<html>", "text/html"), says(b"", status=202), says(b"x" * 100_000, "text/plain")]
)
async def test_any_successful_answer_is_an_acknowledgement(answer: Behave) -> None:
    async with flowing(answer) as flow:
        task = await flow.told()
        await flow.a2a.reaches(task, TaskState.WORKING)
        assert await flow.reports({"status": "completed", "text": "done"}) == 204
        assert text_in(await flow.a2a.get(task)) == "done"


async def test_a_template_may_have_the_address() -> None:
    template = {"input": "{{text}}", "reply": {"to": "{{callbackUrl}}"}}
    async with flowing(payload_template=template, callback_url="https://public.example/hooks") as flow:
        await flow.told()
        sent = flow.hook.asked[0].json
        assert set(sent) == {"input", "reply", "context_id"}
        assert sent["reply"]["to"].startswith("https://public.example/hooks?token=")


async def test_a_task_that_waits_holds_nothing() -> None:
    async with flowing(concurrency=1) as flow:
        tasks = [await flow.told(f"number {at}", messages=at + 1) for at in range(5)]
        assert len(flow.hook.asked) == 5, "each was told while the others wait"
        for at, task in reversed(list(enumerate(tasks))):
            assert await flow.reports({"status": "completed", "text": f"answer {at}"}, at=at) == 204
            assert text_in(await flow.a2a.get(task)) == f"answer {at}"


async def test_concurrent_duplicate_reports_are_applied_once() -> None:
    async with flowing() as flow:
        task = await flow.told()
        reports = [{"status": "working", "text": "half"}, {"status": "completed", "text": "done"}] * 20
        assert set(await asyncio.gather(*(flow.reports(report) for report in reports))) == {204}
        ended = await flow.a2a.get(task)
        assert [part.text for part in parts(ended)] == ["done"]
        assert len([said for said in ended.history if said.parts[0].text == "half"]) <= 1


async def test_a_report_may_precede_the_acknowledgement() -> None:
    async with flowing() as flow:

        async def hasty(asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await flow.reports({"status": "completed", "text": "at once"}) == 204
            await TAKEN(asked, reader, writer)

        flow.hook.answers[:] = [hasty]
        task = await flow.a2a.send_text("work")
        assert (task.status.state, text_in(task)) == (TaskState.COMPLETED, "at once")


# --- who may report -------------------------------------------------------------------------------------------------


async def test_a_token_is_long_fresh_and_nowhere_in_the_store() -> None:
    async with flowing() as flow:
        tasks = [await flow.told(messages=number) for number in (1, 2)]
        tokens = [parse_qs(urlsplit(flow.url(at)).query)["token"][0] for at in (0, 1)]
        assert tokens[0] != tokens[1]
        assert all(len(base64.urlsafe_b64decode(token + "=")) * 8 >= 128 for token in tokens)
        kept = await flow.a2a.app.host.node.store.read(_everything)
        assert not any(token in kept for token in tokens)
        assert all(hashlib.sha256(token.encode()).hexdigest() in kept for token in tokens)
        assert await flow.reports({"status": "completed"}, at=0) == 204
        assert (await flow.a2a.get(tasks[1])).status.state is not TaskState.COMPLETED


async def _everything(tx: Tx) -> str:
    tables = await tx.all("SELECT name FROM sqlite_master WHERE type = 'table'")
    return repr([await tx.all(f'SELECT * FROM "{name}"') for (name,) in tables])


async def test_strangers_are_refused_and_learn_nothing() -> None:
    async with flowing() as flow:
        task = await flow.told()
        base = flow.url().partition("?")[0]
        good, report = flow.url(), {"status": "completed", "text": "mine"}
        for url in (base, f"{base}?token=", f"{base}?token=wrong", good[:-1], f"{base}?token={task.id}"):
            assert await flow.reports(report, url=url) == 401
        assert await flow.reports(content=b"x" * 100, url=base) == 401, "before a body is read"
        assert (await flow.a2a.get(task)).status.state is not TaskState.COMPLETED
        bearer = {"Authorization": f"Bearer {good.partition('token=')[2]}"}
        assert await flow.reports(url=base, json=report, headers=bearer) == 204, "a header is as good"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=flow.a2a.app)) as http:
            assert (await http.get(good)).status_code == 405


@each(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"completed"',
        b"\xff",
        b"{}",
        b'{"status": "done"}',
        b'{"status": "completed", "txt": "misspelled"}',
        b'{"status": "completed", "text": 3}',
        b'{"status": "completed", "files": [{"name": "a"}]}',
        b'{"status": "completed", "files": [{"data": "not base64!"}]}',
        b'{"status": "working", "sequence": -1}',
        b'{"status": "working", "usage": {"inputTokens": -1}}',
        b'{"status": "working", "usage": {"tokens": 1}}',
        b'{"status": "completed", "text": "' + rb"\ud800" + b'"}',
        b"[" * 100_000,
    ],
)
async def test_invalid_reports_are_refused(body: bytes) -> None:
    async with flowing() as flow:
        task = await flow.told()
        assert await flow.reports(content=body) == 400
        assert (await flow.a2a.get(task)).status.state is TaskState.WORKING


async def test_a_report_that_is_too_large_is_refused() -> None:
    async with flowing() as flow:
        task = await flow.told()
        large = b" " * (flow.a2a.app.settings.limits.body + 1)
        assert await flow.reports(content=large) == 413
        assert (await flow.a2a.get(task)).status.state is TaskState.WORKING


async def test_reports_on_canceled_tasks_are_refused() -> None:
    async with flowing() as flow:
        task = await flow.told()
        await flow.a2a.cancel(task)
        assert await flow.reports({"status": "working", "text": "half"}) == 404
        assert await flow.reports({"status": "completed", "text": "done"}) == 404
        assert (await flow.a2a.get(task)).status.state is TaskState.CANCELED


# --- when it goes wrong -----------------------------------------------------------------------------------------------


async def test_a_flow_that_refuses_fails_the_task() -> None:
    async with flowing(says({"message": "not registered"}, status=404)) as flow:
        task = await flow.a2a.send_text("work")
        assert text_in(task) == "The flow refused the message: HTTP 404: not registered"


async def test_a_flow_that_may_have_got_it_is_waited_for() -> None:
    for answer in (hangs, writes(b"HTTP/1.1 2")):
        async with flowing(answer, timeout=1.0) as flow:
            task = await flow.told()
            assert await flow.reports({"status": "completed", "text": "all the same"}) == 204
            assert text_in(await flow.a2a.reaches(task, TaskState.COMPLETED)) == "all the same"
            assert len(flow.hook.asked) == 1


async def test_late_reports_resolve_unknown_tasks() -> None:
    clock = MovableClock()
    async with flowing(clock=clock, sla_seconds=30) as flow:
        task = await flow.told()
        await flow.waits(task)
        unknown = await clock.until(flow.a2a.reaches(task, TaskState.UNKNOWN), within=60)
        assert text_in(unknown) == "The flow reported nothing for 30 seconds"
        assert await flow.reports({"status": "completed", "text": "late"}) == 204
        ended = await flow.a2a.get(task)
        assert (ended.status.state, text_in(ended)) == (TaskState.COMPLETED, "late")


async def test_a_person_can_retry_a_flow() -> None:
    clock = MovableClock()
    async with flowing(clock=clock, sla_seconds=30) as flow:
        task = await flow.told()
        await flow.waits(task)
        await clock.until(flow.a2a.reaches(task, TaskState.UNKNOWN), within=60)
        remotes = RemoteTasks(flow.a2a.app.host.node.task_store, now_ms=clock.clock.now_ms)
        assert await remotes.retry(flow.a2a.caller.tenant, task.id)
        await flow.hook.until(lambda: len(flow.hook.asked) == 2)
        first, again = flow.hook.asked
        assert first.key == again.key, "a flow can tell that it has it already"
        assert await flow.reports({"status": "completed", "text": "in the end"}) == 204
        assert text_in(await flow.a2a.get(task)) == "in the end"


async def test_a_caller_has_all_the_time_there_is() -> None:
    clock = MovableClock()
    async with flowing(clock=clock, sla_seconds=30) as flow:
        task = await flow.told()
        assert await flow.reports({"status": "input-required", "text": "Which?"}) == 204
        await flow.waits(task)
        await clock.advance(300)  # longer than the flow would have had
        assert (await flow.a2a.get(task)).status.state is TaskState.INPUT_REQUIRED


# --- when our server is killed ----------------------------------------------------------------------------------------


LEASES = {"ACCORD_ENGINE__LEASE_SECONDS": "1.5", "ACCORD_ENGINE__POLL_SECONDS": "0.2"}
"""Short enough to wait for."""


def _config(folder: Path, url: str, store: str) -> None:
    settings = f'store = "{store}"\n[agents.flow]\ntype = "http"\nurl = "{url}"\nmode = "callback"\n'
    settings += '[agents.flow.headers]\nAuthorization = "env:FLOW_KEY"\n'
    (folder / "accord.toml").write_text(settings, encoding="utf-8")


async def test_killed_while_it_waits_the_task_is_done_all_the_same(tmp_path: Path, store_url: str) -> None:
    async with webhook(TAKEN) as hook:
        _config(tmp_path, hook.url, store_url)
        env: dict[str, Any] = {"FLOW_KEY": "Bearer s3cret", **LEASES}
        first = await asyncio.to_thread(Server, tmp_path, **env)
        try:
            task = await asyncio.to_thread(first.send, "work", at_once=True)
            await hook.until(lambda: len(hook.asked) == 1)
            (asked,) = hook.asked
            assert asked.headers["authorization"] == "Bearer s3cret"
            async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
                url = asked.json["callbackUrl"]
                assert (await http.post(url, json={"status": "working", "text": "half"})).status_code == 204
                os.kill(first.process.pid, signal.SIGKILL)
                await asyncio.to_thread(first.ended)
                second = await asyncio.to_thread(Server, tmp_path, port=first.port, **env)
                try:
                    assert (await http.post(url, json={"status": "completed", "text": "done"})).status_code == 204
                    ended = await asyncio.to_thread(second.get, task["id"])
                    assert (ended["status"]["state"], text_of(ended)) == ("TASK_STATE_COMPLETED", "done")
                    assert len(hook.asked) == 1, "nothing is posted twice"
                finally:
                    await asyncio.to_thread(second.stop)
        finally:
            await asyncio.to_thread(first.kill)


async def test_a_kill_before_the_acknowledgement_sends_nothing_twice(tmp_path: Path, store_url: str) -> None:
    async with webhook(hangs, TAKEN) as hook:
        _config(tmp_path, hook.url, store_url)
        env: dict[str, Any] = LEASES | {"FLOW_KEY": "x"}
        first = await asyncio.to_thread(Server, tmp_path, **env)
        task = await asyncio.to_thread(first.send, "work", at_once=True)
        await hook.until(lambda: len(hook.asked) == 1)
        await asyncio.to_thread(first.kill)
        second = await asyncio.to_thread(Server, tmp_path, port=first.port, **env)
        try:
            await asyncio.to_thread(second.says, "http.not_told_twice")
            async with httpx.AsyncClient(timeout=BOUND_SECONDS) as http:
                url = hook.asked[0].json["callbackUrl"]
                assert (await http.post(url, json={"status": "completed", "text": "once"})).status_code == 204
            ended = await asyncio.to_thread(second.get, task["id"])
            assert text_of(ended) == "once"
            assert len(hook.asked) == 1
        finally:
            await asyncio.to_thread(second.stop)
