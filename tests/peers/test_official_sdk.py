"""The official SDKs of A2A 1.0 and 0.3 talk to `accord serve` over every binding, as their own users would."""

from typing import Any

import pytest

from accord.model import StatusUpdate, Task, TaskState
from accord.protocol.webhook import decode_webhook
from tests.conformance.scene import Receiver
from tests.peers.conftest import Peer, Serving, talk

SDK = Peer("a2a_sdk.py")
SDK_03 = Peer("a2a_sdk_03.py", "a2a-sdk-03")

BOTH: dict[str, Any] = {
    "card": "Conformance",
    "sent": ["completed", "Generated text content"],
    "read": [True, "completed", "Generated text content", 1],
    "turns": ["input-required", "completed"],
    "followed": ["working", "canceled", "canceled"],
}
"""What the clients of both versions make of the same things."""


async def delivered(receiver: Receiver, task_id: str) -> list[TaskState]:
    """Wait until a webhook knows that a task has completed; return every state it was told."""

    def told() -> list[TaskState]:
        bodies = [decode_webhook(body) for _, body in receiver.got]
        return [body.status.state for body in bodies if isinstance(body, Task | StatusUpdate)]

    await receiver.until(lambda: TaskState.COMPLETED in told())
    for headers, _ in receiver.got:
        assert headers["x-a2a-task-id"] == task_id
        assert (headers["x-a2a-notification-token"], headers["authorization"]) == ("secret", "Bearer credentials")
    return told()


NAMES = {
    "own card": "Conformance",
    "missing": "TaskNotFoundError",
    "ended": "TaskNotCancelableError",
    "over": "UnsupportedOperationError",
}
KINDS = ["task", "status_update", "artifact_update", "artifact_update", "status_update"]


@pytest.mark.proves("BIND-EQUIV-001", "BIND-EQUIV-002", "BIND-EQUIV-003", "BIND-EQUIV-004", "BIND-FIELD-001")
@pytest.mark.proves("HTTP_JSON-SVC-001", "HTTP_JSON-SVC-002", "HTTP_JSON-SSE-001", "HTTP_JSON-ERR-002")
@pytest.mark.proves("GRPC-SVC-001", "GRPC-SVC-002", "GRPC-ERR-001", "JSONRPC-SSE-001", "VER-SERVER-002", "3-13")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_the_client_of_1_0_does_everything(binding: str, serving: Serving, receiver: Receiver) -> None:
    url, key = serving("everything")
    told = await talk(SDK, url=url, binding=binding, version="1.0", key=key, hook=receiver.url)
    assert (await delivered(receiver, told.pop("pushed")))[-2:] == [TaskState.WORKING, TaskState.COMPLETED]
    assert ("The credentials are missing" if binding == "GRPC" else "401") in told.pop("nobody")
    assert told.pop("version", None) == (None if binding == "GRPC" else "VersionNotSupportedError")
    assert told == BOTH | NAMES | {
        "listed": [["completed", "Generated text content"]],
        "streamed": [KINDS, "chunk-1 chunk-2", "completed"],
        "webhook": [True, True, True, True],
    }


@pytest.mark.proves("VER-SERVER-001", "VER-SERVER-003", "3-04", "3-05")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_the_client_of_1_0_speaks_0_3_to_an_old_address(
    binding: str, serving: Serving, receiver: Receiver
) -> None:
    url, key = serving("everything")
    told = await talk(SDK, url=url, binding=binding, version="0.3", key=key, hook=receiver.url)
    assert (await delivered(receiver, told.pop("pushed")))[-2:] == [TaskState.WORKING, TaskState.COMPLETED]
    assert "401" in told.pop("nobody")
    assert told == BOTH | NAMES | {
        "streamed": [KINDS, "chunk-1 chunk-2", "completed"],
        "webhook": [True, True] if binding == "HTTP+JSON" else [True, True, True, True],
    }


REFUSALS = {
    "JSONRPC": {"missing": "-32001", "ended": "-32002", "nobody": "401"},
    "HTTP+JSON": {"missing": "404", "ended": "400", "nobody": "401"},
    "GRPC": {"missing": "NOT_FOUND", "ended": "FAILED_PRECONDITION", "nobody": "UNAUTHENTICATED"},
}


@pytest.mark.proves("3-04", "3-05", "3-10", "3-13", "3-21", "3-43", "VER-SERVER-003")
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_the_client_of_0_3_does_everything(binding: str, serving: Serving, receiver: Receiver) -> None:
    url, key = serving("everything")
    told = await talk(SDK_03, url=url, binding=binding, key=key, hook=receiver.url)
    assert (await delivered(receiver, told.pop("pushed")))[-2:] == [TaskState.WORKING, TaskState.COMPLETED]
    kinds = ["task", "status-update", "artifact-update", "artifact-update", "status-update"]
    assert told == BOTH | REFUSALS[binding] | {
        "own card": ["Conformance", ["apiKey"], [{"apiKey": []}]],
        "streamed": [kinds, "chunk-1 chunk-2", "completed", [False, True]],
        "webhook": [True, True],
    }
