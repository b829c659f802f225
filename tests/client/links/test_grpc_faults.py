"""Calls that fail: what gRPC's statuses mean, and what happens to a channel under which the server goes away."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import pytest
from a2a.types import a2a_pb2
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from google.protobuf.json_format import ParseDict
from google.rpc import error_details_pb2, status_pb2

from accord.client.auth import Bearer, MtlsAuth
from accord.client.exchange import AuthFlow, ClientAuth, with_header
from accord.client.grpc_link import GrpcLink
from accord.errors import (
    AccordError,
    AgentUnavailable,
    AuthenticationFailed,
    InternalError,
    InvalidAgentResponse,
    InvalidParams,
    MethodNotFound,
    PermissionDenied,
    RateLimited,
    RemoteError,
    TaskNotFound,
    UnsupportedOperation,
)
from accord.model import Event, GetRequest, StatusUpdate, SubscribeRequest, Task, TaskState
from accord.outbound import HttpReply, HttpRequest, HttpTransport, Policy, StreamBroken, TimedOut, Unreachable
from accord.protocol.operations import DialectName, Operation
from tests.certificates import Authority
from tests.client.links.conftest import all_of
from tests.ports import free_port

V1, V03 = DialectName.V1, DialectName.V03
Code: TypeAlias = grpc.StatusCode
KNOWN = (error_details_pb2.ErrorInfo, error_details_pb2.RetryInfo)
"""Protobuf finds messages by their names, once they have been imported."""
GET, SUBSCRIBE = GetRequest(id="t"), SubscribeRequest(id="t")

Answers = Callable[[bytes, Any], Any]
Serving = Callable[..., Coroutine[Any, Any, GrpcLink]]


def update(state: str) -> Any:
    status = a2a_pb2.TaskStatus(state=state)
    found = a2a_pb2.StreamResponse(status_update={"task_id": "t", "context_id": "c", "status": status})
    return found.SerializeToString()


WORKING, COMPLETED = update("TASK_STATE_WORKING"), update("TASK_STATE_COMPLETED")
DONE: Any = a2a_pb2.Task(id="t", status=a2a_pb2.TaskStatus(state="TASK_STATE_COMPLETED")).SerializeToString()


class Handler(grpc.GenericRpcHandler):
    """Answers every call with one function."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def service(self, call: Any) -> Any:
        if call.method.endswith(("SubscribeToTask", "TaskSubscription")):
            return grpc.unary_stream_rpc_method_handler(self._answers)
        return grpc.unary_unary_rpc_method_handler(self._answers)


class Serves:
    """Scripted servers, and links to them."""

    def __init__(self, stack: AsyncExitStack, transport: HttpTransport) -> None:
        self._stack = stack
        self._transport = transport
        self.server: Any = None

    async def __call__(self, answers: Answers, *, dialect: DialectName = V1, **options: Any) -> GrpcLink:
        self.server = grpc.aio.server()
        self.server.add_generic_rpc_handlers([Handler(answers)])
        port = self.server.add_insecure_port("127.0.0.1:0")
        await self.server.start()
        self._stack.push_async_callback(self.server.stop, 0)
        return self.link(f"127.0.0.1:{port}", dialect=dialect, **options)

    def link(self, address: str, *, dialect: DialectName = V1, **options: Any) -> GrpcLink:
        found = GrpcLink(self._transport, address, dialect, **options)
        self._stack.push_async_callback(found.close)
        return found


@pytest.fixture
async def serves(transport: HttpTransport) -> AsyncIterator[Serves]:
    async with AsyncExitStack() as stack:
        yield Serves(stack, transport)


def aborting(code: Code, sentence: str = "no", *details: dict[str, Any], **metadata: str) -> Answers:
    """Ends every call with a status."""

    async def answers(body: bytes, context: Any) -> bytes:
        said = ParseDict({"code": code.value[0], "message": sentence, "details": details}, status_pb2.Status())
        packed = [("grpc-status-details-bin", said.SerializeToString())] if details else []
        await context.abort(code, sentence, (*packed, *((k.replace("_", "-"), v) for k, v in metadata.items())))
        return b""

    return answers


def info(reason: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "a2a-protocol.org"}


