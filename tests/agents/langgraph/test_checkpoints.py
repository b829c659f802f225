"""Checkpoints in our store do what LangGraph expects of them, however large, and only for whoever holds the task."""

import asyncio
import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt

from accord.agents.langgraph import checkpoints as graph_checkpoints
from accord.agents.langgraph.checkpoints import Saver
from accord.model import TaskState
from accord.storage.commands import conversation_state, tasks
from accord.storage.commands.conversation_state import CheckpointWrites, NewCheckpoint, TaskFence
from accord.storage.commands.tasks import Fenced
from accord.storage.store import Command as StoreCommand
from accord.storage.store import Store, StoreUnavailable
from tests.databases import postgres
from tests.storage.conftest import OTHER, TENANT, AnyStore, heard, new, ready, store

__all__ = ["heard", "postgres", "ready", "store"]

MEGABYTES = 24


class Sums(TypedDict):
    given: list[int]
    found: Annotated[list[int], operator.add]


def summing() -> Any:
    """A graph with parallel branches, a graph within it, and a question in that."""
    inner = StateGraph(Sums)
    inner.add_node("ask", lambda state: {"found": [int(interrupt("how many?"))]}).add_edge(START, "ask")
    graph = StateGraph(Sums)
    graph.add_node("square", lambda state: {"found": [state["given"][0] ** 2]})
    graph.add_node("more", inner.compile())
    graph.add_conditional_edges(START, lambda state: [Send("square", {"given": [n]}) for n in state["given"]])
    return graph.add_edge("square", "more")


@pytest.fixture
async def saver(ready: AnyStore) -> Saver:
    for tenant in (TENANT, OTHER):
        await ready.do(tasks.create_task, tenant, new("t-1", state=TaskState.WORKING), epoch=1)
    return Saver(ready, TENANT, TaskFence("t-1", 1))


def at(thread: str, **more: Any) -> Any:
    return {"configurable": {"thread_id": thread, **more}}


async def walked(saver: BaseCheckpointSaver[Any], durability: Any = "sync") -> list[Any]:
    """Run a graph to its end, and tell everything that can be read about that."""
    graph = summing().compile(checkpointer=saver)
    config = at("th-1")
    await graph.ainvoke({"given": [1, 2, 3]}, config, durability=durability)
    waiting = await graph.aget_state(config, subgraphs=True)
    await graph.ainvoke(Command(resume="7"), config, durability=durability)
    history = [one async for one in graph.aget_state_history(config)]
    fork = history[min(2, len(history) - 1)]
    await graph.aupdate_state(fork.config, {"found": [100]}, as_node="square")
    forked = [one async for one in graph.aget_state_history(config, limit=2)]
    return [
        (waiting.values, waiting.next, [one.value for one in waiting.interrupts]),
        waiting.tasks[0].state.values,
        *[(one.values, one.next, (one.metadata or {})["source"]) for one in (*history, *forked)],
        [(one.values, one.next) async for one in graph.aget_state_history(config, filter={"source": "update"})],
        [(one.values, one.next) async for one in graph.aget_state_history(config, before=fork.config)],
    ]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_the_checkpointer_behaves_like_that_of_langgraph(saver: Saver, durability: str) -> None:
    told = await walked(saver, durability)
    assert told == await walked(InMemorySaver(), durability)
    assert told[2][0]["found"] == [1, 4, 9, 1, 4, 9, 7]


@pytest.mark.parametrize("durability", ["sync", "async", "exit"])
async def test_checkpoints_equal_the_state_of_the_run(ready: AnyStore, saver: Saver, durability: str) -> None:
    """Whatever is looked at while a graph runs is what another run would find at that moment."""
    looked: list[int] = []

    class Compared(Saver):
        async def aget_tuple(self, config: Any) -> Any:
            found = await super().aget_tuple(config)
            looked.append(0 if found is None else len(found.pending_writes or ()))
            assert found == await Saver(ready, TENANT, TaskFence("t-1", 1)).aget_tuple(config)
            return found

    await walked(Compared(ready, TENANT, TaskFence("t-1", 1)), durability)
    assert any(looked), "pending writes among them"


