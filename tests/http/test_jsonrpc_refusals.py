"""What JSON-RPC refuses, where the dialects differ: streams that do not begin, and calls without an id that fail."""

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest
from a2a.client.transports.jsonrpc import JsonRpcTransport
from a2a.types import a2a_pb2
from a2a.utils.errors import TaskNotFoundError

from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    PermissionDenied,
    RateLimited,
    TaskNotFound,
)
from accord.http.jsonrpc import JsonRpcBinding
from accord.testing.asgi import Response, call
from tests.cases import each
from tests.environments import ROOT, interpreter
from tests.http.scripted import Scripted
from tests.http.test_rest_resuming import BOUND_SECONDS, listening

EVENTS = {"Accept": "text/event-stream"}
TOLD = {
    "v1": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]},
    "v03": {"messageId": "m", "role": "user", "kind": "message", "parts": [{"kind": "text", "text": "hi"}]},
    "relay": {"messageId": "m", "role": "user", "parts": [{"type": "text", "text": "hi"}]},
    "gen": {"id": "m", "parts": [{"type": "text", "content": "hi"}]},
    "vault": {"role": "user", "parts": [{"type": "text", "content": "hi"}]},
}
SENDS = {"v1": "SendMessage", "vault": "tasks/send"}
STREAMS = [
    ("v1", "SendStreamingMessage", {"message": TOLD["v1"]}),
    ("v1", "SubscribeToTask", {"id": "t"}),
    ("v03", "message/stream", {"message": TOLD["v03"]}),
    ("v03", "tasks/resubscribe", {"id": "t"}),
    ("relay", "message/stream", {"message": TOLD["relay"]}),
    ("gen", "message/stream", {"message": TOLD["gen"]}),
    ("vault", "tasks/sendSubscribe", {"id": "t"}),
]
BY_EVENT = [asked for asked in STREAMS if asked[0] in ("v03", "relay")]
BY_JSON = [asked for asked in STREAMS if asked not in BY_EVENT]


async def asking(
    service: Scripted, dialect: str, method: str, params: Any, headers: dict[str, str] | None = None, **id: Any
) -> Response:
    """Make one call in a dialect; without an `id` it has none."""
    said = {"X-A2A-Dialect": dialect, **(headers or {})}
    answer = await call(
        JsonRpcBinding(service), {"jsonrpc": "2.0", "method": method, "params": params, **id}, headers=said
    )
    assert answer.headers["x-a2a-dialect"] == dialect
    return answer


def refusal(answer: Response) -> dict[str, Any]:
    """Return the JSON-RPC answer in the only event of a stream."""
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    (frame,) = answer.frames()
    assert (frame.id, frame.event) == (None, None)
    found: dict[str, Any] = json.loads(frame.data)
    return found


# --- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.proves("B-14")
@pytest.mark.parametrize(("dialect", "method", "params"), BY_EVENT)
async def test_event_stream_readers_get_errors_as_events(dialect: str, method: str, params: Any) -> None:
    told = refusal(await asking(Scripted(TaskNotFound()), dialect, method, params, EVENTS, id=7))
    assert (told["jsonrpc"], told["id"], told["error"]["code"]) == ("2.0", 7, -32001)
    assert told["error"]["message"] == "Task not found"
    both = {"Accept": "*/*, text/event-stream"}
    wrong = refusal(await asking(Scripted(), dialect, method, {"message": 5}, both, id=8))
    assert (wrong["id"], wrong["error"]["code"]) == (8, -32602)


@pytest.mark.parametrize(("dialect", "method", "params"), BY_JSON)
async def test_tolerant_dialects_refuse_streams_by_json(dialect: str, method: str, params: Any) -> None:
    answer = await asking(Scripted(TaskNotFound()), dialect, method, params, EVENTS, id=7)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert (answer.json()["id"], answer.json()["error"]["code"]) == (7, -32602 if dialect == "gen" else -32001)


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/event-stream, application/json", ""])
async def test_other_readers_get_errors_as_json(accept: str) -> None:
    answer = await asking(Scripted(TaskNotFound()), "v03", "tasks/resubscribe", {"id": "t"}, {"Accept": accept}, id=7)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["code"] == -32001


@pytest.mark.proves("B-17")
@pytest.mark.parametrize(("error", "status"), [(AuthenticationFailed(), 401), (RateLimited(retry_after=3), 429)])
async def test_refusals_with_an_http_status_are_not_streams(error: Exception, status: int) -> None:
    answer = await asking(Scripted(error), "v03", "tasks/resubscribe", {"id": "t"}, EVENTS, id=7)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/json")
    assert answer.headers.get("retry-after") == ("3" if status == 429 else None)


