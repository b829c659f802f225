"""Our client against another implementation's server: one function for each operation.

They ask as any user of the client would, and complain about what is not due. Which server that is, and what it lacks,
is the matter of `offers`.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple
from uuid import uuid4

from accord.a2a import Caller
from accord.client.client import Client
from accord.client.remote_task import RemoteTask
from accord.client.retries import Retries
from accord.errors import (
    AccordError,
    ExtendedCardNotConfigured,
    MethodNotFound,
    PushNotSupported,
    TaskNotCancelable,
    TaskNotFound,
    UnsupportedOperation,
)
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
    SendRequest,
    StatusUpdate,
    Task,
    TaskFilter,
    TaskState,
)
from accord.protocol import lifecycle
from interop.hook import Hook, mentions
from interop.outcome import NotOffered, Operation, Outcome, Wrong, attempted, same
from interop.servers.agent import CHUNKS, NAME, QUESTION

NOBODY = Caller()
SOON = Retries(first_seconds=0.01, first_poll_seconds=0.01)
"""For servers that answer with 500 what they do not have: our client asks again."""

REFUSALS = (ExtendedCardNotConfigured, MethodNotFound, PushNotSupported, UnsupportedOperation)
"""How a server says that it does not do something."""


class Way(NamedTuple):
    """How a server is called."""

    url: str
    binding: str
    dialect: str

    def connect(self) -> Any:
        """Return a client of ours, to be entered."""
        return Client.connect(self.url, binding=self.binding, retries=SOON)


def saying(text: str) -> SendRequest:
    """Return a message that nobody sent before."""
    return SendRequest(message=Message(message_id=str(uuid4()), role=Role.USER, parts=(Part(text=text),)))


async def refused(asking: Awaitable[object]) -> type[AccordError] | None:
    """Return the kind of error that our client raises."""
    try:
        await asking
    except AccordError as error:
        return type(error)
    return None


async def card(client: Client, way: Way) -> None:
    """The card says who it is and how to talk to it."""
    same(client.card.name, NAME)
    same((client.peer.endpoint.binding, str(client.peer.endpoint.dialect)), (way.binding, way.dialect))


async def extended_card(client: Client, way: Way) -> None:
    """The card for those who are known has the same name."""
    same((await client.extended_card(CardRequest(), NOBODY)).name, NAME)


async def send(client: Client, way: Way) -> None:
    """A text is answered."""
    said = await client.send_text("hello")
    same((said.status, said.text), (TaskState.COMPLETED, "You said hello"))


async def stream(client: Client, way: Way) -> None:
    """Text streams, and the events of a stream add up to the task."""
    same("".join([piece async for piece in client.stream_text("chunks")]), "".join(CHUNKS))
    events = [event async for event in client.stream(saying("chunks"), NOBODY)]
    first = events[0].body
    if not isinstance(first, Task):
        raise Wrong(f"the stream begins with a {type(first).__name__}")
    task = lifecycle.fold(first, [Event(seq=at, body=event.body) for at, event in enumerate(events[1:], 1)])
    text = "".join(part.text or "" for artifact in task.artifacts for part in artifact.parts)
    same((task.status.state, text), (TaskState.COMPLETED, "".join(CHUNKS)))


async def _held(client: Client) -> tuple[str, AsyncIterator[Event]]:
    """Return a task that works without end, and its stream: some servers answer a plain send at the end only."""
    events = client.stream(saying("hold"), NOBODY)
    body = (await anext(events)).body
    task_id = body.id if isinstance(body, Task) else getattr(body, "task_id", "")
    while (await client.get(GetRequest(id=task_id), NOBODY)).status.state is not TaskState.WORKING:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return task_id, events


async def resume(client: Client, way: Way) -> None:
    """A task outlives its client: another one follows it, by its id, to its end."""
    task_id, _ = await _held(client)
    await client.close()
    async with way.connect() as another:
        again = another.task(task_id)
        following = asyncio.create_task(_followed(again))
        await again.refresh()
        await again.cancel()
        last = (await following)[-1].body
        same(last.status.state if isinstance(last, Task | StatusUpdate) else last, TaskState.CANCELED)


async def _followed(task: RemoteTask) -> list[Event]:
    return [event async for event in task]


async def get(client: Client, way: Way) -> None:
    """A task is read."""
    said = await client.send_text("hello")
    read = await client.get(GetRequest(id=said.task_id or ""), NOBODY)
    same((read.id, read.context_id, read.status.state), (said.task_id, said.context_id, TaskState.COMPLETED))


async def list_tasks(client: Client, way: Way) -> None:
    """The tasks of a context are listed."""
    said = await client.send_text("hello")
    found = await client.list(TaskFilter(context_id=said.context_id, include_artifacts=True), NOBODY)
    same([(task.id, task.status.state) for task in found.tasks], [(said.task_id, TaskState.COMPLETED)])


async def cancel(client: Client, way: Way) -> None:
    """A task that works is cancelled; some answer before it is."""
    task_id, _ = await _held(client)
    same((await client.cancel(CancelRequest(id=task_id), NOBODY)).id, task_id)
    same((await client.task(task_id)).status, TaskState.CANCELED)


async def answer(client: Client, way: Way) -> None:
    """A question is answered, in the same task."""
    asked = await client.send_text("ask")
    if asked.status is TaskState.COMPLETED:
        raise NotOffered("the task completed without asking")
    same((asked.status, QUESTION in asked.text), (TaskState.INPUT_REQUIRED, True))
    answered = await client.send_text("blue", task_id=asked.task_id, context_id=asked.context_id)
    same((answered.status, answered.text), (TaskState.COMPLETED, "You said blue"))
    if answered.task_id != asked.task_id:
        raise NotOffered("the answer begins another task")


async def push(client: Client, way: Way) -> None:
    """A webhook is told of the end, with what it was promised."""
    credentials = Authentication(scheme="Bearer", credentials="credentials")
    async with Hook() as hook:
        config = PushConfig(url=hook.url, token="secret", authentication=credentials)
        task = await client.start("hello", push=config)
        if not task.is_pushed:
            same((await task).status, TaskState.COMPLETED)
            same(hook.got, [])
            raise NotOffered("the card says that it sends nothing")
        told = await hook.completed()
    same((mentions(told, task.id), told.headers.get("x-a2a-notification-token")), (True, "secret"))
    if told.headers.get("authorization") != "Bearer credentials":
        raise Wrong("the webhook is told without the credentials that were given for it")


async def _hooked(client: Client) -> PushConfig:
    """Set a webhook for a task that works; a server that has none is asked about any."""
    has_push = client.card.capabilities.push_notifications
    task_id = (await client.start("hold")).id if has_push else (await client.send_text("hello")).task_id
    wanted = PushConfig(url="http://localhost:9/hook", id="p-1", task_id=task_id, token="secret")
    same(await client.push_set(wanted, NOBODY), wanted)
    return wanted


async def push_settings(client: Client, way: Way) -> None:
    """A webhook is set and read."""
    wanted = await _hooked(client)
    same(await client.push_get(PushGetRequest(task_id=wanted.task_id or "", id="p-1"), NOBODY), wanted)


async def push_listing(client: Client, way: Way) -> None:
    """Webhooks are listed and removed."""
    wanted = await _hooked(client)
    task_id = wanted.task_id or ""
    same((await client.push_list(PushListRequest(task_id=task_id), NOBODY)).configs, (wanted,))
    await client.push_delete(PushDeleteRequest(task_id=task_id, id="p-1"), NOBODY)
    if await refused(client.push_get(PushGetRequest(task_id=task_id, id="p-1"), NOBODY)) is None:
        raise Wrong("it is still there after it was removed")


async def errors(client: Client, way: Way) -> None:
    """Refusals are the errors that our client has for them."""
    same(await refused(client.get(GetRequest(id="no such task"), NOBODY)), TaskNotFound)
    same(await refused(client.cancel(CancelRequest(id="no such task"), NOBODY)), TaskNotFound)
    said = await client.send_text("hello")
    ended = await refused(client.cancel(CancelRequest(id=said.task_id or ""), NOBODY))
    if ended is not TaskNotCancelable:
        raise Wrong(f"cancelling what has ended gives {ended.__name__ if ended else 'no error'}")


async def auth(client: Client, way: Way) -> None:
    """No server of these asks who calls."""
    if not client.card.security_requirements:
        raise NotOffered("the card asks for no credentials")


CALLS: Mapping[Operation, Callable[[Client, Way], Awaitable[None]]] = {
    Operation.CARD: card,
    Operation.EXTENDED_CARD: extended_card,
    Operation.SEND: send,
    Operation.STREAM: stream,
    Operation.RESUME: resume,
    Operation.GET: get,
    Operation.LIST: list_tasks,
    Operation.CANCEL: cancel,
    Operation.INPUT: answer,
    Operation.PUSH: push,
    Operation.PUSH_SETTINGS: push_settings,
    Operation.PUSH_LISTING: push_listing,
    Operation.ERRORS: errors,
    Operation.AUTH: auth,
}


async def called(way: Way, operation: Operation) -> Outcome:
    """Call a server, and return what came of it."""

    async def call() -> None:
        async with way.connect() as client:
            await CALLS[operation](client, way)

    return await attempted(call(), REFUSALS)
