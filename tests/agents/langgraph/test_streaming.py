"""What is seen while a graph runs: tokens, steps, what nodes report, graphs within graphs, and what it has used."""

import asyncio
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph

from accord.model import Artifact, ArtifactUpdate, Event, Part, Role, StatusUpdate, Task, TaskState
from accord.protocol import lifecycle
from accord.testing import running
from tests.agents.langgraph.conftest import graph_agent
from tests.agents.langgraph.models import Talking
from tests.agents.talk import text


def chained(schema: Any, **nodes: Any) -> Any:
    graph = StateGraph(schema).add_sequence([*nodes.items()])
    return graph.add_edge(START, next(iter(nodes))).compile()


def speaking(*words: str, **fields: Any) -> Any:
    model = Talking(words=list(words), **fields)

    async def speak(state: Any) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return speak


async def told(graph: Any, text: str = "go", **options: Any) -> list[Event]:
    async with running(graph_agent(graph, **options)) as a2a:
        return [event async for event in a2a.stream_text(text)]


def task_of(events: list[Event]) -> Task:
    first = events[0].body
    assert isinstance(first, Task)
    return lifecycle.fold(first, events[1:])


def chunks(events: list[Event]) -> list[str]:
    bodies = [event.body for event in events if isinstance(event.body, ArtifactUpdate)]
    return [part.text for body in bodies for part in body.artifact.parts if part.text]


def reports(events: list[Event]) -> list[list[Part]]:
    updates = [event.body.status for event in events if isinstance(event.body, StatusUpdate)]
    return [list(one.message.parts) for one in updates if one.message is not None]


def words(events: list[Event]) -> list[str]:
    return ["".join(part.text or "" for part in parts) for parts in reports(events)]


async def test_tokens_are_streamed_and_the_answer_is_not_repeated() -> None:
    events = await told(chained(MessagesState, speak=speaking("one ", "two ", "three")))
    assert chunks(events) == ["one ", "two ", "three"]
    assert text(task_of(events)) == "one two three"


async def test_plain_nodes_that_call_a_model_in_a_thread_stream_as_well() -> None:
    model = Talking(words=["one ", "two "])
    events = await told(chained(MessagesState, speak=lambda state: {"messages": [model.invoke(state["messages"])]}))
    assert chunks(events) == ["one ", "two "]


async def test_output_of_several_nodes_is_separated() -> None:
    def add(state: Any) -> Any:
        return {"messages": [AIMessage("by hand")]}

    events = await told(chained(MessagesState, first=speaking("let me ", "look"), second=add, third=speaking("found")))
    assert text(task_of(events)) == "let me look\n\nby hand\n\nfound"
    assert len(task_of(events).artifacts) == 1


async def test_parallel_models_are_streamed_one_after_the_other() -> None:
    turns = [asyncio.Event() for _ in range(4)]

    def speaker(before: int, after: int, *said: str) -> Any:
        async def between() -> None:
            turns[after].set()
            await turns[before].wait()

        return speaking(*said, between=between)

    graph = StateGraph(MessagesState)
    graph.add_node("left", speaker(0, 1, "left one, ", "left two"))
    graph.add_node("right", speaker(1, 0, "right one, ", "right two"))
    graph.add_edge(START, "left").add_edge(START, "right")
    said = text(task_of(await told(graph.compile())))
    assert said in ("left one, left two\n\nright one, right two", "right one, right two\n\nleft one, left two")


async def test_a_different_final_text_replaces_streamed_text() -> None:
    class State(TypedDict):
        text: str

    async def judge(state: Any) -> Any:
        kind = await Talking(words=["spo", "rts"]).ainvoke([HumanMessage(state["text"])])
        return {"text": f"This is about {kind.text.upper()}"}

    events = await told(chained(State, judge=judge))
    assert text(task_of(events)) == "This is about SPORTS"

    async def same(state: Any) -> Any:
        kind = await Talking(words=["spo", "rts"]).ainvoke([HumanMessage(state["text"])])
        return {"text": str(kind.text)}

    assert chunks(await told(chained(State, same=same))) == ["spo", "rts"], "and is not said again if it does not"


async def test_streaming_can_be_limited_to_nodes() -> None:
    graph = chained(MessagesState, think=speaking("hm ", "hm"), speak=speaking("yes"))
    events = await told(graph, stream_nodes=("speak",))
    assert chunks(events) == ["yes"]


