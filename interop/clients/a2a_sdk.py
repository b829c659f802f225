"""The official SDK's client of A2A 1.x against a server, in 1.0 or in 0.3.

Arguments: the server's `url`, the `binding` and the `version` to use, and an API `key`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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

from interop.clients import telling
from interop.hook import Hook, mentions
from interop.outcome import NotOffered, Operation, Wrong, same

STATES = {value: name.removeprefix("TASK_STATE_").lower().replace("_", "-") for name, value in pb.TaskState.items()}
KINDS = ["task", "status_update", "artifact_update", "artifact_update", "status_update"]


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
    """A conversation over one binding, in one version."""

    def __init__(self, card: Any, http: httpx.AsyncClient, binding: str, key: str | None) -> None:
        """Talk to the agent of a card."""
        config = {
            "httpx_client": http,
            "supported_protocol_bindings": [binding],
            "grpc_channel_factory": grpc.aio.insecure_channel,
        }
        interceptors: list[Any] = [AuthInterceptor(Key(key))] if key else []
        self.card = card
        self.plain, self.streaming = (
            ClientFactory(ClientConfig(streaming=streaming, **config)).create(card, interceptors)
            for streaming in (False, True)
        )

    async def say(self, text: str, **more: Any) -> Any:
        """Send a text and return the task."""
        (answer,) = [event async for event in self.plain.send_message(saying(text, **more))]
        return answer.task

    async def card_is_read(self) -> None:
        """The card has the agent's name."""
        same(self.card.name, "Conformance")

    async def extended_card_is_read(self) -> None:
        """So has the one for those who are known."""
        same((await self.plain.get_extended_agent_card(pb.GetExtendedAgentCardRequest())).name, "Conformance")

    async def send(self) -> None:
        """A text becomes a task."""
        same(told(await self.say("tck-artifact-text")), ["completed", "Generated text content"])

    async def stream(self) -> None:
        """A task is seen as it becomes."""
        events = [event async for event in self.streaming.send_message(saying("tck-stream-artifact-chunked"))]
        same([event.WhichOneof("payload") for event in events], KINDS)
        made = text_of(event.artifact_update.artifact for event in events if event.HasField("artifact_update"))
        same([made, STATES[events[-1].status_update.status.state]], ["chunk-1 chunk-2", "completed"])

    async def resume(self) -> None:
        """A task that waits is followed until it is cancelled."""
        waits = await self.say("tck-cancel", at_once=True)
        following = self.streaming.subscribe(pb.SubscribeToTaskRequest(id=waits.id))
        first = await anext(following)
        await self.plain.cancel_task(pb.CancelTaskRequest(id=waits.id))
        *_, last = [event async for event in following]
        found = [STATES[first.task.status.state], STATES[last.status_update.status.state]]
        same(found, ["working", "canceled"])

    async def get(self) -> None:
        """A task is read, with as much of its history as was asked for."""
        sent = await self.say("tck-artifact-text")
        read = await self.plain.get_task(pb.GetTaskRequest(id=sent.id, history_length=1))
        same([read.id, *told(read), len(read.history)], [sent.id, "completed", "Generated text content", 1])

    async def list_tasks(self) -> None:
        """The tasks of a context are listed."""
        sent = await self.say("tck-artifact-text")
        wish = pb.ListTasksRequest(context_id=sent.context_id, include_artifacts=True)
        try:
            found = await self.plain.list_tasks(wish)
        except NotImplementedError as error:
            raise NotOffered(str(error)) from None
        same([[task.id, *told(task)] for task in found.tasks], [[sent.id, "completed", "Generated text content"]])

    async def cancel(self) -> None:
        """A task that waits is cancelled."""
        waits = await self.say("tck-cancel", at_once=True)
        same(STATES[(await self.plain.cancel_task(pb.CancelTaskRequest(id=waits.id))).status.state], "canceled")

    async def answer(self) -> None:
        """A question is answered."""
        asked = await self.say("tck-input-required")
        answered = await self.say("tck-complete-task", task_id=asked.id)
        same([STATES[task.status.state] for task in (asked, answered)], ["input-required", "completed"])
        same(answered.id, asked.id)

    async def push(self) -> None:
        """A webhook is told of the end, with what it was promised."""
        async with Hook() as hook:
            wanted = pb.TaskPushNotificationConfig(url=hook.url, token="secret", authentication={"scheme": "Bearer"})
            wanted.authentication.credentials = "credentials"
            task = await self.say("tck-artifact-text", push=wanted)
            got = await hook.completed()
        same(mentions(got, task.id), True)
        same([got.headers.get(name) for name in ("x-a2a-notification-token", "authorization")], PROMISED)

    async def push_settings(self) -> None:
        """A webhook is set and read."""
        wanted, _ = await self._hooked()
        one = pb.GetTaskPushNotificationConfigRequest(task_id=wanted.task_id, id="p-1")
        same(await self.plain.get_task_push_notification_config(one), wanted)

    async def push_listing(self) -> None:
        """Webhooks are listed and removed."""
        wanted, every = await self._hooked()
        try:
            same(list((await self.plain.list_task_push_notification_configs(every)).configs), [wanted])
        except NotImplementedError as error:
            raise NotOffered(str(error)) from None
        gone = pb.DeleteTaskPushNotificationConfigRequest(task_id=wanted.task_id, id="p-1")
        await self.plain.delete_task_push_notification_config(gone)
        same(list((await self.plain.list_task_push_notification_configs(every)).configs), [])

    async def _hooked(self) -> tuple[Any, Any]:
        task = await self.say("tck-cancel", at_once=True)
        hook = "https://example.com/hook"
        wanted = pb.TaskPushNotificationConfig(task_id=task.id, id="p-1", url=hook, token="secret")
        same(await self.plain.create_task_push_notification_config(wanted), wanted)
        return wanted, pb.ListTaskPushNotificationConfigsRequest(task_id=task.id)

    async def close(self) -> None:
        """Hang up."""
        await self.plain.close()
        await self.streaming.close()


