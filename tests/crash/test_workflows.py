"""Workers die again and again under runs of a workflow: every step is committed exactly once, and every run ends."""

import asyncio
import json
import random
from collections import Counter

from accord.model import StatusUpdate, Task, TaskState
from accord.storage.commands import steps
from accord.storage.store import Row, Tx
from accord.workflows.channel import METADATA
from tests.crash.agents import DIAMOND
from tests.crash.conftest import BOUND_SECONDS, Client, Node, Start, assert_intact, until
from tests.crash.node import CALLER

RUNS, KILLS = 60, 4
STEPS = sorted(step.name for step in DIAMOND.steps)


async def children(tx: Tx) -> list[Row]:
    return await tx.all("SELECT parent_id, state FROM task WHERE parent_id IS NOT NULL")


async def test_every_step_is_committed_once_however_often_workers_die(
    store_url: str, client: Client, start: Start
) -> None:
    nodes = list(await asyncio.gather(start(store_url), start(store_url)))
    runs: list[str] = []
    for _ in range(KILLS):
        before = [len(node.said("stepped")) for node in nodes]
        runs += [await client.send("flow", "go") for _ in range(RUNS // KILLS)]
        enough = random.randrange(1, 12)

        victim = await _busy(nodes, before, enough)
        await nodes[victim].kill()
        nodes[victim] = await start(store_url)
    async with asyncio.timeout(2 * BOUND_SECONDS):
        tasks = await asyncio.gather(*(client.host.node.settled(CALLER.tenant, run) for run in runs))
    assert {task.status.state for task in tasks} == {TaskState.COMPLETED}
    for task in tasks:
        assert _outputs(task) == {name: name for name in STEPS}
        kept = await client.store.read(steps.load_steps, CALLER.tenant, task.id)
        records = Counter(key.split(":")[1] for key in kept if key.startswith("flow:") and key.endswith(":ended"))
        assert records == dict.fromkeys(STEPS, 1)
        posts = [event.body for event in await client.log(task.id) if isinstance(event.body, StatusUpdate)]
        about = [(post.metadata or {}).get(METADATA, {}) for post in posts]
        assert sorted(one["step"] for one in about if one.get("status") == "completed") == STEPS
    born = Counter(str(parent) for parent, _ in await client.store.read(children))
    assert born == dict.fromkeys(runs, 1), "one child for each run, although its caller died"
    assert_intact(store_url)


async def _busy(nodes: list[Node], before: list[int], enough: int) -> int:
    """Wait until one of the nodes is in the middle of the work, wherever that is, and say which."""

    def found() -> int | None:
        grown = [len(node.said("stepped")) - was for node, was in zip(nodes, before, strict=True)]
        return next((at for at, more in enumerate(grown) if more >= enough), None)

    await until(lambda: found() is not None)
    return found() or 0


def _outputs(task: Task) -> dict[str, str]:
    (found,) = [part.data for artifact in task.artifacts for part in artifact.parts]
    outputs: dict[str, str] = json.loads(json.dumps(found))
    return outputs
