"""What it costs to be an agent: a task of a function against calling it, and of a LangGraph graph against `ainvoke`.

Neither the function nor the nodes of the graph do anything, so that what remains is ours: the task, its events, its
checkpoints and their way to the disk. The wire is left out; `bench.server` has it.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import uvloop
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from accord.agents.loader import as_agent
from accord.model import Task, TaskState
from accord.server.application import Application
from accord.server.settings import Settings
from accord.service.host import Host
from bench import hosting
from bench.report import Table
from bench.setting import MEMORY, POSTGRES, SQLITE, Setting
from bench.timing import RATE, Measured, interleaved, paced

TOGETHER = (1, 32)
NODES = 3
SAID = "Hello"

CALLED, KEPT, OVERHEAD = "called", "called, its own checkpoints", f"overhead on {SQLITE}"
FUNCTION, GRAPH = "coroutine", f"graph of {NODES} nodes"

NOTES = (
    "Microseconds for one task: the time that passed by how many were done. Called is the coroutine awaited, or"
    " `graph.ainvoke`; with its own checkpoints, in LangGraph's `InMemorySaver`, in a new thread for each call.",
    "As an agent each is a new task of `Service.send`: working, an artifact, completed; of the graph also a checkpoint"
    " for each of its steps, in the same store. The overhead is against what is called without checkpoints.",
)

Work = Callable[[int], Awaitable[object]]


class State(TypedDict):
    """What the graph hands on."""

    text: str


async def reply(text: str) -> str:
    return text


def graph(**options: Any) -> Any:
    """Return a graph whose nodes hand on what they get."""

    async def node(state: State) -> State:
        return state

    names = [f"node {number}" for number in range(NODES)]
    made: Any = StateGraph(State)
    for name in names:
        made.add_node(name, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        made.add_edge(before, after)
    return made.compile(**options)


def called() -> dict[str, Work]:
    """Return what is called without us, by row and column."""
    plain, keeping = graph(), graph(checkpointer=InMemorySaver())
    threads = iter(range(10**9))

    async def keep(_number: int) -> None:
        await keeping.ainvoke({"text": SAID}, {"configurable": {"thread_id": str(next(threads))}})

    return {
        f"{FUNCTION}/{CALLED}": lambda _: reply(SAID),
        f"{GRAPH}/{CALLED}": lambda _: plain.ainvoke({"text": SAID}),
        f"{GRAPH}/{KEPT}": keep,
    }


async def send(host: Host, _number: int) -> None:
    task = await host.default.send(hosting.saying(SAID), hosting.CALLER)
    assert isinstance(task, Task)
    assert task.status.state is TaskState.COMPLETED, task.status


async def warm(work: Work, at_once: int, seconds: float) -> Measured:
    await paced(work, at_once, seconds / 10)
    return await paced(work, at_once, seconds)


async def measured(setting: Setting) -> dict[str, Measured]:
    seconds = setting.size(1.0, 0.1)
    async with AsyncExitStack() as stack:
        works = called()
        for kind in (MEMORY, SQLITE, POSTGRES):
            for row, thing in ((FUNCTION, reply), (GRAPH, graph())):
                app = Application([as_agent(thing, row)], Settings(store=setting.database(kind)))
                await stack.enter_async_context(app.lifespan())
                works[f"{row}/{kind}"] = partial(send, app.host)
        contenders = {
            f"{name}/{at_once}": partial(warm, work, at_once, seconds)
            for name, work in works.items()
            for at_once in TOGETHER
        }
        return await interleaved(setting.rounds(3), contenders)


def run(setting: Setting) -> list[Table]:
    rows: dict[str, dict[str, float]] = {}
    for name, taken in uvloop.run(measured(setting)).items():
        what, column, at_once = name.split("/")
        rows.setdefault(f"{what}, {at_once} at once", {})[column] = 1e6 / taken[RATE]
    for values in rows.values():
        values[OVERHEAD] = values[SQLITE] - values[CALLED]
    columns = (CALLED, KEPT, MEMORY, SQLITE, POSTGRES, OVERHEAD)
    return [Table("Overhead of being an agent", "us per task", columns, rows, (), NOTES)]
