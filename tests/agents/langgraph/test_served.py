"""Graphs with settings that are about callers: the extended card, and an answer that is a message alone."""

from typing import Any

import pytest
from langgraph.graph import START, MessagesState, StateGraph

from accord import as_agent
from accord.testing import call, lifespan, running
from accord.testing.inprocess import application
from tests.agents.langgraph.models import Talking
from tests.server.conftest import CARD, HEADER, KNOWN, get, rpc

EXTENDED = "/agent/authenticatedExtendedCard"


def quick() -> Any:
    """A graph that answers in two chunks."""

    async def reply(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await Talking(words=["hello ", "you"]).ainvoke(state["messages"])]}

    return StateGraph(MessagesState).add_node(reply).add_edge(START, "reply").compile()


@pytest.mark.proves("3-06", "3-23")
async def test_a_graph_has_an_extended_card() -> None:
    agent = as_agent(quick(), extended_skills=["book"])
    app = application([agent], auth={"schemes": [HEADER]})
    async with lifespan(app):
        public = (await get(app, CARD)).json()
        assert public["supportsAuthenticatedExtendedCard"] is True
        assert "book" not in [skill["id"] for skill in public["skills"]]
        assert (await get(app, EXTENDED)).status == 401
        shown = await get(app, EXTENDED, headers=KNOWN)
        assert (shown.status, [skill["id"] for skill in shown.json()["skills"]][-1]) == (200, "book")


@pytest.mark.proves("3-34")
async def test_a_graph_answers_with_a_message() -> None:
    app = application([as_agent(quick(), answers_message=True)])
    sent = {"kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "hi"}]}
    async with lifespan(app):
        answer = (await call(app, rpc("message/send", message=sent))).json()["result"]
    assert answer["kind"] == "message"
    assert answer["parts"] == [{"kind": "text", "text": "hello you"}]
    async with running(as_agent(quick(), answers_message=True)) as a2a:
        assert await a2a.ask_text("hi") == "hello you"
