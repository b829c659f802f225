"""An agent that says what no store can keep harms nobody but itself, and its caller is told why."""

import asyncio

from accord.model import TaskState
from tests.crash.agents import whole
from tests.crash.conftest import Client, Start, artifacts, explained, text

OTHERS = 30


async def test_only_unstorable_values_fail(store_url: str, client: Client, start: Start) -> None:
    node = await start(store_url)
    others = await asyncio.gather(*(client.send("chunks", "30 0.02") for _ in range(OTHERS)))
    poisoned = [await client.send("poison", when) for when in ("middle", "end", "last word", "step")]
    for task in await asyncio.gather(*map(client.rested, poisoned)):
        assert task.status.state is TaskState.FAILED
        assert "cannot be stored" in explained(task)
        assert whole(10).startswith(text(task))
    for task in await asyncio.gather(*map(client.rested, others)):
        assert task.status.state is TaskState.COMPLETED
        assert text(task) == whole(30)
        assert len(artifacts(await client.log(task.id))) == 30
    assert len(node.said("started")) == OTHERS + len(poisoned), "trying again would not help"


async def test_a_nul_in_a_text_is_kept(store_url: str, client: Client, start: Start) -> None:
    await start(store_url)
    task = await client.rested(await client.send("nul", ""))
    assert (task.status.state, text(task)) == (TaskState.COMPLETED, "before\0after")
