"""A thousand runs that wait for a person: rows in a store, and nothing else, until somebody decides."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from accord.engine.execution import Execution
from accord.engine.node import Limits
from accord.model import GetRequest, Task, TaskFilter, TaskState
from accord.service.host import Host
from accord.workflows.agent import WorkflowAgent
from accord.workflows.signals import RunSignals
from accord.workflows.source import read_document
from tests.crash.conftest import until
from tests.engine.conftest import ALICE, AT_ONCE, Hosting, saying, text
from tests.workflows.flows import Noting

T = TypeVar("T")

RUNS = 1000
TOGETHER = 50
"""Requests at a time, as clients would send them."""

FEW = 5
"""Objects that a run may leave behind for a while in a process that does not hold it; one that is held has hundreds."""

FLOW = """
version: "1.0"
name: release
swarm: {pattern: dag}
workflows:
  - name: main
    steps:
      - {name: build, type: deterministic, argv: [build, "{{input}}"]}
      - {name: ok, type: approval, task: "Ship {{steps.build.output}}?", dependsOn: [build]}
      - {name: ship, type: deterministic, argv: [shipped, "{{steps.build.output}}", "{{steps.ok}}"], dependsOn: [ok]}
"""


async def node(hosting: Hosting, folder: Path, noting: Noting) -> Host:
    agent = WorkflowAgent(read_document(FLOW), directory=folder, env={}, executors={"deterministic": noting})
    host = await hosting(agent, limits=Limits())
    agent._store = host.node.store
    return host


async def all_of_them(count: int, do: Callable[[int], Awaitable[T]]) -> list[T]:
    """Do something so many times, some at a time."""
    places = asyncio.Semaphore(TOGETHER)

    async def one(number: int) -> T:
        async with places:
            return await do(number)

    return list(await asyncio.gather(*map(one, range(count))))


async def are(host: Host, count: int, state: TaskState) -> None:
    """Wait until so many runs are in a state, and the node has none of them in its hands."""
    wanted = TaskFilter(status=state, page_size=1)

    async def is_so() -> bool:
        found = (await host.services["release"].list(wanted, ALICE)).total_size
        return found == count and not host.node._executions

    await until(is_so)


async def held(host: Host, count: int) -> tuple[int, int]:
    """Wait until so many runs ask; return how many objects and asyncio tasks there are in this process then."""
    await are(host, count, TaskState.INPUT_REQUIRED)
    gc.collect()
    return len(gc.get_objects()), len(asyncio.all_tasks())


async def test_a_thousand_suspended_runs_resume_on_another_node(hosting: Hosting, tmp_path: Path) -> None:
    first = await node(hosting, tmp_path, Noting())

    async def begin(number: int) -> str:
        task = await first.services["release"].send(saying(f"v{number}", configuration=AT_ONCE), ALICE)
        assert isinstance(task, Task)
        return task.id

    await all_of_them(TOGETHER, begin)  # what is loaded and remembered once is
    objects, tasks = await held(first, TOGETHER)
    ids = await all_of_them(RUNS, begin)
    more, still = await held(first, TOGETHER + RUNS)
    assert still <= tasks
    assert more - objects < RUNS * FEW
    assert [one for one in gc.get_objects() if isinstance(one, Execution) and one.job.key in set(ids)] == []
    await first.stop(0)

    noting = Noting()
    second = await node(hosting, tmp_path, noting)
    handing = RunSignals(second.node.store, second.default.wake, {"release"})

    async def approve(number: int) -> None:
        run = await handing.find(ALICE.tenant, ids[number])
        await handing.decide(run, "ok", approved=True, comment=f"n{number}")

    async def said(number: int) -> str:
        return text(await second.services["release"].get(GetRequest(id=ids[number]), ALICE))

    await all_of_them(RUNS, approve)
    await are(second, RUNS, TaskState.COMPLETED)
    assert await all_of_them(RUNS, said) == [f"shipped build v{number} n{number}" for number in range(RUNS)]
    assert noting.runs == {"ship": RUNS}, "nothing is done twice"
