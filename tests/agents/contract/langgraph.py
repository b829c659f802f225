"""LangGraph: graphs of messages, of plain state, and a model that talks."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from accord.agents.langgraph import AGENT_TYPE, GraphOptions
from accord.api.agent_types import AgentArguments
from accord.engine.agent import Agent, Crash
from accord.engine.outcome import Failed
from tests.agents.contract import scratch as marks
from tests.agents.contract.subjects import Subject
from tests.agents.langgraph.models import Talking


class Words(TypedDict):
    """A state of one text."""

    text: str


def said(state: Any) -> str:
    """Return what was said last."""
    return str(state["messages"][-1].text)


def behaviours(scratch: Path) -> dict[str, Callable[[], Any]]:
    """Return the graphs that behave so."""

    async def echo(state: Any) -> Any:
        return {"messages": [AIMessage(f"you said {said(state)}")]}

    async def stream(state: Any) -> Any:
        return {"messages": [await Talking(words=["one ", "two ", "three "]).ainvoke(state["messages"])]}

    async def held(state: Any) -> Any:
        model = Talking(words=["one ", "two "], between=lambda: marks.held(scratch))
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def remember(state: Any) -> Any:
        return {"messages": [AIMessage(" ".join(str(one.text) for one in state["messages"]))]}

    async def slow(state: Any) -> Any:
        await marks.work(scratch)

    async def fail(state: Any) -> Any:
        raise Failed("no such city")

    async def ask(state: Any) -> Any:
        return {"messages": [AIMessage(f"to {interrupt('Which city?')}")]}

    async def file(state: Any) -> Any:
        block = next(one for one in state["messages"][-1].content if one["type"] == "file")
        given = base64.b64decode(block["base64"])
        return {"messages": [AIMessage([{**block, "base64": base64.b64encode(given + b"!").decode()}])]}

    async def usage(state: Any) -> Any:
        used = {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12}
        return {"messages": [AIMessage("done", usage_metadata=used)]}

    talks = (echo, stream, held, remember, slow, fail, ask, file, usage)
    graphs = {do.__name__: StateGraph(MessagesState).add_node(do).add_edge(START, do.__name__) for do in talks}
    return graphs | {"steps": _steps(scratch)}


def _steps(scratch: Path) -> Any:
    graph = StateGraph(Words)

    def step(number: int) -> Any:
        async def take(state: Any) -> Any:
            marks.step(scratch, number)
            if number == 2:
                await marks.held(scratch)
            return {"text": "done"}

        return take

    return graph.add_sequence([(str(number), step(number)) for number in (1, 2, 3)]).add_edge(START, "1")


def make(behaviour: str, scratch: Path) -> Agent:
    """Return an agent that behaves so."""
    return AGENT_TYPE.make(
        AgentArguments(options=GraphOptions(), name="subject", target=behaviours(scratch)[behaviour])
    )


SUBJECT = Subject(kind="langgraph", make=make, has=frozenset(behaviours(Path())), crash=Crash.RESUME)
