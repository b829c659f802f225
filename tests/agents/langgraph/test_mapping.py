"""What a graph is given and what becomes of its state: any schema, with messages and without."""

import base64
import operator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel

from accord.agents.loader import as_agent
from accord.engine.context import Context
from accord.model import Part, Task, TaskState
from accord.testing import running
from tests.agents.langgraph.conftest import graph_agent
from tests.agents.talk import text

PIXEL = Part(raw=b"\x89PNG", filename="dot.png", media_type="image/png")


def one_node(schema: Any, do: Any, **more: Any) -> Any:
    return StateGraph(schema, **more).add_node("do", do).add_edge(START, "do").add_edge("do", END).compile()


async def answer(graph: Any, *content: Any, **options: Any) -> Task:
    async with running(graph_agent(graph, **options)) as a2a:
        parts = tuple(part if isinstance(part, Part) else Part(text=part) for part in content)
        task = await a2a.send(parts)
    assert isinstance(task, Task)
    return task


def data(task: Task) -> list[Any]:
    return [
        part.data for artifact in task.artifacts for part in artifact.parts if part.media_type == "application/json"
    ]


def why(task: Task) -> str:
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    return "".join(part.text or "" for part in task.status.message.parts)


class Words(TypedDict):
    text: str


class Trip(TypedDict, total=False):
    city: str
    country: str
    days: int


# --- in ---------------------------------------------------------------------------------------------------------------


async def test_a_text_becomes_a_message_and_a_message_the_answer() -> None:
    seen: list[Any] = []

    def do(state: Any) -> Any:
        seen.extend(state["messages"])
        return {"messages": [AIMessage("hello")]}

    task = await answer(one_node(MessagesState, do), "hi")
    assert text(task) == "hello"
    assert isinstance(seen[0], HumanMessage)
    assert (seen[0].content, seen[0].id) == ("hi", "sent-1")


async def test_images_and_files_become_content_blocks() -> None:
    seen: list[Any] = []

    def do(state: Any) -> Any:
        seen.extend(state["messages"][0].content)
        return {"messages": [AIMessage("thanks")]}

    notes = Part(raw=b"buy milk", filename="notes.txt", media_type="text/plain")
    paper = Part(url="https://example.com/paper.pdf", media_type="application/pdf")
    await answer(one_node(MessagesState, do), "look", PIXEL, notes, paper, Part(data={"a": 1}))
    image = base64.b64encode(b"\x89PNG").decode()
    assert seen == [
        {"type": "text", "text": "look"},
        {"type": "image", "mime_type": "image/png", "base64": image, "extras": {"filename": "dot.png"}},
        {"type": "text", "text": "File notes.txt (text/plain):\nbuy milk"},
        {"type": "file", "mime_type": "application/pdf", "url": "https://example.com/paper.pdf"},
        {"type": "text", "text": '{"a":1}'},
    ]


async def test_messages_may_have_another_name() -> None:
    class Chat(TypedDict):
        talk: Annotated[list[AnyMessage], add_messages]
        mood: str

    def do(state: Any) -> Any:
        return {"talk": [AIMessage(state["talk"][-1].text.upper())], "mood": "fine"}

    task = await answer(one_node(Chat, do), "hi")
    assert text(task) == "HI"


async def test_without_messages_the_only_text_gets_it() -> None:
    task = await answer(one_node(Words, lambda state: {"text": state["text"][::-1]}), "abc")
    assert text(task) == "cba"


async def test_a_data_part_is_the_state() -> None:
    graph = one_node(Trip, lambda state: {"days": state["days"] + 1})
    task = await answer(graph, Part(data={"city": "Rome", "days": 2}))
    assert data(task) == [{"city": "Rome", "days": 3}]


async def test_a_text_that_looks_like_data_stays_a_text() -> None:
    given = '{"text": "taken", "messages": []}'
    assert text(await answer(one_node(Words, lambda state: {"text": state["text"]}), given)) == given
    said = await answer(
        one_node(MessagesState, lambda state: {"messages": [AIMessage(state["messages"][0].text)]}), given
    )
    assert text(said) == given


async def test_unsupported_input_is_refused_with_the_accepted_types() -> None:
    graph = one_node(Trip, lambda state: {})
    assert why(await answer(graph, "to Rome")) == "This agent takes a data part: an object with city, country, days"
    unknown = await answer(graph, Part(data={"city": "Rome", "secret": 1}))
    assert why(unknown) == "This agent takes data with city, country, days, not secret"


