"""Refusals on the wire: too much, too often, too slow, too large, not allowed; in every dialect, with what to do."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from accord.a2a import Caller
from accord.auth.authentication import Presented
from accord.auth.rate_limits import CallerUsage, Quotas
from accord.errors import RequestTimeout, RequestTooLarge
from accord.http import timers
from accord.http.asgi import App
from accord.http.jsonrpc import JsonRpcBinding
from accord.http.rest import RestBinding
from accord.server.pipeline import pipeline
from accord.testing.asgi import call
from tests.http.scripted import Scripted, read_body

GET = {
    "v1": ("GetTask", {"id": "t-1"}),
    "v03": ("tasks/get", {"id": "t-1"}),
    "relay": ("tasks/get", {"id": "t-1"}),
    "vault": ("tasks/get", {"id": "t-1"}),
    "gen": ("tasks/get", {"task_id": "t-1"}),
}
SEND = {
    "v1": ("SendMessage", {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}),
    "v03": ("message/send", {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}),
    "relay": ("message/send", {"messageId": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]}),
    "vault": ("tasks/send", {"role": "user", "parts": [{"type": "text", "content": "hi"}]}),
    "gen": ("message/send", {"id": "m", "parts": [{"type": "text", "content": "hi"}]}),
}
PLAIN = {"v1": -32000, "v03": -32000, "relay": -32000, "vault": -32000}
TOO_LARGE = {"v1": -32600, "v03": -32600, "relay": -32600, "vault": -32600, "gen": -40005}
CITE, PLACE = "https://example.com/ext/cite/v1", "https://example.com/ext/place/v1"
each_dialect = pytest.mark.parametrize("dialect", GET)


def rpc(method: str, params: object) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def served(
    quotas: Quotas | None = None, *, role: str | None = None, binding: type[Any] = JsonRpcBinding, **guard: Any
) -> App:
    """A service behind its gate and a binding, on a clock that stands still; `role` is everybody's."""

    async def admit(presented: Presented) -> Caller:
        return Caller(owner="alice", roles=None if role is None else frozenset({role}))

    usage = CallerUsage(quotas or Quotas(), clock=lambda: 0.0)
    guarded = pipeline(Scripted(), "echo", usage=usage, **guard)
    found: App = binding(guarded, admit=admit, quotas=usage.quotas, extensions=guard.get("required", frozenset[str]()))
    return found


def said(dialect: str) -> dict[str, str]:
    return {"X-A2A-Dialect": dialect}


@pytest.mark.proves("4-25", "3-33", "B-17")
@each_dialect
async def test_forbidden_operations_are_403(dialect: str) -> None:
    method, message = SEND[dialect]
    answer = await call(served(role="reader"), rpc(method, {"message": message}), headers=said(dialect))
    assert answer.status == 403
    assert answer.headers["x-a2a-dialect"] == dialect
    assert answer.json()["error"]["code"] == (PLAIN | {"gen": -40004})[dialect]
    assert "SendMessage" in answer.json()["error"]["message"]
    allowed = await call(served(role="reader"), rpc(*GET[dialect]), headers=said(dialect))
    assert (allowed.status, "result" in allowed.json()) == (200, True)


@pytest.mark.proves("4-31", "4-39", "B-17", "B-errors")
@each_dialect
async def test_too_many_requests_are_429_with_the_time_to_wait(dialect: str) -> None:
    app = served(Quotas(rate=0.2, burst=2))
    for _ in range(2):
        assert (await call(app, rpc(*GET[dialect]), headers=said(dialect))).status == 200
    answer = await call(app, rpc(*GET[dialect]), headers=said(dialect))
    assert (answer.status, answer.headers["retry-after"]) == (429, "5")
    error = answer.json()["error"]
    assert error["code"] == (PLAIN | {"gen": -40005})[dialect]
    if dialect == "v1":
        info, retry = error["data"]
        assert (info["reason"], info["metadata"], retry["retryDelay"]) == ("RATE_LIMITED", {"limit": "rate"}, "5s")
    else:
        assert (error["data"]["reason"], error["data"]["retry_after"]) == ("RATE_LIMITED", 5)


@pytest.mark.proves("4-31")
async def test_every_call_of_a_batch_counts() -> None:
    answers = (await call(served(Quotas(rate=1.0, burst=3)), [rpc(*GET["v1"])] * 5, headers=said("v1"))).json()
    assert ["result" in answer for answer in answers] == [True, True, True, False, False]


