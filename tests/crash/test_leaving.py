"""Nodes that leave in good order, and callers who change their minds on another node."""

import signal

import pytest

from accord.model import CancelRequest, TaskState
from accord.storage.store import Tx
from tests.crash.conftest import Client, Start, text
from tests.crash.node import CALLER

LONG_LEASE = 600.0
"""Ten times what any test waits: whatever happens in time did not wait for a lease or a heartbeat."""


async def test_draining_nodes_finish_or_hand_over_jobs(store_url: str, client: Client, start: Start) -> None:
    leaving = await start(store_url, "--grace", "1", lease=LONG_LEASE)
    brief, long = await client.send("brief", "0.5"), await client.send("waiting", "")
    await leaving.says("briefly", task=brief)
    await leaving.says("waiting", task=long)
    heir = await start(store_url, lease=LONG_LEASE)
    leaving.signal(signal.SIGTERM)
    await leaving.says("interrupted", task=long)
    assert (await heir.says("waiting", task=long))["attempt"] == 1, "leaving in good order is no failure"
    assert await leaving.ended() == 0
    assert leaving.said("left")
    assert leaving.said("ended", task=brief, state="COMPLETED")
    assert not heir.said("started", task=brief)
    done = await client.get("brief", brief)
    assert (done.status.state, text(done)) == (TaskState.COMPLETED, "done")
    assert (await client.get("waiting", long)).status.state is TaskState.WORKING
    assert await client.store.read(attempts, long) == 1


async def attempts(tx: Tx, task_id: str) -> int:
    row = await tx.one("SELECT attempts FROM job WHERE key = :task_id", task_id=task_id)
    assert row is not None
    return int(row[0])


@pytest.mark.proves("3-38", "CORE-CANCEL-001")
async def test_cancelling_reaches_an_agent_on_another_node(store_url: str, client: Client, start: Start) -> None:
    node = await start(store_url, lease=LONG_LEASE)
    task_id = await client.send("waiting", "")
    await node.says("waiting", task=task_id)
    canceled = await client.host.services["waiting"].cancel(CancelRequest(id=task_id), CALLER)
    assert canceled.status.state is TaskState.CANCELED
    await node.says("interrupted", task=task_id)
    await node.says("ended", task=task_id)
    assert (await client.log(task_id))[-1].body.status == canceled.status  # type: ignore[union-attr]
    assert (await client.get("waiting", task_id)).status.state is TaskState.CANCELED