PROMISED = ["secret", "Bearer credentials"]
"""What a webhook is told with: a token, and credentials."""


def as_of(card: Any, version: str) -> Any:
    """Return a card with nothing but the addresses of one version, which the client then speaks."""
    kept = [one for one in card.supported_interfaces if one.protocol_version == version]
    found = pb.AgentCard()
    found.CopyFrom(card)
    del found.supported_interfaces[:]
    found.supported_interfaces.extend(kept)
    return found


async def errors(client: Talk, version: str, binding: str, key: str) -> None:
    """Refusals are the errors that the client has for them."""
    sent = await client.say("tck-artifact-text")
    ask = client.plain
    same(await refused(ask.get_task(pb.GetTaskRequest(id="nope"))), "TaskNotFoundError")
    same(await refused(ask.cancel_task(pb.CancelTaskRequest(id=sent.id))), "TaskNotCancelableError")
    over = client.streaming.subscribe(pb.SubscribeToTaskRequest(id=sent.id))
    same(await refused(anext(over)), "UnsupportedOperationError")
    if version == "1.0" and binding != "GRPC":  # over gRPC it says its own version as well, and first
        late = ClientCallContext(service_parameters={"A2A-Version": "99.0", "X-API-Key": key})
        same(await refused(ask.get_task(pb.GetTaskRequest(id=sent.id), context=late)), "VersionNotSupportedError")


async def auth(nobody: Talk, binding: str) -> None:
    """Who brings no key is refused; everything else was done with one."""
    said = await refused(nobody.plain.get_task(pb.GetTaskRequest(id="nope")))
    if ("The credentials are missing" if binding == "GRPC" else "401") not in said:
        raise Wrong(f"without credentials it was told {said!r}")


@asynccontextmanager
async def talking(url: str, binding: str, version: str, key: str) -> AsyncIterator[telling.Steps]:
    """Give everything that the client has, while it is connected."""
    async with httpx.AsyncClient(timeout=20) as http:
        card = as_of(await A2ACardResolver(http, url).get_agent_card(), version)
        client, nobody = Talk(card, http, binding, key), Talk(card, http, binding, None)
        yield {
            Operation.CARD: client.card_is_read,
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
            Operation.ERRORS: lambda: errors(client, version, binding, key),
            Operation.AUTH: lambda: auth(nobody, binding),
            # Last: over 0.3's HTTP+JSON this client forgets how to authenticate when it reads this card.
            Operation.EXTENDED_CARD: client.extended_card_is_read,
        }
        await client.close()
        await nobody.close()


if __name__ == "__main__":
    telling.run(talking)
