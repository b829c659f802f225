"""What goes wrong between a message and its answer: it is repeated only where nothing can happen twice."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.client import Client, Retries, TimedOut, Unconfirmed, Unreachable
from accord.client.retries import IDEMPOTENT_OPERATIONS, may_retry
from accord.errors import AgentUnavailable, InternalError, RateLimited, RemoteError, TaskNotFound
from accord.model import CancelRequest, GetRequest, PushConfig, TaskState
from accord.protocol.cards import decode_card
from accord.protocol.operations import DialectName, Operation
from tests.cases import each
from tests.certificates import Authority
from tests.client.conftest import no_time
from tests.client.faulty import DROPPED, LOST, TEXT, Fault, Faulty, answer, refusal, served
from tests.ports import free_port

SEND, GET = Operation.SEND, Operation.GET


@asynccontextmanager
async def talking(faulty: Faulty, **more: Any) -> AsyncIterator[Client]:
    async with served(faulty), Client.connect(faulty.url, **more) as client:
        client.peer.sleep = no_time
        yield client


# --- the answer is lost -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [LOST, DROPPED, Fault(does_it=True, status=500), Fault(does_it=True, status=502)])
@pytest.mark.proves("C-08")
async def test_idempotent_agents_get_the_message_again(fault: Fault) -> None:
    faulty = Faulty(promises=True)
    faulty.faults = {SEND: [fault, fault]}
    async with talking(faulty) as client:
        said = await client.send_text("hi")
        assert said.text == TEXT
        assert len(faulty.runs) == 1
        ids = {one.params["message"]["messageId"] for one in faulty.asked}
        assert len(ids) == 1
        assert faulty.operations() == [SEND] * 3


@pytest.mark.proves("C-08")
async def test_other_agents_are_searched_for_the_message() -> None:
    faulty = Faulty()
    faulty.faults = {SEND: [LOST]}
    async with talking(faulty) as client:
        assert (await client.send_text("hi")).text == TEXT
        assert len(faulty.runs) == 1
        assert faulty.operations()[:2] == [SEND, Operation.LIST]


@pytest.mark.parametrize(
    "faulty",
    [lambda: Faulty(lists=False), lambda: Faulty(dialect=DialectName.V03), Faulty],
    ids=["no list", "v03", "not in the list"],
)
@pytest.mark.proves("C-08")
async def test_unconfirmed_sends_are_reported(faulty: Callable[[], Faulty]) -> None:
    made = faulty()
    made.faults = {SEND: [DROPPED]}
    async with talking(made) as client:
        with pytest.raises(Unconfirmed, match="may have been accepted") as raised:
            await client.send_text("hi")
        assert raised.value.task_id is None
        assert made.operations().count(SEND) == 1
        assert raised.value.message_id == made.asked[0].params["message"]["messageId"]


async def test_a_reply_whose_answer_was_lost_is_looked_for_in_its_task() -> None:
    faulty = Faulty(dialect=DialectName.V03)
    async with talking(faulty) as client:
        task = await client.start("hi")
        faulty.faults = {SEND: [LOST]}
        await task.reply("more")
        assert faulty.operations() == [SEND, SEND, GET]
        faulty.faults = {SEND: [DROPPED]}
        with pytest.raises(Unconfirmed):
            await task.reply("even more")


async def test_callers_can_declare_agents_idempotent() -> None:
    faulty = Faulty()
    faulty.faults = {SEND: [DROPPED]}
    async with talking(faulty, is_idempotent=True) as client:
        assert (await client.send_text("hi")).text == TEXT


class Silent(Faulty):
    """Takes a message and answers, if ever, when it is told to."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.go = asyncio.Event()

    def _answer(self, operation: Operation, call: dict[str, Any], writer: Any) -> bool:
        waits = operation is SEND and not call["params"].get("configuration", {}).get("returnImmediately")
        return True if waits and not self.go.is_set() else super()._answer(operation, call, writer)