async def test_internal_stream_errors_are_single_events(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "accord.jsonrpc"):
        service = Scripted(RuntimeError("secret"))
        told = refusal(await asking(service, "v03", "tasks/resubscribe", {"id": "t"}, EVENTS, id=7))
    assert told["error"]["code"] == -32603
    assert "secret" not in json.dumps(told)
    assert "secret" in caplog.text


@pytest.mark.proves("3-04", "3-10")
async def test_the_official_client_of_0_3_understands_why_it_gets_no_stream() -> None:
    script = ROOT / "tests" / "judges" / "rpc_client_03.py"
    async with listening(JsonRpcBinding(Scripted(TaskNotFound()))) as url, asyncio.timeout(BOUND_SECONDS):
        process = await asyncio.create_subprocess_exec(
            interpreter("a2a-sdk-03"), script, url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        try:
            out, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    assert process.returncode == 0, err.decode()[-4000:]
    assert json.loads(out) == {"stream": [-32001, "Task not found"], "resubscribe": [-32001, "Task not found"]}


@pytest.mark.proves("STREAM-SUB-004")
async def test_the_official_client_of_1_0_understands_why_it_gets_no_stream() -> None:
    async with listening(JsonRpcBinding(Scripted(TaskNotFound()))) as url, httpx.AsyncClient() as http:
        client = JsonRpcTransport(http, a2a_pb2.AgentCard(capabilities={"streaming": True}), url)
        with pytest.raises(TaskNotFoundError):
            await anext(client.subscribe(a2a_pb2.SubscribeToTaskRequest(id="t")))


# --- calls without an id --------------------------------------------------------------------------------------------

FAILING = [("GetTask", "tasks/get", {"id": "t"}), ("GetTask", "tasks/get", {}), ("Dance", "dance", {})]


@pytest.mark.proves("C-03")
@pytest.mark.parametrize("dialect", TOLD)
async def test_a_call_without_an_id_that_succeeds_is_not_answered(dialect: str) -> None:
    service = Scripted()
    answer = await asking(service, dialect, SENDS.get(dialect, "message/send"), {"message": TOLD[dialect]})
    assert (answer.status, answer.body) == (204, b"")
    assert service.only.request.message.parts[0].text == "hi"


@pytest.mark.proves("C-03")
@each("dialect", TOLD)
@each(("new", "old", "params"), FAILING)
async def test_a_notification_that_fails_is_never_answered(dialect: str, new: str, old: str, params: Any) -> None:
    answer = await asking(Scripted(TaskNotFound()), dialect, new if dialect == "v1" else old, params)
    assert (answer.status, answer.body) == (204, b"")


@pytest.mark.proves("B-17", "3-21", "C-03")
@each("dialect", ["v03", "vault", "gen"])
@each(("method", "params"), [("tasks/get", {"id": "t"}), ("tasks/sendSubscribe", {"id": "t"})])
@each(
    ("error", "status", "header"),
    [
        (AuthenticationFailed(), 401, None),
        (PermissionDenied(), 403, None),
        (RateLimited(retry_after=7), 429, ("retry-after", "7")),
        (AgentUnavailable(retry_after=5), 503, ("retry-after", "5")),
    ],
)
async def test_notifications_get_http_errors(
    dialect: str, method: str, params: Any, error: AccordError, status: int, header: tuple[str, str] | None
) -> None:
    """The body stays empty, but nobody takes for done what was not let in."""
    if method == "tasks/sendSubscribe":
        method = {"gen": "tasks/subscribe", "v03": "tasks/resubscribe"}.get(dialect, method)
    answer = await asking(Scripted(error), dialect, method, params)
    assert (answer.status, answer.body, answer.headers["content-length"]) == (status, b"", "0")
    assert header is None or answer.headers[header[0]] == header[1]


@pytest.mark.proves("C-03")
@pytest.mark.parametrize(("dialect", "method", "params"), STREAMS)
async def test_a_stream_without_an_id_is_never_refused_aloud(dialect: str, method: str, params: Any) -> None:
    answer = await asking(Scripted(TaskNotFound()), dialect, method, params, EVENTS)
    assert (answer.status, answer.body) == (204, b"")


@pytest.mark.proves("C-03")
@pytest.mark.parametrize(("dialect", "method"), [("v1", "GetTask"), ("v03", "tasks/get"), ("gen", "tasks/get")])
async def test_notifications_in_a_batch_are_never_answered(dialect: str, method: str) -> None:
    notification = {"jsonrpc": "2.0", "method": method, "params": {"id": "t"}}
    binding, headers = JsonRpcBinding(Scripted(TaskNotFound())), {"X-A2A-Dialect": dialect}
    mixed = await call(binding, [notification, notification | {"id": 2}, notification], headers=headers)
    assert [error["id"] for error in mixed.json()] == [2]
    alone = await call(binding, [notification, notification | {"method": "Dance"}], headers=headers)
    assert (alone.status, alone.body) == (204, b"")
