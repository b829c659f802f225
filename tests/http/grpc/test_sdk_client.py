"""The official SDK's client over gRPC, speaking 1.0 and, with its own compatibility layer, 0.3, to a real service."""

from typing import Any

import grpc
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.types import a2a_pb2
from a2a.utils import errors
from google.protobuf.json_format import ParseDict

from accord.protocol.dialects.v1 import V1
from accord.service.host import Host
from tests.engine.conftest import Hosting
from tests.http.grpc.conftest import Serving
from tests.http.grpc.hosted import Gate, card, hosted

pytestmark = pytest.mark.parametrize("version", ["1.0", "0.3"])


class Peer:
    """An official client, and what it talks to."""

    def __init__(self, address: str, version: str, gate: Gate, host: Host, streaming: bool) -> None:
        config = ClientConfig(
            streaming=streaming,
            supported_protocol_bindings=["GRPC"],
            grpc_channel_factory=grpc.aio.insecure_channel,
        )
        stated = ParseDict(V1().encode_card(card(address, version)), a2a_pb2.AgentCard())
        self.client: Any = ClientFactory(config).create(stated)
        self.gate, self.host = gate, host

    async def send(self, text: str, at_once: bool = False, **fields: Any) -> list[Any]:
        """Send a text and return everything that is answered."""
        message = a2a_pb2.Message(message_id=f"m-{text}", role=a2a_pb2.ROLE_USER, parts=[{"text": text}], **fields)
        configuration = a2a_pb2.SendMessageConfiguration(return_immediately=at_once)
        request = a2a_pb2.SendMessageRequest(message=message, configuration=configuration)
        return [response async for response in self.client.send_message(request)]

    async def begun(self) -> str:
        """The id of a task that waits at the gate."""
        (answer,) = await self.send("begin", at_once=True)
        identifier: str = answer.task.id
        return identifier


@pytest.fixture
async def peer(request: pytest.FixtureRequest, version: str, hosting: Hosting, serving: Serving) -> Any:
    gate = Gate()
    host, service = await hosted(hosting, gate, version)
    made = Peer(await serving(service), version, gate, host, getattr(request, "param", False))
    yield made
    await made.client.close()


streaming = pytest.mark.parametrize("peer", [True], indirect=True)


async def test_it_sends_and_reads(peer: Peer, version: str) -> None:
    peer.gate.go.set()
    (answer,) = await peer.send("hello")
    task = answer.task
    assert task.status.state == a2a_pb2.TASK_STATE_COMPLETED
    assert "".join(part.text for part in task.artifacts[0].parts) == "one hello two"
    assert task.history[0].parts[0].text == "hello"
    found = await peer.client.get_task(a2a_pb2.GetTaskRequest(id=task.id))
    assert (found.id, found.status.state, found.artifacts) == (task.id, task.status.state, task.artifacts)


@streaming
@pytest.mark.proves("GRPC-ERR-003")
async def test_it_streams(peer: Peer, version: str) -> None:
    peer.gate.go.set()
    events = await peer.send("hello")
    kinds = [event.WhichOneof("payload") for event in events]
    assert (kinds[0], kinds[-1]) == ("task", "status_update")
    text = "".join(part.text for event in events for part in event.artifact_update.artifact.parts)
    assert text == "one hello two"
    assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED


@streaming
async def test_it_follows_a_task_that_runs(peer: Peer, version: str) -> None:
    request = a2a_pb2.SendMessageRequest(
        message=a2a_pb2.Message(message_id="m", role=a2a_pb2.ROLE_USER, parts=[{"text": "hello"}])
    )
    sent = peer.client.send_message(request)
    task_id = (await anext(sent)).task.id
    await sent.aclose()
    events = []
    async for event in peer.client.subscribe(a2a_pb2.SubscribeToTaskRequest(id=task_id)):
        events.append(event)
        peer.gate.go.set()
    assert events[0].task.id == task_id
    assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED


async def test_it_lists(peer: Peer, version: str) -> None:
    task_id = await peer.begun()
    request = a2a_pb2.ListTasksRequest(page_size=10)
    if version == "0.3":
        with pytest.raises(NotImplementedError):
            await peer.client.list_tasks(request)
        return
    page = await peer.client.list_tasks(request)
    assert ([task.id for task in page.tasks], page.total_size, page.page_size) == ([task_id], 1, 10)


async def test_it_cancels(peer: Peer, version: str) -> None:
    task_id = await peer.begun()
    task = await peer.client.cancel_task(a2a_pb2.CancelTaskRequest(id=task_id))
    assert (task.id, task.status.state) == (task_id, a2a_pb2.TASK_STATE_CANCELED)
    with pytest.raises(errors.TaskNotCancelableError):
        await peer.client.cancel_task(a2a_pb2.CancelTaskRequest(id=task_id))


async def test_it_manages_webhooks(peer: Peer, version: str) -> None:
    task_id = await peer.begun()
    wanted = a2a_pb2.TaskPushNotificationConfig(
        id="p-1",
        task_id=task_id,
        url="https://example.com/hook",
        token="secret",
        authentication=a2a_pb2.AuthenticationInfo(scheme="Bearer", credentials="key"),
    )
    made = await peer.client.create_task_push_notification_config(wanted)
    assert made == wanted
    asked = a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task_id, id="p-1")
    assert await peer.client.get_task_push_notification_config(asked) == wanted
    all_ = a2a_pb2.ListTaskPushNotificationConfigsRequest(task_id=task_id)
    assert list((await peer.client.list_task_push_notification_configs(all_)).configs) == [wanted]
    gone = a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="p-1")
    await peer.client.delete_task_push_notification_config(gone)
    assert not (await peer.client.list_task_push_notification_configs(all_)).configs
    with pytest.raises(errors.TaskNotFoundError):
        await peer.client.get_task_push_notification_config(asked)


async def test_it_reads_the_extended_card(peer: Peer, version: str) -> None:
    shown = await peer.client.get_extended_agent_card(a2a_pb2.GetExtendedAgentCardRequest())
    wanted = ParseDict(V1().encode_card(card("example.com:443", version)), a2a_pb2.AgentCard())
    if version == "0.3":  # whose writer says the modes of every skill
        wanted.skills[0].input_modes.extend(["text/plain"])
        wanted.skills[0].output_modes.extend(["text/plain"])
        wanted.supported_interfaces[0].protocol_version = shown.supported_interfaces[0].protocol_version
    assert shown == wanted


# --- errors as the client knows them ------------------------------------------------------------------------------


@pytest.mark.proves("GRPC-ERR-001")
async def test_errors_become_the_client_s_own(peer: Peer, version: str) -> None:
    client = peer.client
    with pytest.raises(errors.TaskNotFoundError):
        await client.get_task(a2a_pb2.GetTaskRequest(id="nothing"))
    peer.gate.go.set()
    (answer,) = await peer.send("done")
    with pytest.raises(errors.TaskNotCancelableError):
        await client.cancel_task(a2a_pb2.CancelTaskRequest(id=answer.task.id))
    with pytest.raises(errors.UnsupportedOperationError):
        await peer.send("more", task_id=answer.task.id)
    with pytest.raises(errors.InvalidParamsError if version == "0.3" else A2AClientError, match="messageId"):
        await client._transport.send_message(
            a2a_pb2.SendMessageRequest(message=a2a_pb2.Message(role=a2a_pb2.ROLE_USER, parts=[{"text": "x"}]))
        )