@pytest.mark.proves("1-07")
async def test_timeouts_name_the_running_task() -> None:
    for promises in (True, False):
        faulty = Silent(promises=promises)
        async with talking(faulty) as client:
            with pytest.raises(Unconfirmed, match="it became task t-1") as raised:
                await client.send_text("hi", seconds=0.2)
            assert isinstance(raised.value, TimedOut)
            assert raised.value.task_id == "t-1"
            assert len(faulty.runs) == 1
            assert (await client.task("t-1")).text == TEXT


async def test_non_blocking_agents_get_the_same_timeout() -> None:
    class Endless(Faulty):
        def _answer(self, operation: Operation, call: dict[str, Any], writer: Any) -> bool:
            call["params"]["configuration"] = {"returnImmediately": True}
            self.position = min(self.position, 2)
            return super()._answer(operation, call, writer)

    faulty = Endless(subscribes=False)
    async with talking(faulty) as client:
        with pytest.raises(TimedOut, match="it became task t-1"):
            await client.send_text("hi", seconds=0.2)


@pytest.mark.proves("1-07", "4-49")
async def test_the_default_timeout_is_a_minute() -> None:
    async with talking(Faulty()) as client:
        assert client.timeout == 60
    faulty = Silent(promises=False, lists=False)
    async with talking(faulty, timeout=0.2) as client:
        with pytest.raises(Unconfirmed):
            await client.send_text("hi")


# --- refusals that pass -------------------------------------------------------------------------------------------


@pytest.mark.proves("4-49")
async def test_retry_after_is_respected() -> None:
    faulty = Faulty()
    later = (("Retry-After", "7"),)
    faulty.faults = {SEND: [Fault(status=429, headers=later), Fault(status=503, headers=later)]}
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    async with talking(faulty) as client:
        client.peer.sleep = note
        assert (await client.send_text("hi")).text == TEXT
    assert len(faulty.runs) == 1
    assert waited == [7.0, 7.0]


async def test_long_retry_after_is_reported() -> None:
    faulty = Faulty()
    faulty.faults = {SEND: [Fault(status=429, headers=(("Retry-After", "3600"),))]}
    async with talking(faulty) as client:
        with pytest.raises(RateLimited) as raised:
            await client.send_text("hi")
        assert raised.value.retry_after == 3600


@pytest.mark.parametrize(
    ("code", "kind"), [(429, RateLimited), (500, InternalError), (502, RemoteError), (503, AgentUnavailable)]
)
async def test_a_send_that_failed_halfway_is_not_repeated(code: int, kind: type[Exception]) -> None:
    faulty = Faulty()
    faulty.faults = {SEND: [Fault(does_it=True, status=code)]}
    async with talking(faulty) as client:
        with pytest.raises(kind):
            await client.send_text("hi")
        assert len(faulty.runs) == 1


@pytest.mark.proves("4-49")
async def test_reads_are_always_retried() -> None:
    faulty = Faulty()
    async with talking(faulty) as client:
        await client.start("hi")
        for fault in (LOST, DROPPED, Fault(status=500), Fault(status=502), Fault(status=503), Fault(status=429)):
            faulty.faults = {GET: [fault, fault]}
            assert (await client.get(GetRequest(id="t-1"))).id == "t-1"
        faulty.faults = {GET: [DROPPED] * 5}
        with pytest.raises(Unreachable):
            await client.get(GetRequest(id="t-1"))


async def test_cancels_with_lost_answers_are_confirmed() -> None:
    class Strict(Faulty):
        def _answer(self, operation: Operation, call: dict[str, Any], writer: Any) -> bool:
            if operation is Operation.CANCEL and self.task().status.state is TaskState.CANCELED:
                answer(writer, 200, refusal(call["id"], -32002, "Not cancelable"))
                return True
            return super()._answer(operation, call, writer)

        async def _call(self, call: dict[str, Any], headers: dict[str, str], writer: Any) -> bool:
            if call["method"] == "CancelTask" and not self.operations().count(Operation.CANCEL):
                await super()._call(call, headers, writer)
                return False
            return await super()._call(call, headers, writer)

    faulty = Strict()
    async with talking(faulty) as client:
        await client.start("hi")
        # What was written before the connection broke may have arrived, so the answer is thrown away with it.
        task = await client.cancel(CancelRequest(id="t-1"))
        assert task.status.state is TaskState.CANCELED


