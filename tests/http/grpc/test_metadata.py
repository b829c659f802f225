"""What a call says besides its message: who makes it, in which version, with which extensions, to whom, since when."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import grpc
import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.types import a2a_pb2 as new

from accord.a2a import Caller
from accord.auth.authentication import Access, Identity, Presented
from accord.errors import AuthenticationFailed
from accord.http.grpc import GrpcBinding
from accord.model import Event, SecurityScheme, Task, TaskState, TaskStatus
from accord.protocol.operations import DialectName
from tests.http.grpc.conftest import STUBS, Serving, Told, all_of, failing

TASK = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.WORKING))
GET: dict[str, Any] = {"v1": new.GetTaskRequest(id="t-1"), "v03": old.GetTaskRequest(name="tasks/t-1")}
SUBSCRIBE = new.SubscribeToTaskRequest(id="t-1")


class Token:
    """Lets in who brings one of two tokens."""

    name = "token"
    security: Mapping[str, SecurityScheme] = MappingProxyType({})
    challenge = 'Bearer realm="tests"'

    async def identify(self, presented: Presented) -> Identity | None:
        stated = presented.header("authorization")
        if stated is None:
            return None
        if stated != "Bearer right":
            raise AuthenticationFailed("The token is not valid")
        return Identity(owner="alice", tenant="acme", roles=frozenset({"user"}))


# --- who ----------------------------------------------------------------------------------------------------------


@pytest.mark.proves("AUTH-SERVER-002")
@pytest.mark.parametrize("dialect", ["v1", "v03"])
async def test_only_valid_tokens_are_accepted(dialect: str, serving: Serving, dial: Any) -> None:
    service = Told(TASK, (Event(seq=0, body=TASK),))
    stub = STUBS[dialect](dial(await serving(service, admit=Access([Token()]).admit)))
    for metadata in ((), (("authorization", "Bearer wrong"),), (("authorization", "Bearer right"),) * 2):
        failure = await failing(stub.GetTask(GET[dialect], metadata=metadata))
        assert (failure.code, failure.details["ErrorInfo"].reason) == ("UNAUTHENTICATED", "UNAUTHENTICATED")
        assert failure.metadata["www-authenticate"] == 'Bearer realm="tests"'
    assert not service.asked
    answer = await stub.GetTask(GET[dialect], metadata=(("authorization", "Bearer right"),))
    assert answer.id == "t-1"
    (asked,) = service.asked
    caller = asked.caller
    assert (caller.owner, caller.tenant, caller.roles, caller.origin) == ("alice", "acme", frozenset({"user"}), dialect)


async def test_a_stream_and_a_broken_message_need_the_token_as_well(serving: Serving, dial: Any) -> None:
    address = await serving(Told(TASK), admit=Access([Token()]).admit)
    stub = STUBS["v1"](dial(address))
    assert (await failing(stub.SubscribeToTask(SUBSCRIBE))).code == "UNAUTHENTICATED"
    raw = dial(address).unary_unary("/lf.a2a.v1.A2AService/GetTask")
    assert (await failing(raw(b"\xff"))).code == "UNAUTHENTICATED"


async def test_the_gate_sees_the_call_as_the_http_request_that_it_is(serving: Serving, dial: Any) -> None:
    seen: list[Presented] = []

    async def admit(presented: Presented) -> Caller:
        seen.append(presented)
        return Caller(owner="bob")

    stub = STUBS["v1"](dial(await serving(Told(TASK), admit=admit)))
    await stub.GetTask(GET["v1"], metadata=(("x-key", "k"), ("trace-bin", b"\0\xff")))
    (presented,) = seen
    assert (presented.method, presented.target) == ("POST", "/lf.a2a.v1.A2AService/GetTask")
    assert presented.body is None, "who can say so in the metadata is let in before the message is read"
    assert (presented.peer, presented.certificate) == ("127.0.0.1", None)
    assert presented.header("X-Key") == "k"
    assert (b"trace-bin", b"\0\xff") in list(presented.headers)


async def test_the_address_of_a_caller_is_plain_in_ipv6_too(dial: Any) -> None:
    seen: list[str] = []

    async def admit(presented: Presented) -> Caller:
        seen.append(presented.peer)
        return Caller()

    server = GrpcBinding(Told(TASK), admit=admit)
    try:
        port = await server.start("[::1]:0")
    except OSError:
        pytest.skip("this machine has no IPv6")
    await STUBS["v1"](dial(f"[::1]:{port}")).GetTask(GET["v1"])
    await server.stop(0)
    assert seen == ["::1"]


async def test_failing_authentication_refuses_and_leaks_nothing(
    serving: Serving, dial: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def admit(presented: Presented) -> Caller:
        raise LookupError("the directory of secrets is gone")

    failure = await failing(STUBS["v1"](dial(await serving(Told(TASK), admit=admit))).GetTask(GET["v1"]))
    assert failure.code == "INTERNAL"
    assert "secrets" not in failure.sentence
    assert "secrets" in caplog.text


# --- which version ------------------------------------------------------------------------------------------------


@pytest.mark.proves("GRPC-META-001")
@pytest.mark.parametrize(
    ("dialect", "version", "is_spoken"),
    [
        ("v1", None, True),
        ("v1", "", True),
        ("v1", "1.0", True),
        ("v1", "1.0.1", True),
        ("v1", "0.3", False),
        ("v1", "99.0", False),
        ("v1", "one", False),
        ("v03", None, True),
        ("v03", "", True),
        ("v03", "0.3", True),
        ("v03", "0.3.0", True),
        ("v03", "0.2.6", True),
        ("v03", "1.0", False),
        ("v03", "99.0", False),
    ],
)
async def test_a_version_that_the_service_does_not_speak_is_refused(
    dialect: str, version: str | None, is_spoken: bool, serving: Serving, dial: Any
) -> None:
    service = Told(TASK)
    stub = STUBS[dialect](dial(await serving(service)))
    call = stub.GetTask(GET[dialect], metadata=() if version is None else (("a2a-version", version),))
    if is_spoken:
        assert (await call).id == "t-1"
        return
    failure = await failing(call)
    info = failure.details["ErrorInfo"]
    assert (failure.code, info.reason, info.domain) == (
        "FAILED_PRECONDITION",
        "VERSION_NOT_SUPPORTED",
        "a2a-protocol.org",
    )
    assert info.metadata["supported"]
    assert not service.asked


@pytest.mark.parametrize(("enabled", "absent"), [(DialectName.V1, "v03"), (DialectName.V03, "v1")])
async def test_a_dialect_that_is_off_has_no_service(
    enabled: DialectName, absent: str, serving: Serving, dial: Any
) -> None:
    address = await serving(Told(TASK), enabled=frozenset({enabled, DialectName.VAULT}))
    assert (await STUBS[enabled.value](dial(address)).GetTask(GET[enabled.value])).id == "t-1"
    assert (await failing(STUBS[absent](dial(address)).GetTask(GET[absent]))).code == "UNIMPLEMENTED"


# --- which extensions, which agent, since when --------------------------------------------------------------------


@pytest.mark.proves("GRPC-META-001")
@pytest.mark.parametrize(
    ("metadata", "extensions"),
    [
        ((), set()),
        ((("a2a-extensions", "urn:a, urn:b"),), {"urn:a", "urn:b"}),
        ((("a2a-extensions", "urn:a"), ("a2a-extensions", "urn:b")), {"urn:a", "urn:b"}),
        ((("x-a2a-extensions", "urn:a"),), {"urn:a"}),
    ],
)
async def test_extensions_reach_the_service(metadata: tuple, extensions: set[str], serving: Serving, dial: Any) -> None:
    service = Told(TASK)
    await STUBS["v1"](dial(await serving(service))).GetTask(GET["v1"], metadata=metadata)
    assert service.asked[0].caller.extensions == extensions


@pytest.mark.proves("GRPC-META-001")
@pytest.mark.parametrize("header", ["a2a-extensions", "x-a2a-extensions"])
async def test_replies_name_active_extensions(header: str, serving: Serving, dial: Any) -> None:
    address = await serving(Told(TASK, (Event(seq=1, body=TASK),)), extensions=frozenset({"urn:a", "urn:b"}))
    stub, declared = STUBS["v1"](dial(address)), ((header, "urn:b,urn:c"),)
    call = stub.GetTask(GET["v1"], metadata=declared)
    await call
    assert dict(list(await call.trailing_metadata())) == {header: "urn:b"}
    stream = stub.SubscribeToTask(SUBSCRIBE, metadata=declared)
    assert dict(list(await stream.initial_metadata())) == {header: "urn:b", "last-event-id": "1"}
    silent = stub.GetTask(GET["v1"])
    await silent
    assert not list(await silent.trailing_metadata())


async def test_a_call_may_name_another_agent_than_the_first(serving: Serving, dial: Any) -> None:
    first, other = Told(TASK), Told(TASK, (Event(seq=0, body=TASK),))
    stub = STUBS["v1"](dial(await serving(first, agents={"other": other})))
    await stub.GetTask(GET["v1"])
    await stub.GetTask(GET["v1"], metadata=(("x-accord-agent", "other"),))
    await all_of(stub.SubscribeToTask(SUBSCRIBE, metadata=(("x-accord-agent", "other"),)))
    assert (len(first.asked), len(other.asked)) == (1, 2)
    failure = await failing(stub.GetTask(GET["v1"], metadata=(("x-accord-agent", "nobody"),)))
    assert (failure.code, "nobody" in failure.sentence) == ("INVALID_ARGUMENT", True)


@pytest.mark.parametrize("dialect", ["v1", "v03"])
async def test_streams_resume_after_the_caller_s_last_event(dialect: str, serving: Serving, dial: Any) -> None:
    ended = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.COMPLETED))
    service = Told(events=(Event(seq=7, body=TASK), Event(seq=9, body=ended)))
    stub = STUBS[dialect](dial(await serving(service)))
    follow, sent = (
        (stub.SubscribeToTask, SUBSCRIBE)
        if dialect == "v1"
        else (stub.TaskSubscription, old.TaskSubscriptionRequest(name="tasks/t-1"))
    )
    call = follow(sent, metadata=(("last-event-id", "7"),))
    assert dict(list(await call.initial_metadata())) == {"last-event-id": "7"}
    assert len(await all_of(call)) == 2
    assert dict(list(await call.trailing_metadata())) == {"last-event-id": "9"}
    assert service.asked[0].after == 7
    failure = await failing(follow(sent, metadata=(("last-event-id", "seven"),)))
    assert failure.code == "INVALID_ARGUMENT"
    assert failure.details["BadRequest"].field_violations[0].field == "Last-Event-ID"


async def test_the_first_event_s_number_arrives_before_there_is_a_second(serving: Serving, dial: Any) -> None:
    more = asyncio.Event()

    class Slow(Told):
        async def subscribe(self, request: Any, caller: Any, after: int | None = None) -> Any:
            yield Event(seq=3, body=TASK)
            await more.wait()

    call = STUBS["v1"](dial(await serving(Slow()))).SubscribeToTask(SUBSCRIBE)
    assert dict(list(await call.initial_metadata())) == {"last-event-id": "3"}
    more.set()
    assert len(await all_of(call)) == 1


async def test_metadata_as_large_as_a_token_is_taken(serving: Serving, dial: Any) -> None:
    service = Told(TASK)
    stub = STUBS["v1"](dial(await serving(service)))
    assert (await stub.GetTask(GET["v1"], metadata=(("authorization", "Bearer " + "x" * 20_000),))).id == "t-1"
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.GetTask(GET["v1"], metadata=(("authorization", "Bearer " + "x" * 200_000),))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len(service.asked) == 1