@each_dialect
async def test_a_body_that_is_too_large_is_413(dialect: str) -> None:
    app = served(Quotas(body=1000))
    body = rpc(*GET[dialect]) | {"padding": "x" * 1000}
    answer = await call(app, body, headers=said(dialect))
    assert (answer.status, answer.json()["error"]["code"]) == (413, TOO_LARGE[dialect])
    assert "larger than 1000 bytes" in answer.json()["error"]["message"]


@each_dialect
async def test_a_message_that_is_too_large_is_413_and_names_the_part(dialect: str) -> None:
    method, message = SEND[dialect]
    answer = await call(served(Quotas(text=1)), rpc(method, {"message": message}), headers=said(dialect))
    assert (answer.status, answer.json()["error"]["code"]) == (413, TOO_LARGE[dialect])
    assert "`message.parts[0]`: More than 1 characters" in answer.json()["error"]["message"]


@each_dialect
async def test_headers_that_are_too_large_are_431(dialect: str) -> None:
    app = served(Quotas(head=2000))
    for headers, query in (({"X-Big": "x" * 2000}, ""), ({}, "q=" + "x" * 2000)):
        answer = await call(app, rpc(*GET[dialect]), headers=headers | said(dialect), query=query)
        assert (answer.status, answer.json()["error"]["code"]) == (431, TOO_LARGE[dialect])
    assert (await call(app, rpc(*GET[dialect]), headers={"X-Big": "x" * 1500} | said(dialect))).status == 200


@pytest.mark.proves("4-31", "4-25")
@pytest.mark.parametrize(("root", "dialect"), [("", "v1"), ("/v1", "v03")])
async def test_the_other_http_binding_refuses_with_the_same_statuses(root: str, dialect: str) -> None:
    send = {"message": SEND["v1"][1] if dialect == "v1" else SEND["v03"][1]}
    for wanted, app, path, body, headers in (
        (403, served(role="reader", binding=RestBinding), "/message:send", send, {}),
        (413, served(Quotas(body=10), binding=RestBinding), "/message:send", send, {}),
        (413, served(Quotas(text=1), binding=RestBinding), "/message:send", send, {}),
        (431, served(Quotas(head=2000), binding=RestBinding), "/message:send", send, {"X-Big": "x" * 2000}),
        (400, served(required=frozenset({CITE}), binding=RestBinding), "/message:send", send, {}),
        (200, served(required=frozenset({CITE}), binding=RestBinding), "/message:send", send, {"A2A-Extensions": CITE}),
    ):
        answer = await call(app, body, path=root + path, headers=headers | said(dialect))
        assert answer.status == wanted, answer.body
        assert answer.headers.get("a2a-extensions") == (CITE if wanted == 200 else None)
    limited = served(Quotas(rate=0.2, burst=1), binding=RestBinding)
    assert (await call(limited, path=root + "/tasks/t-1", method="GET")).status == 200
    answer = await call(limited, path=root + "/tasks/t-1", method="GET")
    assert (answer.status, answer.headers["retry-after"]) == (429, "5")


DEEP = 100_000


@pytest.mark.parametrize("binding", [JsonRpcBinding, RestBinding])
@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
async def test_no_nesting_hurts_whichever_way_it_comes(binding: type[Any], opens: bytes, closes: bytes) -> None:
    data = opens * DEEP + b"1" + closes * DEEP
    send = b'{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":%b}]}}' % data
    body = send if binding is RestBinding else b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":%b}' % send
    answer = await call(
        served(binding=binding),
        body,
        path="/message:send" if binding is RestBinding else "/",
        headers={"A2A-Version": "1.0"},
    )
    assert answer.status == (400 if binding is RestBinding else 200)
    assert "nested" in answer.json()["error"]["message"]


# --- bodies that come slowly ----------------------------------------------------------------------------------------


class Slow:
    """A client that sends some pieces, the first at once and others after a pause, and then nothing."""

    def __init__(self, pieces: Sequence[bytes], *, pause: float = 0.0, ends: bool = False) -> None:
        self._left = list(pieces)
        self._pauses = [0.0] + [pause] * len(pieces)
        self._ends = ends
        self.stopped = asyncio.Event()

    @property
    def left(self) -> int:
        """Pieces that were not taken."""
        return len(self._left)

    async def receive(self) -> dict[str, Any]:
        if not self._left:
            self.stopped.set()
            await asyncio.Event().wait()
        if pause := self._pauses.pop(0):
            await asyncio.sleep(pause)
        piece = self._left.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(self._left) or not self._ends}