# --- nobody is there ----------------------------------------------------------------------------------------------


async def test_a_name_that_does_not_exist_is_reported() -> None:
    with pytest.raises(Unreachable, match="has no address") as raised:
        async with Client.connect("http://nowhere.invalid/"):
            pass
    assert not raised.value.was_sent


async def test_closed_ports_are_reported() -> None:
    with pytest.raises(Unreachable, match="no connection") as raised:
        async with Client.connect(f"http://127.0.0.1:{free_port()}"):
            pass
    assert not raised.value.was_sent


@pytest.mark.proves("4-23", "AUTH-SERVER-001")
async def test_untrusted_certificates_are_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    issued = authority.server()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(issued.certificate, issued.key)
    faulty = Faulty()
    async with served(faulty, tls=serving):
        secure = faulty.url.replace("http:", "https:")
        with pytest.raises(Unreachable, match="certificate") as raised:
            async with Client.connect(secure):
                pass
        assert not raised.value.was_sent
        trusting = ssl.create_default_context(cafile=str(authority.certificate))
        faulty.scheme = "https"
        async with Client.connect(secure, tls=trusting) as client:
            assert (await client.send_text("hi")).text == TEXT


async def test_short_outages_are_invisible() -> None:
    faulty = Faulty()
    faulty.port = free_port()
    client = await Client.connect(decode_card(faulty.card()))
    missing = 0

    async def come_back(_seconds: float) -> None:
        nonlocal missing
        missing += 1
        if missing == 3:
            await again.__aenter__()

    again = served(faulty)
    client.peer.sleep = come_back
    try:
        assert (await client.send_text("hi")).text == TEXT
        assert (missing, len(faulty.runs)) == (3, 1)
    finally:
        await client.close()
        await again.__aexit__(None, None, None)


# --- the rule -----------------------------------------------------------------------------------------------------

ERRORS = [
    Unreachable("x", was_sent=True),
    TimedOut("x", was_sent=True),
    InternalError(),
    AgentUnavailable(),
    RemoteError(metadata={"status": "502"}),
    RemoteError(metadata={"status": "504"}),
    AgentUnavailable(retry_after=1, metadata={"status": "504"}),
    RateLimited(),
    RateLimited(metadata={"status": "429"}),
    RateLimited(retry_after=1, metadata={"status": "500"}),
    TaskNotFound(),
]


@each("error", ERRORS)
@pytest.mark.proves("C-08")
def test_no_error_that_may_follow_acceptance_has_a_message_repeated(error: Exception) -> None:
    request = GetRequest(id="t")
    for operation in (Operation.SEND, Operation.STREAM):
        assert not may_retry(operation, request, error, is_idempotent=False)
    unnamed, named = PushConfig(url="https://x.example"), PushConfig(url="https://x.example", id="p")
    assert not may_retry(Operation.PUSH_SET, unnamed, error, is_idempotent=False)
    helps = not isinstance(error, TaskNotFound)
    assert may_retry(Operation.PUSH_SET, named, error, is_idempotent=False) is helps
    for operation in IDEMPOTENT_OPERATIONS:
        assert may_retry(operation, request, error, is_idempotent=False) is helps


@given(attempt=st.integers(0, 10_000), chance=st.floats(0, 1))
def test_waits_grow_and_are_bounded(attempt: int, chance: float) -> None:
    retries = Retries()
    delay = retries.delay(attempt, InternalError(), draw=lambda: chance)
    assert delay is not None
    assert 0 < delay <= retries.most_seconds
    told = retries.delay(attempt, RateLimited(retry_after=30), draw=lambda: chance)
    assert told == 30
