"""Our client against other implementations' servers: each row of `OFFERS` does everything that it does not lack."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from typing import Any
from uuid import uuid4

import pytest

from accord.client.client import Client
from accord.client.handle import RemoteTask
from accord.client.retries import Retries
from accord.core.interface import Caller
from accord.errors import AccordError, TaskNotCancelable, TaskNotFound
from accord.model import (
    Authentication,
    CancelRequest,
    CardRequest,
    Event,
    GetRequest,
    Message,
    Part,
    PushConfig,
    PushDeleteRequest,
    PushGetRequest,
    PushListRequest,
    Role,
    SendConfiguration,
    SendRequest,
    StatusUpdate,
    Task,
    TaskFilter,
    TaskState,
)
from accord.protocol import lifecycle
from accord.protocol.webhook import decode_webhook
from tests.conformance.scene import Receiver, state_of, task_of
from tests.peers.conftest import Peer
from tests.peers.offers import Feature, Offer, parameters
from tests.peers.servers.agent import CHUNKS, NAME, QUESTION

NOBODY = Caller()
SOON = Retries(first_seconds=0.01, first_poll_seconds=0.01)
"""For servers that answer with 500 what they do not have: our client asks again."""

BOUND_SECONDS = 60
Test = Callable[..., Coroutine[Any, Any, None]]


def bounded(test: Test) -> Test:
    """Let a test wait for something that never comes, but not for ever."""

    @wraps(test)
    async def within(*args: Any, **kwargs: Any) -> None:
        async with asyncio.timeout(BOUND_SECONDS):
            await test(*args, **kwargs)

    return within


@pytest.fixture(params=parameters(), scope="session")
def offer(request: pytest.FixtureRequest) -> Offer:
    found: Offer = request.param
    return found


@pytest.fixture
async def client(offer: Offer, started: Callable[[Peer], str]) -> AsyncIterator[Client]:
    async with Client.connect(started(offer.server), binding=offer.binding, retries=SOON) as client:
        yield client


def saying(text: str, **configuration: Any) -> SendRequest:
    message = Message(message_id=str(uuid4()), role=Role.USER, parts=(Part(text=text),))
    return SendRequest(message=message, configuration=SendConfiguration(**configuration))


async def without(offer: Offer, feature: Feature, asking: Coroutine[Any, Any, Any]) -> None:
    """Ask for what a server lacks and be told so."""
    error = offer.lacks[feature].error
    assert error is not None
    with pytest.raises(error):
        await asking


@pytest.mark.proves("1-09", "2-07")
@bounded
async def test_the_card_says_how_to_talk(client: Client, offer: Offer) -> None:
    assert client.card.name == NAME
    assert (client.peer.way.binding, client.peer.way.dialect) == (offer.binding, offer.dialect)


@pytest.mark.proves("1-10", "1-11", "1-15", "2-12")
@bounded
async def test_a_text_is_answered_and_the_task_can_be_read(client: Client) -> None:
    said = await client.send_text("hello")
    assert (said.status, said.text) == (TaskState.COMPLETED, "You said hello")
    assert said.task_id is not None
    read = await client.get(GetRequest(id=said.task_id), NOBODY)
    assert (read.id, read.context_id, read.status.state) == (said.task_id, said.context_id, TaskState.COMPLETED)
    with pytest.raises(TaskNotFound):
        await client.get(GetRequest(id="no such task"), NOBODY)


@pytest.mark.proves("1-12", "C-07")
@bounded
async def test_text_streams_in_the_agents_pieces(client: Client, offer: Offer) -> None:
    pieces = tuple([piece async for piece in client.stream_text("chunks")])
    assert "".join(pieces) == "".join(CHUNKS)
    assert pieces == CHUNKS or Feature.PIECES in offer.lacks


@bounded
async def test_a_stream_adds_up_to_the_task(client: Client) -> None:
    events = [event async for event in client.stream(saying("chunks"), NOBODY)]
    first = events[0].body
    assert isinstance(first, Task)
    task = lifecycle.fold(first, [Event(seq=at, body=event.body) for at, event in enumerate(events[1:], 1)])
    assert task.status.state is TaskState.COMPLETED
    assert "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts) == "".join(CHUNKS)


async def _followed(task: RemoteTask) -> list[Event]:
    return [event async for event in task]


@pytest.mark.proves("1-13")
@bounded
async def test_a_working_task_is_followed_and_cancelled(client: Client) -> None:
    task = await client.start("hold")
    following = asyncio.create_task(_followed(task))
    # By asking: 0.3 does not repeat in a stream what was before it.
    while (await task.refresh()).status.state is not TaskState.WORKING:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    await task.cancel()
    *_, last = await following
    assert state_of(last.body) is TaskState.CANCELED
    assert (await task).status is TaskState.CANCELED
    with pytest.raises(TaskNotFound):
        await client.cancel(CancelRequest(id="no such task"), NOBODY)


@bounded
async def test_what_has_ended_is_not_cancelled(client: Client, offer: Offer) -> None:
    said = await client.send_text("hello")
    assert said.task_id is not None
    asking = client.cancel(CancelRequest(id=said.task_id), NOBODY)
    if Feature.REFUSE_CANCEL in offer.lacks:
        assert (await asking).status.state is TaskState.COMPLETED
    else:
        with pytest.raises(TaskNotCancelable):
            await asking


@bounded
async def test_a_question_is_answered(client: Client, offer: Offer) -> None:
    asked = await client.send_text("ask")
    if Feature.ASK in offer.lacks:
        assert (asked.status, asked.text) == (TaskState.COMPLETED, "You said ask")
        return
    assert asked.status is TaskState.INPUT_REQUIRED
    assert QUESTION in asked.text
    assert asked.task_id is not None
    answered = await client.send_text("blue", task_id=asked.task_id, context_id=asked.context_id)
    assert (answered.status, answered.text) == (TaskState.COMPLETED, "You said blue")
    assert (answered.task_id == asked.task_id) is (Feature.REPLY not in offer.lacks)


@bounded
async def test_a_task_outlives_the_client(client: Client, offer: Offer, started: Callable[[Peer], str]) -> None:
    task = await client.start("hello")
    await client.close()
    async with Client.connect(started(offer.server), binding=offer.binding, retries=SOON) as another:
        said = await another.task(task.id)
        assert (said.task_id, said.text, said.status) == (task.id, "You said hello", TaskState.COMPLETED)


@bounded
async def test_tasks_are_listed(client: Client, offer: Offer) -> None:
    said = await client.send_text("hello")
    asking = client.list(TaskFilter(context_id=said.context_id, include_artifacts=True), NOBODY)
    if Feature.LIST in offer.lacks:
        await without(offer, Feature.LIST, asking)
        return
    assert [(task.id, task.status.state) for task in (await asking).tasks] == [(said.task_id, TaskState.COMPLETED)]


@bounded
async def test_the_extended_card_is_read(client: Client, offer: Offer) -> None:
    asking = client.extended_card(CardRequest(), NOBODY)
    if Feature.EXTENDED_CARD in offer.lacks:
        await without(offer, Feature.EXTENDED_CARD, asking)
        return
    assert (await asking).name == NAME


@pytest.mark.proves("C-22")
@bounded
async def test_a_webhook_is_told_of_the_end(client: Client, offer: Offer, receiver: Receiver) -> None:
    credentials = Authentication(scheme="Bearer", credentials="credentials")
    config = PushConfig(url=receiver.url, token="secret", authentication=credentials)
    task = await client.start("hello", push=config)
    assert task.is_pushed is (Feature.PUSH not in offer.lacks)
    if not task.is_pushed:
        assert (await task).status is TaskState.COMPLETED
        await without(offer, Feature.PUSH, client.send(saying("hello", task_push_notification_config=config), NOBODY))
        assert receiver.got == []
        return

    def bodies() -> list[Task | StatusUpdate]:
        found = [decode_webhook(body) for _, body in receiver.got]
        return [body for body in found if isinstance(body, Task | StatusUpdate)]

    await receiver.until(lambda: any(body.status.state is TaskState.COMPLETED for body in bodies()))
    assert {task_of(body) for body in bodies()} == {task.id}
    sent = {(headers["x-a2a-notification-token"], headers.get("authorization")) for headers, _ in receiver.got}
    assert sent == {("secret", None if Feature.PUSH_CREDENTIALS in offer.lacks else "Bearer credentials")}


@bounded
async def test_webhooks_are_kept(client: Client, offer: Offer) -> None:
    task = await client.start("hold")
    wanted = PushConfig(url="http://localhost:9/hook", id="p-1", task_id=task.id, token="secret")
    setting = client.push_set(wanted, NOBODY)
    if Feature.PUSH in offer.lacks:
        await without(offer, Feature.PUSH, setting)
        return
    assert await setting == wanted
    assert await client.push_get(PushGetRequest(task_id=task.id, id="p-1"), NOBODY) == wanted
    listing = client.push_list(PushListRequest(task_id=task.id), NOBODY)
    if Feature.PUSH_LIST in offer.lacks:
        await without(offer, Feature.PUSH_LIST, listing)
    else:
        assert (await listing).configs == (wanted,)
    deleting = client.push_delete(PushDeleteRequest(task_id=task.id, id="p-1"), NOBODY)
    if Feature.PUSH_DELETE in offer.lacks:
        await without(offer, Feature.PUSH_DELETE, deleting)
        return
    await deleting
    with pytest.raises(AccordError):
        await client.push_get(PushGetRequest(task_id=task.id, id="p-1"), NOBODY)
