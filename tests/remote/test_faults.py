"""What goes wrong on the way to an agent elsewhere, over real sockets: nothing is lost, and nothing is done twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from accord.agents.remote import RemoteTerms, ReportMode, execution
from accord.agents.remote.agent import RemoteAgent
from accord.model import TaskState
from accord.remote.tasks import RemoteTasks
from accord.service.host import Host
from tests.engine.conftest import ALICE, Hosting, said, saying
from tests.engine.doubles import sent

S = TaskState
QUICK = RemoteTerms(mode=ReportMode.POLL, first_poll=0.01, most_poll=0.05, sends=4, answer_seconds=10)

Fault = Callable[[web.Request], web.StreamResponse | None]


class Elsewhere:
    """An agent of A2A 1.0 that does what it is told at once; faults happen to its answers, one after the other."""

    def __init__(self) -> None:
        self.faults: list[Fault | None] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self.url = ""

    async def card(self, _: web.Request) -> web.Response:
        interface = {"url": f"{self.url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return web.json_response(
            {
                "name": "There",
                "description": "Works",
                "version": "1",
                "supportedInterfaces": [interface],
                "capabilities": {"streaming": False, "pushNotifications": False},
                "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"],
                "skills": [],
            }
        )

    async def rpc(self, request: web.Request) -> web.StreamResponse:
        call = json.loads(await request.read())
        params = call["params"]
        if call["method"] != "SendMessage":
            found = list(self.tasks.values())
            result = found[0] if call["method"] == "GetTask" else {"tasks": found, "nextPageToken": ""}
            return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": result})
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and (answer := fault(request)) is not None:
            return answer
        message = params["message"]
        task = {
            "id": f"r-{len(self.tasks) + 1}",
            "contextId": message["contextId"],
            "status": {"state": "TASK_STATE_COMPLETED"},
            "artifacts": [{"artifactId": "a", "parts": [{"text": "done"}]}],
            "history": [message],
        }
        self.tasks[task["id"]] = task
        if fault is not None:  # it is accepted, and then the connection breaks
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": {"task": task}})


def cut(_: web.Request) -> None:
    """Accept the message, and break the connection instead of answering."""


def answers(status: int, **headers: str) -> Fault:
    return lambda _: web.Response(status=status, text="not now", headers=headers)


def vanishes(request: web.Request) -> web.Response:
    """Break the connection before anything is done."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


@asynccontextmanager
async def listening(elsewhere: Elsewhere, port: int = 0) -> AsyncIterator[Elsewhere]:
    app = web.Application()
    app.router.add_get("/.well-known/agent-card.json", elsewhere.card)
    app.router.add_post("/rpc", elsewhere.rpc)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    elsewhere.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield elsewhere
    finally:
        await runner.cleanup()


@asynccontextmanager
async def gateway(hosting: Hosting, url: str, **client: Any) -> AsyncIterator[Host]:
    agent = RemoteAgent(url, name="there", terms=QUICK, **client)
    host = await hosting(agent)
    await agent.join(RemoteTasks(host.node.task_store))
    try:
        yield host
    finally:
        await host.stop(0)
        await agent.leave()


SOON = {"Retry-After": "0"}


@pytest.mark.parametrize(
    ("faults", "state", "count"),
    [
        ([cut], S.COMPLETED, 1),
        ([answers(429, **SOON), answers(503, **SOON)], S.COMPLETED, 1),
        ([answers(503, **SOON), cut], S.COMPLETED, 1),
        ([vanishes], S.UNKNOWN, 0),
        ([answers(429)], S.UNKNOWN, 0),
        ([answers(500)], S.UNKNOWN, 0),
        ([answers(502, **SOON)], S.UNKNOWN, 0),
        ([answers(503)], S.UNKNOWN, 0),
        ([answers(504)], S.UNKNOWN, 0),
    ],
    ids=["lost", "put off", "put off and lost", "vanishes", "429", "500", "502", "503", "504"],
)
@pytest.mark.proves("0-61")
async def test_messages_run_at_most_once_whatever_their_answer(
    hosting: Hosting, faults: list[Fault | None], state: TaskState, count: int
) -> None:
    async with listening(Elsewhere()) as far, gateway(hosting, far.url) as here:
        far.faults = list(faults)
        done = await sent(here.default, saying("hello"), ALICE)
        assert done.status.state is state
        assert len(far.tasks) == count
        if state is S.UNKNOWN:
            assert "not known whether" in said(done)


