"""Links over sockets that misbehave: what the caller is told, and whether anything may be sent again."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from accord.client.http_link import HttpLink, JsonRpcLink, RestLink
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    InternalError,
    InvalidAgentResponse,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    RemoteError,
    TaskNotCancelable,
    TaskNotFound,
)
from accord.model import CancelRequest, Event, GetRequest, PushDeleteRequest, SubscribeRequest, Task
from accord.outbound import HttpTransport, StreamBroken, TimedOut, Unreachable
from accord.protocol.operations import DialectName, Operation
from tests.client.links.conftest import all_of, saying
from tests.client.links.test_streams import CHUNK, TASK, framed, status
from tests.client.transports.test_transports import answer
from tests.outbound.conftest import Listening, listening

__all__ = ["listening"]

V1, V03 = DialectName.V1, DialectName.V03
Linking = Callable[[int], HttpLink]
JSON = "Content-Type: application/json"
EVENTS = "Content-Type: text/event-stream"


@pytest.fixture(params=[(JsonRpcLink, V1), (JsonRpcLink, V03), (RestLink, V1), (RestLink, V03)], ids=str)
def linking(request: pytest.FixtureRequest, transport: HttpTransport) -> Linking:
    kind, dialect = request.param
    return lambda port: kind(transport, f"http://127.0.0.1:{port}/", dialect)


@pytest.fixture
def rpc(transport: HttpTransport) -> Linking:
    return lambda port: JsonRpcLink(transport, f"http://127.0.0.1:{port}/", V1)


async def refused(link: HttpLink, *, streams: bool = False) -> AccordError:
    request = saying("hello")
    asked = all_of(link.follow(Operation.STREAM, request)) if streams else link.ask(Operation.SEND, request)
    with pytest.raises(AccordError) as raised:
        await asked
    return raised.value


@pytest.mark.parametrize("streams", [False, True], ids=["ask", "follow"])
@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("401 Unauthorized", AuthenticationFailed),
        ("403 Forbidden", PermissionDenied),
        ("404 Not Found", MethodNotFound),
        ("429 Too Many Requests", RateLimited),
        ("500 Internal Server Error", InternalError),
        ("502 Bad Gateway", RemoteError),
        ("503 Service Unavailable", AgentUnavailable),
    ],
)
async def test_a_status_without_a_word_is_understood(
    linking: Linking, listening: Listening, line: str, kind: type[AccordError], streams: bool
) -> None:
    said = answer(b"<html>", "Content-Type: text/html", "Retry-After: 7", "WWW-Authenticate: Bearer", status=line)
    error = await refused(linking((await listening(said)).port), streams=streams)
    assert (type(error), error.retry_after, error.metadata["status"]) == (kind, 7, line[:3])
    assert getattr(error, "challenges", ("Bearer",)) == ("Bearer",)


@pytest.mark.parametrize("streams", [False, True], ids=["ask", "follow"])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"nope", b'{"jsonrpc":"2.0"}', b'{"result":7}', b"\xff\xfe"])
async def test_an_answer_that_makes_no_sense_is_the_agents_fault(
    linking: Linking, listening: Listening, body: bytes, streams: bool
) -> None:
    error = await refused(linking((await listening(answer(body, JSON))).port), streams=streams)
    assert isinstance(error, InvalidAgentResponse)


async def test_a_404_with_a_task_error_is_task_not_found(transport: HttpTransport, listening: Listening) -> None:
    unnamed = json.dumps({"error": {"code": 404, "message": "no such task"}}).encode()
    for body, kind in ((unnamed, TaskNotFound), (b'{"detail":"Not Found"}', MethodNotFound)):
        port = (await listening(answer(body, JSON, status="404 Not Found"))).port
        link = RestLink(transport, f"http://127.0.0.1:{port}", V1)
        with pytest.raises(kind):
            await link.ask(Operation.GET, GetRequest(id="t"))


async def test_a_409_about_a_cancel_is_that_it_cannot_be(transport: HttpTransport, listening: Listening) -> None:
    """The official server of 0.3 says no more."""
    port = (await listening(answer(b'{"message":"ended"}', JSON, status="409 Conflict"))).port
    link = RestLink(transport, f"http://127.0.0.1:{port}", V03)
    with pytest.raises(TaskNotCancelable, match="ended"):
        await link.ask(Operation.CANCEL, CancelRequest(id="t"))
    with pytest.raises(RemoteError, match="ended"):
        await link.ask(Operation.GET, GetRequest(id="t"))


async def test_errors_of_0_3_are_recognized_by_type(transport: HttpTransport, listening: Listening) -> None:
    body = json.dumps({"type": "TaskNotFoundError", "message": "gone"}).encode()
    port = (await listening(answer(body, JSON, status="404 Not Found"))).port
    with pytest.raises(TaskNotFound, match="gone"):
        await RestLink(transport, f"http://127.0.0.1:{port}", V03).ask(Operation.CANCEL, CancelRequest(id="t"))


async def test_a_missing_result_is_none(rpc: Linking, listening: Listening) -> None:
    link = rpc((await listening(answer(b'{"jsonrpc":"2.0","id":1}', JSON))).port)
    assert await link.ask(Operation.PUSH_DELETE, PushDeleteRequest(task_id="t", id="p")) == 1


@pytest.mark.parametrize("cut", [0, 1, 17])
async def test_a_lost_answer_may_have_been_accepted(linking: Linking, listening: Listening, cut: int) -> None:
    async def speaks(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"}")
        writer.write(answer(b"{}")[:cut])
        await writer.drain()

    with pytest.raises(Unreachable) as raised:
        await linking((await listening(speaks)).port).ask(Operation.SEND, saying("hello"))
    assert raised.value.was_sent


async def test_patience_is_the_links_or_the_callers(linking: Linking, listening: Listening) -> None:
    never = asyncio.Event()

    async def speaks(reader: Any, writer: Any) -> None:
        await never.wait()

    link = linking((await listening(speaks)).port)
    assert link.seconds == 60.0
    with pytest.raises(TimedOut):
        await link.ask(Operation.GET, GetRequest(id="t"), seconds=0.1)
    link.seconds = 0.1
    with pytest.raises(TimedOut):
        await link.ask(Operation.GET, GetRequest(id="t"))


# --- streams --------------------------------------------------------------------------------------------------------

WHOLE = framed(TASK, CHUNK, CHUNK, status("COMPLETED"), first=0)
FRAMES = [piece + b"\n\n" for piece in WHOLE.split(b"\n\n")[:-1]]


def chunked(*pieces: bytes, is_whole: bool) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces if piece)
    head = f"HTTP/1.1 200 OK\r\n{EVENTS}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n".encode()
    return head + body + (b"0\r\n\r\n" if is_whole else b"")


def saying_once(said: bytes) -> Any:
    async def speaks(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await writer.drain()

    return speaks


async def followed(link: HttpLink) -> tuple[list[Event], BaseException | None]:
    """Every event of a stream, and what ended it."""
    found: list[Event] = []
    try:
        async for event in link.follow(Operation.SUBSCRIBE, SubscribeRequest(id="t")):
            found.append(event)
    except (AccordError, Unreachable) as error:
        return found, error
    return found, None


@pytest.mark.parametrize("is_whole", [False, True], ids=["cut", "closed"])
@pytest.mark.parametrize("count", range(5))
@pytest.mark.parametrize("extra", [0, 10], ids=["between", "within"])
async def test_a_stream_may_be_cut_at_every_event(
    rpc: Linking, listening: Listening, count: int, extra: int, is_whole: bool
) -> None:
    """What came before is given, and only a task that has ended makes the cut harmless."""
    rest = b"".join(FRAMES[count:])[:extra]
    link = rpc((await listening(saying_once(chunked(*FRAMES[:count], rest, is_whole=is_whole)))).port)
    events, error = await followed(link)
    assert [event.seq for event in events] == list(range(count))
    assert isinstance(error, StreamBroken if count < 4 else type(None))
    assert link.resumable is (count > 0)


async def test_a_stream_that_is_refused_by_its_first_event(rpc: Linking, listening: Listening) -> None:
    refusal = b'data: {"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"gone"}}\n\n'
    events, error = await followed(rpc((await listening(answer(refusal, EVENTS))).port))
    assert (events, type(error)) == ([], TaskNotFound)


async def test_a_stream_that_is_refused_by_a_plain_answer(rpc: Linking, listening: Listening) -> None:
    refusal = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"gone"}}'
    events, error = await followed(rpc((await listening(answer(refusal, JSON))).port))
    assert (events, type(error)) == ([], TaskNotFound)


async def test_a_plain_answer_is_the_only_event(linking: Linking, listening: Listening) -> None:
    link = linking(0)
    task = {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}
    body: dict[str, Any] = {"task": task}
    if link.dialect is V03:
        task["status"] = {"state": "TASK_STATE_WORKING" if link.binding == "HTTP+JSON" else "working"}
        body = {"task": task} if link.binding == "HTTP+JSON" else {"kind": "task", **task}
    if link.binding == "JSONRPC":
        body = {"jsonrpc": "2.0", "id": 1, "result": body}
    listener = await listening(answer(json.dumps(body).encode(), JSON))
    events, error = await followed(linking(listener.port))
    assert ([(event.seq, type(event.body)) for event in events], error) == ([(1, Task)], None)


async def test_streams_send_accept_and_last_event_id(linking: Linking, listening: Listening) -> None:
    listener = await listening(answer(b"", EVENTS, "Connection: close"))
    with pytest.raises(StreamBroken):
        await all_of(linking(listener.port).follow(Operation.SUBSCRIBE, SubscribeRequest(id="t"), after=41))
    stated = [line.lower() for line in listener.heads[0].split("\r\n")]
    assert [line for line in stated if line.startswith("accept:")] == ["accept: text/event-stream"]
    assert "last-event-id: 41" in stated


async def test_garbage_is_reported_after_readable_events(rpc: Linking, listening: Listening) -> None:
    said = answer(FRAMES[0] + b"data: nope\n\n", EVENTS)
    events, error = await followed(rpc((await listening(said)).port))
    assert ([event.seq for event in events], type(error)) == ([0], InvalidAgentResponse)
