"""A worker dies, or only seems to: another goes on, followers miss nothing, and the log has one writer at a time."""

import asyncio
import json
import random
import signal
from functools import partial
from pathlib import Path

import pytest

from accord.model import CancelRequest, Event, TaskState
from accord.storage.commands import jobs, steps, task_endings, tasks
from accord.storage.commands.tasks import Append, Fenced
from accord.storage.store import Tx
from tests.crash.agents import LINKS, whole
from tests.crash.conftest import BOUND_SECONDS, Client, Start, artifacts, explained, gapless, text, until
from tests.crash.node import CALLER

COUNT = 40
ORDERED = f"{COUNT} 0.05"
"""Chunks to stream for two seconds."""


async def watched(client: Client, agent: str, task_id: str) -> list[Event]:
    async with asyncio.timeout(BOUND_SECONDS):
        return [event async for event in client.follow(agent, task_id)]


@pytest.mark.proves("3-09", "C-01")
@pytest.mark.parametrize("agent", ["careful", "chunks"])
async def test_another_node_resumes_for_a_killed_one(agent: str, store_url: str, client: Client, start: Start) -> None:
    first = await start(store_url)
    task_id = await client.send(agent, ORDERED)
    watching = asyncio.create_task(watched(client, agent, task_id))
    await client.reaches(task_id, 10)
    await first.kill()
    second = await start(store_url)
    await second.says("started", task=task_id, attempt=2)
    events = await watching
    assert gapless(events)
    task = await client.get(agent, task_id)
    assert task.status.state is TaskState.COMPLETED
    assert text(task) == whole(COUNT), "as if nobody had been killed"
    assert events[1:] == await client.log(task_id)
    said = [part.text for update in artifacts(events) for part in update.artifact.parts]
    if agent == "careful":
        assert "".join(filter(None, said)) == whole(COUNT), "each chunk once"
    else:
        assert [update.append for update in artifacts(events)].count(False) == 2, "the second run begins anew"


LONG = 600.0
"""A lease that no test waits for."""


@pytest.mark.proves("3-09")
async def test_a_killed_process_is_detected_at_the_next_start(store_url: str, client: Client, start: Start) -> None:
    first = await start(store_url, lease=LONG)
    task_id = await client.send("chunks", ORDERED)
    await client.reaches(task_id, 10)
    await first.kill()
    second = await start(store_url, lease=LONG)
    await second.says("started", task=task_id, attempt=2)
    assert text(await client.rested(task_id)) == whole(COUNT)


async def test_a_killed_process_is_detected_by_others_on_its_host(store_url: str, client: Client, start: Start) -> None:
    first = await start(store_url, lease=LONG)
    task_id = await client.send("chunks", ORDERED)
    await client.reaches(task_id, 10)
    second = await start(store_url, lease=LONG)
    await first.kill()
    await second.says("started", task=task_id, attempt=2)
    assert text(await client.rested(task_id)) == whole(COUNT)


async def test_a_node_that_was_stopped_past_its_lease_cannot_write(
    store_url: str, client: Client, start: Start
) -> None:
    zombie = await start(store_url)
    task_id = await client.send("stubborn", ORDERED)
    await client.reaches(task_id, 10)
    await zombie.freeze(store_url)
    heir = await start(store_url)
    await heir.says("started", task=task_id, attempt=2)
    zombie.signal(signal.SIGCONT)
    await zombie.says("refused", command="append")
    assert (await zombie.says("ended", task=task_id))["state"] is None
    task = await client.rested(task_id)
    assert text(task) == whole(COUNT)
    await heir.says("ended", task=task_id, state="COMPLETED")
    assert [update.append for update in artifacts(await client.log(task_id))].count(False) == 2
    late = Append(task_id=task_id, epoch=1, after=len(await client.log(task_id)), bodies=(), at=0)
    with pytest.raises(Fenced):
        await client.store.do(tasks.append, CALLER.tenant, late)


async def test_a_node_that_reclaims_its_job_stops_the_old_execution(
    store_url: str, client: Client, start: Start
) -> None:
    node = await start(store_url)
    task_id = await client.send("waiting", "")
    await node.says("waiting", task=task_id, attempt=1)
    await node.freeze(store_url)
    silent = await client.store.do(jobs.heartbeat, "heir", 60_000)
    await client.store.do(task_endings.reap_nodes, {peer.id: peer.beats for peer in silent.peers})
    node.signal(signal.SIGCONT)
    await node.says("waiting", task=task_id, attempt=2)
    await node.says("interrupted", task=task_id)
    await client.host.services["waiting"].cancel(CancelRequest(id=task_id), CALLER)
    await node.says("interrupted", 2, task=task_id)


async def test_chains_of_steps_survive_one_kill_after_the_other(
    store_url: str, client: Client, start: Start, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    nodes = list(await asyncio.gather(*(start(store_url) for _ in range(3))))
    task_ids = await asyncio.gather(*(client.send("chain", str(notes)) for _ in range(60)))
    for number in (1, 12, 24, 36):
        await until(partial(has_completed, client, number))
        victim = random.randrange(len(nodes))
        await nodes[victim].kill()
        nodes[victim] = await start(store_url)
    for task in await asyncio.gather(*map(client.rested, task_ids)):
        assert task.status.state is TaskState.COMPLETED, explained(task)
        links = await client.store.read(steps.load_steps, CALLER.tenant, task.id)
        kept = [json.loads(links[key]) for key in sorted(links)]
        assert len(kept) == LINKS
        assert all(after.startswith(before) for before, after in zip(["", *kept], kept, strict=False))
        assert text(task) == kept[-1]
        assert set((notes / task.id).read_text().split()) == set(map(str, range(LINKS)))


async def has_completed(client: Client, number: int) -> bool:
    return await client.store.read(count_completed) >= number


async def count_completed(tx: Tx) -> int:
    return len(await tx.all("SELECT 1 FROM task WHERE state = 'completed'"))


async def test_output_of_finished_steps_is_kept(store_url: str, client: Client, start: Start) -> None:
    nodes = await asyncio.gather(start(store_url), start(store_url))
    task = await client.rested(await client.send("telling", ""))
    assert (task.status.state, text(task)) == (TaskState.COMPLETED, "told ")
    assert sum(node.process.returncode is None for node in nodes) == 1


async def test_an_agent_that_kills_its_process_is_given_up(store_url: str, client: Client, start: Start) -> None:
    nodes = await asyncio.gather(*(start(store_url) for _ in range(5)))
    fragile = await client.rested(await client.send("fragile", "go"))
    assert fragile.status.state is TaskState.FAILED
    assert "once" in explained(fragile)
    deadly = await client.rested(await client.send("deadly", "go"))
    assert deadly.status.state is TaskState.FAILED
    assert "3 times" in explained(deadly)
    assert (await client.log(deadly.id))[-1].body.status == deadly.status  # type: ignore[union-attr]
    tries = sorted((fact["task"], fact["attempt"]) for node in nodes for fact in node.said("dying"))
    assert tries == sorted([(fragile.id, 1), *((deadly.id, attempt) for attempt in (1, 2, 3))])
    assert sum(node.process.returncode is None for node in nodes) == 1
