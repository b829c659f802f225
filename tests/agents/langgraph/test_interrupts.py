"""A graph that waits for somebody: its interrupts are questions, and the answers are what it goes on with."""

import asyncio
import operator
from collections.abc import Callable
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from accord.agents.langgraph.agent import GraphTurn
from accord.model import CancelRequest, Part, Task, TaskState
from tests.agents.langgraph.conftest import Talk, Talking
from tests.agents.langgraph.models import Talking as Model
from tests.engine.conftest import ALICE, said, text


def asking(*questions: Any) -> Any:
    """A graph of one node that asks one question after the other."""

    def ask(state: Any) -> Any:
        answers = [interrupt(question) for question in questions]
        return {"messages": [AIMessage(" ".join(map(str, answers)))]}

    return StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")


def data(task: Task) -> Any:
    assert task.status.message is not None
    return next(part.data for part in task.status.message.parts if part.media_type == "application/json")


def listed(task: Task) -> list[dict[str, Any]]:
    assert task.status.message is not None
    found: list[dict[str, Any]] = (task.status.message.metadata or {})["interrupts"]
    return found


async def ended(talk: Talk, task: Task) -> str:
    assert task.status.state is TaskState.COMPLETED, task.status
    return text(task)


@pytest.mark.proves("3-19")
async def test_an_interrupt_is_a_question_and_a_text_its_answer(talking: Talking) -> None:
    talk = await talking(asking("Which city?"))
    task = await talk.send("book")
    assert (task.status.state, said(task)) == (TaskState.INPUT_REQUIRED, "Which city?")
    assert [one["value"] for one in listed(task)] == ["Which city?"]
    assert await ended(talk, await talk.send("Rome", task_id=task.id)) == "Rome"


async def test_interrupts_carry_data_both_ways(talking: Talking) -> None:
    talk = await talking(asking({"question": "Send it?", "to": "bob"}, {"level": 3}))
    task = await talk.send("book")
    assert said(task) == "Send it?"
    assert data(task) == {"question": "Send it?", "to": "bob"}
    task = await talk.send(Part(data={"approved": True}), task_id=task.id)
    assert (said(task), data(task)) == ("The agent needs an answer to continue.", {"level": 3})
    assert await ended(talk, await talk.send(Part(data=[1, 2]), task_id=task.id)) == "{'approved': True} [1, 2]"


async def test_an_interrupt_may_ask_for_approval(talking: Talking) -> None:
    talk = await talking(asking({"question": "Book it?", "approval": True}))
    task = await talk.send("book")
    assert task.status.message is not None
    assert (said(task), (task.status.message.metadata or {}).get("approval")) == ("Book it?", True)
    assert await ended(talk, await talk.send(Part(data={"approved": False}), task_id=task.id)) == "{'approved': False}"


async def test_a_text_that_looks_like_data_is_an_answer_in_text(talking: Talking) -> None:
    talk = await talking(asking("What?"))
    task = await talk.send("go")
    assert await ended(talk, await talk.send('{"a": 1}', task_id=task.id)) == '{"a": 1}'