async def test_a_thread_belongs_to_a_tenant(saver: Saver, ready: AnyStore) -> None:
    await walked(saver)
    assert await Saver(ready, OTHER, TaskFence("t-1", 1)).aget_tuple(at("th-1")) is None
    assert [one async for one in Saver(ready, OTHER, TaskFence("t-1", 1)).alist(at("th-1"))] == []
    with pytest.raises(ValueError, match="Name a thread"):
        await anext(aiter(saver.alist(None)))
    assert len({one.config["configurable"]["checkpoint_ns"] async for one in saver.alist(at("th-1"))}) > 1
    await saver.adelete_thread("th-1")
    assert await saver.aget_tuple(at("th-1")) is None


async def test_large_states_are_kept(saver: Saver) -> None:
    class Big(TypedDict):
        data: bytes
        texts: list[str]

    graph = StateGraph(Big).add_node("grow", lambda state: {"data": state["data"] * 2, "texts": ["x" * 1_000_000] * 4})
    compiled = graph.add_edge(START, "grow").compile(checkpointer=saver)
    await compiled.ainvoke({"data": b"\0" * (MEGABYTES // 2 * 1_000_000), "texts": []}, at("big"), durability="sync")
    state = await compiled.aget_state(at("big"))
    assert (len(state.values["data"]), len(state.values["texts"])) == (MEGABYTES * 1_000_000, 4)


async def test_fenced_executions_cannot_write_checkpoints(saver: Saver, ready: AnyStore) -> None:
    zombie = Saver(ready, TENANT, TaskFence("t-1", 0))
    with pytest.raises(Fenced):
        await zombie.aput(at("th-1", checkpoint_ns=""), empty_checkpoint(), {"source": "loop"}, {})
    zombie = Saver(ready, TENANT, TaskFence("t-1", 0))
    await zombie.aput_writes(at("th-1", checkpoint_id="c"), [("a", 1)], "task")
    with pytest.raises(Fenced):
        await zombie.flush()
    with pytest.raises(Fenced):
        await zombie.aput_writes(at("th-1", checkpoint_id="c"), [("a", 1)], "task")
    zombie = Saver(ready, TENANT, TaskFence("t-1", 0))
    for forget in (zombie.trim, zombie.adelete_thread):
        with pytest.raises(Fenced):
            await forget("th-1")
    with pytest.raises(Fenced):
        await zombie.enter()
    graph = (
        StateGraph(MessagesState).add_node("do", lambda state: {}).add_edge(START, "do").compile(checkpointer=zombie)
    )
    with pytest.raises(Fenced):
        await graph.ainvoke({"messages": [HumanMessage("x")]}, at("th-1"), durability="sync")
    assert await saver.aget_tuple(at("th-1")) is None


async def test_plain_nodes_look_at_their_graph_from_their_threads(saver: Saver) -> None:
    seen: list[Any] = []

    def look(state: Any) -> Any:
        seen.append(saver.get_tuple(at("th-1")))
        seen.extend(saver.list(at("th-1", checkpoint_ns="")))
        return {"messages": [AIMessage("seen")]}

    graph = StateGraph(MessagesState).add_node("look", look).add_edge(START, "look").compile(checkpointer=saver)
    await graph.ainvoke({"messages": [HumanMessage("x")]}, at("th-1"), durability="sync")
    assert len(seen) == 3
    assert seen[0] == seen[1]
    assert seen[0].checkpoint["channel_values"]["messages"][0].text == "x"


# --- what is committed together ---------------------------------------------------------------------------------------


class Watched:
    """A store that notes what is put into it together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.puts: list[list[type]] = []

    async def do(self, command: StoreCommand[..., Any], *args: Any, **kwargs: Any) -> Any:
        if command is conversation_state.put_checkpoints:
            self.puts.append([type(one) for one in args[2]])
        return await self._store.do(command, *args, **kwargs)

    async def do_early(self, command: StoreCommand[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.do(command, *args, **kwargs)

    async def read(self, command: StoreCommand[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self._store.read(command, *args, **kwargs)

    async def close(self) -> None:
        await self._store.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What need not be kept at once is kept with something else, however slow this machine is."""
    monkeypatch.setattr(graph_checkpoints, "COMMIT_SECONDS", 3_600.0)


@pytest.mark.usefixtures("patient")
async def test_a_step_is_one_commit(saver: Saver, ready: AnyStore) -> None:
    store = Watched(ready)
    graph: Any = StateGraph(MessagesState)
    graph.add_sequence([(name, lambda state: {"messages": [AIMessage("x")]}) for name in ("a", "b", "c")])
    compiled = graph.add_edge(START, "a").compile(checkpointer=Saver(store, TENANT, TaskFence("t-1", 1)))
    await compiled.ainvoke({"messages": [HumanMessage("x")]}, at("th-1"), durability="sync")
    assert store.puts == [[NewCheckpoint, CheckpointWrites, NewCheckpoint], *[[CheckpointWrites, NewCheckpoint]] * 3]
    assert len([one async for one in saver.alist(at("th-1"))]) == 5


@pytest.mark.usefixtures("patient")
async def test_interrupts_are_stored_before_the_graph_stops(saver: Saver, ready: AnyStore) -> None:
    graph = summing().compile(checkpointer=saver)
    await graph.ainvoke({"given": [1]}, at("th-1"), durability="sync")
    found = await Saver(ready, TENANT, TaskFence("t-1", 1)).aget_tuple(at("th-1"))
    assert found is not None
    assert [channel for _, channel, _ in found.pending_writes or ()] == ["__interrupt__"]


async def test_finished_nodes_are_stored_during_their_step(saver: Saver, ready: AnyStore) -> None:
    ran: list[str] = []
    go = asyncio.Event()

    async def quick(state: Any) -> Any:
        ran.append("quick")
        return {"found": [1]}

    async def slow(state: Any) -> Any:
        ran.append("slow")
        await go.wait()
        return {"found": [2]}

    graph: Any = StateGraph(Sums)
    for name, node in (("quick", quick), ("slow", slow)):
        graph.add_node(name, node).add_edge(START, name)
    lost = asyncio.create_task(graph.compile(checkpointer=saver).ainvoke({"given": []}, at("th-1"), durability="sync"))
    place = conversation_state.CheckpointPlace("th-1")
    async with asyncio.timeout(30):
        while (  # noqa: ASYNC110
            not (found := await ready.read(conversation_state.load_checkpoints, TENANT, place, limit=1))
            or not found[0].writes
        ):
            await asyncio.sleep(0.01)
    assert not lost.done()
    go.set()
    other = graph.compile(checkpointer=Saver(ready, TENANT, TaskFence("t-1", 1)))
    state = await other.ainvoke(None, at("th-1"), durability="sync")
    assert state["found"] == [1, 2]
    assert sorted(ran) == ["quick", "slow", "slow"], "what was cut off is run again, what was done is not"
    await lost


class Flaky:
    """A store that cannot be used every other time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.refused = 0
        self._asked = 0

    async def do(self, command: StoreCommand[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._check()
        return await self._store.do(command, *args, **kwargs)

    async def do_early(self, command: StoreCommand[..., Any], *args: Any, **kwargs: Any) -> Any:
        return await self.do(command, *args, **kwargs)

    async def read(self, command: StoreCommand[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._check()
        return await self._store.read(command, *args, **kwargs)

    async def close(self) -> None:
        await self._store.close()

    def _check(self) -> None:
        self._asked += 1
        if self._asked % 2:
            self.refused += 1
            raise StoreUnavailable("not now")


async def test_a_store_that_cannot_be_used_is_tried_again(saver: Saver, ready: AnyStore) -> None:
    flaky = Flaky(ready)
    told = await walked(Saver(flaky, TENANT, TaskFence("t-1", 1)))
    assert flaky.refused > 10
    assert told == await walked(InMemorySaver())


async def test_a_graph_with_a_memory_of_its_own_keeps_it(saver: Saver, ready: AnyStore) -> None:
    inner = StateGraph(MessagesState)
    inner.add_node("count", lambda state: {"messages": [AIMessage(str(len(state["messages"])))]}).add_edge(
        START, "count"
    )
    outer = StateGraph(MessagesState).add_node("inner", inner.compile(checkpointer=True)).add_edge(START, "inner")
    graph = outer.compile(checkpointer=saver)
    entered = await saver.enter()
    for number in range(2):
        await graph.ainvoke({"messages": [HumanMessage(f"m{number}")]}, at(entered.thread), durability="sync")
        await saver.trim(entered.thread)
    spaces = await ready.read(conversation_state.checkpoint_namespaces, TENANT, entered.thread)
    assert spaces == ["", "inner"]
    assert len([one async for one in saver.alist(at(entered.thread, checkpoint_ns=""))]) == 1
    kept = await saver.aget_tuple(at(entered.thread, checkpoint_ns="inner"))
    assert kept is not None
    assert len(kept.checkpoint["channel_values"]["messages"]) > 2
