"""Whose conversation is whose: a context is a thread of its tenant, its owner and its agent, one task at a time."""

import asyncio
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

from accord.a2a import Caller
from accord.model import CancelRequest, TaskState
from accord.storage.commands.retention import purge
from accord.storage.store import Tx
from tests.agents.langgraph.conftest import Talk, Talking
from tests.engine.conftest import ALICE, BOB, text


def recalling() -> Any:
    """A graph that says everything that it was told."""

    def recall(state: Any) -> Any:
        told = [one.text for one in state["messages"] if one.type == "human"]
        return {"messages": [AIMessage(", ".join(told))]}

    return StateGraph(MessagesState).add_node("recall", recall).add_edge(START, "recall")


async def rows(tx: Tx) -> dict[str, int]:
    counts = {}
    for table in ("thread", "checkpoint", "checkpoint_value", "checkpoint_write"):
        row = await tx.one(f"SELECT count(*) FROM {table}")
        counts[table] = 0 if row is None else int(row[0])
    return counts


@pytest.mark.proves("3-03", "3-19")
async def test_a_context_is_a_thread(talking: Talking) -> None:
    talk = await talking(recalling())
    first = await talk.send("one")
    second = await talk.send("two", context_id=first.context_id)
    assert text(second) == "one, two"
    assert text(await talk.send("three")) == "three"
    events = await talk.events("four", context_id=first.context_id)
    assert events[-1].body.status.state is TaskState.COMPLETED  # type: ignore[union-attr]
    assert text(await talk.send("five", context_id=first.context_id)) == "one, two, four, five"


async def test_threads_are_private_to_their_owner(talking: Talking) -> None:
    talk = await talking(recalling())
    first = await talk.send("secret")
    others = [BOB, Caller(tenant="globex", owner="alice"), Caller(tenant="acme/alice", owner="graph")]
    for other in others:
        task = await Talk(talk.host, other).send("hi", context_id=first.context_id)
        assert text(task) == "hi"
    assert text(await talk.send("mine", context_id=first.context_id)) == "secret, mine"


async def test_two_agents_do_not_share_a_thread(talking: Talking) -> None:
    one = await talking(recalling(), name="one")
    first = await one.send("secret")
    two = await talking(recalling(), name="two")
    assert text(await two.send("hi", context_id=first.context_id)) == "hi"


async def test_tasks_of_a_conversation_wait_for_each_other(talking: Talking) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def recall(state: Any) -> Any:
        told = [one.text for one in state["messages"] if one.type == "human"]
        begun.set()
        await go.wait()
        return {"messages": [AIMessage(", ".join(told))]}

    talk = await talking(StateGraph(MessagesState).add_node("recall", recall).add_edge(START, "recall"))
    first = await talk.send("one", at_once=True)
    await begun.wait()
    waiting = talk.service.stream(talk.request("two", context_id=first.context_id), ALICE)
    said: list[str] = []
    async for event in waiting:
        message = getattr(getattr(event.body, "status", None), "message", None)
        said += [part.text for part in message.parts] if message else []
        if said:
            go.set()
    assert said[0] == f"Waits for task {first.id} of the same conversation"
    assert said.count(said[0]) == 1
    later = await talk.send("three", context_id=first.context_id)
    assert text(later) == "one, two, three"
    assert text(await talk.get(first)) == "one"


async def test_a_cancelled_task_leaves_the_conversation_to_others(talking: Talking) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def work(state: Any) -> Any:
        if state["messages"][-1].text != "work":
            return {"messages": [AIMessage(str(len(state["messages"])))]}
        try:
            begun.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()

    talk = await talking(StateGraph(MessagesState).add_node("work", work).add_edge(START, "work"))
    task = await talk.send("work", at_once=True)
    await begun.wait()
    await talk.service.cancel(CancelRequest(id=task.id), ALICE)
    await stopped.wait()
    assert text(await talk.send("go on", context_id=task.context_id)) == "2"


async def test_a_failed_task_leaves_the_conversation_to_others(talking: Talking) -> None:
    def work(state: Any) -> Any:
        if state["messages"][-1].text == "fail":
            raise ValueError("no")
        return {"messages": [AIMessage(str(len(state["messages"])))]}

    talk = await talking(StateGraph(MessagesState).add_node("work", work).add_edge(START, "work"))
    task = await talk.send("fail")
    assert task.status.state is TaskState.FAILED
    assert text(await talk.send("go on", context_id=task.context_id)) == "2"


async def test_only_the_last_checkpoint_is_kept(talking: Talking) -> None:
    inner = recalling().compile()
    graph = StateGraph(MessagesState).add_sequence([("a", lambda state: {}), ("b", inner)]).add_edge(START, "a")
    talk = await talking(graph)
    first = await talk.send("one")
    kept = await talk.store.read(rows)
    assert (kept["thread"], kept["checkpoint"], kept["checkpoint_write"]) == (1, 1, 0)
    await talk.send("two", context_id=first.context_id)
    assert (await talk.store.read(rows))["checkpoint"] == 1
    await talk.send("elsewhere")
    assert await talk.store.do(purge, -60_000, 100) == 3
    assert set((await talk.store.read(rows)).values()) == {0}


async def test_the_steps_may_be_kept(talking: Talking) -> None:
    talk = await talking(recalling(), keep_history=True)
    await talk.send("one")
    assert (await talk.store.read(rows))["checkpoint"] > 1
