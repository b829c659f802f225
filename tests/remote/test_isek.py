"""Agents of the ISEK network: over HTTP they are A2A 0.3 like others, peer to peer they are behind a bridge."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs, urlsplit

import httpx
import msgspec
import pytest

from accord.agents.remote.isek import AGENT_TYPE, BridgeTransport, IsekOptions, bridge_card, check_bridge
from accord.api.agent_types import AgentArguments
from accord.errors import UnsupportedOperation
from accord.outbound import HttpRequest, Unreachable
from tests.remote.test_gateway import SHOP
from tests.serve.running import BOUND_SECONDS, ROOT, Server, running, text_of

PEER = "/ip4/10.0.0.1/tcp/9090/ws/p2p/12D3KooWRelay/p2p-circuit/p2p/12D3KooWPeer"


@contextmanager
def bridge(agent: str) -> Iterator[str]:
    """What passes JSON-RPC on to a peer: one request, one answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = urlsplit(self.path)
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer: Any = {"error": "no such peer"}
            if asked.path == "/call_peer" and parse_qs(asked.query)["p2p_address"] == [PEER]:
                headers = {"Content-Type": "application/json"}
                answer = httpx.post(f"{agent}/", content=body, headers=headers, timeout=BOUND_SECONDS).json()
            written = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(written)))
            self.end_headers()
            self.wfile.write(written)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


class Far(NamedTuple):
    """A node, and a bridge to it."""

    url: str
    bridge: str


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Far]:
    """What all nodes here are in front of."""
    plain = ["--dialects", "v03", "--capabilities", "none"]
    with running(tmp_path_factory.mktemp("far"), SHOP, *plain) as node, bridge(node.url) as url:
        yield Far(node.url, url)


def talks(near: Server, path: str = "/") -> None:
    """Say something, be asked, and answer."""
    assert text_of(near.send("hello", f"m-1{path}", path=path)) == "you said hello"
    asked = near.send("ask", f"m-2{path}", path=path)
    reply = {"messageId": f"m-3{path}", "role": "ROLE_USER", "parts": [{"text": "L"}], "taskId": asked["id"]}
    answered = near.post("SendMessage", path=path, message=reply).json()["result"]["task"]
    assert text_of(answered) == "size L"


@pytest.mark.proves("0-86")
def test_a_peer_behind_a_bridge_is_served_like_any_other(far: Far, tmp_path: Path) -> None:
    settings = f'[remotes.peer]\nurl = "{far.bridge}"\np2p_address = "{PEER}"\n'
    (tmp_path / "accord.toml").write_text(settings, encoding="utf-8")
    with running(tmp_path) as near:
        talks(near)


@pytest.mark.proves("0-86")
def test_settings_name_a_node_by_its_address_or_by_its_ids(far: Far, tmp_path: Path) -> None:
    ids = 'peer_id = "12D3KooWPeer"\nrelay_ip = "10.0.0.1"\nrelay_peer_id = "12D3KooWRelay"\n'
    ways = {"http": f'url = "{far.url}"\n', "p2p": f'url = "{far.bridge}"\n{ids}description = "A shop far away"\n'}
    tables = [f'[agents.{way}]\ntype = "isek"\n{table}' for way, table in ways.items()]
    (tmp_path / "accord.toml").write_text("\n".join(tables), encoding="utf-8")
    with running(tmp_path) as near:
        with ThreadPoolExecutor() as pool:  # most of it is waiting until the node is asked again
            list(pool.map(lambda way: talks(near, f"/agents/{way}/"), ways))
        for way in ways:
            card = httpx.get(f"{near.url}/agents/{way}/.well-known/agent-card.json", timeout=BOUND_SECONDS).json()
            assert card["name"] == way
            assert (card["description"] == "A shop far away") is (way == "p2p")


def test_the_node_example_works(far: Far, tmp_path: Path) -> None:
    example = ROOT / "examples" / "agents" / "isek_agent.toml"
    with running(tmp_path, "--config", str(example), ISEK_NODE=far.url, ISEK_BRIDGE=far.bridge) as near:
        for at, name in enumerate(("analyst", "peer")):
            assert text_of(near.send("hello", f"m-{at}", path=f"/agents/{name}/")) == "you said hello"