async def refused(link: GrpcLink) -> Any:
    with pytest.raises((AccordError, Unreachable)) as raised:
        await link.ask(Operation.GET, GET)
    return raised.value


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (Code.INVALID_ARGUMENT, InvalidParams),
        (Code.NOT_FOUND, TaskNotFound),
        (Code.UNAUTHENTICATED, AuthenticationFailed),
        (Code.PERMISSION_DENIED, PermissionDenied),
        (Code.RESOURCE_EXHAUSTED, RateLimited),
        (Code.FAILED_PRECONDITION, UnsupportedOperation),
        (Code.UNIMPLEMENTED, MethodNotFound),
        (Code.INTERNAL, InternalError),
        (Code.UNKNOWN, RemoteError),
        (Code.DATA_LOSS, RemoteError),
    ],
)
async def test_a_status_has_a_meaning_of_its_own(serves: Serves, code: Code, kind: type[AccordError]) -> None:
    error = await refused(await serves(aborting(code, retry_after="7", www_authenticate="Bearer")))
    assert (type(error), error.message, error.retry_after) == (kind, "no", 7)
    assert error.metadata == {"grpcStatus": code.name}
    assert getattr(error, "challenges", ("Bearer",)) == ("Bearer",)


async def test_grpc_details_override_the_status(serves: Serves) -> None:
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "9s"}
    for code, reason, kind in (
        (Code.UNAVAILABLE, "AGENT_UNAVAILABLE", AgentUnavailable),
        (Code.FAILED_PRECONDITION, "TASK_NOT_FOUND", TaskNotFound),
        (Code.INTERNAL, "INVALID_AGENT_RESPONSE", InvalidAgentResponse),
    ):
        error = await refused(await serves(aborting(code, "no", info(reason), retry)))
        assert (type(error), error.retry_after) == (kind, 9)


async def test_0_3_puts_the_name_in_front_of_the_sentence(serves: Serves) -> None:
    error = await refused(await serves(aborting(Code.INTERNAL, "TaskNotFoundError: gone"), dialect=V03))
    assert (type(error), error.message) == (TaskNotFound, "gone")


async def test_invalid_grpc_details_are_ignored(serves: Serves) -> None:
    async def answers(body: bytes, context: Any) -> bytes:
        await context.abort(Code.NOT_FOUND, "no", (("grpc-status-details-bin", b"\xff\xff"),))
        return b""

    assert type(await refused(await serves(answers))) is TaskNotFound


# --- the network ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True], ids=["ask", "follow"])
async def test_closed_ports_are_unreachable(serves: Serves, streams: bool) -> None:
    link = serves.link(f"127.0.0.1:{free_port()}")
    asked = all_of(link.follow(Operation.SUBSCRIBE, SUBSCRIBE)) if streams else link.ask(Operation.GET, GET)
    with pytest.raises(Unreachable, match="There is no connection") as raised:
        await asked
    assert raised.value.was_sent is False


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def secure(authority: Authority) -> AsyncIterator[Callable[..., Coroutine[Any, Any, str]]]:
    """A function that serves over TLS, and may want to see a certificate."""
    async with AsyncExitStack() as stack:

        async def serve(*, wants_certificate: bool = False) -> str:
            async def answers(body: bytes, context: Any) -> Any:
                return DONE

            own = authority.server()
            credentials = grpc.ssl_server_credentials(
                [(own.key.read_bytes(), own.certificate.read_bytes())],
                authority.certificate.read_bytes() if wants_certificate else None,
                wants_certificate,
            )
            server = grpc.aio.server()
            server.add_generic_rpc_handlers([Handler(answers)])
            address = f"https://localhost:{server.add_secure_port('localhost:0', credentials)}"
            await server.start()
            stack.push_async_callback(server.stop, 0)
            return address

        yield serve


async def test_tls_is_verified(serves: Serves, secure: Callable[..., Any], authority: Authority) -> None:
    address = await secure()
    error = await refused(serves.link(address))
    assert (type(error), error.was_sent) == (Unreachable, False)
    believing = ssl.create_default_context(cafile=str(authority.certificate))
    assert isinstance(await serves.link(address, tls=believing).ask(Operation.GET, GET), Task)


