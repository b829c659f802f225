"""The official SDK's client of A2A 0.3 against a server; run by an interpreter that has it.

One argument, a JSON object: the server's `url`, the `binding` to use, an API `key` and a webhook, `hook`. One JSON
object comes out: what the client made of each answer.
"""

# The checker sees the 1.x SDK, which shares the name of the one that this runs with.
# mypy: ignore-errors

import asyncio
import json
import sys
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

HEADER = "X-API-Key"


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

    async def send(self, text: str, *, task_id: str | None = None, **configuration: Any) -> Task:
        """Send a text and return the task."""
        parts = [Part(root=TextPart(text=text))]
        message = Message(message_id=str(uuid4()), role=Role.user, parts=parts, task_id=task_id)
        wish = MessageSendConfiguration(**configuration)
        ((task, _),) = [event async for event in self.plain.send_message(message, configuration=wish)]
        return task

    async def stream(self, text: str) -> list[Any]:
        """Send a text and return what comes of it: kinds of events, the task that the client makes of them."""
        message = Message(message_id=str(uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))])
        events = [event async for event in self.streaming.send_message(message)]
        kinds = ["task" if update is None else update.kind for _, update in events]
        final = [update.final for _, update in events if update is not None and update.kind == "status-update"]
        return [kinds, *reversed(told(events[-1][0])), final]

    async def follow(self, task_id: str) -> list[str]:
        """Resubscribe to a task, cancel it, and return how the stream begins and ends."""
        following = self.streaming.resubscribe(TaskIdParams(id=task_id))
        first = (await anext(following))[0].status.state.value  # now: the client changes the task that it gave
        cancelled = await self.plain.cancel_task(TaskIdParams(id=task_id))
        *_, (last, _) = [event async for event in following]
        return [first, cancelled.status.state.value, last.status.state.value]

    async def hook(self, task_id: str, url: str) -> list[Any]:
        """Set and read a webhook; the client of 0.3 cannot do more."""
        config = PushNotificationConfig(id="p-1", url=url, token="secret")
        wanted = TaskPushNotificationConfig(task_id=task_id, push_notification_config=config)
        made = await self.plain.set_task_callback(wanted)
        asked = GetTaskPushNotificationConfigParams(id=task_id, push_notification_config_id="p-1")
        return [made == wanted, await self.plain.get_task_callback(asked) == wanted]


async def talk(url: str, binding: str, key: str, hook: str) -> dict[str, Any]:
    """Use everything that the client has."""
    async with httpx.AsyncClient(timeout=20) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    credentials = PushNotificationAuthenticationInfo(schemes=["Bearer"], credentials="credentials")
    push = PushNotificationConfig(url=hook, token="secret", authentication=credentials)
    talks = [Talk(card, binding, key), Talk(card, binding, None), Talk(card, binding, key, push)]
    client, nobody, informed = talks
    sent = await client.send("tck-artifact-text")
    read = await client.plain.get_task(TaskQueryParams(id=sent.id, history_length=1))
    asked = await client.send("tck-input-required")
    answered = await client.send("tck-complete-task", task_id=asked.id)
    waits = await client.send("tck-cancel", blocking=False)
    pushed = await informed.send("tck-artifact-text")
    own = await client.plain.get_card()
    found = {
        "card": card.name,
        "own card": [own.name, list(own.security_schemes or {}), own.security],
        "sent": told(sent),
        "read": [read.id == sent.id, *told(read), len(read.history or [])],
        "streamed": await client.stream("tck-stream-artifact-chunked"),
        "turns": [task.status.state.value for task in (asked, answered)],
        "webhook": await client.hook(waits.id, "https://example.com/hook"),
        "followed": await client.follow(waits.id),
        "pushed": pushed.id,
        "missing": await refused(client.plain.get_task(TaskQueryParams(id="nope"))),
        "ended": await refused(client.plain.cancel_task(TaskIdParams(id=sent.id))),
        "nobody": await refused(nobody.plain.get_task(TaskQueryParams(id=sent.id))),
    }
    for one in talks:
        await one.close()
    return found


print(json.dumps(asyncio.run(talk(**json.loads(sys.argv[1])))))
