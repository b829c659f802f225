"""LangChain runnables as agents: what they are given, what they say while they run, and what they answer."""

import sys
import threading
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import JsonOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel

from accord.agents.langchain import AGENT_TYPE, RunnableOptions
from accord.api import agent_types
from accord.api.agent_types import AgentArguments
from accord.engine.context import Context
from accord.model import ArtifactUpdate, Event, Message, Part, Role, Task, TaskState
from accord.testing import Running, running
from tests.agents.langgraph.models import Talking
from tests.agents.talk import text


def runnable_agent(runnable: Any, **options: Any) -> Any:
    return AGENT_TYPE.make(AgentArguments(options=RunnableOptions(**options), name="chain", target=runnable))


async def answer(runnable: Any, content: Any, **options: Any) -> Task:
    async with running(runnable_agent(runnable, **options)) as a2a:
        task = await a2a.send(content)
    assert isinstance(task, Task)
    return task


def data(task: Task) -> list[Any]:
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    return [part.data for part in parts if part.media_type == "application/json"]


def why(task: Task) -> str:
    assert task.status.state is TaskState.FAILED
    assert task.status.message is not None
    return "".join(part.text or "" for part in task.status.message.parts)


def chunks(events: list[Event]) -> list[str]:
    bodies = [event.body for event in events if isinstance(event.body, ArtifactUpdate)]
    return [part.text for body in bodies for part in body.artifact.parts if part.text]


async def again(a2a: Running, said: str, context_id: str | None) -> Task:
    message = Message(message_id=said, role=Role.USER, parts=(Part(text=said),), context_id=context_id)
    task = await a2a.send(message)
    assert isinstance(task, Task)
    return task


@pytest.mark.proves("1-61")
async def test_chat_models_get_the_history_and_stream_tokens() -> None:
    model = Talking(words=["well", ", ", "hello"])
    async with running(runnable_agent(model)) as a2a:
        first = await a2a.send_text("hi")
        assert text(first) == "well, hello"
        await again(a2a, "how are you?", first.context_id)
        events = [event async for event in a2a.stream_text("elsewhere")]
    assert [[(one.type, one.text) for one in heard] for heard in model.heard] == [
        [("human", "hi")],
        [("human", "hi"), ("ai", "well, hello"), ("human", "how are you?")],
        [("human", "elsewhere")],
    ]
    assert chunks(events) == ["well", ", ", "hello"]


async def test_a_model_is_shown_images() -> None:
    model = Talking(words=["nice"])
    await answer(model, (Part(text="look"), Part(raw=b"png", media_type="image/png")))
    content = model.heard[0][0].content
    assert isinstance(content, list)
    assert content[1] == {"type": "image", "mime_type": "image/png", "base64": "cG5n"}


async def test_model_usage_is_counted() -> None:
    chain = PromptTemplate.from_template("say {what}") | Talking(words=["a", "b"]) | StrOutputParser()
    task = await answer(chain, "it")
    used = (task.metadata or {})["usage"]
    assert (used["inputTokens"], used["outputTokens"]) == (1, 2)


async def test_a_prompt_gets_the_text_or_data_by_name() -> None:
    one = PromptTemplate.from_template("say {what}") | RunnableLambda(lambda prompt: prompt.to_string())
    assert text(await answer(one, "it")) == "say it"
    assert text(await answer(one, '{"what": "else"}')) == 'say {"what": "else"}', "a text is never data"
    two = PromptTemplate.from_template("{a} and {b}") | RunnableLambda(lambda prompt: prompt.to_string())
    assert text(await answer(two, Part(data={"a": 1, "b": "two"}))) == "1 and two"
    assert why(await answer(two, "it")) == "This agent takes a data part: an object with a, b"
    assert why(await answer(two, Part(data={"a": 1}))) == "This agent also needs b"


