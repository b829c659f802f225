"""The official SDK's client of A2A 0.3 against a server.

Arguments: the server's `url`, the `binding` to use and an API `key`.
"""

# The checker sees the 1.x SDK, which shares the name of the one that this runs with.
# mypy: ignore-errors

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.errors import A2AClientHTTPError, A2AClientJSONRPCError
from a2a.types import (
    GetTaskPushNotificationConfigParams,
    Message,
    MessageSendConfiguration,
    Part,
    PushNotificationAuthenticationInfo,
    PushNotificationConfig,
    Role,
    Task,
    TaskIdParams,
    TaskPushNotificationConfig,
    TaskQueryParams,
    TextPart,
)

from interop.clients import telling
from interop.hook import Hook, mentions
from interop.outcome import NotOffered, Operation, same

HEADER = "X-API-Key"
KINDS = ["task", "status-update", "artifact-update", "artifact-update", "status-update"]
REFUSALS = {
    "JSONRPC": {"missing": "-32001", "ended": "-32002", "nobody": "401"},
    "HTTP+JSON": {"missing": "404", "ended": "400", "nobody": "401"},
    "GRPC": {"missing": "NOT_FOUND", "ended": "FAILED_PRECONDITION", "nobody": "UNAUTHENTICATED"},
}
PROMISED = ["secret", "Bearer credentials"]
"""What a webhook is told with: a token, and credentials."""


class Key(CredentialService):
    """One API key, for whatever scheme the card asks for."""

    def __init__(self, key: str) -> None:
        """Present `key`."""
        self._key = key

    async def get_credentials(self, security_scheme_name: str, context: Any) -> str | None:
        """Return the key."""
        return self._key


class Unary(grpc.aio.UnaryUnaryClientInterceptor):
    """The same for gRPC."""

    def __init__(self, key: str) -> None:
        """Present `key`."""
        self._key = key

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        """Add the key to a call."""
        return await continuation(with_key(details, self._key), request)


class Stream(grpc.aio.UnaryStreamClientInterceptor):
    """The same for gRPC's streams; one object cannot be both."""

    def __init__(self, key: str) -> None:
        """Present `key`."""
        self._key = key

    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        """Add the key to a call."""
        return await continuation(with_key(details, self._key), request)


def with_key(details: Any, key: str) -> Any:
    """Return a call's details with the key in its metadata."""
    return details._replace(metadata=[*(details.metadata or ()), (HEADER.lower(), key)])


def text_of(artifacts: Any) -> str:
    """Return everything that artifacts say."""
    return "".join(part.root.text for artifact in artifacts or [] for part in artifact.parts)


def told(task: Task) -> list[str]:
    """Return a task's state and what it made."""
    return [task.status.state.value, text_of(task.artifacts)]


async def refused(asking: Any) -> str:
    """Return the code of a refusal, as far as each transport shows it."""
    try:
        await asking
    except A2AClientJSONRPCError as error:
        return str(error.error.code)
    except A2AClientHTTPError as error:
        return str(error.status_code)
    except grpc.aio.AioRpcError as error:
        return error.code().name
    return "nothing"