class After(Elsewhere):
    """Answers with a status although it has done the work, as who is in front of it may."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status

    async def rpc(self, request: web.Request) -> web.StreamResponse:
        is_send = json.loads(await request.read())["method"] == "SendMessage"
        answer = await super().rpc(request)
        return web.Response(status=self.status) if is_send else answer


class Listing(Elsewhere):
    """Accepts its first message, breaks the connection, and lists its tasks as `listed` says."""

    def __init__(self) -> None:
        super().__init__()
        self.faults = [cut]
        self.looks = 0

    def listed(self, _: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError

    async def rpc(self, request: web.Request) -> web.StreamResponse:
        call = json.loads(await request.read())
        if call["method"] != "ListTasks":
            return await super().rpc(request)
        self.looks += 1
        found = {"nextPageToken": "", "pageSize": 100, "totalSize": 1} | self.listed(call["params"])
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": found})


class WithoutHistory(Listing):
    def listed(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"tasks": [{key: task[key] for key in task if key != "history"} for task in self.tasks.values()]}


class OwnContexts(Listing):
    def listed(self, params: dict[str, Any]) -> dict[str, Any]:
        mine = [task | {"contextId": "own"} for task in self.tasks.values()]
        return {"tasks": mine if params.get("contextId") in (None, "", "own") else []}


class Lagging(Listing):
    def listed(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"tasks": list(self.tasks.values()) if self.looks > 4 else []}


class InPages(Listing):
    def listed(self, params: dict[str, Any]) -> dict[str, Any]:
        page = int(params.get("pageToken") or 0)
        return {"tasks": list(self.tasks.values()) if page == 3 else [], "nextPageToken": str(page + 1)}


class Never(Listing):
    def listed(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"tasks": [], "nextPageToken": "more"}


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
async def test_work_behind_an_error_is_found_and_not_repeated(hosting: Hosting, status: int) -> None:
    async with listening(After(status)) as far, gateway(hosting, far.url) as here:
        done = await sent(here.default, saying("hello"), ALICE)
        assert done.status.state is S.COMPLETED
        assert len(far.tasks) == 1


@pytest.mark.parametrize("kind", [WithoutHistory, OwnContexts, Lagging, InPages])
async def test_a_message_is_found_however_tasks_are_listed(hosting: Hosting, kind: type[Listing]) -> None:
    async with listening(kind()) as far, gateway(hosting, far.url) as here:
        done = await sent(here.default, saying("hello"), ALICE)
        assert done.status.state is S.COMPLETED
        assert len(far.tasks) == 1


async def test_unlisted_messages_are_not_resent_and_searched_briefly(
    hosting: Hosting,
) -> None:
    async with listening(Never()) as far, gateway(hosting, far.url) as here:
        task = await sent(here.default, saying("hello"), ALICE)
        assert task.status.state is S.UNKNOWN
        assert len(far.tasks) == 1
        assert isinstance(far, Never)
        assert far.looks <= 2 * execution.PAGES * (execution.SEARCHES + 2)


async def test_an_agent_that_is_started_later_gets_its_message(hosting: Hosting) -> None:
    elsewhere = Elsewhere()
    async with listening(elsewhere):
        port = int(elsewhere.url.rpartition(":")[2])
    async with gateway(hosting, elsewhere.url) as here:
        sending = asyncio.create_task(sent(here.default, saying("hello"), ALICE))
        async with listening(elsewhere, port):
            assert (await sending).status.state is S.COMPLETED
    assert len(elsewhere.tasks) == 1


@pytest.mark.parametrize("url", ["http://no-such-host.invalid", "https://127.0.0.1:{port}"], ids=["no name", "no TLS"])
async def test_unreachable_agents_fail_the_task(hosting: Hosting, url: str) -> None:
    async with (
        listening(Elsewhere()) as far,
        gateway(hosting, url.format(port=far.url.rpartition(":")[2])) as here,
    ):
        failed = await sent(here.default, saying("hello"), ALICE)
    assert failed.status.state is S.FAILED
    assert "could not be reached" in said(failed)
    assert far.tasks == {}
