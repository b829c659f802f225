"""Calls whose message does not come: who waits for how long, how many of them, and that the others are served."""

import asyncio
from collections.abc import AsyncIterator
from time import time
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as new

from accord.a2a import Caller
from accord.auth.authentication import Access, Presented
from accord.auth.rate_limits import Quotas
from accord.auth.scheme_settings import Header, Hmac, Secret
from accord.auth.shared_secrets import HeaderAccess, HmacAccess
from accord.model import Event, Task, TaskState, TaskStatus
from accord.protocol import http_headers
from tests.engine.doubles import until
from tests.http.grpc.conftest import STUBS, Serving, Told, failing

TASK = Task(id="t-1", context_id="c-1", status=TaskStatus(state=TaskState.WORKING))
PATH = "/lf.a2a.v1.A2AService/"
GET = new.GetTaskRequest(id="t-1")
SECRET = "a secret that two parties share"
KNOWN = (("x-key", SECRET),)
SIGNED = "x-a2a-signature"
SOON, NEVER = Quotas(body_seconds=0.05), Quotas(body_seconds=3600.0)


def access() -> Access:
    return Access(
        [
            HeaderAccess(Header(name="x-key", secrets=(Secret(secret=SECRET, owner="alice"),))),
            HmacAccess(Hmac(keys={"partner": Secret(secret=SECRET)})),
        ]
    )


def signature(method: str = "GetTask", body: bytes = GET.SerializeToString()) -> tuple[tuple[str, str], ...]:
    request = http_headers.SignedRequest(method="POST", target=PATH + method)
    return ((SIGNED, http_headers.sign_body(body, int(time()), [SECRET.encode()], request=request, key_id="partner")),)


class Stalled:
    """A call that says who makes it, and sends its message when it is let go."""

    def __init__(self, channel: Any, method: str, metadata: Any = ()) -> None:
        self.go = asyncio.Event()
        make = channel.stream_stream if method in ("SubscribeToTask", "SendStreamingMessage") else channel.stream_unary
        self.call = make(PATH + method)(self._message(), metadata=metadata)

    async def _message(self) -> AsyncIterator[bytes]:
        await self.go.wait()
        yield GET.SerializeToString()


@pytest.mark.parametrize("method", ["GetTask", "SubscribeToTask"])
async def test_a_message_that_does_not_come_is_not_waited_for(method: str, serving: Serving, dial: Any) -> None:
    service = Told(TASK)
    address = await serving(service, quotas=SOON)
    failure = await failing(Stalled(dial(address), method).call)
    assert (failure.code, failure.details["ErrorInfo"].reason) == ("DEADLINE_EXCEEDED", "REQUEST_TIMEOUT")
    assert not service.asked


async def test_signed_callers_have_the_same_read_timeout(serving: Serving, dial: Any) -> None:
    address = await serving(Told(TASK), quotas=SOON, admit=access().admit)
    assert (await failing(Stalled(dial(address), "GetTask", signature()).call)).code == "DEADLINE_EXCEEDED"


async def test_anonymous_calls_are_refused_before_a_message(serving: Serving, dial: Any) -> None:
    address = await serving(Told(TASK), quotas=NEVER, admit=access().admit)
    for wrong in ((), (("x-key", "wrong"),), ((SIGNED, "nonsense"),), ((SIGNED, "t=1,k=partner,v1=" + "0" * 64),)):
        assert (await failing(Stalled(dial(address), "GetTask", wrong).call)).code == "UNAUTHENTICATED"


@pytest.mark.proves("4-30")
async def test_a_signature_is_checked_with_the_message_when_that_is_there(serving: Serving, dial: Any) -> None:
    service = Told(TASK, (Event(seq=1, body=TASK),))
    seen: list[bool] = []
    gate = access()

    async def admit(presented: Presented) -> Caller:
        seen.append(presented.body is not None)
        return await gate.admit(presented)

    stub = STUBS["v1"](dial(await serving(service, admit=admit)))
    assert (await stub.GetTask(GET, metadata=signature())).id == "t-1"
    assert seen == [False, True]
    assert (await failing(stub.GetTask(new.GetTaskRequest(id="t-2"), metadata=signature()))).code == "UNAUTHENTICATED"
    assert [asked.caller.owner for asked in service.asked] == ["partner"]


async def test_authenticated_callers_get_time_for_large_messages(serving: Serving, dial: Any) -> None:
    """A stranger's call, begun later, is over when it is not."""
    quotas = Quotas(body_seconds=0.05, body=1_000_000, body_rate=1000)
    address = await serving(Told(TASK), quotas=quotas, admit=access().admit)
    known = Stalled(dial(address), "GetTask", KNOWN)
    await failing(Stalled(dial(address), "GetTask", signature()).call)
    assert not known.call.done()
    known.go.set()
    assert new.Task.FromString(await known.call).id == "t-1"


async def test_a_call_that_ends_without_a_message_is_refused(serving: Serving, dial: Any) -> None:
    async def nothing() -> AsyncIterator[bytes]:
        for _ in ():
            yield b""

    call = dial(await serving(Told(TASK))).stream_unary(PATH + "GetTask")(nothing())
    assert (await failing(call)).code == "INVALID_ARGUMENT"


async def test_extra_messages_are_not_read(serving: Serving, dial: Any) -> None:
    async def two() -> AsyncIterator[bytes]:
        yield GET.SerializeToString()
        yield b"\xff"

    service = Told(TASK)
    assert await dial(await serving(service)).stream_unary(PATH + "GetTask")(two())
    assert [asked.request.id for asked in service.asked] == ["t-1"]


# --- many ---------------------------------------------------------------------------------------------------------


async def refused(calls: list[Stalled], number: int) -> list[Stalled]:
    """Wait until so many of the calls are over, and return them."""

    async def are_over() -> bool:
        return sum(bool(one.call.done()) for one in calls) == number

    await until(are_over)
    return [one for one in calls if one.call.done()]


async def test_strangers_wait_in_a_room_of_their_own(serving: Serving, dial: Any) -> None:
    address = await serving(Told(TASK), quotas=NEVER, max_calls=8, admit=access().admit)
    channel = dial(address)
    calls = [Stalled(channel, "GetTask", signature()) for _ in range(6)]
    over = await refused(calls, 4)
    assert {(await failing(one.call)).code for one in over} == {"RESOURCE_EXHAUSTED"}
    stub = STUBS["v1"](dial(address))
    assert (await stub.GetTask(GET, metadata=KNOWN)).id == "t-1", "who is known is not held up by strangers"
    assert (await failing(stub.GetTask(GET, metadata=signature()))).code == "RESOURCE_EXHAUSTED"
    for one in calls:
        one.call.cancel()

    async def is_taken() -> bool:
        call = stub.GetTask(GET, metadata=signature())  # whoever is refused for want of room has not used it up
        code = await call.code()
        return bool(code is grpc.StatusCode.OK)

    await until(is_taken)


async def test_unread_messages_are_limited(serving: Serving, dial: Any) -> None:
    address = await serving(Told(TASK), quotas=NEVER, max_calls=8, admit=access().admit)
    channel = dial(address)
    calls = [Stalled(channel, "SubscribeToTask", KNOWN) for _ in range(5)]
    for one in await refused(calls, 3):
        assert (await failing(one.call)).code == "RESOURCE_EXHAUSTED"
