"""The AI SDK's own packages, versions 5, 6 and 7, read the chat; `a2a-ai-provider` calls an agent as a model.

They run in Node, against a server that is a process of its own: whatever `useChat` of these versions would accept or
refuse, they do.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from interop import chats
from interop.chats import said, task_in, text_of
from tests.serve.running import BOUND_SECONDS, Server

AGENTS = Path(__file__).parent / "agents.py"
NAMES = ("streams", "fails", "asks", "makes", "waits")
VERSIONS = ("v5", "v6", "v7")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("chat")
    running = Server(folder, *(f"{AGENTS}:{name}" for name in NAMES), "--store", f"sqlite:///{folder}/chat.db")
    try:
        yield running
    finally:
        running.kill()


def node(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script of the conformance folder, and return what it prints."""
    return asyncio.run(chats.node(script, *arguments))


def send(server: Server, version: str, chat: str, message: dict[str, Any], **body: Any) -> dict[str, Any]:
    return node(f"{version}/run.mjs", "send", server.url, chat, json.dumps(body), json.dumps([message]))


def kinds(found: dict[str, Any]) -> list[str]:
    return [chunk["type"] for chunk in found["chunks"]]


@pytest.fixture
def chat() -> str:
    return uuid4().hex


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.proves("0-22", "0-71", "0-72")
def test_an_answer_is_read_as_it_was_stored(server: Server, version: str, chat: str) -> None:
    found = send(server, version, chat, said("good morning"), agent="streams")
    assert found["error"] is None
    assert kinds(found)[0] == "start"
    assert kinds(found)[-1] == "finish"
    assert kinds(found).count("text-delta") > 1
    assert text_of(found["message"]).strip() == "You said: good morning"
    assert task_in(found["message"])["status"] == "completed"
    stored = httpx.get(f"{server.url}/api/chats/{chat}").json()["messages"]
    assert [message["role"] for message in stored] == ["user", "assistant"]
    assert stored[1]["id"] == found["message"]["id"]
    assert text_of(stored[1]) == text_of(found["message"])


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.proves("0-10", "0-48", "0-53", "0-55", "C-21")
def test_tasks_are_acknowledged_and_continue(server: Server, version: str, chat: str) -> None:
    found = send(server, version, chat, said("wait"), agent="waits", mode="task")
    assert found["error"] is None
    assert kinds(found)[-1] == "finish"
    message = found["message"]
    task = task_in(message)
    assert (task["artifactType"], task["status"] in ("submitted", "working")) == ("task", True)
    assert message["metadata"]["artifactType"] == "task"
    assert message["metadata"]["taskId"] == task["taskId"]
    (tool,) = [part for part in message["parts"] if part["type"] == "tool-createTask"]
    assert (tool["state"], tool["output"]["taskId"]) == ("output-available", task["taskId"])
    assert httpx.get(f"{server.url}/api/tasks/{task['taskId']}").json()["status"] in ("submitted", "working")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failure_is_an_error_with_its_reason(server: Server, version: str, chat: str) -> None:
    found = send(server, version, chat, said("print"), agent="fails")
    assert "out of paper" in found["error"]
    assert task_in(found["message"])["status"] == "failed"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_question_ends_the_answer_and_the_next_message_answers_it(server: Server, version: str, chat: str) -> None:
    asked = send(server, version, chat, said("book"), agent="asks")
    assert asked["error"] is None
    first = task_in(asked["message"])
    assert first["status"] == "input-required"
    found = send(server, version, chat, said("Friday"), agent="asks")
    assert "Booked for Friday" in text_of(found["message"])
    assert task_in(found["message"])["taskId"] == first["taskId"]


@pytest.mark.parametrize("version", VERSIONS)
def test_files_and_data_come_as_parts(server: Server, version: str, chat: str) -> None:
    found = send(server, version, chat, said("make"), agent="makes")
    assert found["error"] is None
    data = {part["id"]: part["data"] for part in found["message"]["parts"] if part["type"] == "data-artifact"}
    assert any("total" in json.dumps(one) for one in data.values())
    urls = [part["url"] for part in found["message"]["parts"] if part["type"] == "file"]
    urls += [part["url"] for one in data.values() for part in one["parts"] if "url" in part]
    assert urls
    for url in urls:
        assert httpx.get(f"{server.url}{url}").content == b"\x89PNG"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_running_answer_is_resumed_and_an_idle_chat_has_none(server: Server, version: str, chat: str) -> None:
    assert node(f"{version}/run.mjs", "resume", server.url, chat)["idle"] is True
    body = {"id": chat, "message": said("wait"), "agent": "waits"}
    with httpx.stream("POST", f"{server.url}/api/chat", json=body, timeout=BOUND_SECONDS) as answer:
        first = next(line for line in answer.iter_lines() if line.startswith("data: "))
    started = json.loads(first.removeprefix("data: "))
    assert httpx.post(f"{server.url}/api/chat/{chat}/stop", json={}).status_code in (200, 204)
    found = node(f"{version}/run.mjs", "resume", server.url, chat)
    if not found["idle"]:  # it may have been stopped by now
        assert found["chunks"][0]["messageId"] == started["messageId"]
    stored = httpx.get(f"{server.url}/api/chats/{chat}").json()["messages"]
    assert stored[-1]["id"] == started["messageId"]


@pytest.mark.parametrize("version", VERSIONS)
def test_refusals_are_errors_with_a_reason(server: Server, version: str, chat: str) -> None:
    found = send(server, version, chat, said("hello"), agent="nobody")
    assert found["error"]
    assert found["chunks"] == []


@pytest.mark.parametrize("how", ["generate", "stream"])
@pytest.mark.proves("0-03", "0-16")
def test_an_agent_is_a_language_model(server: Server, how: str) -> None:
    found = node("provider/run.mjs", how, f"{server.url}/agents/streams/.well-known/agent-card.json", "good evening")
    assert found["text"].strip() == "You said: good evening"
    assert how == "generate" or found["pieces"] > 1
