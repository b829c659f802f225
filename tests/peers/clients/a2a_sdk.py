"""The official SDK's client of A2A 1.0 against a server; run by an interpreter that has it.

One argument, a JSON object: the server's `url`, the `binding` and the `version` to use, an API `key` and a webhook,
`hook`. One JSON object comes out: what the client made of each answer.
"""

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.client.client import ClientCallContext
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError

STATES = {value: name.removeprefix("TASK_STATE_").lower().replace("_", "-") for name, value in pb.TaskState.items()}


class Key(CredentialService):
    """One API key, for whatever scheme the card asks for."""

    def __init__(self, key: str) -> None:
        """Present `key`."""
        self._key = key

    async def get_credentials(self, security_scheme_name: str, context: Any) -> str | None:
        """Return the key."""
        return self._key


def saying(text: str, *, task_id: str = "", at_once: bool = False, push: Any = None) -> Any:
    """Return a message that nobody sent before."""
    message = pb.Message(message_id=str(uuid4()), role=pb.ROLE_USER, task_id=task_id)
    message.parts.add(text=text)
    configuration = pb.SendMessageConfiguration(return_immediately=at_once, task_push_notification_config=push)
    return pb.SendMessageRequest(message=message, configuration=configuration)


def text_of(artifacts: Any) -> str:
    """Return everything that artifacts say."""
    return "".join(part.text for artifact in artifacts for part in artifact.parts)


def told(task: Any) -> list[str]:
    """Return a task's state and what it made."""
    return [STATES[task.status.state], text_of(task.artifacts)]


async def refused(asking: Any) -> str:
    """Return the name of the error that the client raises, or what it says where it has no name for it."""
    try:
        await asking
    except A2AClientError as error:
        return str(error)
    except A2AError as error:
        return type(error).__name__
    return "nothing"


class Talk:
    """A conversation over one binding."""

    def __init__(self, card: Any, http: httpx.AsyncClient, binding: str, key: str | None) -> None:
        """Talk to the agent of a card."""
        config = {
            "httpx_client": http,
            "supported_protocol_bindings": [binding],
            "grpc_channel_factory": grpc.aio.insecure_channel,
        }
        interceptors: list[Any] = [AuthInterceptor(Key(key))] if key else []
        self.plain, self.streaming = (
            ClientFactory(ClientConfig(streaming=streaming, **config)).create(card, interceptors)
            for streaming in (False, True)
        )

    async def send(self, text: str, **more: Any) -> Any:
        """Send a text and return the task."""
        (answer,) = [event async for event in self.plain.send_message(saying(text, **more))]
        return answer.task

    async def stream(self, text: str) -> list[Any]:
        """Send a text and return what comes of it: kinds of events, what they say, the last state."""
        events = [event async for event in self.streaming.send_message(saying(text))]
        kinds = [event.WhichOneof("payload") for event in events]
        made = text_of(event.artifact_update.artifact for event in events if event.HasField("artifact_update"))
        return [kinds, made, STATES[events[-1].status_update.status.state]]

    async def follow(self, task_id: str) -> list[str]:
        """Subscribe to a task, cancel it, and return how the stream begins and ends."""
        following = self.streaming.subscribe(pb.SubscribeToTaskRequest(id=task_id))
        first = await anext(following)
        cancelled = await self.plain.cancel_task(pb.CancelTaskRequest(id=task_id))
        *_, last = [event async for event in following]
        states = (first.task.status.state, cancelled.status.state, last.status_update.status.state)
        return [STATES[state] for state in states]

    async def hook(self, task_id: str, url: str, *, lists: bool) -> list[Any]:
        """Set and read a webhook, and list and remove it where the client can do that."""
        wanted = pb.TaskPushNotificationConfig(task_id=task_id, id="p-1", url=url, token="secret")
        made = await self.plain.create_task_push_notification_config(wanted)
        one = pb.GetTaskPushNotificationConfigRequest(task_id=task_id, id="p-1")
        read = await self.plain.get_task_push_notification_config(one)
        if not lists:
            return [made == wanted, read == wanted]
        every = pb.ListTaskPushNotificationConfigsRequest(task_id=task_id)
        listed = list((await self.plain.list_task_push_notification_configs(every)).configs)
        gone = pb.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="p-1")
        await self.plain.delete_task_push_notification_config(gone)
        left = list((await self.plain.list_task_push_notification_configs(every)).configs)
        return [made == wanted, read == wanted, listed == [wanted], left == []]


def as_of(card: Any, version: str) -> Any:
    """Return a card with nothing but the addresses of one version, which the client then speaks."""
    kept = [one for one in card.supported_interfaces if one.protocol_version == version]
    found = pb.AgentCard()
    found.CopyFrom(card)
    del found.supported_interfaces[:]
    found.supported_interfaces.extend(kept)
    return found


async def talk(url: str, binding: str, version: str, key: str, hook: str) -> dict[str, Any]:
    """Use everything that the client has."""
    async with httpx.AsyncClient(timeout=20) as http:
        card = as_of(await A2ACardResolver(http, url).get_agent_card(), version)
        client, nobody = Talk(card, http, binding, key), Talk(card, http, binding, None)
        ask = client.plain
        sent = await client.send("tck-artifact-text")
        read = await ask.get_task(pb.GetTaskRequest(id=sent.id, history_length=1))
        asked = await client.send("tck-input-required")
        answered = await client.send("tck-complete-task", task_id=asked.id)
        waits = await client.send("tck-cancel", at_once=True)
        push = pb.TaskPushNotificationConfig(url=hook, token="secret", authentication={"scheme": "Bearer"})
        push.authentication.credentials = "credentials"
        pushed = await client.send("tck-artifact-text", push=push)
        lists = (version, binding) != ("0.3", "HTTP+JSON")
        late = ClientCallContext(service_parameters={"A2A-Version": "99.0", "X-API-Key": key})
        found = {
            "card": card.name,
            "sent": told(sent),
            "read": [read.id == sent.id, *told(read), len(read.history)],
            "streamed": await client.stream("tck-stream-artifact-chunked"),
            "turns": [STATES[task.status.state] for task in (asked, answered)],
            "webhook": await client.hook(waits.id, "https://example.com/hook", lists=lists),
            "followed": await client.follow(waits.id),
            "pushed": pushed.id,
            "missing": await refused(ask.get_task(pb.GetTaskRequest(id="nope"))),
            "ended": await refused(ask.cancel_task(pb.CancelTaskRequest(id=sent.id))),
            "over": await refused(anext(client.streaming.subscribe(pb.SubscribeToTaskRequest(id=sent.id)))),
            "nobody": await refused(nobody.plain.get_task(pb.GetTaskRequest(id=sent.id))),
        }
        # Last: over 0.3's HTTP+JSON this client forgets how to authenticate when it reads this card.
        found["own card"] = (await ask.get_extended_agent_card(pb.GetExtendedAgentCardRequest())).name
        if version == "1.0":
            wish = pb.ListTasksRequest(context_id=sent.context_id, include_artifacts=True)
            found["listed"] = [told(task) for task in (await ask.list_tasks(wish)).tasks]
        if version == "1.0" and binding != "GRPC":  # over gRPC it says its own version as well, and first
            found["version"] = await refused(ask.get_task(pb.GetTaskRequest(id=sent.id), context=late))
        for one in (client, nobody):
            await one.plain.close()
            await one.streaming.close()
        return found


print(json.dumps(asyncio.run(talk(**json.loads(sys.argv[1])))))
