"""Requests as people write them, to agents here and elsewhere: as whom they go, and what is told of the answers."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord import Context, agent
from accord.console import inspector
from accord.console.exchanges import ExchangeEnd, ResponseHead, TimedPiece
from accord.console.inspector import MAX_BYTES, MAX_FRAMES, InspectedEnd, InspectedFrame, InspectedResponse
from accord.protocol.operations import ROWS, DialectName
from accord.protocol.sse import Frame, encode
from accord.server.application import Application, to_a2a
from accord.testing import Response, call, lifespan, stream
from tests.console.browsers import Browser
from tests.outbound.conftest import Listening, listening
from tests.registry.conftest import SCHEMES, SECRETS
from tests.server.conftest import echo

__all__ = ["listening"]

HOST = "localhost:8000"
JSON = {"Content-Type": "application/json"}


@agent(name="Patient", description="Says one thing, and waits")
async def patient(ctx: Context) -> AsyncIterator[str]:
    yield "first"
    await asyncio.get_running_loop().create_future()


async def ask(app: Application, method: str, path: str, body: Any = None, *, by: str = "", query: str = "") -> Response:
    known = {"X-Secret": SECRETS[by]} if by else {}
    data = b"" if body is None else json.dumps(body).encode()
    return await call(app, data, method=method, path=path, query=query, headers={"Host": HOST, **JSON, **known})


async def inspect(app: Application, by: str = "", **wish: Any) -> list[tuple[str | None, dict[str, Any]]]:
    """What is told of a request, in order."""
    answer = await ask(app, "POST", "/api/inspect", wish, by=by)
    assert answer.status == 200, answer.body
    return [(frame.event, json.loads(frame.data)) for frame in answer.frames()]


async def template(app: Application, operation: str, dialect: str, binding: str, by: str = "") -> dict[str, Any]:
    listed = await ask(app, "GET", "/api/inspect/templates", query=f"agent=echo&dialect={dialect}", by=by)
    assert listed.status == 200, listed.body
    (found,) = [one for one in listed.json()["items"] if (one["operation"], one["binding"]) == (operation, binding)]
    assert found["dialect"] == dialect
    return {
        "agent": "echo",
        "method": found["method"],
        "path": found["path"],
        "headers": found["headers"],
        "body": None if found["body"] is None else json.dumps(found["body"]),
    }


@pytest.fixture
async def app() -> AsyncIterator[Application]:
    served = to_a2a(echo, patient, auth={"schemes": SCHEMES})
    async with lifespan(served):
        yield served


@pytest.fixture
async def open_app() -> AsyncIterator[Application]:
    served = to_a2a(echo, patient, push={"allow_private": True}, audit="all")
    async with lifespan(served):
        yield served


# --- what one begins with ---------------------------------------------------------------------------------------------

SPOKEN = [
    (dialect.value, binding)
    for dialect in DialectName
    for binding in (("JSONRPC", "HTTP+JSON") if dialect in (DialectName.V1, DialectName.V03) else ("JSONRPC",))
]


@pytest.mark.parametrize(("dialect", "binding"), SPOKEN)
async def test_every_dialect_and_binding_has_a_message_that_is_answered(
    open_app: Application, dialect: str, binding: str
) -> None:
    told = dict(await inspect(open_app, **await template(open_app, "SendMessage", dialect, binding)))
    assert told["head"]["status"] == 200
    answer = json.loads(told["body"]["text"])
    assert "error" not in answer
    assert dict(told["head"]["headers"])["x-a2a-dialect"] == dialect
    assert told["end"] == {
        "bytes": len(told["body"]["text"].encode()),
        "frames": 0,
        "elapsedMs": told["end"]["elapsedMs"],
        "truncated": None,
        "problem": None,
    }


@pytest.mark.parametrize(("dialect", "binding"), SPOKEN)
async def test_every_operation_has_a_request_that_is_understood(
    open_app: Application, dialect: str, binding: str
) -> None:
    listed = (await ask(open_app, "GET", "/api/inspect/templates", query=f"dialect={dialect}")).json()
    assert listed["taskId"] == "TASK-ID"
    items = [
        one for one in listed["items"] if one["binding"] == binding and one["operation"] in {row.value for row in ROWS}
    ]
    assert len(items) >= 9
    for one in items:
        wish = {key: one[key] for key in ("method", "path", "headers")}
        body = None if one["body"] is None else json.dumps(one["body"])
        told = dict(await inspect(open_app, agent="echo", body=body, **wish))
        text = told["frame"]["data"] if "frame" in told else told["body"]["text"]
        assert text, one["operation"]
        # The task is not there, nor is an extended card; but there is no request that cannot be read.
        refused = "rror" in text
        assert not refused or "ask not found" in text or "no extended card" in text, (one["operation"], text)


async def test_each_message_has_an_id_of_its_own(open_app: Application) -> None:
    first, second = [await template(open_app, "SendMessage", "v1", "JSONRPC") for _ in range(2)]
    assert first["body"] != second["body"]


# --- what is told -----------------------------------------------------------------------------------------------------


async def test_inspected_streams_are_sent_frame_by_frame(open_app: Application) -> None:
    wish = await template(open_app, "SendStreamingMessage", "v1", "JSONRPC")
    told = await inspect(open_app, **wish)
    assert [kind for kind, _ in told[:2]] == ["head", "frame"]
    frames = [body for kind, body in told if kind == "frame"]
    assert [frame["n"] for frame in frames] == list(range(1, len(frames) + 1))
    assert all("result" in json.loads(frame["data"]) and frame["gapMs"] >= 0 for frame in frames)
    assert frames[-1]["id"] is not None
    assert told[-1][1]["frames"] == len(frames)


async def test_disconnecting_ends_the_inspection(open_app: Application) -> None:
    wish = await template(open_app, "SendStreamingMessage", "v1", "JSONRPC") | {"agent": "patient"}
    async with stream(open_app, wish, path="/api/inspect", headers={"Host": HOST}) as answer:
        async for frame in answer.events():
            if frame.event == "frame" and "first" in frame.data.decode():
                break
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "inspected request"]


async def test_a_stream_that_does_not_end_is_left_in_time(
    open_app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspector, "MAX_SECONDS", 0.5)
    wish = await template(open_app, "SendStreamingMessage", "v1", "JSONRPC") | {"agent": "patient"}
    assert (await inspect(open_app, **wish))[-1][1]["truncated"] == "time"


def heard(*pieces: bytes, kind: str = "text/event-stream") -> list[Any]:
    answer = InspectedResponse(began=0.0, began_ms=0)
    said: list[Any] = [ResponseHead(200, [("content-type", kind)]), *pieces, ExchangeEnd()]
    return [
        told for at, what in enumerate(said) if not answer.is_over for told in answer.add(TimedPiece(float(at), what))
    ]


def test_more_frames_than_anybody_reads_are_cut() -> None:
    told = heard(*[encode(Frame(data=b"x"))] * (MAX_FRAMES + 5))
    assert sum(isinstance(one, InspectedFrame) for one in told) == MAX_FRAMES
    assert isinstance(told[-1], InspectedEnd)
    assert told[-1].truncated == "frames"


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_more_bytes_than_anybody_reads_are_cut(kind: str) -> None:
    told = heard(*[b"data: " + b"x" * 300_000 + b"\n\n"] * 5, kind=kind)
    assert isinstance(told[-1], InspectedEnd)
    assert (told[-1].truncated, told[-1].bytes) == ("size", MAX_BYTES)


@given(st.lists(st.integers(1, 40), max_size=30))
def test_frames_are_the_same_however_they_are_cut(sizes: list[int]) -> None:
    whole = b"".join(encode(Frame(id=str(n), event="e", data=f'{{"n":{n}}}\n√'.encode())) for n in range(5))
    cuts, rest = [], whole
    for size in sizes:
        cuts.append(rest[:size])
        rest = rest[size:]
    frames = [one for one in heard(*filter(None, (*cuts, rest))) if isinstance(one, InspectedFrame)]
    assert [(one.id, one.event, one.data) for one in frames] == [(str(n), "e", f'{{"n":{n}}}\n√') for n in range(5)]


# --- as whom it goes --------------------------------------------------------------------------------------------------


async def test_inspections_use_the_caller_s_rights(app: Application) -> None:
    wish = await template(app, "SendMessage", "v1", "HTTP+JSON", by="alice")
    made = json.loads(dict(await inspect(app, by="alice", **wish))["body"]["text"])["task"]["id"]
    look = {"agent": "echo", "method": "GET", "path": f"/tasks/{made}"}
    seen = {
        name: dict(await inspect(app, by=name, **look))["head"]["status"] for name in ("alice", "bob", "dora", "carol")
    }
    assert seen == {"alice": 200, "bob": 404, "dora": 200, "carol": 404}
    told = dict(await inspect(app, by="rita", **wish))
    assert told["head"]["status"] == 403  # a reader does not send


async def test_inspections_use_only_the_caller_s_credentials(app: Application) -> None:
    for name in ("Authorization", "cookie"):
        wish = {"agent": "echo", "headers": {name: "somebody else's"}}
        refused = await ask(app, "POST", "/api/inspect", wish, by="alice")
        assert refused.status == 422
        assert "remove other credentials" in json.dumps(refused.json())
    # What a header of this server's own says about somebody counts for nothing either.
    listing = {"agent": "echo", "method": "GET", "path": "/tasks", "headers": {"X-Secret": SECRETS["dora"]}}
    await inspect(app, by="alice", **await template(app, "SendMessage", "v1", "JSONRPC", by="alice"))
    told = dict(await inspect(app, by="bob", **listing))
    assert json.loads(told["body"]["text"])["tasks"] == []


async def test_signed_in_users_inspect_as_themselves(app: Application) -> None:
    wish = await template(app, "SendMessage", "v1", "HTTP+JSON", by="alice")
    made = json.loads(dict(await inspect(app, by="alice", **wish))["body"]["text"])["task"]["id"]
    look = {"agent": "echo", "method": "GET", "path": f"/tasks/{made}"}
    for name, status in (("alice", 200), ("bob", 404)):
        browser = Browser(app)
        assert (await browser.sign_in(apiKey=SECRETS[name])).status == 200
        answer = await browser("POST", "/api/inspect", look)
        assert json.loads(answer.frames()[0].data)["status"] == status
        browser.page = "https://elsewhere.example"
        assert (await browser("POST", "/api/inspect", look)).status == 403


async def test_strangers_inspect_nothing(app: Application) -> None:
    assert (await ask(app, "POST", "/api/inspect", {"agent": "echo"})).status == 401


async def test_inspections_are_audited(app: Application) -> None:
    await inspect(app, by="alice", **await template(app, "SendMessage", "v1", "JSONRPC", by="alice"))

    async def noted() -> set[tuple[str, str, str]]:
        rows = await app.host.node.store.read(_audit)
        return {(operation, agent, owner) for operation, agent, owner in rows}

    wanted = {("Inspect", "echo", "alice"), ("SendMessage", "echo", "alice")}
    for _ in range(300):
        if wanted <= await noted():
            return
        await asyncio.sleep(0.05)  # until it is written, which is soon
    raise AssertionError(await noted())


async def _audit(tx: Any) -> list[tuple[str, str, str]]:
    return list(await tx.all("SELECT operation, agent, owner FROM audit"))


@pytest.mark.parametrize(
    "wish",
    [
        {},
        {"agent": "echo", "url": "https://example.com"},
        {"agent": "echo", "path": "tasks"},
        {"agent": "echo", "path": "/a b"},
        {"agent": "echo", "path": "/a\r\nHost: b"},
        {"agent": "echo", "method": "CONNECT"},
        {"agent": "echo", "headers": {"a\r\nb": "c"}},
        {"agent": "echo", "headers": {"a": "b\r\nc: d"}},
    ],
)
async def test_invalid_requests_are_refused(open_app: Application, wish: dict[str, Any]) -> None:
    assert (await ask(open_app, "POST", "/api/inspect", wish)).status == 422


async def test_an_agent_that_is_not_there_is_not_inspected(open_app: Application) -> None:
    assert (await ask(open_app, "POST", "/api/inspect", {"agent": "nobody"})).status == 404


# --- elsewhere --------------------------------------------------------------------------------------------------------


async def test_only_operators_inspect_external_servers(app: Application) -> None:
    wish = {"url": "https://192.0.2.1/", "method": "GET"}
    for name in ("alice", "rita", "root", "dora"):  # who is an admin of one tenant
        assert (await ask(app, "POST", "/api/inspect", wish, by=name)).status == 403
    ((_, end),) = await inspect(app, by="otto", **wish)
    assert end["problem"].startswith("192.0.2.1 is not a public address")


@pytest.mark.parametrize(
    "url",
    ["http://localhost:9/", "https://127.0.0.1/", "http://169.254.169.254/latest", "file:///etc/passwd", "http://["],
)
async def test_the_network_behind_a_server_is_not_looked_into(app: Application, url: str) -> None:
    ((kind, end),) = await inspect(app, by="otto", url=url, method="GET")
    assert kind == "end"
    assert end["problem"]


EVENTS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: session=hush\r\nContent-Length: %d\r\n\r\n%b"
)


async def test_external_answers_lose_their_cookies(open_app: Application, listening: Listening) -> None:
    said = encode(Frame(id="1", data=b"one")) + encode(Frame(data=b"two"))
    there = await listening(EVENTS % (len(said), said))
    sent = {"Authorization": "Bearer x", "Content-Length": "99", "Host": "other.example"}
    told = await inspect(open_app, url=f"http://127.0.0.1:{there.port}/x?y=1", method="GET", headers=sent)
    assert [(kind, body.get("data")) for kind, body in told] == [
        ("head", None),
        ("frame", "one"),
        ("frame", "two"),
        ("end", None),
    ]
    assert ["set-cookie", "(not shown)"] in told[0][1]["headers"]
    (head,) = there.heads
    assert head.startswith("GET /x?y=1 HTTP/1.1\r\n")
    assert "Authorization: Bearer x" in head
    assert f"Host: 127.0.0.1:{there.port}" in head


async def test_only_configured_remotes_may_be_private(listening: Listening) -> None:
    there, other = await listening(), await listening()
    app = to_a2a(echo, remotes={"near": {"url": f"http://127.0.0.1:{there.port}/a"}})
    async with lifespan(app):
        told = dict(await inspect(app, url=f"http://127.0.0.1:{there.port}/", method="GET"))
        assert told["body"] == {"text": "ok"}
        ((_, end),) = await inspect(app, url=f"http://127.0.0.1:{other.port}/", method="GET")
    assert end["problem"] == "Only https is allowed"
    assert other.connections == 0
