"""The way to an agent elsewhere: what stands in it stops no server, and a card that leads nowhere is read again."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from accord import to_a2a
from accord.agents.remote import agent as remote
from accord.agents.remote.agent import RemoteAgent
from accord.agents.remote.connection import CARD_SECONDS, DOUBT_SECONDS, NotReachable, RemoteConnection
from accord.client.auth.choice import NoCredentials
from accord.client.credentials import KeyManagementError
from accord.client.discovery import CardNotFound, NoSuchAgent
from accord.client.interfaces import NoUsableEndpoint
from accord.errors import InternalError, MethodNotFound
from accord.http import cards
from accord.model import AgentInterface, Message, Part, Role, SendRequest, TaskState
from accord.outbound import Unreachable
from accord.retries import RetryPolicy
from accord.storage.store import StoreUnavailable
from accord.testing import call, lifespan
from tests.engine.conftest import ALICE, BOUND_SECONDS, said, saying
from tests.engine.doubles import sent, until
from tests.remote.conftest import Joining, Scripted, there
from tests.serve.running import running

S = TaskState
GONE = Unreachable("Connection refused", was_sent=False)
IN_THE_WAY = [
    *(NoUsableEndpoint("It speaks 7.0"), NoCredentials("It wants a key"), KeyManagementError("sealed")),
    NoSuchAgent("a/b", {"a/b": "There is no agent 'a/b'"}),
]


class Way:
    """Opens what it is told to, and counts."""

    def __init__(self) -> None:
        self.opens: list[Scripted | Exception] = []
        self.closed: list[Scripted] = []
        self.opened = 0
        self.time = 0.0
        self.reach = RemoteConnection(
            "there", self.connect, found=lambda _: None, linger_seconds=100.0, now=lambda: self.time
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[Scripted]:
        self.opened += 1
        found = self.opens.pop(0)
        if isinstance(found, Exception):
            raise found
        try:
            yield found
        finally:
            self.closed.append(found)


async def test_a_card_is_read_again_after_a_day_and_not_before() -> None:
    way, first, second = Way(), Scripted(), Scripted()
    way.opens = [first, second]
    assert await way.reach.peer() is first
    way.time = CARD_SECONDS - 1
    assert await way.reach.peer() is first
    way.time = CARD_SECONDS
    assert await way.reach.peer() is second
    assert way.closed == []  # there may be answers on the old way
    await way.reach.close()
    assert way.closed == [first, second]


@pytest.mark.parametrize(("error", "is_read"), [(GONE, True), (MethodNotFound(), True), (InternalError(), False)])
async def test_a_card_that_leads_nowhere_is_read_again(error: Exception, is_read: bool) -> None:
    way = Way()
    way.opens = [Scripted(), Scripted()]
    await way.reach.peer()
    way.reach.fault(error)
    await way.reach.peer()
    assert way.opened == 1  # an agent that restarts is back sooner
    way.time = DOUBT_SECONDS
    await way.reach.peer()
    assert way.opened == (2 if is_read else 1)
    await way.reach.close()


async def test_unreadable_cards_keep_the_last_endpoint() -> None:
    way, first = Way(), Scripted()
    way.opens = [first, GONE, Scripted()]
    await way.reach.peer()
    way.reach.fault(GONE)
    way.time = DOUBT_SECONDS
    assert await way.reach.peer() is first
    assert await way.reach.peer() is first
    assert way.opened == 2
    await way.reach.close()


async def test_old_ways_are_closed_after_a_while() -> None:
    way, peers = Way(), [Scripted(), Scripted(), Scripted()]
    way.opens = list(peers)
    for number in range(3):
        way.time = number * CARD_SECONDS
        await way.reach.peer()
    assert way.closed == peers[:1]
    await way.reach.close()
    assert way.closed == peers


@pytest.mark.parametrize("error", IN_THE_WAY, ids=lambda error: type(error).__name__)
async def test_operator_errors_are_reported_and_retried(error: Exception) -> None:
    way, peer = Way(), Scripted()
    way.opens = [error, StoreUnavailable("away"), peer]
    with pytest.raises(NotReachable, match=re.escape(str(error))):
        await way.reach.peer()
    with pytest.raises(Unreachable, match="away"):
        await way.reach.peer()
    assert await way.reach.peer() is peer
    await way.reach.close()


def failing(*errors: Exception, then: Scripted) -> Callable[[], Any]:
    way = Way()
    way.opens = [*errors, then]
    return way.connect


@pytest.mark.parametrize("error", [*IN_THE_WAY, GONE, CardNotFound("x", {})], ids=lambda error: type(error).__name__)
async def test_nothing_in_the_way_stops_a_server_that_starts(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    agent = RemoteAgent("https://there.example", name="there", connect=failing(error, then=Scripted()))
    await agent.prepare()
    assert agent.profile.description == "The agent at https://there.example"
    (line,) = (vars(record) for record in caplog.records if record.msg == "remote.not_there")
    assert line["reason"] == str(error)
    await agent.prepare()
    assert agent.profile.description == "An agent elsewhere"
    await agent.leave()


@pytest.mark.parametrize("error", IN_THE_WAY, ids=lambda error: type(error).__name__)
async def test_unforwardable_tasks_fail_alone(joining: Joining, error: Exception) -> None:
    peer = Scripted()
    peer.answer = lambda _: there(S.COMPLETED)
    here = await joining(peer, connect=failing(error, then=peer))
    failed = await sent(here.service, saying("hello"), ALICE)
    assert failed.status.state is S.FAILED
    assert str(error) in said(failed)
    assert (await sent(here.service, saying("hello again"), ALICE)).status.state is S.COMPLETED


@contextmanager
def stating(version: str) -> Iterator[str]:
    """An agent's card that says which version it speaks, at an address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            interface = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version=version)
            body = msgspec.json.encode(replace(Scripted().card, supported_interfaces=(interface,)))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield url
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