async def test_pydantic_states_are_checked_before_the_graph_runs() -> None:
    class Order(BaseModel):
        item: str
        count: int = 1

    def do(state: Order) -> Any:
        return {"count": state.count * 2}

    graph = one_node(Order, do)
    assert data(await answer(graph, Part(data={"item": "egg", "count": 3}))) == [{"item": "egg", "count": 6}]
    fault = why(await answer(graph, Part(data={"item": "egg", "count": "many"})))
    assert fault.startswith("This agent cannot take that: count: Input should be a valid integer")
    assert data(await answer(graph, "egg")) == [{"item": "egg", "count": 2}], "the only text"


async def test_dataclasses_and_input_schemas_of_their_own() -> None:
    @dataclass
    class Inner:
        question: str = ""
        found: int = 0

    class Asked(TypedDict):
        question: str

    class Found(TypedDict):
        found: int

    graph = one_node(Inner, lambda state: {"found": len(state.question)}, input_schema=Asked, output_schema=Found)
    task = await answer(graph, "four")
    assert data(task) == [4], "what the output schema does not name stays inside"


async def test_functions_of_the_functional_interface_take_a_value() -> None:
    @entrypoint()
    async def doubled(given: Any) -> Any:
        return given * 2

    assert text(await answer(doubled, "ab")) == "abab"
    assert data(await answer(doubled, Part(data=21))) == [42]


async def test_a_graph_that_is_not_compiled_is_compiled() -> None:
    graph = StateGraph(Words).add_node("do", lambda state: {"text": "done"}).add_edge(START, "do")
    agent = as_agent(graph, "graph")
    async with running(agent) as a2a:
        assert await a2a.ask_text("x") == "done"


def mapped(ctx: Context) -> Trip:
    return {"city": ctx.text, "days": len(ctx.files)}


async def later(ctx: Context) -> Trip:
    return mapped(ctx)


@pytest.mark.parametrize("name", ["mapped", "later"])
async def test_a_function_may_make_the_state(name: str) -> None:
    graph = one_node(Trip, lambda state: {"country": "Italy"})
    task = await answer(graph, "Rome", PIXEL, input_mapper=f"{__name__}:{name}")
    assert data(task) == [{"city": "Rome", "country": "Italy", "days": 1}]


async def test_settings_choose_state_keys() -> None:
    class Work(TypedDict):
        question: str
        answer: str
        papers: list[Any]

    def do(state: Any) -> Any:
        return {"answer": f"{state['question']} {[one['mime_type'] for one in state['papers']]}"}

    graph = one_node(Work, do)
    task = await answer(graph, "why", PIXEL, input_key="question", output_key="answer", files_key="papers")
    assert text(task) == "why ['image/png']"
    with pytest.raises(ValueError, match="takes no 'nothing', but question, answer, papers"):
        graph_agent(graph, input_key="nothing")
    with pytest.raises(ValueError, match=r"input_mapper: .* must be a function"):
        graph_agent(graph, input_mapper=f"{__name__}:PIXEL")


# --- out --------------------------------------------------------------------------------------------------------------


async def test_a_structured_answer_is_a_data_part() -> None:
    class Weather(BaseModel):
        city: str
        degrees: int

    class State(MessagesState):
        structured_response: Weather

    def do(state: Any) -> Any:
        return {"messages": [AIMessage("It is warm.")], "structured_response": Weather(city="Rome", degrees=30)}

    task = await answer(one_node(State, do), "weather")
    (made,) = task.artifacts
    assert made.parts[0].text == "It is warm."
    assert data(task) == [{"city": "Rome", "degrees": 30}]


async def test_an_answer_may_have_files() -> None:
    def do(state: Any) -> Any:
        block = {"type": "image", "base64": base64.b64encode(b"picture").decode(), "mime_type": "image/png"}
        linked = {"type": "file", "url": "https://example.com/a.pdf", "mime_type": "application/pdf"}
        return {"messages": [AIMessage([{"type": "text", "text": "here"}, block, linked])]}

    task = await answer(one_node(MessagesState, do), "draw")
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    assert parts[0].text == "here"
    assert Part(raw=b"picture", media_type="image/png") in parts
    assert Part(url="https://example.com/a.pdf", media_type="application/pdf") in parts


async def test_bytes_become_files_and_other_values_text() -> None:
    class Made(TypedDict):
        text: str
        made: bytes

    task = await answer(one_node(Made, lambda state: {"made": b"raw"}), "x", output_key="made")
    assert [part.raw for artifact in task.artifacts for part in artifact.parts] == [b"raw"]

    class Odd(TypedDict):
        text: str
        seen: Annotated[list[Any], operator.add]

    task = await answer(one_node(Odd, lambda state: {"seen": [Path("a/b"), {3}]}), "x")
    assert data(task) == [{"text": "x", "seen": ["a/b", [3]]}]


async def test_graphs_without_output_complete() -> None:
    task = await answer(one_node(MessagesState, lambda state: {}), "x")
    assert (task.status.state, task.artifacts) == (TaskState.COMPLETED, ())