async def test_a_question_can_be_repeated(talking: Talking) -> None:
    def ask(state: Any) -> Any:
        while not (age := interrupt("How old?")).isdigit():
            pass
        return {"messages": [AIMessage(f"{age} years")]}

    talk = await talking(StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask"))
    task = await talk.send("go")
    for answer in ("old", "old", "very old"):
        task = await talk.send(answer, task_id=task.id)
        assert (task.status.state, said(task)) == (TaskState.INPUT_REQUIRED, "How old?")
    assert await ended(talk, await talk.send("42", task_id=task.id)) == "42 years"


class Votes(TypedDict):
    votes: Annotated[list[str], operator.add]


def voting(runs: list[str]) -> Any:
    """A graph whose two nodes ask at the same time."""
    graph = StateGraph(Votes)

    def voter(name: str) -> Any:
        def vote(state: Any) -> Any:
            answer = interrupt(f"{name}?")
            runs.append(name)
            return {"votes": [f"{name}: {answer}"]}

        return vote

    for name in ("left", "right"):
        graph.add_node(name, voter(name)).add_edge(START, name)
    return graph


async def test_two_interrupts_at_once_are_answered_at_once_by_their_ids(talking: Talking) -> None:
    runs: list[str] = []
    talk = await talking(voting(runs))
    task = await talk.send(Part(data={"votes": []}))
    assert said(task) == "1. left?\n2. right?"
    ids = {one["value"]: one["id"] for one in data(task)["interrupts"]}
    answers = {ids["right?"]: "no", ids["left?"]: "yes"}
    task = await talk.send(Part(data=answers), task_id=task.id)
    assert task.status.state is TaskState.COMPLETED
    assert task.artifacts[0].parts[0].data == ["left: yes", "right: no"]


async def test_two_interrupts_at_once_are_answered_one_after_the_other(talking: Talking) -> None:
    runs: list[str] = []
    talk = await talking(voting(runs))
    task = await talk.send(Part(data={"votes": []}))
    task = await talk.send("yes", task_id=task.id)
    assert (task.status.state, said(task)) == (TaskState.INPUT_REQUIRED, "right?")
    task = await talk.send("no", task_id=task.id)
    assert task.artifacts[0].parts[0].data == ["left: yes", "right: no"]
    assert sorted(runs) == ["left", "right"], "who has answered is not asked again"


async def test_another_node_resumes_with_the_answer(talking: Talking) -> None:
    first = await talking(asking("Which city?", "When?"))
    task = await first.send("book")
    await first.host.stop(0)
    second = await talking(asking("Which city?", "When?"))
    task = await second.send("Rome", task_id=task.id)
    assert said(task) == "When?"
    assert await ended(second, await second.send("today", task_id=task.id)) == "Rome today"


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], asyncio.Event]:
    """A function after which the first run that comes to a question is lost there, before it has noted that it asks."""

    def lose(number: int) -> asyncio.Event:
        reached, original = asyncio.Event(), GraphTurn._resume_input

        async def ask(turn: GraphTurn, state: Any, *, is_again: bool) -> Any:
            if turn._count_questions() == number and not is_again and not reached.is_set():
                reached.set()
                await asyncio.Event().wait()
            return await original(turn, state, is_again=is_again)

        monkeypatch.setattr(GraphTurn, "_resume_input", ask)
        return reached

    return lose


@pytest.mark.parametrize("is_inside", [False, True])
async def test_an_answer_is_not_taken_for_the_next_question(
    talking: Talking, lost: Callable[[int], asyncio.Event], is_inside: bool
) -> None:
    def made() -> Any:
        graph = asking("again?", "again?")
        return StateGraph(MessagesState).add_node("in", graph.compile()).add_edge(START, "in") if is_inside else graph

    first = await talking(made())
    task = await first.send("go")
    reached = lost(1)
    await first.send("one", task_id=task.id, at_once=True)
    await reached.wait()
    await first.host.stop(0)
    second = await talking(made())
    task = await second.reaches(task, TaskState.INPUT_REQUIRED)
    assert said(task) == "again?"
    assert await ended(second, await second.send("two", task_id=task.id)) == "one two"


async def test_a_place_to_stop_is_not_run_past(talking: Talking, lost: Callable[[int], asyncio.Event]) -> None:
    graph = StateGraph(MessagesState).add_node("plan", lambda state: {})
    graph.add_node("act", lambda state: {"messages": [AIMessage("done")]}).add_edge(START, "plan").add_edge(
        "plan", "act"
    )
    first = await talking(graph.compile(interrupt_before=["act"]))
    reached = lost(0)
    task = await first.send("go", at_once=True)
    await reached.wait()
    await first.host.stop(0)
    second = await talking(graph.compile(interrupt_before=["act"]))
    task = await second.reaches(task, TaskState.INPUT_REQUIRED)
    assert said(task) == "Go on with act?"
    assert await ended(second, await second.send("yes", task_id=task.id)) == "done"


