"""Task mode: an agent elsewhere takes on a task, the chat has its acknowledgement at once, webhooks bring the rest."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from accord import Context, agent
from accord.agents.planner import planner
from accord.agents.remote.agent import RemoteAgent
from tests.console.agents import asks, streams
from tests.console.chatting import Chatting, Gate, only, said, text_of, texts, types
from tests.console.conftest import Asking, serving
from tests.engine.doubles import until
from tests.ports import free_port
from tests.serve.running import Server

AGENTS = Path(__file__).parent / "agents.py"
ACK = [
    "start",
    "start-step",
    "tool-input-available",
    "tool-output-available",
    "data-task",
    "text-start",
    "text-delta",
    "text-end",
    "finish-step",
    "finish",
]


@pytest.mark.proves("0-23", "0-26", "0-48", "0-55", "0-65")
async def test_a_task_is_acknowledged_before_it_ends(address: str) -> None:
    gate = Gate()
    async with serving(address, gate.agent) as asking:
        alice = Chatting(asking)
        chunks = await alice.say("c-1", said("go"), mode="task")
        assert types(chunks) == ACK
        task_id = chunks[0]["messageMetadata"]["taskId"]
        assert chunks[0]["messageMetadata"]["artifactType"] == "task"
        assert only(chunks, "data-task")[0]["data"]["artifactType"] == "task"
        assert only(chunks, "tool-output-available")[0]["output"]["taskId"] == task_id
        assert (await asking.get(f"/tasks/{task_id}"))["status"] in ("submitted", "working")
        history = await alice.history("c-1")
        assert [part["type"] for part in history[1]["parts"]] == ["step-start", "tool-createTask", "data-task", "text"]
        async with alice.resuming("c-1") as idle:
            assert idle.status == 204
        gate.opened.set()
        await asking.reaches(task_id, "completed")


@pytest.mark.proves("0-55")
async def test_settings_have_every_agent_take_on_tasks() -> None:
    async with serving("sqlite://:memory:", streams, console={"task_mode": True}) as asking:
        assert [model["mode"] for model in await asking.get("/models")] == ["task"]
        alice = Chatting(asking)
        assert types(await alice.say("c-1", said("go"))) == ACK
        assert text_of(await alice.say("c-1", said("go", "u-2"), mode="stream")) == "You said: go "


@pytest.mark.proves("0-03", "0-16", "0-52")
async def test_agents_are_offered_as_models(quick: Asking) -> None:
    models = await quick.get("/models")
    assert [model["id"] for model in models][:2] == ["echo", "asker"]
    assert models[0] == {
        "id": "echo",
        "name": "Echo",
        "description": "Says back what it is told",
        "mode": "stream",
        "isDefault": True,
        "examples": [],
    }
    chunks = await Chatting(quick).say("c-1", said("hi"), selectedChatModel="echo")
    assert text_of(chunks) == "hi"
    assert (await quick("GET", "/models", by="")).status == 401
    assert await quick.get("/models", by="rita") == []  # who reads only has nobody to talk to
    refused = await quick("POST", "/chat", {"id": "c-2", "message": said("x"), "agent": "echo"}, by="rita")
    assert refused.status == 403


@pytest.mark.proves("0-70")
async def test_only_remote_agents_are_hidden_where_a2a_is_switched_off() -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    there = RemoteAgent(url, name="there")
    async with serving("sqlite://:memory:", there, streams, console={"a2a": False}) as asking:
        assert [model["id"] for model in await asking.get("/models")] == ["streams"]
        assert text_of(await Chatting(asking).say("c-1", said("go"))) == "You said: go "
        answer = await asking("POST", "/chat", {"id": "c-2", "message": said("x"), "agent": "there"})
        assert answer.status >= 400
        assert "Remote agents are not offered" in answer.json()["detail"]
    async with serving("sqlite://:memory:", RemoteAgent(url, name="there"), streams) as asking:
        assert [model["id"] for model in await asking.get("/models")] == ["there", "streams"]


async def test_an_agent_that_answers_with_a_message_alone_has_no_task() -> None:
    @agent(name="Brief", description="Answers with a message", answers_message=True)
    async def brief(ctx: Context) -> str:
        return f"briefly: {ctx.text}"

    async with serving("sqlite://:memory:", brief) as asking:
        alice = Chatting(asking)
        chunks = await alice.say("c-1", said("hi"))
        assert text_of(chunks) == "briefly: hi"
        assert only(chunks, "data-task") == []
        assert texts((await alice.history("c-1"))[1]) == "briefly: hi"


@pytest.mark.proves("0-02", "0-50", "0-77")
async def test_a_planner_shows_its_tools_and_tasks_in_the_chat(address: str) -> None:
    async with serving(address, planner, streams, asks) as asking:
        alice = Chatting(asking)
        chunks = await alice.say("c-1", said("1. streams a story\n2. asks for a day"), agent="planner")
        named = [chunk["toolName"] for chunk in only(chunks, "tool-input-available")]
        assert named == ["planTasks", "createTask", "createTask"]
        made = [chunk["output"] for chunk in only(chunks, "tool-output-available")][1:]
        chips = {chunk["id"]: chunk["data"] for chunk in only(chunks, "data-task")}
        for one in made:
            assert chips[one["taskId"]]["status"] == "submitted"
            row = await asking.get(f"/tasks/{one['taskId']}")
            assert (row["status"], row["waiting"], row["contextId"]) == (
                "submitted",
                "execute",
                chunks[0]["messageMetadata"]["contextId"],
            )
        parts = [part["type"] for part in (await alice.history("c-1"))[1]["parts"]]
        assert {"tool-planTasks", "tool-createTask", "data-task", "data-artifact", "text"} <= set(parts)
        ran = await alice.say("c-1", said("execute all", "u-2"))
        assert [chunk["toolName"] for chunk in only(ran, "tool-input-available")][-2:] == ["updateTask", "updateTask"]
        await asking.reaches(made[0]["taskId"], "completed")
        await asking.reaches(made[1]["taskId"], "input-required")


# --- an agent elsewhere -----------------------------------------------------------------------------------------------


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """An orchestrator of its own process, and the server that people chat with."""
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    there = Server(tmp_path / "there", f"{AGENTS}:asks", ACCORD_PUSH__ALLOW_PRIVATE="true")
    try:
        here = Server(
            tmp_path / "here",
            f"{AGENTS}:streams",
            "--store",
            f"sqlite:///{tmp_path}/chat.db",
            A2A_AGENT_URL=there.url,
        )
        try:
            yield there, here
        finally:
            here.kill()
    finally:
        there.kill()


def rpc(url: str, method: str, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    return httpx.post(url, json=body, headers={"A2A-Version": "1.0"}).json()["result"]


def got(url: str, path: str) -> Any:
    return httpx.get(f"{url}{path}").json()


def said_to(url: str, message: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    """What a server answers to a message."""
    answer = httpx.post(f"{url}/api/chat", json={"id": "c-1", "message": message, **body}, timeout=30)
    assert answer.status_code == 200, answer.text
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.mark.proves(
    "0-05", "0-24", "0-47", "0-51", "0-52", "0-54", "0-65", "0-67", "0-71", "0-75", "0-76", "0-79", "C-15", "C-21"
)
async def test_remote_tasks_report_by_webhook(servers: tuple[Server, Server], tmp_path: Path) -> None:
    there, here = servers
    models = {model["id"]: model["mode"] for model in got(here.url, "/api/models")}
    assert models == {"streams": "stream", "orchestrator": "task"}
    chunks = said_to(here.url, said("book"), agent="orchestrator")
    assert types(chunks) == ACK
    task_id = chunks[0]["messageMetadata"]["taskId"]
    seen: dict[str, Any] = {}

    async def is_in(state: str) -> bool:
        seen.update(got(here.url, f"/api/tasks/{task_id}"))
        return bool(seen["status"] == state)

    await until(lambda: is_in("input-required"))
    assert seen["statusMessage"] == "For which day?"
    assert "token" not in json.dumps(seen).lower()
    (theirs,) = rpc(there.url, "ListTasks")["tasks"]
    (webhook,) = rpc(there.url, "ListTaskPushNotificationConfigs", taskId=theirs["id"])["configs"]
    assert webhook["url"] == f"{here.url}/api/webhook/tasks"
    assert len(webhook["token"]) >= 32
    answered = said_to(here.url, said("Monday", "u-2"), agent="orchestrator")
    assert only(answered, "tool-input-available")[0]["toolName"] == "updateTask"
    assert answered[0]["messageMetadata"]["taskId"] == task_id
    await until(lambda: is_in("completed"))
    assert "Booked for Monday" in json.dumps(seen["result"])
    with sqlite3.connect(tmp_path / "chat.db") as store:
        rows = store.execute("SELECT data, context_id FROM message WHERE role = 'assistant' ORDER BY seq").fetchall()
    store.close()
    context_id = chunks[0]["messageMetadata"]["contextId"]
    assert [(json.loads(data), context) for data, context in rows] == [
        ({"artifactType": "task", "taskId": task_id}, context_id)
    ] * 2
    assert seen["contextId"] == context_id