async def test_an_agent_that_comes_later_is_described_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to have a task for it, and nothing is started anew: its card here is its own once that can be had."""
    monkeypatch.setattr(remote, "CARD_RETRIES", RetryPolicy(first_seconds=0.01, max_seconds=0.01))
    monkeypatch.setattr(cards, "CATALOG_SECONDS", 0.0)
    is_there, looks = asyncio.Event(), asyncio.Event()
    peer = Scripted()

    @asynccontextmanager
    async def connect() -> AsyncIterator[Scripted]:
        if not is_there.is_set():
            looks.set()
            raise GONE
        yield peer

    app = to_a2a(RemoteAgent("https://there.example", name="there", connect=connect))
    paths = ("/.well-known/agent-card.json", "/agents/there/.well-known/agent-card.json", "/openapi.json")

    async def shown(path: str) -> Any:
        return (await call(app, method="GET", path=path, headers={"Host": "localhost:8000"})).json()

    async with lifespan(app), asyncio.timeout(BOUND_SECONDS):
        before = [await shown(path) for path in paths]
        assert [card["description"] for card in before[:2]] == ["The agent at https://there.example"] * 2
        looks.clear()
        await looks.wait()  # it is looked for again, although there is no task
        is_there.set()

        async def is_described() -> bool:
            return bool((await shown(paths[0]))["description"] == "An agent elsewhere")

        await until(is_described)
        after = [await shown(path) for path in paths]
        assert [(card["description"], card["version"]) for card in after[:2]] == [("An agent elsewhere", "3.2.1")] * 2
        assert after[2]["info"]["version"] == "3.2.1"
        (entry,) = (await shown("/.well-known/ai-catalog.json"))["entries"]
        assert entry["description"] == "An agent elsewhere"
        picture = Message(message_id="m-1", role=Role.USER, parts=(Part(raw=b"x", media_type="image/png"),))
        asked = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": SendRequest(message=picture)}
        headers = {"Host": "localhost:8000", "A2A-Version": "1.0", "Content-Type": "application/json"}
        refused = await call(app, msgspec.json.encode(asked), headers=headers)
        assert "it takes text/plain" in refused.json()["error"]["message"]


def test_a_server_starts_although_no_way_leads_to_its_agents(tmp_path: Path) -> None:
    with (
        stating("7.0") as url,
        running(tmp_path, "--remote", f"new={url}", "--remote", "gone=http://localhost:9") as near,
    ):
        failed = near.send("hello", path="/agents/new/")
        assert failed["status"]["state"] == "TASK_STATE_FAILED"
        assert "7.0" in failed["status"]["message"]["parts"][0]["text"]
        assert near.says("remote.not_there", 2)
        assert any("7.0" in line for line in near.shown if "remote.not_there" in line)
        assert "Traceback" not in near.all_shown
