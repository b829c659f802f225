"""Clients that others wrote talk to `accord serve`: AgentVault's, Google's Agent Development Kit, fasta2a's."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from accord.model import Task, TaskState
from accord.protocol.dialects import DIALECTS
from accord.protocol.operations import DialectName
from tests.conformance.scene import Receiver
from tests.peers.conftest import Peer, Served, Serving, talk

AGENTVAULT = Peer("agentvault_client.py", "agentvault")
ADK = Peer("adk_client.py", "google-adk")
FASTA2A = Peer("fasta2a_client.py")


@pytest.mark.proves("2-13", "2-15", "2-16", "2-17", "2-18", "2-19", "2-33", "C-01")
async def test_agentvault_does_everything(serving: Serving, receiver: Receiver, tmp_path: Path) -> None:
    url, key = serving("everything")
    told = await talk(AGENTVAULT, url=url, key=key, hook=receiver.url, folder=str(tmp_path))
    vault, pushed = DIALECTS[DialectName.VAULT], told.pop("pushed")

    def bodies() -> list[Any]:
        return [vault.decode_push(body) for _, body in receiver.got]

    await receiver.until(lambda: any(body.status.state is TaskState.COMPLETED for body in bodies()))
    assert all(isinstance(body, Task) and body.id == pushed for body in bodies())
    names = [f"Task{name}Event" for name in ("StatusUpdate", "StatusUpdate", "ArtifactUpdate", "ArtifactUpdate")]
    chunks = [{"type": "text", "content": text} for text in ("chunk-1 ", "chunk-2")]
    assert told == {
        "card": ["conformance/conformance", ["apiKey"]],
        # The task had ended before it could be followed: nothing was missed.
        "followed": [[*names, "TaskStatusUpdateEvent"], ["SUBMITTED", "WORKING", "COMPLETED"], "chunk-1 chunk-2"],
        "read": [True, "COMPLETED", [chunks]],
        "spoken": [["user", "tck-stream-artifact-chunked"]],
        "turns": ["INPUT_REQUIRED", True, "COMPLETED"],
        "cancelled": [True, "CANCELED"],
        "missing": -32001,
        "ended": True,  # that it could not be cancelled is a result, which this client takes for a yes
        "late": -32004,
        "nobody": 401,
    }


async def test_the_agent_development_kit_has_a_conversation(serving: Serving) -> None:
    """It refuses every card that lists an address which is no URL, as those of gRPC are: this server has none."""
    url, key = serving("without gRPC")
    told = await talk(ADK, url=url, key=key)
    session = told["alice"]
    assert [turn["errors"] for turn in session.values()] == [[], [], [], []]
    assert {text: turn["pieces"] for text, turn in session.items()} == {
        "tck-artifact-text": ["Generated text content"],
        "tck-stream-artifact-chunked": ["chunk-1 ", "chunk-2"],
        "tck-input-required": [],
        "tck-complete-task": ["Hello from TCK"],
    }
    made, streamed, asked, answered = ({*turn["tasks"]} for turn in session.values())
    assert [len(ids) for ids in (made, streamed, asked)] == [1, 1, 1]
    assert answered == asked != streamed != made, "what follows a question is its answer"
    (refused,) = told["nobody"]["tck-artifact-text"]["errors"]
    assert "401" in refused


def newest(served: Served) -> str:
    """The ids of the two newest tasks, the newest last, as lines."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {"pageSize": 2}}
    page = httpx.post(served.url, json=call, headers={"A2A-Version": "1.0"}).json()["result"]
    return "".join(f"{task['id']}\n" for task in reversed(page["tasks"]))


@pytest.fixture
async def fasta2a(serving: Serving) -> dict[str, Any]:
    """What fasta2a's client says; it cannot read any card that asks for credentials, so this server asks for none."""
    served = serving("open")
    return await talk(FASTA2A, lambda: newest(served), url=served.url)


def test_fasta2a_discovers_and_reads(fasta2a: dict[str, Any]) -> None:
    assert fasta2a["card"] == "Conformance"
    assert fasta2a["read"] == [["completed", "Generated text content"], ["completed", "chunk-1 chunk-2"]]
    assert fasta2a["missing"] == -32001


@pytest.mark.xfail(
    raises=KeyError,
    reason="It calls 0.3's methods and wants 1.0's shapes with 0.3's words back: a dialect of its own",
)
def test_fasta2a_understands_what_it_is_answered(fasta2a: dict[str, Any]) -> None:
    assert fasta2a["sent"]["task"]["status"]["state"] == "completed"
    assert fasta2a["streamed"][-1]["status_update"]["status"]["state"] == "completed"