async def test_a_graph_within_a_graph_may_ask(talking: Talking) -> None:
    inner = asking("first?", "first?").compile()
    outer = StateGraph(MessagesState).add_node("inner", inner).add_node("end", lambda state: {})
    talk = await talking(outer.add_edge(START, "inner").add_edge("inner", "end"))
    task = await talk.send("go")
    task = await talk.send("same", task_id=task.id)
    assert (task.status.state, said(task)) == (TaskState.INPUT_REQUIRED, "first?")
    assert await ended(talk, await talk.send("same", task_id=task.id)) == "same same"


async def test_output_before_an_interrupt_appears_once(talking: Talking) -> None:
    """The node that asks is run again from its start, with the model that it calls."""

    async def draft(state: Any) -> Any:
        said = await Model(words=["Dear ", "Bob"]).ainvoke("x")
        if interrupt("Send it?") != "yes":
            return {}
        return {"messages": [said]}

    graph = StateGraph(MessagesState).add_node("hello", lambda state: {"messages": [AIMessage("I write.")]})
    graph.add_node("draft", draft).add_edge(START, "hello").add_edge("hello", "draft")
    talk = await talking(graph)
    task = await talk.send("go")
    assert text(task) == "I write.\n\nDear Bob", "so that it is known what the question is about"
    assert await ended(talk, await talk.send("yes", task_id=task.id)) == "I write.\n\nDear Bob"
    no = await talk.send("again")
    assert await ended(talk, await talk.send("no", task_id=no.id)) == "I write."


async def test_a_place_to_stop_wants_a_yes(talking: Talking) -> None:
    graph = StateGraph(MessagesState).add_node("plan", lambda state: {})
    graph.add_node("act", lambda state: {"messages": [AIMessage("done")]}).add_edge(START, "plan").add_edge(
        "plan", "act"
    )
    talk = await talking(graph.compile(interrupt_before=["act"]))
    task = await talk.send("go")
    assert (task.status.state, said(task)) == (TaskState.INPUT_REQUIRED, "Go on with act?")
    assert await ended(talk, await talk.send("yes", task_id=task.id)) == "done"
    refused = await talk.send("go")
    refused = await talk.send("no", task_id=refused.id)
    assert (refused.status.state, said(refused)) == (TaskState.REJECTED, "act was not approved")


async def test_a_checkpointer_of_the_users_own_is_used(talking: Talking) -> None:
    saver = InMemorySaver()
    talk = await talking(asking("Which city?").compile(checkpointer=saver))
    task = await talk.send("book")
    assert [*saver.storage] == [f"acme/alice/graph/{task.context_id}"]
    assert await ended(talk, await talk.send("Rome", task_id=task.id)) == "Rome"


async def test_unanswered_questions_are_replaced(talking: Talking) -> None:
    talk = await talking(asking("Which city?"))
    first = await talk.send("book")
    second = await talk.send("something else", context_id=first.context_id)
    assert second.status.state is TaskState.INPUT_REQUIRED
    late = await talk.send("Rome", task_id=first.id)
    assert (late.status.state, said(late)) == (TaskState.FAILED, "The conversation has gone on without this answer")
    assert await ended(talk, await talk.send("Oslo", task_id=second.id)) == "Oslo"


async def test_a_question_may_be_cancelled(talking: Talking) -> None:
    talk = await talking(asking("Which city?"))
    task = await talk.send("book")
    cancelled = await talk.service.cancel(CancelRequest(id=task.id), ALICE)
    assert cancelled.status.state is TaskState.CANCELED
    again = await talk.send("book again", context_id=task.context_id)
    assert again.status.state is TaskState.INPUT_REQUIRED
    assert await ended(talk, await talk.send("Rome", task_id=again.id)) == "Rome"


async def test_parallel_interrupts_are_supported(talking: Talking) -> None:
    talk = await talking(asking("Which city?"))
    asked = await asyncio.gather(*(talk.send("book") for _ in range(20)))
    answers = await asyncio.gather(*(talk.send(f"city {n}", task_id=task.id) for n, task in enumerate(asked)))
    assert [text(task) for task in answers] == [f"city {n}" for n in range(20)]