def nodes(events: list[Event]) -> list[str]:
    updates = [event.body.metadata or {} for event in events if isinstance(event.body, StatusUpdate)]
    return ["/".join(metadata["path"]) for metadata in updates if "path" in metadata]


@pytest.mark.proves("3-28")
async def test_nodes_are_reported_and_are_not_in_the_history() -> None:
    graph = chained(MessagesState, plan=lambda state: {}, act=speaking("done"))
    events = await told(graph)
    assert nodes(events) == ["plan", "act"]
    assert words(events) == []
    assert [message.role for message in task_of(events).history] == [Role.USER]
    assert nodes(await told(graph, updates="off")) == []
    with_values = reports(await told(chained(MessagesState, act=speaking("done")), updates="values"))
    value: Any = with_values[0][0].data
    assert value["messages"][0]["content"] == "done"


async def test_custom_writes_are_passed_on() -> None:
    def work(state: Any) -> Any:
        write = get_stream_writer()
        write("half way")
        write({"done": 50, "by": complex(1, 0)})
        write(Artifact(artifact_id="draft", parts=(Part(text="a draft"),)))
        write(Part(raw=b"file", media_type="application/octet-stream"))
        return {"messages": [AIMessage("ready")]}

    events = await told(chained(MessagesState, work=work))
    assert words(events)[0] == "half way"
    assert reports(events)[1][0].data == {"done": 50, "by": "(1+0j)"}
    made = {artifact.artifact_id: artifact.parts for artifact in task_of(events).artifacts}
    assert made["draft"] == (Part(text="a draft"),)
    answer = next(parts for name, parts in made.items() if name != "draft")
    assert [part.raw for part in answer if part.raw] == [b"file"]
    assert "".join(part.text or "" for part in answer) == "ready"


async def test_graphs_within_graphs_are_seen() -> None:
    inner = chained(MessagesState, look=speaking("found ", "it"), check=lambda state: {})
    outer = chained(MessagesState, research=inner, sum_up=speaking("in ", "short"))
    events = await told(outer)
    assert nodes(events) == ["research/look", "research/check", "research", "sum_up"]
    assert text(task_of(events)) == "found it\n\nin short"


async def test_model_usage_is_counted_once_per_call() -> None:
    graph = chained(MessagesState, first=speaking("one ", "two "), second=speaking("three"))
    metadata = task_of(await told(graph)).metadata or {}
    used = metadata["usage"]
    assert (used["inputTokens"], used["outputTokens"], used["totalTokens"]) == (1 + 2, 2 + 1, 6)
    assert set(used["models"]) == {"talking-1"}


async def test_calls_that_are_not_streamed_are_counted_as_well() -> None:
    async def quietly(state: Any) -> Any:
        model = Talking(words=["a", "b"]).with_config(tags=["nostream"])
        return {"messages": [AIMessage(f"heard {(await model.ainvoke('x')).text}")]}

    events = await told(chained(MessagesState, quietly=quietly))
    assert text(task_of(events)) == "heard ab"
    assert (task_of(events).metadata or {})["usage"]["totalTokens"] == 3


async def test_budgets_stop_running_graphs() -> None:
    graph = StateGraph(MessagesState).add_node("talk", speaking("on ", "and "))
    endless = graph.add_edge(START, "talk").add_conditional_edges("talk", lambda state: "talk").compile()
    task = task_of(await told(endless, max_tokens=20))
    assert task.status.state is TaskState.FAILED
    assert "token" in "".join(words_of(task)).lower()


def words_of(task: Task) -> list[str]:
    assert task.status.message is not None
    return [part.text or "" for part in task.status.message.parts]


@pytest.mark.parametrize("limit", [3, 7])
async def test_a_graph_that_does_not_end_is_stopped(limit: int) -> None:
    graph = (
        StateGraph(MessagesState).add_node("walk", lambda state: {}).add_edge(START, "walk").add_edge("walk", "walk")
    )
    task = task_of(await told(graph.compile(), recursion_limit=limit))
    assert task.status.state is TaskState.FAILED
    assert words_of(task) == [f"The graph did not end within {limit} steps"]


async def test_node_errors_are_logged_and_hidden(caplog: pytest.LogCaptureFixture) -> None:
    def fail(state: Any) -> Any:
        raise KeyError("the key of the safe")

    task = task_of(await told(chained(MessagesState, fail=fail)))
    assert task.status.state is TaskState.FAILED
    assert words_of(task) == ["The agent failed"]
    assert "the key of the safe" in caplog.text