class Talk:
    """A conversation over one binding.

    Only over JSON-RPC does this client read from the card how to authenticate; its other transports have to be told.
    """

    def __init__(self, card: Any, binding: str, key: str | None, push: PushNotificationConfig | None = None) -> None:
        """Talk to the agent of a card, with a webhook for every message."""
        self.card, self.binding, self.key = card, binding, key
        told_by_card = binding == "JSONRPC"
        headers = {HEADER: key} if key and not told_by_card else None
        interceptors = [Unary(key), Stream(key)] if key else None
        config = {
            "httpx_client": httpx.AsyncClient(timeout=20, headers=headers),
            "supported_transports": [binding],
            "grpc_channel_factory": lambda url: grpc.aio.insecure_channel(url, interceptors=interceptors),
            "push_notification_configs": [push] if push else [],
        }
        auth = [AuthInterceptor(Key(key))] if key and told_by_card else []
        self.plain, self.streaming = (
            ClientFactory(ClientConfig(streaming=streaming, **config)).create(card, interceptors=auth)
            for streaming in (False, True)
        )

    async def close(self) -> None:
        """Hang up."""
        await self.plain.close()
        await self.streaming.close()

    async def say(self, text: str, *, task_id: str | None = None, **configuration: Any) -> Task:
        """Send a text and return the task."""
        parts = [Part(root=TextPart(text=text))]
        message = Message(message_id=str(uuid4()), role=Role.user, parts=parts, task_id=task_id)
        wish = MessageSendConfiguration(**configuration)
        ((task, _),) = [event async for event in self.plain.send_message(message, configuration=wish)]
        return task

    async def card_is_read(self) -> None:
        """The card has the agent's name."""
        same(self.card.name, "Conformance")

    async def extended_card_is_read(self) -> None:
        """So has the one for those who are known, which says how to be."""
        own = await self.plain.get_card()
        same([own.name, list(own.security_schemes or {}), own.security], ["Conformance", ["apiKey"], [{"apiKey": []}]])

    async def send(self) -> None:
        """A text becomes a task."""
        same(told(await self.say("tck-artifact-text")), ["completed", "Generated text content"])

    async def stream(self) -> None:
        """A task is seen as it becomes; the client makes it of the events."""
        parts = [Part(root=TextPart(text="tck-stream-artifact-chunked"))]
        message = Message(message_id=str(uuid4()), role=Role.user, parts=parts)
        events = [event async for event in self.streaming.send_message(message)]
        same(["task" if update is None else update.kind for _, update in events], KINDS)
        same(told(events[-1][0]), ["completed", "chunk-1 chunk-2"])
        final = [update.final for _, update in events if update is not None and update.kind == "status-update"]
        same(final, [False, True])

    async def resume(self) -> None:
        """A task that waits is followed until it is cancelled."""
        waits = await self.say("tck-cancel", blocking=False)
        following = self.streaming.resubscribe(TaskIdParams(id=waits.id))
        first = (await anext(following))[0].status.state.value  # now: the client changes the task that it gave
        await self.plain.cancel_task(TaskIdParams(id=waits.id))
        *_, (last, _) = [event async for event in following]
        same([first, last.status.state.value], ["working", "canceled"])

    async def get(self) -> None:
        """A task is read, with as much of its history as was asked for."""
        sent = await self.say("tck-artifact-text")
        read = await self.plain.get_task(TaskQueryParams(id=sent.id, history_length=1))
        found = [read.id, *told(read), len(read.history or [])]
        same(found, [sent.id, "completed", "Generated text content", 1])

    async def list_tasks(self) -> None:
        """This client cannot."""
        if not hasattr(self.plain, "list_tasks"):
            raise NotOffered("the client has no such method")

    async def cancel(self) -> None:
        """A task that waits is cancelled."""
        waits = await self.say("tck-cancel", blocking=False)
        same((await self.plain.cancel_task(TaskIdParams(id=waits.id))).status.state.value, "canceled")

    async def answer(self) -> None:
        """A question is answered."""
        asked = await self.say("tck-input-required")
        answered = await self.say("tck-complete-task", task_id=asked.id)
        same([task.status.state.value for task in (asked, answered)], ["input-required", "completed"])
        same(answered.id, asked.id)

    async def push(self) -> None:
        """A webhook is told of the end, with what it was promised."""
        credentials = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="credentials")
        async with Hook() as hook:
            push = PushNotificationConfig(url=hook.url, token="secret", authentication=credentials)
            informed = Talk(self.card, self.binding, self.key, push)
            task = await informed.say("tck-artifact-text")
            got = await hook.completed()
            await informed.close()
        same(mentions(got, task.id), True)
        same([got.headers.get(name) for name in ("x-a2a-notification-token", "authorization")], PROMISED)

    async def push_settings(self) -> None:
        """A webhook is set and read."""
        waits = await self.say("tck-cancel", blocking=False)
        config = PushNotificationConfig(id="p-1", url="https://example.com/hook", token="secret")
        wanted = TaskPushNotificationConfig(task_id=waits.id, push_notification_config=config)
        same(await self.plain.set_task_callback(wanted), wanted)
        asked = GetTaskPushNotificationConfigParams(id=waits.id, push_notification_config_id="p-1")
        same(await self.plain.get_task_callback(asked), wanted)

    async def push_listing(self) -> None:
        """This client cannot."""
        if not hasattr(self.plain, "list_task_callback"):
            raise NotOffered("the client has no such method")

    async def errors(self) -> None:
        """Refusals come with the codes that each binding has for them."""
        sent = await self.say("tck-artifact-text")
        missing = await refused(self.plain.get_task(TaskQueryParams(id="nope")))
        ended = await refused(self.plain.cancel_task(TaskIdParams(id=sent.id)))
        due = REFUSALS[self.binding]
        same([missing, ended], [due["missing"], due["ended"]])

    async def is_refused(self) -> None:
        """Who brings no key is refused; everything else was done with one."""
        same(await refused(self.plain.get_task(TaskQueryParams(id="nope"))), REFUSALS[self.binding]["nobody"])


@asynccontextmanager
async def talking(url: str, binding: str, key: str) -> AsyncIterator[telling.Steps]:
    """Give everything that the client has, while it is connected."""
    async with httpx.AsyncClient(timeout=20) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    client, nobody = Talk(card, binding, key), Talk(card, binding, None)
    yield {
        Operation.CARD: client.card_is_read,
        Operation.EXTENDED_CARD: client.extended_card_is_read,
        Operation.SEND: client.send,
        Operation.STREAM: client.stream,
        Operation.RESUME: client.resume,
        Operation.GET: client.get,
        Operation.LIST: client.list_tasks,
        Operation.CANCEL: client.cancel,
        Operation.INPUT: client.answer,
        Operation.PUSH: client.push,
        Operation.PUSH_SETTINGS: client.push_settings,
        Operation.PUSH_LISTING: client.push_listing,
        Operation.ERRORS: client.errors,
        Operation.AUTH: nobody.is_refused,
    }
    await client.close()
    await nobody.close()


if __name__ == "__main__":
    telling.run(talking)
