"""The examples of the documentation, over A2A as callers speak it, and a plain node that is cancelled."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from langgraph.graph import START, MessagesState, StateGraph

from accord.agents.loader import load
from accord.model import TaskState
from accord.testing import call, lifespan, running, stream
from accord.testing.inprocess import application
from tests.agents.langgraph.conftest import graph_agent

ROOT = Path(__file__).parents[3]


def said(text: str, **ids: str) -> dict[str, Any]:
    part = {"kind": "text", "text": text}
    return {"message": {"kind": "message", "messageId": text, "role": "user", "parts": [part], **ids}}


@pytest.mark.proves("3-03", "3-19")
async def test_the_graph_of_the_documentation_is_talked_to_in_03() -> None:
    agent = load(f"{ROOT}/examples/agents/langgraph_agent.py:trip")
    assert (agent.profile.name, agent.profile.description) == ("trip", "Plans a trip, and books it when you agree.")
    app = application([agent])

    def rpc(method: str, text: str, **ids: str) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": said(text, **ids)}

    async with lifespan(app):
        asked = (await call(app, rpc("message/send", "plan a trip"))).json()["result"]
        assert asked["status"]["state"] == "input-required"
        assert asked["status"]["message"]["parts"][0]["text"] == "Which city?"
        async with stream(app, rpc("message/stream", "Oslo", taskId=asked["id"])) as answer:
            await answer.read()
            events = [msgspec.json.decode(frame.data)["result"] for frame in answer.frames()]
        kinds = [event["kind"] for event in events]
        assert kinds[0] == "task"
        assert {"status-update", "artifact-update"} <= set(kinds)
        assert events[-1]["status"]["state"] == "input-required"
        assert events[-1]["status"]["message"]["parts"][1]["data"] == {"question": "Book Oslo?", "city": "Oslo"}
        booked = (await call(app, rpc("message/send", "yes", taskId=asked["id"]))).json()["result"]
    assert booked["status"]["state"] == "completed"
    assert "".join(part["text"] for part in booked["artifacts"][0]["parts"]) == "Three days in Oslo.\n\nBooked."


@pytest.mark.proves("1-61")
async def test_the_runnable_of_the_documentation_streams() -> None:
    agent = load(f"{ROOT}/examples/agents/langchain_agent.py:translator")
    assert agent.profile.name == "translator"
    async with running(agent) as a2a:
        assert await a2a.ask_text("good morning") == "buon giorno a tutti"


async def test_a_plain_node_does_not_hold_up_its_end() -> None:
    begun, go = threading.Event(), threading.Event()

    def work(state: Any) -> Any:
        begun.set()
        go.wait(30)

    graph = StateGraph(MessagesState).add_node("work", work).add_edge(START, "work")
    async with running(graph_agent(graph)) as a2a:
        task = await a2a.send_text("go", at_once=True)
        await asyncio.to_thread(begun.wait, 30)
        assert (await a2a.cancel(task)).status.state is TaskState.CANCELED
        go.set()