HURRIED = Quotas(body_seconds=0.01, body_rate=1_000_000)


@each_dialect
async def test_a_body_that_does_not_come_is_408_and_the_connection_ends(dialect: str) -> None:
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/", "headers": [(b"x-a2a-dialect", dialect.encode())]}
    async with asyncio.timeout(10):
        await served(HURRIED)(scope, Slow([b'{"jsonrpc":']).receive, send)
    assert sent[0]["status"] == 408
    assert (b"connection", b"close") in sent[0]["headers"]
    assert b'"code":-32600' in sent[1]["body"]
    assert b"did not arrive in time; 11 bytes came" in sent[1]["body"]


async def test_slow_trickles_time_out() -> None:
    patient = Quotas(body_seconds=0.01, body_rate=1)  # of one byte a second is enough
    async with asyncio.timeout(20):
        assert await read_body(Slow([b"x"] * 5, pause=0.02, ends=True).receive, patient) == b"xxxxx"
        with pytest.raises(RequestTimeout, match="3 bytes came"):
            await read_body(Slow([b"x"] * 3).receive, HURRIED)


async def test_foreign_cancellation_is_not_a_timeout() -> None:
    client = Slow([b"x"])
    reading = asyncio.create_task(read_body(client.receive, Quotas()))
    await client.stopped.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_processing_time_is_not_limited_by_the_read_timeout() -> None:
    waiting, seen = timers.timers_of(asyncio.get_running_loop()), list[int]()
    client = Slow([b"{", b"}"], ends=True)

    async def receive() -> dict[str, Any]:
        seen.append(len(waiting))
        return await client.receive()

    assert await read_body(receive, Quotas()) == b"{}"
    assert seen == [1, 1]
    assert len(waiting) == 0


async def test_a_body_of_exactly_the_limit_passes_in_pieces() -> None:
    pieces = [
        {"type": "http.request", "body": b"x" * 50, "more_body": True},
        {"type": "http.request", "body": b"y" * 50, "more_body": False},
    ]

    async def receive() -> Any:
        return pieces.pop(0)

    assert await read_body(receive, Quotas(body=100)) == b"x" * 50 + b"y" * 50
    pieces += [{"type": "http.request", "body": b"x" * 101, "more_body": True}]
    with pytest.raises(RequestTooLarge):
        await read_body(receive, Quotas(body=100))


# --- extensions -----------------------------------------------------------------------------------------------------

EXTENDED = {"v1": -32008, "v03": -32008, "relay": -32008, "vault": -32000, "gen": -40003}


@pytest.mark.proves("CORE-CAP-004", "JSONRPC-SVC-002")
@each_dialect
async def test_required_extensions_are_checked_and_echoed(dialect: str) -> None:
    app = served(required=frozenset({CITE}))
    method, message = SEND[dialect]
    body = rpc(method, {"message": message})
    refused = await call(app, body, headers=said(dialect))
    assert (refused.status, refused.json()["error"]["code"]) == (200, EXTENDED[dialect])
    assert CITE in refused.json()["error"]["message"]
    assert "a2a-extensions" not in refused.headers
    for name in ("A2A-Extensions", "X-A2A-Extensions"):
        answer = await call(app, body, headers=said(dialect) | {name: f"{PLACE}, {CITE}"})
        assert "result" in answer.json()
        assert answer.headers[name.lower()] == CITE, "only what the agent knows"


async def test_only_known_extensions_are_echoed() -> None:
    app = served(required=frozenset({CITE}))
    declared = {"A2A-Version": "1.0", "A2A-Extensions": f"{CITE},urn:\u00e9vil"}
    message = {"message": SEND["v1"][1]}
    stream = await call(app, rpc("SendStreamingMessage", message), headers=declared)
    assert (stream.headers["content-type"], stream.headers["a2a-extensions"]) == ("text/event-stream", CITE)
    batch = await call(app, [rpc("SendMessage", message)], headers=declared)
    assert batch.headers["a2a-extensions"] == CITE
    plain = await call(served(), rpc("SendMessage", message), headers=declared)
    assert "a2a-extensions" not in plain.headers


async def test_the_declared_extensions_reach_the_service() -> None:
    inner = Scripted()
    await call(JsonRpcBinding(inner), rpc(*GET["v1"]), headers={"A2A-Extensions": f"{CITE} ,{PLACE}, ,"})
    assert inner.only.caller.extensions == {CITE, PLACE}