@pytest.mark.parametrize("password", [None, "secret"])
async def test_a_certificate_of_the_clients_own_is_shown(
    serves: Serves, secure: Callable[..., Any], authority: Authority, password: str | None
) -> None:
    address = await secure(wants_certificate=True)
    believing = ssl.create_default_context(cafile=str(authority.certificate))
    error = await refused(serves.link(address, tls=believing))
    assert isinstance(error, Unreachable)
    own = authority.client("alice")
    if password is not None:
        key = load_pem_private_key(own.key.read_bytes(), None)
        locked = BestAvailableEncryption(password.encode())
        own.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    auth = MtlsAuth(own.certificate, own.key, password=password)
    assert isinstance(await serves.link(address, tls=believing, auth=auth).ask(Operation.GET, GET), Task)


@pytest.mark.parametrize("streams", [False, True], ids=["ask", "follow"])
async def test_no_answer_in_time(serves: Serves, streams: bool) -> None:
    never = asyncio.Event()

    async def answers(body: bytes, context: Any) -> bytes:
        await never.wait()
        return b""

    link = await serves(answers, seconds=0.3)
    asked = all_of(link.follow(Operation.SUBSCRIBE, SUBSCRIBE)) if streams else link.ask(Operation.GET, GET)
    with pytest.raises(TimedOut) as raised:
        await asked
    assert raised.value.was_sent is True


async def test_an_answer_that_is_too_large(serves: Serves) -> None:
    async def answers(body: bytes, context: Any) -> bytes:
        return b"x" * 2000

    error = await refused(await serves(answers, max_bytes=1000))
    assert (type(error), error.message) == (InvalidAgentResponse, "The answer has more than 1000 bytes")


@pytest.mark.parametrize("body", [b"\xff\xff", b"", a2a_pb2.Task(id="t").SerializeToString()])
async def test_an_answer_that_makes_no_sense(serves: Serves, body: bytes) -> None:
    async def answers(asked: bytes, context: Any) -> bytes:
        return body

    assert type(await refused(await serves(answers))) is InvalidAgentResponse


async def followed(link: GrpcLink) -> tuple[list[Event], Any]:
    found: list[Event] = []
    try:
        async for event in link.follow(Operation.SUBSCRIBE, SUBSCRIBE):
            found.append(event)
    except (AccordError, Unreachable) as error:
        return found, error
    return found, None


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_stream_must_reach_its_end(serves: Serves, is_over: bool) -> None:
    async def answers(body: bytes, context: Any) -> None:
        for message in (WORKING, COMPLETED)[: 1 + is_over]:
            await context.write(message)

    events, error = await followed(await serves(answers))
    assert [event.seq for event in events] == [1, 2][: 1 + is_over]
    assert type(error) is (type(None) if is_over else StreamBroken)


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_server_that_goes_away_cuts_a_stream(serves: Serves, is_over: bool) -> None:
    never = asyncio.Event()

    async def answers(body: bytes, context: Any) -> None:
        await context.write(COMPLETED if is_over else WORKING)
        await never.wait()

    link = await serves(answers)
    events: Any = link.follow(Operation.SUBSCRIBE, SUBSCRIBE)
    assert isinstance((await anext(events)).body, StatusUpdate)
    await serves.server.stop(0)
    if is_over:
        assert await all_of(events) == []
        return
    with pytest.raises(StreamBroken) as raised:
        await anext(events)
    assert raised.value.was_sent is True


async def test_an_error_in_a_stream_comes_after_its_events(serves: Serves) -> None:
    async def answers(body: bytes, context: Any) -> None:
        await context.write(WORKING)
        await context.abort(Code.RESOURCE_EXHAUSTED, "enough")

    events, error = await followed(await serves(answers))
    body = events[0].body
    assert isinstance(body, StatusUpdate)
    assert (body.status.state, type(error), len(events)) == (TaskState.WORKING, RateLimited, 1)


async def test_leaving_a_stream_cancels_the_call(serves: Serves) -> None:
    left = asyncio.Event()

    async def answers(body: bytes, context: Any) -> None:
        context.add_done_callback(lambda _: left.set())
        await context.write(WORKING)
        await asyncio.Event().wait()

    events: Any = (await serves(answers)).follow(Operation.SUBSCRIBE, SUBSCRIBE)
    await anext(events)
    await events.aclose()
    await left.wait()