def test_a_peer_is_named_whole_or_not_at_all() -> None:
    assert IsekOptions().address is None
    assert IsekOptions(p2p_address=PEER).address == PEER
    assert IsekOptions(peer_id="12D3KooWPeer", relay_ip="10.0.0.1", relay_peer_id="12D3KooWRelay").address == PEER
    cases: list[dict[str, Any]] = [
        {"peer_id": "x"},
        {"peer_id": "x", "relay_ip": "y", "relay_peer_id": "z", "p2p_address": PEER},
    ]
    for wrong in cases:
        with pytest.raises(ValueError, match="A peer is named by its p2p_address, or by peer_id"):
            AGENT_TYPE.make(AgentArguments(options=IsekOptions(**wrong)))
    assert "secret" not in repr(IsekOptions(token="secret", headers={"a": "secret"}))


class Inner:
    """A transport that answers as the test says, and remembers what it was asked."""

    def __init__(self, answer: Any) -> None:
        self.body = msgspec.json.encode(answer)
        self.status, self.headers = 200, {"Content-Type": "application/json"}
        self.asked: list[HttpRequest] = []
        self.is_closed = False

    async def open(self, request: HttpRequest) -> Any:
        self.asked.append(request)
        return self

    async def read(self) -> bytes:
        return self.body

    async def close(self) -> None:
        self.is_closed = True


async def test_peer_addresses_are_quoted_and_missing_peers_reported() -> None:
    inner = Inner({"received": None, "status": "error", "message": "fetch failed"})
    bridged = BridgeTransport(inner, "http://localhost:9001/", "/ip4/1.2.3.4/a b&c")
    opened = await bridged.open(HttpRequest(method="POST", url="http://elsewhere/", body=b"{}"))
    with pytest.raises(Unreachable, match="fetch failed") as refused:
        await opened.read()
    assert refused.value.was_sent
    (asked,) = inner.asked
    assert asked.url == "http://localhost:9001/call_peer?p2p_address=%2Fip4%2F1.2.3.4%2Fa%20b%26c"
    with pytest.raises(UnsupportedOperation):
        await bridged.open(HttpRequest(method="POST", url="http://elsewhere/", streams=True))
    await bridged.close()
    assert inner.is_closed


async def test_peer_answers_pass_unchanged() -> None:
    for answer in ({"jsonrpc": "2.0", "id": 1, "result": {"status": "error"}}, ["no object"]):
        opened = await BridgeTransport(Inner(answer), "http://localhost:9001", PEER).open(
            HttpRequest(method="POST", url="x")
        )
        assert await opened.read() == msgspec.json.encode(answer)


def test_a_peer_behind_a_bridge_offers_neither_webhooks_nor_streams() -> None:
    card = bridge_card("peer", "http://localhost:9001")
    assert (card.capabilities.streaming, card.capabilities.push_notifications) == (False, False)


class Asked:
    """A transport that answers every request with one body, or is not there."""

    def __init__(self, status: int | None, body: bytes = b"{}") -> None:
        self.status, self.body = status, body
        self.urls: list[str] = []

    async def open(self, request: HttpRequest) -> Any:
        self.urls.append(request.url)
        if self.status is None:
            raise Unreachable("Connection refused", was_sent=False)
        return self

    async def read(self) -> bytes:
        return self.body

    async def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [(None, b"", "is not there: Connection refused"), (500, b"{}", "HTTP 500"), (200, b"<html>", "HTTP 200")],
)
async def test_a_bridge_that_is_not_well_is_not_talked_to(status: int | None, body: bytes, reason: str) -> None:
    with pytest.raises(Unreachable, match=reason) as raised:
        await check_bridge(cast(Any, Asked(status, body)), "http://localhost:9001/")
    assert not raised.value.was_sent


@pytest.mark.parametrize(("status", "count"), [(200, 1), (404, 0), (501, 0)])
async def test_how_a_bridge_stands_is_in_the_log(status: int, count: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "accord.remote")
    asked = Asked(status, b'{"peer_id": "12D3KooWBridge", "peers": ["x"]}')
    await check_bridge(cast(Any, asked), "http://localhost:9001/")
    assert asked.urls == ["http://localhost:9001/p2p_context"]
    lines = [vars(record) for record in caplog.records if record.msg == "isek.ready"]
    assert [line["context"] for line in lines] == [{"peer_id": "12D3KooWBridge"}] * count