async def test_a_place_for_messages_gets_the_conversation() -> None:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history", optional=True), ("human", "{question}")])
    model = Talking(words=["yes"])
    async with running(runnable_agent(prompt | model)) as a2a:
        first = await again(a2a, "one", None)
        await again(a2a, "two", first.context_id)
    assert [one.text for one in model.heard[1]] == ["one", "yes", "two"]


async def test_structured_answers_are_data() -> None:
    parsed = Talking(words=['{"city": ', '"Rome", ', '"days": 3}']) | JsonOutputParser()
    task = await answer(parsed, "trip")
    assert data(task) == [{"city": "Rome", "days": 3}]
    assert text(task) == "", "and what it was made of is not said"

    class Trip(BaseModel):
        city: str

    assert data(await answer(RunnableLambda(lambda said: Trip(city=said)), "Oslo")) == [{"city": "Oslo"}]
    both = RunnableParallel(loud=RunnableLambda(lambda said: said.upper()), same=RunnablePassthrough())
    assert data(await answer(both, "hi")) == [{"loud": "HI", "same": "hi"}]


async def test_calls_of_tools_are_data_too() -> None:
    call = {"name": "weather", "args": {"city": "Rome"}, "id": "1"}
    task = await answer(RunnableLambda(lambda said: AIMessage("", tool_calls=[call])), "go")
    assert data(task) == [{"toolCalls": [{"name": "weather", "args": {"city": "Rome"}}]}]


async def test_synchronous_runnables_do_not_block_the_loop() -> None:
    seen: list[threading.Thread] = []

    def work(said: str) -> str:
        seen.append(threading.current_thread())
        return said * 2

    assert text(await answer(RunnableLambda(work), "ab")) == "abab"
    assert seen[0] is not threading.current_thread()


async def test_whole_messages_appear_once() -> None:
    assert text(await answer(RunnableLambda(lambda said: AIMessage("whole")), "go")) == "whole"
    assert text(await answer(RunnableLambda(lambda said: AIMessageChunk(content="piece")), "go")) == "piece"
    assert text(await answer(RunnableLambda(lambda said: [HumanMessage("a"), AIMessage("b")]), "go")) == "b"


def mapped(ctx: Context) -> dict[str, Any]:
    return {"a": ctx.text, "b": ctx.context_id != ""}


async def test_settings_choose_input_and_output() -> None:
    echo: Any = RunnableLambda(lambda given: {"given": given, "answer": f"got {given}"})
    assert text(await answer(echo, "x", input_key="q", output_key="answer")) == "got {'q': 'x'}"
    chosen = await answer(echo, "x", input_mapper=f"{__name__}:mapped", output_key="given")
    assert data(chosen) == [{"a": "x", "b": True}]


async def test_errors_are_logged_and_hidden_from_callers(caplog: pytest.LogCaptureFixture) -> None:
    def fail(said: str) -> str:
        raise KeyError("the key of the safe")

    assert why(await answer(RunnableLambda(fail), "go")) == "The agent failed"
    assert "the key of the safe" in caplog.text


def test_runnables_are_recognized_and_graphs_are_another_kind() -> None:
    kind = agent_types.agent_type_of(RunnableLambda(lambda said: said))
    assert kind is not None
    assert kind.name == "langchain"
    graph = StateGraph(MessagesState).add_node("do", lambda state: {}).add_edge(START, "do")
    for thing in (graph, graph.compile()):
        found = agent_types.agent_type_of(thing)
        assert found is not None
        assert found.name == "langgraph"


@pytest.mark.parametrize(("kind", "module"), [("langchain", "langchain_core"), ("langgraph", "langgraph")])
def test_missing_packages_name_their_extra(kind: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.startswith((f"accord.agents.{kind}.", "accord.agents.langchain."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.setitem(sys.modules, name, None)
    found = agent_types.AGENT_TYPES.load(kind)
    with pytest.raises(ImportError, match=rf"pip install 'accord\[{kind}\]'"):
        found.make(AgentArguments(options=found.options(), target=object()))