# --- where connections may go ---------------------------------------------------------------------------------------


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked up; every one of them is this machine."""
    asked: list[str] = []
    real = socket.getaddrinfo

    def found(host: Any, *rest: Any, **more: Any) -> Any:
        asked.append(host)
        return real("127.0.0.1", *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", found)
    return asked


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("127.0.0.1:5000", "Only https"),
        ("https://127.0.0.1:5000", "not a public address: loopback"),
        ("10.0.0.1:5000", "not a public address: a private network"),
        ("agent.example:5000", "has an address that is not public: loopback"),
    ],
)
@pytest.mark.usefixtures("names")
async def test_the_policy_restricts_grpc_targets(serves: Serves, address: str, reason: str) -> None:
    error = await refused(serves.link(address, policy=Policy()))
    assert (type(error), error.was_sent, reason in error.reason) == (Unreachable, False, True)


async def test_the_checked_address_is_pinned(
    serves: Serves, secure: Callable[..., Any], authority: Authority, names: list[str]
) -> None:
    """gRPC looks up no name itself, and still holds the server to the one that was asked for."""
    address = await secure()
    trusting = Policy(allow_hosts=frozenset({"localhost", "agent.example"}))
    believing = ssl.create_default_context(cafile=str(authority.certificate))
    link = serves.link(address, policy=trusting, tls=believing)
    answers = await asyncio.gather(*(link.ask(Operation.GET, GET) for _ in range(3)))
    assert [type(task) for task in answers] == [Task] * 3
    other = address.replace("localhost", "agent.example")
    assert isinstance(await refused(serves.link(other, policy=trusting, tls=believing)), Unreachable)
    assert set(names) == {"localhost", "agent.example"}


async def test_a_policy_that_trusts_a_host_may_call_it_in_the_clear(serves: Serves) -> None:
    async def answers(body: bytes, context: Any) -> Any:
        return DONE

    link = await serves(answers, policy=Policy(allow_private=True))
    assert isinstance(await link.ask(Operation.GET, GET), Task)


# --- credentials ----------------------------------------------------------------------------------------------------


class Renewed:
    """A token that has to be renewed once."""

    def prepare(self, request: HttpRequest) -> AuthFlow:
        return with_header(request, "Authorization", "Bearer old")
        yield

    def retry(self, request: HttpRequest, refused: HttpReply) -> AuthFlow | None:
        assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        return self._renewed(request)

    def _renewed(self, request: HttpRequest) -> AuthFlow:
        return with_header(request, "Authorization", "Bearer new")
        yield


@pytest.mark.parametrize("auth", [Bearer("new"), Renewed()], ids=["bearer", "renewed"])
@pytest.mark.parametrize("streams", [False, True], ids=["ask", "follow"])
async def test_calls_carry_credentials(serves: Serves, auth: ClientAuth, streams: bool) -> None:
    async def admit(context: Any) -> None:
        if dict(list(context.invocation_metadata()))["authorization"] != "Bearer new":
            await context.abort(Code.UNAUTHENTICATED, "who?", (("www-authenticate", "Bearer"),))

    async def get(body: bytes, context: Any) -> Any:
        await admit(context)
        return DONE

    async def follow(body: bytes, context: Any) -> None:
        await admit(context)
        await context.write(COMPLETED)

    link = await serves(follow if streams else get, auth=auth)
    if streams:
        assert len(await all_of(link.follow(Operation.SUBSCRIBE, SUBSCRIBE))) == 1
    else:
        assert isinstance(await link.ask(Operation.GET, GET), Task)


@pytest.mark.proves("VER-CLIENT-001")
async def test_headers_and_the_last_event_go_into_metadata(serves: Serves) -> None:
    seen: dict[str, Any] = {}

    async def answers(body: bytes, context: Any) -> None:
        seen.update(list(context.invocation_metadata()))
        await context.write(COMPLETED)

    link = await serves(answers, headers={"X-Mine": "1"}, extensions=["urn:a"])
    await all_of(link.follow(Operation.SUBSCRIBE, SUBSCRIBE, after=5))
    stated = {name: seen[name] for name in ("a2a-version", "a2a-extensions", "x-mine", "last-event-id")}
    assert stated == {"a2a-version": "1.0", "a2a-extensions": "urn:a", "x-mine": "1", "last-event-id": "5"}
